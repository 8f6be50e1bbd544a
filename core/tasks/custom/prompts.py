"""Rows -> problems: templates over a row's columns, or a column of messages.

A template has `{question}`, `{meta[topic]}`, `{choices[0]}`; `{{` and `}}` are braces. Only lookups: no attributes, no
formats, no conversions, so that no row can make a template do anything. Not here: which row is in which split (splits).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from core.config.task import CustomTaskSpec
from core.errors import SpecError
from core.tasks.base import Example, Split
from core.tasks.custom.formats import Row
from core.tasks.text import text_example

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
        return "".join(part if isinstance(part, str) else _text(_value_at(part, values)) for part in self.parts)


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


def _value_at(place: Place, values: Mapping[str, object]) -> object:
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


LONGEST = 200_000  # characters of a prompt: far beyond any model here, and far below what would fill the memory
ROLES = ("system", "developer", "user", "assistant", "tool")
Messages = Sequence[Mapping[str, str]]


class Prompts:
    """What the spec's templates make of a row."""

    def __init__(self, spec: CustomTaskSpec) -> None:
        """Raises SpecError where a template is none."""
        self.spec = spec
        self._prompt = _parsed(spec.prompt, "task.prompt")
        self._answer = _parsed(spec.answer, "task.answer")
        self._gold = _parsed(None if spec.gold is None else spec.gold.completion, "task.gold.completion")

    @cached_property
    def _columns(self) -> dict[str, list[str]]:
        """setting -> the columns it needs."""
        named = {"task.prompt": self._prompt, "task.answer": self._answer, "task.gold.completion": self._gold}
        found = {key: template.columns for key, template in named.items() if template is not None}
        return {**found, **({} if self.spec.messages is None else {"task.messages": [self.spec.messages]})}

    def check(self, row: Row) -> None:
        """Raises SpecError where the data has not a column that a setting names."""
        for key, columns in self._columns.items():
            for name in columns:
                if name not in row.values:
                    raise SpecError(no_column(name, row.values), file=row.file, key=key)

    def example(self, row: Row, split: Split, index: int) -> Example:
        """The problem of a row: its facts are the row's columns. Raises SpecError naming the row."""
        text, messages = self.asked(row)
        if len(text) > LONGEST:
            raise row.refused(f"a prompt of {len(text):,} characters; allowed: at most {LONGEST:,}", self._key)
        if not text.strip():
            raise row.refused("a blank prompt; every row needs something to answer", self._key)
        for template, key in ((self._answer, "task.answer"), (self._gold, "task.gold.completion")):
            if template is not None:
                _filled(template, row, key)  # now, where the row has a name, not in the middle of a run
        if self.spec.system is not None and (messages is None or messages[0]["role"] != "system"):
            messages = [{"role": "system", "content": self.spec.system}, *(messages or [_user(text)])]
        return text_example(
            id=f"{split}-{index:05d}",
            prompt=text,
            facts=row.values,
            messages=messages,
            plain=not self.spec.chat_template,
        )

    def asked(self, row: Row) -> tuple[str, Messages | None]:
        """(the prompt or a conversation's last words, the conversation); what tells two problems apart."""
        if self._prompt is not None:
            return _filled(self._prompt, row, "task.prompt"), None
        assert self.spec.messages is not None
        messages = _conversation(row, self.spec.messages)
        return messages[-1]["content"], messages

    @property
    def _key(self) -> str:
        return "task.messages" if self._prompt is None else "task.prompt"

    def answer(self, example: Example) -> str | None:
        """What a supervised stage imitates; None where the spec says nothing of it."""
        return None if self._answer is None else self._answer.filled(example.facts)

    def gold(self, example: Example) -> str | None:
        """What the rewards must accept; None where the spec says nothing of it."""
        return None if self._gold is None else self._gold.filled(example.facts)


def _parsed(text: str | None, key: str) -> Template | None:
    return None if text is None else parse(text, key)


def _filled(template: Template, row: Row, key: str) -> str:
    try:
        return template.filled(row.values)
    except LookupError as error:
        raise row.refused(str(error.args[0]), key) from None


def _user(text: str) -> Mapping[str, str]:
    return {"role": "user", "content": text}


def _conversation(row: Row, column: str) -> Messages:
    """The messages of a row. Raises SpecError: no list, no message, an unknown role, nothing to answer."""
    value = row.values[column]
    if isinstance(value, str):  # a cell of a CSV file
        try:
            value = json.loads(value)
        except ValueError:
            raise row.refused("got a text; a conversation is a list of messages", f"column {column!r}") from None
    if not isinstance(value, list) or not value:
        got = "null" if value is None else "an empty list" if value == [] else f"a {type(value).__name__}"
        raise row.refused(f"got {got}; a conversation is a list of messages", f"column {column!r}")
    messages = [_message(row, column, item) for item in value]
    if messages[-1]["role"] == "assistant":
        raise row.refused("the last message is the assistant's: nothing is left to answer", f"column {column!r}")
    return messages


def _message(row: Row, column: str, item: object) -> Mapping[str, str]:
    where = f"column {column!r}"
    if not isinstance(item, Mapping) or not {"role", "content"} <= item.keys():
        raise row.refused("got a message without role and content; each has both", where)
    role, content = item["role"], item["content"]
    if isinstance(content, list):  # parts, as image models take them
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if all(isinstance(part, str) for part in parts):
            content = "".join(str(part) for part in parts)
    if role not in ROLES:
        raise row.refused(f"got the role {role!r}; allowed: {', '.join(ROLES)}", where)
    if not isinstance(content, str):
        raise row.refused("got a message whose content is no text", where)
    return {"role": str(role), "content": content}


def no_column(name: str, columns: Iterable[str]) -> str:
    """`no column 'qestion'; did you mean 'question'? There are: question, answer`."""
    known = list(columns)
    near = difflib.get_close_matches(name, known, n=1) or [column for column in known if column.lower() == name.lower()]
    hint = f"did you mean {near[0]!r}? " if near else ""
    shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return f"no column {name!r}; {hint}There are: {shown}"
