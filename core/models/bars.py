"""transformers' own progress bars, switched off for a while; and its warnings, left to the root logger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

from core.models.messages import through_root


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars inside: reading a file that is here takes seconds, and standard error is for what matters."""
    for library in ("transformers", "huggingface_hub"):
        through_root(library)
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
