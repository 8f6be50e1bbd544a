"""What is logged during a test: the fixture `logged` in place of pytest's `caplog`.

pytest's own looks through the loggers of all libraries six times around every test, a thousandth of a second each time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Logged(logging.Handler):
    """The records so far, oldest first: warnings and worse, or what `at_level` lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        """What they say."""
        return [record.getMessage() for record in self.records]

    @contextmanager
    def at_level(self, level: int, logger: str) -> Iterator[None]:
        """Meanwhile this logger passes on what is of that level or above."""
        one = logging.getLogger(logger)
        before = one.level
        one.setLevel(level)
        try:
            yield
        finally:
            one.setLevel(before)
