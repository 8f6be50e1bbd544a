"""The user's cache of models that were made here: entries that are there whole, with checksums, or not at all.

What is here: where the cache is, how an entry is made by one process while others wait, whether one is intact.
Not here: what is in an entry (core.models.sources: builtin, gguf_file), and the hub's own cache (hub).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from core.errors import StorageError
from core.models.messages import note

SUMS = "checksums.json"


def cache_root() -> Path:
    """The user's cache directory for models made here ($XDG_CACHE_HOME, else ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "grpoctl" if base else Path.home() / ".cache" / "grpoctl"


def sha256_of(path: Path) -> str:
    """The file's sha256 in hex. Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def intact(folder: Path, files: Sequence[str] = ()) -> bool:
    """True when every file of an entry has the checksum written when it was made, and `files` are among them."""
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
        complete = bool(sums) and set(files) <= set(sums)
        return complete and all(sha256_of(folder / name) == digest for name, digest in sums.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def folder_bytes(folder: Path) -> int:
    """Bytes of the files in an entry, links followed."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def get_or_make(folder: Path, make: Callable[[Path], None], *, files: Sequence[str], what: str) -> Path:
    """The entry `folder`, made by `make(work folder)` unless it is there and intact; a damaged one is made anew.

    Safe when two processes make it at once: one waits. It is made beside its place and renamed, so that nothing half
    written is ever found. Raises StorageError, which says `what` could not be made, where the cache cannot be written.
    """
    if intact(folder, files):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / f"{folder.name}.lock"):
            if not intact(folder, files):
                _make(folder, make)
    except OSError as error:
        raise StorageError(f"cannot {what} in {folder.parent}: {_why(error)}") from error
    return folder


def check_free_space(folder: Path, needed: int, what: str) -> None:
    """Raises StorageError where the disk under `folder` has less than `needed` bytes free."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if free < needed:
        raise StorageError(
            f"cannot {what} in {folder}: it takes {needed / 2**30:.2f} GiB, the disk has {free / 2**30:.2f} GiB free; "
            "make room, or set XDG_CACHE_HOME to a folder on another disk"
        )


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    """Make the entry; whoever holds its lock may also clear what a killed process left of an earlier attempt."""
    for leftover in folder.parent.glob(f"{folder.name}.work-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{folder.name}.work-", dir=folder.parent))
    try:
        make(work)
        sums = {file.name: sha256_of(file) for file in sorted(work.iterdir())}
        (work / SUMS).write_text(json.dumps(sums), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"another process is making this model ready: waits for it ({path})")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _why(error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "; make room, or set XDG_CACHE_HOME to a folder on another disk" if full else ""
    return f"{error.strerror or error}{advice}"
