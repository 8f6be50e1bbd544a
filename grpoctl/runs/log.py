"""RUN/log.txt: what `core` has to say during a run, a line each. What other processes print there is not here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from grpoctl.runs.credentials import without_credentials
from grpoctl.runs.run_dir import RunDir

FORMAT = "%(asctime)s %(levelname)s %(message)s"


def add_text(run: RunDir, text: str) -> None:
    """Add the text, without credentials. A disk that refuses must not end a run over what was only to be noted."""
    with suppress(OSError), run.log.open("a", encoding="utf-8") as log:
        log.write(without_credentials(text))


@contextmanager
def logged(run: RunDir) -> Iterator[None]:
    """Everything from INFO up that the loggers of `core` say inside goes to the run's log."""
    logger, handler = logging.getLogger("core"), _Lines(run)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(before or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Lines(logging.Handler):
    """Opens the log for each record: next to no records come, and no descriptor is left open in a forked child."""

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self._run = run
        self.setFormatter(logging.Formatter(FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Add the record's line."""
        add_text(self._run, f"{self.format(record)}\n")
