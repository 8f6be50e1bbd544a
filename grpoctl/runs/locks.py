"""Locks that die with their holder.

What is here: holding a lock file, asking who holds it, and ending the process that does. What is not: which files are
locks (run_dir).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from core.errors import RunError, StorageError
from grpoctl.fence import Fence
from grpoctl.files import storage_errors

LOOK = 0.02  # seconds between two looks at a lock

_held: set[int] = set()  # descriptors of locks this process holds; see _let_go_in_child


@contextlib.contextmanager
def hold_lock(path: Path, patience: float | None) -> Iterator[int | None]:
    """Holds the lock and gives None; or gives the pid of its holder (0: unknown) after `patience` seconds.

    A patience of None waits for ever. The lock belongs to the open file, so it dies with the process (flock, not
    fcntl's record locks: those are lost as soon as the process closes the same file a second time).
    """
    while True:
        with storage_errors("lock", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with _kept(descriptor):
            if not _acquire(descriptor, patience):
                written = os.pread(descriptor, 32, 0).strip()
                yield int(written) if written.isdigit() else 0
                return
            if not _is_at(descriptor, path):  # replaced meanwhile: the lock that counts is another file's
                continue
            with _signed(descriptor):
                yield None
            return


@contextlib.contextmanager
def replace_lock(path: Path, fence: Fence) -> Iterator[None]:
    """Holds a new lock in the place of one that a process keeps which has lost the directory.

    Raises SupersededError, StorageError.
    """
    draft = fence.draft(path.name)
    with storage_errors("lock", path):
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with _kept(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fence.adopt(draft, path)
            with _signed(descriptor):
                yield


@contextlib.contextmanager
def _kept(descriptor: int) -> Iterator[None]:
    """Inside, the descriptor is one of this process's locks; then it is closed."""
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # not so in a forked child, where the number may by now be another file's
            _held.discard(descriptor)
            os.close(descriptor)


@contextlib.contextmanager
def _signed(descriptor: int) -> Iterator[None]:
    """Inside, the lock's file says which process holds it."""
    with contextlib.suppress(OSError):  # on a full disk the lock holds all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    try:
        yield
    finally:
        if descriptor in _held:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)


def _is_at(descriptor: int, path: Path) -> bool:
    """True when the open file is the one of this path."""
    ours = os.fstat(descriptor)
    with contextlib.suppress(FileNotFoundError):
        theirs = path.stat()
        return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
    return False


def is_locked(path: Path) -> bool:
    """True while some process holds the lock. Needs no permission to write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    try:
        return not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock, 0 where it has not said it yet; None where nobody holds it."""
    if not is_locked(path):
        return None
    with storage_errors("read", path):
        written = path.read_bytes().strip()
    return int(written) if written.isdigit() else 0


def end_holder(lock: Path, seconds: float) -> int | None:
    """SIGTERM to the process that holds the lock, and wait until it lets go: its pid, None where nobody holds it.

    Raises RunError where it is not a process that can be signalled from here, or holds the lock after `seconds` still.
    """
    pid = holder(lock)
    if pid is None:
        return None
    try:
        process = os.pidfd_open(pid)  # from here on it is this very process, whatever number comes around again
    except OSError as error:
        if holder(lock) is None:
            return pid
        raise RunError(f"{_whose(pid)} holds it, which is not on this machine; stop it where it runs") from error
    try:
        if not _has_open(pid, lock):
            if holder(lock) is None:
                return pid
            raise RunError(f"{_whose(pid)} is said to hold it, but does not, as far as can be seen from here")
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGTERM)
            signal.pidfd_send_signal(process, signal.SIGCONT)  # one that was stopped could not end
    except PermissionError as error:
        raise RunError(f"{_whose(pid)} belongs to somebody else; they can stop it") from error
    finally:
        os.close(process)
    deadline = time.monotonic() + seconds
    while holder(lock) == pid:
        if time.monotonic() > deadline:
            raise RunError(f"{_whose(pid)} did not exit within {seconds:g} s; try again, or kill it")
        time.sleep(LOOK)
    return pid


def _has_open(pid: int, path: Path) -> bool:
    """True when the process has the file open: a lock belongs to an open file. Raises PermissionError."""
    ours = path.stat()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            theirs = entry.stat()
            if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino):
                return True
    return False


def _whose(pid: int) -> str:
    return f"process {pid}" if pid else "an unknown process"


def _acquire(descriptor: int, patience: float | None) -> bool:
    """True when the lock could be had within `patience` seconds. Whoever only looks (is_locked) is waited for."""
    if patience is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    deadline = time.monotonic() + patience
    while not _try(descriptor, fcntl.LOCK_EX):
        if time.monotonic() >= deadline and not _try(descriptor, fcntl.LOCK_SH):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # that was a look, too: two that kept it would wait for each other
        time.sleep(LOOK)
    return True


def _try(descriptor: int, kind: int) -> bool:
    """True when the lock, shared (as a look has it, for an instant) or exclusive, could be had at once."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _let_go_in_child() -> None:
    """Close inherited locks in a forked child: a data loader's worker that outlives its parent must not keep them."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
