"""Rows -> problems: the prompt template or the messages column, and the templates of answer and gold.

Not here: which row is in which split (splits).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property

from core.config.task import CustomTaskSpec
from core.errors import SpecError
from core.tasks.base import Example, Split
from core.tasks.custom.row import Row
from core.tasks.custom.rows import no_column
from core.tasks.custom.template import Template, parse
from core.tasks.text import text_example

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
