"""Templates over a row's columns: `{question}`, `{meta[topic]}`, `{choices[0]}`; `{{` and `}}` are braces.

Only lookups: no attributes, no formats, no conversions, so that no row can make a template do anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.errors import SpecError

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FIELD = re.compile(r"([^\[\]]+)((?:\[[^\[\]]+\])*)")
_STEP = re.compile(r"\[([^\[\]]+)\]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """`{column[a][0]}`: a column, and the steps into what it holds."""

    column: str
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.column + "".join(f"[{step}]" for step in self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    """Literal text and places in turn."""

    parts: tuple[str | Place, ...]

    @property
    def columns(self) -> list[str]:
        """The columns it needs, each once."""
        return list(dict.fromkeys(part.column for part in self.parts if isinstance(part, Place)))

    def filled(self, values: Mapping[str, object]) -> str:
        """The text for a row. Raises LookupError, in words, where the row has no such value or a null."""
        return "".join(part if isinstance(part, str) else _text(_found(part, values)) for part in self.parts)


def parse(text: str, key: str) -> Template:
    """The template that `text` is; `key` is the setting it stands in. Raises SpecError at what is no template."""
    parts: list[str | Place] = []
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[at : token.start()])
        at = token.end()
        if token[0] in ("{{", "}}"):
            parts.append(token[0][0])
            continue
        match = _FIELD.fullmatch(token[1]) if token[1] else None
        if match is None:
            got = token[0] if len(token[0]) < 60 else token[0][:57] + "..."
            allowed = "{column}, {column[key]} or {column[0]}; a brace itself is {{ or }}"
            raise SpecError(f"got {got!r} at character {token.start() + 1}; allowed: {allowed}", key=key)
        parts.append(Place(column=match[1], steps=tuple(_STEP.findall(match[2]))))
    parts.append(text[at:])
    return Template(parts=tuple(part for part in parts if part != ""))


def _found(place: Place, values: Mapping[str, object]) -> object:
    value = values[place.column]
    for step in place.steps:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and re.fullmatch(r"-?\d{1,9}", step) and -len(value) <= int(step) < len(value):
            value = value[int(step)]
        else:
            raise LookupError(f"{{{place}}} finds nothing: no {step!r} in {_short(value)}")
    if value is None:
        raise LookupError(f"{{{place}}} is null")
    return value


def _text(value: object) -> str:
    """Text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
