"""Rows -> the problems of train, eval and test: drawn by `data_seed`, and none in two of them.

A problem's prompt, answer and gold come from templates over a row's columns, or from a column of messages. A template
has `{question}`, `{meta[topic]}`, `{choices[0]}`; `{{` and `}}` are braces. Only lookups: no attributes, no formats, no
conversions, so that no row can make a template do anything.
Here too: which reader a file's ending asks for. Not here: the formats (formats.py).
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random

from core.config.task import CustomTaskSpec, DataSpec
from core.errors import SpecError
from core.tasks.base import Example, Split
from core.tasks.custom.formats import Row, read_csv, read_hub, read_jsonl, read_parquet
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
        columns = {key: template.columns for key, template in named.items() if template is not None}
        return {**columns, **({} if self.spec.messages is None else {"task.messages": [self.spec.messages]})}

    def check(self, row: Row) -> None:
        """Raises SpecError where the data has not a column that a setting names."""
        for key, columns in self._columns.items():
            for name in columns:
                if name not in row.values:
                    raise SpecError(no_column(name, row.values), file=row.file, key=key)

    def example(self, row: Row, split: Split, index: int) -> Example:
        """The problem of a row: its facts are the row's columns. Raises SpecError naming the row."""
        text, messages = self.question(row)
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

    def question(self, row: Row) -> tuple[str, Messages | None]:
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
    names = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return f"no column {name!r}; {hint}There are: {names}"


READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": read_jsonl,
    ".json": read_jsonl,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


def rows_of(data: DataSpec, seed: int) -> Sequence[Row]:
    """The rows, every one with every column (null where it has none), `max_rows` of them drawn by `seed`.

    Raises SpecError naming file and line, or what the hub said.
    """
    rows = _of_hub(data) if data.path is None else _of_file(Path(os.path.expanduser(data.path)))
    if data.max_rows is None or data.max_rows >= len(rows):
        return rows
    drawn = Random(f"custom rows/{seed}").sample(range(len(rows)), data.max_rows)
    return [rows[index] for index in sorted(drawn)]


def file_of(data: DataSpec) -> Path | None:
    """The file that is read, for messages; None for a dataset of the hub."""
    return None if data.path is None else Path(os.path.expanduser(data.path))


def _of_file(path: Path) -> Sequence[Row]:
    kinds = ", ".join(READERS)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "is a special file" if path.exists() else "there is no such file"
        raise SpecError(f"{what}; data are a file that ends in one of {kinds}{_beside(path)}", file=path)
    if path.suffix.lower() not in READERS:
        got = f"a file that ends in {path.suffix!r}" if path.suffix else "a file without an ending"
        raise SpecError(f"got {got}; allowed: {kinds}", file=path)
    try:
        stat = path.stat()
        return _read(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror or error}", file=path) from None


@lru_cache(maxsize=4)  # a spec is built once for each of its profiles, a sweep's at each of its values
def _read(path: Path, stamp: tuple[int, int, int]) -> Sequence[Row]:  # noqa: ARG001  a changed file is another one
    return _completed(READERS[path.suffix.lower()](path), f"{path}: ")


def _of_hub(data: DataSpec) -> Sequence[Row]:
    assert data.hub is not None
    return _completed(read_hub(data.hub, data.config, data.split, data.revision), f"{data.hub}: ")


def _completed(rows: list[Row], where: str) -> Sequence[Row]:
    """Every row with every column there is."""
    if not rows:
        raise SpecError(f"{where}has no rows; at least one is needed")
    columns = dict.fromkeys(name for row in rows for name in row.values)
    blank: dict[str, object] = dict.fromkeys(columns)
    if all(len(row.values) == len(columns) for row in rows):
        return rows
    return [row.with_values({**blank, **row.values}) for row in rows]


def _beside(path: Path) -> str:
    """The file of nearly the same name that is there instead."""
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix.lower() in READERS and file != path]
    except OSError:
        return f"; there is no folder {path.parent} either"
    stems = {Path(name).stem: name for name in names}
    near = difflib.get_close_matches(path.stem, stems, n=1)
    return f"; did you mean {stems[near[0]]}?" if near else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pool:
    """Rows in the order they are taken in, and what each asks."""

    rows: Sequence[Row]
    questions: Sequence[str]


def splits_of(spec: CustomTaskSpec, prompts: Prompts) -> dict[Split, tuple[Example, ...]]:
    """The problems of every split.

    Test problems are all rows of `test_data`. Held-out ones are drawn first, so that they stay the same whatever
    train_prompts is: no two alike, none of them a test problem. Training ones are what is left, less everything
    that is asked in the other two. Raises SpecError with the numbers where there are too few.
    """
    data = _pool(spec, prompts, spec.data)
    test = None if spec.test_data is None else _pool(spec, prompts, spec.test_data)
    known = set() if test is None else set(test.questions)
    held_out = data if spec.eval_data is None else _pool(spec, prompts, spec.eval_data)
    eval_rows, eval_questions = _first(held_out, spec.eval_prompts, known)
    _enough("eval", len(eval_rows), spec, held_out)
    known |= eval_questions
    train = [row for row, question in zip(data.rows, data.questions, strict=True) if question not in known]
    _enough("train", len(train), spec, data)
    return {
        "train": _examples(prompts, train[: spec.train_prompts], "train"),
        "eval": _examples(prompts, eval_rows, "eval"),
        "test": () if test is None else _examples(prompts, sorted(test.rows, key=lambda row: row.line), "test"),
    }


def _pool(spec: CustomTaskSpec, prompts: Prompts, data: DataSpec) -> _Pool:
    rows = list(rows_of(data, spec.data_seed))
    prompts.check(rows[0])
    Random(f"custom order/{spec.data_seed}").shuffle(rows)
    return _Pool(rows=rows, questions=[_question(prompts, row) for row in rows])


def _question(prompts: Prompts, row: Row) -> str:
    """The prompt without its white space and case: two that differ in these only are the same problem."""
    text, messages = prompts.question(row)
    whole = text if messages is None else json.dumps([dict(message) for message in messages])
    return " ".join(whole.split()).casefold()


def _first(pool: _Pool, count: int, known: set[str]) -> tuple[list[Row], set[str]]:
    """The first rows that ask something new each, and what they ask."""
    chosen: list[Row] = []
    questions: set[str] = set()
    for row, question in zip(pool.rows, pool.questions, strict=True):
        if len(chosen) == count:
            break
        if question not in known and question not in questions:
            chosen.append(row)
            questions.add(question)
    return chosen, questions


def _enough(split: Split, there: int, spec: CustomTaskSpec, pool: _Pool) -> None:
    """Raises SpecError with the numbers where a split has fewer problems than it is to have."""
    size = spec.train_prompts if split == "train" else spec.eval_prompts
    if there >= size:
        return
    rows, different = len(pool.rows), len(set(pool.questions))
    if split == "train":
        why = f"{there} of the data's {rows} rows are left to train on, the others ask what is held out"
        shrink = f"task.train_prompts to {there}" if there else "task.eval_prompts"
    else:
        why = f"{there} problems can be held out of {rows} rows with {different} different prompts"
        shrink = f"task.eval_prompts to {there}" if there else "task.eval_prompts"
    where = spec.eval_data if split == "eval" and spec.eval_data is not None else spec.data
    advice = f"lower {shrink}, or give more data"
    if different < 2 and spec.eval_data is None:  # whatever is held out, nothing is left
        advice = "give two different prompts at least, or task.eval_data"
    raise SpecError(f"got {size}, but {why}; {advice}", file=file_of(where), key=f"task.{split}_prompts")


def _examples(prompts: Prompts, rows: Sequence[Row], split: Split) -> tuple[Example, ...]:
    return tuple(prompts.example(row, split, index) for index, row in enumerate(rows))
