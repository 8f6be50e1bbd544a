"""Warnings of a run that is going on, on screen once: what its rules say of the steps so far.

They are in RUN/log.txt in any case (grpoctl.runs.log); a detached run, whose output goes there too, does not say them
twice.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from grpoctl import console
from grpoctl.runs.run_dir import RunDir

WATCHING = "core.training.callbacks"  # by name: to import it would load torch before it is needed


class LiveWarnings(logging.Handler):
    """Prints them as notes from `start` to `finish`, which may be called more than once; nothing where quiet."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(logging.WARNING)
        self._quiet = quiet

    def start(self, run: RunDir) -> None:
        """From now on."""
        if not self._quiet and not _goes_to(run.log):
            logging.getLogger(WATCHING).addHandler(self)

    def finish(self) -> None:
        """No longer."""
        logging.getLogger(WATCHING).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """One note."""
        console.print_note(record.getMessage())


def _goes_to(log: Path) -> bool:
    """Whether standard error is that file."""
    with suppress(OSError, ValueError):
        return os.path.samestat(os.fstat(sys.stderr.fileno()), log.stat())
    return False
