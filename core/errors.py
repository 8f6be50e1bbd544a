"""Every error this project raises on purpose, as one tree.

    GrpoError
    ├── UserError                    the user can mend it; nothing was started
    │   ├── SpecError                a spec, an override or a profile is wrong
    │   │   └── MissingPackageError  it needs a package that is not installed here
    │   ├── NotFoundError            no such experiment, run, model or file
    │   │   ├── UnknownRunError      no run and no study of that name
    │   │   └── AmbiguousNameError   several runs or studies that it may mean
    │   └── BusyError                another process holds what was asked for
    └── RunError                     a run had started and cannot go on
        ├── CheckpointError          a checkpoint is damaged, or of another version
        ├── ModelError               a model cannot be loaded or built
        ├── StorageError             the disk is full, read-only or out of reach
        ├── SupersededError          another process has taken the run over
        └── TaskError                a task cannot produce or score its problems

A message says what was got, what is allowed and what to do next, on one line.
"""

from __future__ import annotations

import os
from pathlib import Path


class GrpoError(Exception):
    """Root of the tree: whatever is raised on purpose."""


class UserError(GrpoError):
    """Bad input, found before anything was started."""


class SpecError(UserError):
    """A spec that cannot be accepted: where (file, line, key) and why, in one line."""

    def __init__(
        self, message: str, *, file: Path | None = None, line: int | None = None, key: str | None = None
    ) -> None:
        where = [str(file)] if file is not None else []
        where += [f"line {line}"] if line is not None else []
        where += [key] if key else []
        super().__init__(": ".join([*where, message]) if where else message)
        self.message = message
        self.file = file
        self.line = line
        self.key = key


class MissingPackageError(SpecError):
    """A spec needs a package that is not installed on this machine; on another one it may be sound."""


class NotFoundError(UserError):
    """No experiment, run, model or file of that name."""


class UnknownRunError(NotFoundError):
    """No run and no study of that name: it may be the name of something else."""


class AmbiguousNameError(NotFoundError):
    """Several runs or studies whose ids begin with that name."""


class BusyError(UserError):
    """Another process holds the run, the store or the cache entry."""


class RunError(GrpoError):
    """A run had started and cannot go on."""


class CheckpointError(RunError):
    """A checkpoint is damaged, or was written by another version."""


class ModelError(RunError):
    """A model cannot be loaded or built."""


class StorageError(RunError):
    """The disk is full, read-only or out of reach."""


class SupersededError(RunError):
    """Another process has taken over the run or the study: this one must not write there any more."""


class TaskError(RunError):
    """A task cannot produce or score its problems."""


def in_words(error: BaseException) -> str:
    """An error that is none of ours in one line: of the system's the file and what it says, of others type and text."""
    if not isinstance(error, OSError) or error.strerror is None:
        return f"{type(error).__name__}: {error}"
    place = error.filename
    if place is None:
        try:
            os.getcwd()
        except OSError:
            place = "the current folder"
    return f"cannot use {place}: {error.strerror}" if place is not None else error.strerror
