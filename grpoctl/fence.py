"""The right to change a directory, so made that whoever lost it cannot do harm, at whatever point it was stopped.

A writer puts everything together in a folder of its own. All that it does to the directory is one rename out of that
folder (a document, a file of rows, a checkpoint) or into it (what is to go). A successor takes the folder away before
it looks at anything: every rename of the writer has then happened, or fails. A check before each of them only makes
that quick to notice. Open files stay with their writer: a successor puts new files in their places, and appends to the
old ones reach nobody.

What is here: the folder and the renames, and which directories this process may change. What is not: how the right is
had and lost (grpoctl.runs.claims).
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.errors import SupersededError

_GONE = (errno.ENOENT, errno.ESTALE, errno.ENOTDIR)
_numbers = itertools.count()
_fences: dict[str, Fence] = {}


class Fence:
    """The right of one attempt to change `directory`. `folder` is its own, `successor` the claim that would end it.

    `changed`: whether anything was done to the directory through it.
    """

    def __init__(self, *, directory: Path, folder: Path, attempt: int, successor: Path) -> None:
        self.directory, self.folder, self.attempt, self.successor = directory, folder, attempt, successor
        self.changed = False

    def check(self) -> None:
        """Raises SupersededError where another process has taken the directory over."""
        if self.successor.exists() or not self.folder.is_dir():
            raise SupersededError(f"{self.directory.name} was taken over by {self._by()}; this process stops writing")

    def draft(self, name: str) -> Path:
        """A path in the folder that nothing has: for what is put together, or to go."""
        return self.folder / f"{next(_numbers)}-{name}"

    def place(self, target: Path) -> Path:
        """Where to write the checkpoint `step-000040` before it is one: `writing-<attempt>-000040`."""
        return self.folder / f"writing-{self.attempt}-{target.name.rpartition('-')[2]}"

    def adopt(self, draft: Path, target: Path) -> None:
        """Put the draft in the target's place, in one stroke. Raises SupersededError, OSError."""
        self.check()
        self._rename(draft, target)

    def move(self, path: Path, target: Path) -> None:
        """Rename a file or folder of the directory. Raises SupersededError, OSError."""
        aside = self.draft(path.name)
        self.adopt(path, aside)
        self.adopt(aside, target)

    def remove(self, path: Path) -> None:
        """Take a file or folder away; nothing where there is none. Raises SupersededError, OSError."""
        self.check()
        aside = self.draft(path.name)
        with suppress(FileNotFoundError):
            self._rename(path, aside)
            discard(aside)

    def _rename(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
            self.changed = True
        except OSError as error:
            if error.errno in _GONE:
                self.check()
            raise

    def _by(self) -> str:
        """Who wrote the claim."""
        try:
            claim = json.loads(self.successor.read_bytes())
            return f"process {claim['pid']} on {claim['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


@contextmanager
def fenced(fence: Fence) -> Iterator[None]:
    """Inside, whatever this process writes into the directory goes through the fence."""
    key = os.path.abspath(fence.directory)
    _fences[key] = fence
    try:
        yield
    finally:
        _fences.pop(key, None)


def fence_of(path: Path) -> Fence | None:
    """The fence of the nearest directory around the path that this process holds; None where it holds none."""
    if not _fences:
        return None
    place = os.path.abspath(path)
    while True:
        if (fence := _fences.get(place)) is not None:
            return fence
        above = os.path.dirname(place)
        if above == place:
            return None
        place = above


def check_fence(path: Path) -> None:
    """Raises SupersededError where this process held the directory around the path and has lost it to another."""
    if (fence := fence_of(path)) is not None:
        fence.check()


def discard(path: Path) -> None:
    """Delete a file or folder of this process's own; what cannot be deleted stays for `gc`."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
