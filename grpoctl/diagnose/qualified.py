"""Overrides as a rule writes them -> as a spec of several stages takes them.

A rule knows one stage's rows and writes the shortest ending of a key (`learning_rate=1e-6`). Where several keys of the
spec end so, it means the one of that stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpoctl.config.layers import Keys, dotted
from grpoctl.config.schema import Field, fields


def qualified(overrides: Sequence[str], tree: Mapping[str, object], stage: int | None) -> tuple[str, ...]:
    """The overrides for a document `tree`; `stage` is the index of the rules' stage among those the document has.

    A key that is clear, or unknown, or that no single key of the stage ends in stays as it is.
    """
    stages = tree.get("stages")
    names = [name for name, below in stages.items() if below is not None] if isinstance(stages, Mapping) else []
    if stage is None or stage >= len(names):
        return tuple(overrides)
    known = fields(tree)
    return tuple(_qualified(text, known, names[stage]) for text in overrides)


def _qualified(text: str, known: Mapping[Keys, Field], stage: str) -> str:
    key, equals, value = text.partition("=")
    parts: Keys = tuple(key.strip().split("."))
    found = [path for path in known if path[-len(parts) :] == parts]
    own = [path for path in found if path[:2] == ("stages", stage)]
    if parts in known or len(found) < 2 or len(own) != 1:
        return text
    return f"{dotted(own[0])}{equals}{value}"
