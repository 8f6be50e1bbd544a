"""Lines that libraries print and that bear on a cause: which they are, and what they are called.

What is here: the sentences. What is not: what follows from them (core.health), and any log's own lines (the readers).
"""

from __future__ import annotations

import re

from core.health.case import Notice

LONGEST = 160  # characters of a cited line
KEPT = 3  # of each kind: a warning that is printed at every step says no more than the first ones

# What transformers and torch say when a KV cache and gradient checkpointing meet, in any model's words.
_SAYINGS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("cache-disabled-by-checkpointing", re.compile(r"`?use_cache=True`? is incompatible with gradient checkpointing")),
    ("cache-dropped-by-checkpointing", re.compile(r"Caching is incompatible with gradient checkpointing")),
    ("checkpointing-without-gradients", re.compile(r"None of the inputs have requires_grad=True")),
)
_HINTS = ("gradient checkpointing", "requires_grad=True")  # cheap to look for; every saying has one of them


def notice_of(text: str, line: int | None = None, step: int | None = None) -> Notice | None:
    """The notice that a line of a log is, or None."""
    if not any(hint in text for hint in _HINTS):
        return None
    found = next(((kind, match) for kind, saying in _SAYINGS if (match := saying.search(text))), None)
    if found is None:
        return None
    kind, match = found
    return Notice(kind=kind, text=text[match.start() :].strip()[:LONGEST], line=line, step=step)


class Notices:
    """Gathers the first few notices of each kind."""

    def __init__(self) -> None:
        self._kept: list[Notice] = []

    def look(self, text: str, line: int | None, step: int | None) -> None:
        """Keeps the line where it is a notice and not one of many."""
        found = notice_of(text, line, step)
        if found is not None and sum(one.kind == found.kind for one in self._kept) < KEPT:
            self._kept.append(found)

    def all(self) -> tuple[Notice, ...]:
        """What was kept, in the order of the log."""
        return tuple(self._kept)
