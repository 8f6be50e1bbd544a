"""What a user is told while a model is found: on standard error, each sentence once in a process.

Not here: errors (core.errors), and anything about a run: that goes into its records.
"""

from __future__ import annotations

import functools
import logging
import sys
from contextlib import suppress

from core.text import harmless


@functools.cache  # once: a process that executes many runs loads the same model many times
def say(text: str) -> None:
    """Print `text` as a note on standard error, and log it under core.models."""
    logging.getLogger(__name__).info(text)
    with suppress(OSError):  # a reader that has gone must not end the run
        print(f"note: {harmless(text)}", file=sys.stderr, flush=True)


def through_root(library: str) -> None:
    """Leave what a library logs to the root logger: its own handler, made as it is imported, writes to a terminal."""
    logger = logging.getLogger(library)
    logger.handlers = [one for one in logger.handlers if not isinstance(one, logging.StreamHandler)]
    logger.propagate = True
