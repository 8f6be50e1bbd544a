"""RUN/log.txt: what `core`, and the libraries it uses, have to say during a run. No library speaks to the terminal.

What other processes print there is not here.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from grpoctl.credentials import without_credentials
from grpoctl.runs.run_dir import RunDir

FORMAT = "%(asctime)s %(levelname)s %(message)s"


def add_text(run: RunDir, text: str) -> None:
    """Add the text, without credentials. A disk that refuses must not end a run over what was only to be noted."""
    with suppress(OSError), run.log.open("a", encoding="utf-8") as log:
        log.write(without_credentials(text))


@contextmanager
def logged(run: RunDir) -> Iterator[None]:
    """What `core` logs inside, from INFO up, goes to the run's log; so do warnings of everything else, and Python's."""
    logger, handler, others = logging.getLogger("core"), _Lines(run), _Lines(run)
    others.setLevel(logging.WARNING)
    others.addFilter(lambda record: record.name.partition(".")[0] != "core")  # that one is here already
    before, showing = logger.level, warnings.showwarning
    logger.addHandler(handler)
    logging.getLogger().addHandler(others)
    logger.setLevel(min(before or logging.INFO, logging.INFO))
    warnings.showwarning = _log_warning
    try:
        yield
    finally:
        warnings.showwarning = showing
        logging.getLogger().removeHandler(others)
        logger.removeHandler(handler)
        logger.setLevel(before)


def log_to_stderr() -> None:
    """From now on this process prints what a run's log would have: what `core` says from INFO up, others' warnings."""
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("core").setLevel(logging.INFO)


def keep_off_terminal() -> None:
    """From now on nothing that libraries warn of or log is shown outside of a run's log, but with GRPOCTL_DEBUG."""
    if os.environ.get("GRPOCTL_DEBUG"):
        return
    if not logging.getLogger().hasHandlers():
        logging.getLogger().addHandler(logging.NullHandler())  # else what has no handler goes to standard error
    warnings.showwarning = _no_warning


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    """In the place of `warnings.showwarning`: one line."""
    text = " ".join(str(message).split())
    logging.getLogger("py.warnings").warning("%s: %s (%s:%d)", category.__name__, text, filename, lineno)


def _no_warning(*_: object, **__: object) -> None:
    """In the place of `warnings.showwarning`: nothing."""


class _Lines(logging.Handler):
    """Opens the log for each record: next to no records come, and no descriptor is left open in a forked child."""

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self._run = run
        self.setFormatter(logging.Formatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Add the record's line."""
        add_text(self._run, f"{self.format(record)}\n")
