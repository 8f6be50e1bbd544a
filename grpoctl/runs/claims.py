"""Which process may write into a directory that several machines see: the newest claim, and whether its maker lives.

    RUN/claims/attempt-3.json        whose claim it is: attempt, host, boot, pid, start (seconds since the epoch)
    RUN/claims/attempt-3.heartbeat   a counter that grows every second, or "ended"
    RUN/claims/attempt-3-5f0c9a1e/   where its maker puts together what it writes (grpoctl.fence)
    RUN/claims/attempt-3.stop        somebody asks its maker to end, as SIGTERM would

Claims are numbered without a gap and never go, so of two that make the same one exactly one does. On one machine the
lock says at once whether a claim's maker lives. Of another machine's nothing is known but its heartbeat: a counter
that did not change for SILENCE seconds of the observer's own clock is that of a maker that is gone, or as good as that
until somebody takes over from it. No two machines' times are ever compared. What was observed is kept on the observing
machine, so that one command goes on where the last one stopped looking.

What an executor does with it. A worker calls `grpoctl.executors.execution.execute` (or `jobs.execute_one`), which makes
the claim, takes over from a process that hangs or was not heard for `silence()` seconds, and ends with SupersededError,
having written nothing, where a successor takes over from it. A driver that knows a worker to be gone waits until
`RunDir.is_held(hung=True)` is false (at most `silence()` seconds after its last heartbeat) and then gives the run to
another one: that is all, and being wrong costs a started attempt, never a file. `RunDir.holder_elsewhere` and
`silent_for` say who had it and for how long nothing was heard; `hold(silent=0)` is for a caller whose scheduler says
that the process is gone.

Looking never takes anything from anybody. Only a successor does, and whoever lost a directory has changed nothing in it
since (grpoctl.fence), however late it wakes. A study is claimed by its driver in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpoctl.fence import Fence, fenced
from grpoctl.files import storage_errors
from grpoctl.host import boot_id, host_name

BEAT = 1.0  # seconds between two heartbeats
SILENCE = 30.0  # seconds of observation without one, after which a claim's maker counts as gone
SILENCE_VARIABLE = "GRPOCTL_SILENCE"  # in its place: for storage that stalls for longer
GONE = 20  # times as long, and it is also written down, which ends what its maker may still be at
FIRST_SIGHT = 2.5 * BEAT  # seconds that a command watches heartbeats which this machine has not seen before
LOOK = 0.1  # seconds between two looks at a heartbeat
CLEARING = 1000  # times that a folder is deleted while somebody writes into it
SCHEMA = 1
_ENDED = b"ended"
_DIGITS = 20
_CLAIM = re.compile(r"attempt-(\d+)\.json")
_FOLDER = re.compile(r"attempt-(\d+)-[0-9a-f]+")
TAKEN_AWAY = "superseded-"  # a folder of a former attempt, while it is deleted


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One claim of a directory. A file that cannot be read is one of an unknown host."""

    directory: Path
    attempt: int
    host: str = "another host"
    boot: str = ""
    pid: int = 0

    @property
    def here(self) -> bool:
        """True when it was made on this machine since its start: its lock then says whether its maker lives."""
        return self.host == host_name() and self.boot in ("", boot_id())

    @property
    def file(self) -> Path:
        """The claim itself."""
        return self._beside(".json")

    @property
    def heartbeat(self) -> Path:
        """The counter."""
        return self._beside(".heartbeat")

    @property
    def stop_request(self) -> Path:
        """There when somebody asks its maker to end."""
        return self._beside(".stop")

    @property
    def successor(self) -> Path:
        """The claim that ends this one."""
        return claims_folder(self.directory) / f"attempt-{self.attempt + 1}.json"

    def counter(self) -> bytes:
        """The heartbeat as it stands; empty before the first."""
        with suppress(OSError):
            return self.heartbeat.read_bytes().strip()
        return b""

    @property
    def ended(self) -> bool:
        """True when its maker let go of the directory, or another claim followed."""
        return self.counter() == _ENDED or self.successor.exists()

    def _beside(self, suffix: str) -> Path:
        return claims_folder(self.directory) / f"attempt-{self.attempt}{suffix}"


def claims_folder(directory: Path) -> Path:
    """The folder of all claims of a directory."""
    return directory / "claims"


def newest_claim(directory: Path) -> Claim | None:
    """The claim that counts; None where none was ever made (the directory is new, or an older version's)."""
    folder = claims_folder(directory)
    try:
        numbers = [int(match[1]) for name in os.listdir(folder) if (match := _CLAIM.fullmatch(name))]
    except OSError:
        return None
    if not numbers:
        return None
    newest = max(numbers)
    while (folder / f"attempt-{newest + 1}.json").exists():  # a listing may be older than what it is of
        newest += 1
    return _read(directory, newest)


def _read(directory: Path, attempt: int) -> Claim:
    claim = Claim(directory=directory, attempt=attempt)
    try:
        document = json.loads(claim.file.read_bytes())
        return Claim(
            directory=directory,
            attempt=attempt,
            host=str(document["host"]),
            boot=str(document.get("boot", "")),
            pid=int(document["pid"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return claim


def silence() -> float:
    """Seconds of observation without a heartbeat after which a claim's maker counts as gone."""
    with suppress(ValueError):
        return max(0.0, float(os.environ.get(SILENCE_VARIABLE, SILENCE)))
    return SILENCE


# (directory, attempt) -> the counter, and when it was first seen so
_seen: dict[tuple[str, int], tuple[bytes, float]] = {}


def silent_for(claim: Claim) -> float:
    """Seconds, by this machine's clock, for which the claim's heartbeat is known to have stood still; 0 at first sight.

    A counter never comes back to a value it had: two looks that find the same one have seen all that is between them.
    """
    now, counter = time.monotonic(), claim.counter()
    key = (os.path.abspath(claim.directory), claim.attempt)
    known = _seen.get(key) or _remembered(key)
    if known is None or known[0] != counter or known[1] > now:
        known = (counter, now)
        _remember(key, known)
    _seen[key] = known
    return now - known[1]


def _memory(key: tuple[str, int]) -> Path:
    """A file of this user on this machine: what one command has seen the next one knows."""
    name = hashlib.sha256(f"{key[0]}\n{key[1]}".encode()).hexdigest()[:24]
    return Path(tempfile.gettempdir()) / f"grpoctl-heartbeats-{os.getuid()}" / name


def _remembered(key: tuple[str, int]) -> tuple[bytes, float] | None:
    file = _memory(key)
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        if file.parent.stat().st_uid != os.getuid():
            return None
        document = json.loads(file.read_bytes())
        if document["boot"] == boot_id():  # the clock begins anew with the machine
            return document["counter"].encode("latin-1"), float(document["since"])
    return None


def _remember(key: tuple[str, int], seen: tuple[bytes, float]) -> None:
    file = _memory(key)
    document = {"boot": boot_id(), "counter": seen[0].decode("latin-1"), "since": seen[1]}
    draft = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        draft.write_text(json.dumps(document), encoding="ascii")
        draft.replace(file)


def ask_to_stop(claim: Claim, seconds: float) -> bool:
    """Have the claim's maker end as by SIGTERM, on whatever machine it is; False where it lives after `seconds` still.

    It looks whether it is asked at each of its heartbeats. Raises StorageError.
    """
    with storage_errors("write", claim.stop_request):
        claim.stop_request.touch()
    deadline = time.monotonic() + seconds
    while not claim.ended and silent_for(claim) < silence():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK)
    return True


def watch_unseen(claims: Sequence[Claim]) -> None:
    """Watch the heartbeats that were never looked at before, all together and for FIRST_SIGHT at most."""
    unseen = [(claim, claim.counter()) for claim in claims if silent_for(claim) == 0]
    deadline = time.monotonic() + FIRST_SIGHT
    while unseen and time.monotonic() < deadline:
        time.sleep(LOOK)
        unseen = [(claim, counter) for claim, counter in unseen if claim.counter() == counter]


def outlived(claim: Claim, seconds: float, patience: float) -> bool:
    """True when the claim has ended, or its heartbeat has stood still for `seconds`; watches up to `patience` for it.

    False as soon as the counter changes.
    """
    before, deadline = claim.counter(), time.monotonic() + patience
    while True:
        silent = silent_for(claim)
        if claim.ended or silent >= seconds:
            return True
        if claim.counter() != before or time.monotonic() >= deadline:
            return False
        time.sleep(min(LOOK, max(0.0, seconds - silent)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """When a directory may be claimed though somebody has it: after `silence` seconds without a heartbeat.

    `watch`: seconds to wait for that to be seen. `attempt`: the claim is for an attempt to go on with what is there. It
    then stays when it is over, and ends a process of this machine, too, that hangs and holds the lock.
    """

    silence: float
    watch: float
    attempt: bool = False


def terms(silent: float | None, *, watches: bool, attempt: bool) -> Terms:
    """The terms of `silent` seconds, None for the usual ones; `watches`: whether to wait for them to pass."""
    seconds = silence() if silent is None else silent
    return Terms(silence=seconds, watch=seconds if watches else 0.0, attempt=attempt)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """A claim of this process's own, and the folder that it had before the claim was made."""

    claim: Claim
    folder: Path


def make_claim(directory: Path, terms: Terms, *, locked: bool) -> Claimed | Claim | None:
    """A new claim; else what is in the way: the claim of a process that lives, None of one that has made none yet.

    `locked`: another process holds the lock. Raises StorageError.
    """
    while True:
        newest = newest_claim(directory)
        if newest is None or newest.ended:
            if locked:
                return None  # about to claim it, or of an older version
        elif newest.here and not locked:
            pass  # its maker is gone: a lock dies with its holder
        elif (newest.here and not terms.attempt) or not outlived(newest, terms.silence, terms.watch):
            return newest
        made = _make(directory, 1 if newest is None else newest.attempt + 1)
        if made is not None:
            return made


def _make(directory: Path, attempt: int) -> Claimed | None:
    """The claim of this number; None, and nothing is left, where another process was quicker. Raises StorageError."""
    claims = claims_folder(directory)
    folder = claims / f"attempt-{attempt}-{secrets.token_hex(4)}"
    claim = Claim(directory=directory, attempt=attempt, host=host_name(), boot=boot_id(), pid=os.getpid())
    document = {"schema": SCHEMA, "attempt": attempt, "host": claim.host, "boot": claim.boot, "pid": claim.pid}
    made = False
    with storage_errors("write", folder):
        try:
            folder.mkdir(parents=True)
            text = folder / "claim.json"
            text.write_text(json.dumps({**document, "start": time.time()}, indent=1) + "\n", encoding="utf-8")
            os.link(text, claim.file)  # fails where the file exists, unlike a rename
            made = True
            text.unlink(missing_ok=True)
        except FileExistsError:
            return None
        except FileNotFoundError:
            if claims.is_dir():
                return None  # a successor has cleared it up already
            raise
        finally:
            if not made:
                shutil.rmtree(folder, ignore_errors=True)
    return Claimed(claim=claim, folder=folder)


@contextlib.contextmanager
def holding(claimed: Claimed, *, lasting: bool) -> Iterator[Fence]:
    """Inside, the claim that was made beats, and this process writes into its directory through a fence.

    All who made a claim before can write no more from the start on. A claim is still there afterwards where it is
    `lasting` and something was changed under it, or where another followed; else its number is free again. Raises
    SupersededError where somebody was quicker.
    """
    claim = claimed.claim
    _take_away_former(claim)
    fence = Fence(directory=claim.directory, folder=claimed.folder, attempt=claim.attempt, successor=claim.successor)
    fence.check()
    heart = _Heart(claim)
    try:
        with fenced(fence):
            yield fence
    finally:
        heart.stop()
        shutil.rmtree(claimed.folder, ignore_errors=True)
        if not (lasting and fence.changed):
            _take_back(claim)


def _take_back(claim: Claim) -> None:
    """Remove a claim that is over and was the last. Its file goes last: until then the number is taken."""
    if claim.successor.exists():
        return
    with suppress(OSError):
        text = claim.file.read_bytes()
        for file in (claim.stop_request, claim.heartbeat, claim.file):
            file.unlink(missing_ok=True)
        if claim.successor.exists():  # made in between
            claim.file.write_bytes(text)
        claims_folder(claim.directory).rmdir()  # where it was the first one


def _take_away_former(claim: Claim) -> None:
    """Delete the folders of earlier attempts: their renames have happened, or will fail.

    Renaming a folder is enough for processes of this machine. Another machine may still know it by a handle: there a
    rename fails once its source, and then the folder, is gone.
    """
    folder = claims_folder(claim.directory)
    for name in os.listdir(folder):
        place = aside = folder / name
        if (match := _FOLDER.fullmatch(name)) is not None and int(match[1]) < claim.attempt:
            aside = folder / f"{TAKEN_AWAY}{name}"
            with suppress(OSError):
                place.rename(aside)
        elif not name.startswith(TAKEN_AWAY):
            continue
        for _ in range(CLEARING):  # its maker may still be putting files there
            for there in {place, aside}:
                shutil.rmtree(there, ignore_errors=True)
            if not (place.exists() or aside.exists()):
                break


def left_by_attempts(directory: Path) -> list[Path]:
    """What attempts that are over, or were killed, were putting together; of a directory that nobody holds."""
    folder = claims_folder(directory)
    with suppress(OSError):
        names = sorted(os.listdir(folder))
        return [folder / name for name in names if _FOLDER.fullmatch(name) or name.startswith(TAKEN_AWAY)]
    return []


class _Heart:
    """Makes the counter grow, in a thread of its own, and looks whether somebody asks this process to end."""

    def __init__(self, claim: Claim) -> None:
        self._claim, self._stopped, self._asked = claim, threading.Event(), False
        self._write(f"{0:0{_DIGITS}d}".encode())
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Beat no more, and say that this was the end."""
        self._stopped.set()
        self._thread.join()
        self._write(_ENDED.ljust(_DIGITS))

    def _beat(self) -> None:
        count = 0
        while not self._stopped.wait(BEAT):
            count += 1
            self._write(f"{count:0{_DIGITS}d}".encode())
            if not self._asked and self._claim.stop_request.exists():
                self._asked = True
                os.kill(os.getpid(), signal.SIGTERM)

    def _write(self, text: bytes) -> None:
        """In place, one short write: a file that is opened, written and closed is seen by other machines at once."""
        with suppress(OSError):  # a disk that refuses must not end a run; it only looks dead to others
            descriptor = os.open(self._claim.heartbeat, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(descriptor, text + b"\n", 0)
            finally:
                os.close(descriptor)
