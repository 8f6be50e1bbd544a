"""What a user is told while a model is looked for and loaded, and what the libraries that load it are kept from saying.

Not here: errors (core.errors), and anything about a run: that goes into its records.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from core.text import harmless


@functools.cache  # once: a process that executes many runs loads the same model many times
def note(text: str) -> None:
    """Print `text` as a note on standard error, once in a process, and log it."""
    logging.getLogger(__name__).info(text)
    with suppress(OSError):  # a reader that has gone must not end the run
        print(f"note: {harmless(text)}", file=sys.stderr, flush=True)


_stage: ContextVar[Callable[[str], None]] = ContextVar("_stage")


@contextmanager
def on_stage(tell: Callable[[str], None]) -> Iterator[None]:
    """`tell` is called inside with what is done now, in a few words, before anything that may take long."""
    token = _stage.set(tell)
    try:
        yield
    finally:
        _stage.reset(token)


def stage(text: str) -> None:
    """Tell whoever listens what is done from now on."""
    if (tell := _stage.get(None)) is not None:
        tell(text)


def log_through_root(library: str) -> None:
    """Leave what a library logs to the root logger: its own handler, made as it is imported, writes to a terminal."""
    logger = logging.getLogger(library)
    logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, logging.StreamHandler)]
    logger.propagate = True


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """transformers without its progress bars: reading a file that is here takes seconds, and standard error is for what
    matters. Its warnings go to the root logger.
    """
    from transformers.utils import logging as transformers_logging  # seconds: this module is also imported by the light

    for library in ("transformers", "huggingface_hub"):
        log_through_root(library)
    enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            transformers_logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """The first line of an error's text without its full stop; the name of its class where it has no text."""
    text = str(error).strip()
    return " ".join(text.splitlines()[0].split()).rstrip(".") if text else type(error).__name__
