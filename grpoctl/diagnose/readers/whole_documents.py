"""A file that is one value throughout, as plain Python: JSON, YAML, TOML, or JSON lines of which each has one value.

What is not here: what the value means (json_document), and JSON lines with a row of metrics each (console).
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from grpoctl.diagnose.readers.metric_names import ONE_VALUE
from grpoctl.diagnose.readers.text import head, unpacked

JSON, YAML, TOML = "json", "yaml", "toml"
_FORMATS = {".yaml": YAML, ".yml": YAML, ".toml": TOML}
_LARGEST = {JSON: 1 << 28, YAML: 1 << 20, TOML: 1 << 23}  # bytes; a megabyte of YAML takes two seconds
_DEEPEST = 200  # values inside each other: of 30,000 the parser of YAML ends the whole program
_BRACKET = re.compile(rb"[\[\]{}]")
_INDENTED = re.compile(rb"[ \t]*(?:[-?:][ \t]+)*")  # and what begins values on the same line: - - 1
_MOST_VALUES = 2_000_000  # of a YAML document: a few lines of aliases may stand for any number of them


def format_of(path: Path) -> str:
    """The format that a file's name says: `yaml` or `toml`, else `json`."""
    return _FORMATS.get(path.suffix.lower(), JSON)


def may_be_document(path: Path) -> bool:
    """Whether the file may be one value, by its name or its beginning; reads no more than that."""
    if format_of(path) != JSON:
        return True
    first, end, rest = head(path).removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    if first[:1] not in (b"{", b"["):
        return False
    if not end or not rest.strip():
        return True
    with suppress(ValueError, RecursionError):
        return is_one_value(json.loads(first))  # JSON lines with a row each may be a gigabyte
    return True


def document_of(path: Path) -> Any:
    """The file's value, its keys as text; a list of the values of JSON lines that have one each.

    Raises ValueError or RecursionError where it is none, and StorageError where it cannot be read or is too large.
    """
    kind = format_of(path)
    data = unpacked(path, _LARGEST[kind])
    if kind != JSON:
        if _is_too_deep(data, kind):
            raise ValueError(f"more than {_DEEPEST} values inside each other")
        return _of_yaml(data) if kind == YAML else tomllib.loads(data.decode())
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        if (values := list(_values(data))) and is_one_value(values[0]):
            return values
        raise


def is_one_value(line: object) -> bool:
    """Whether an object has a metric's name, its step and its value."""
    named = {name.lower() for name in line} if isinstance(line, dict) else set()
    return all(not named.isdisjoint(keys) for keys in ONE_VALUE)


def _values(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects of lines that have one value each; other lines are left out."""
    for line in data.splitlines():
        with suppress(ValueError, RecursionError):
            if is_one_value(value := json.loads(line)):
                yield value


def _is_too_deep(data: bytes, kind: str) -> bool:
    """Whether values stand inside each other too often: by brackets (those in texts count, too), and by indentation in
    YAML, by the dots of a name in TOML.
    """
    data = data.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")  # of UTF-16, and what tells the encoding
    depth = 0
    for match in _BRACKET.finditer(data):
        depth = depth + 1 if match[0] in b"[{" else max(0, depth - 1)
        if depth > _DEEPEST:
            return True
    lines = data.splitlines()
    if kind == TOML:
        return any(line.partition(b"=")[0].count(b".") > _DEEPEST for line in lines)
    return _is_indented_too_deep(lines)


def _is_indented_too_deep(lines: list[bytes]) -> bool:
    """Whether lines are indented more and more, too often; dashes before a value count as one each."""
    columns: list[int] = []  # where the values begin that the line stands in
    for line in lines:
        before = _INDENTED.match(line)
        if before is None or not line.strip():
            continue
        spaces = len(line) - len(line.lstrip())
        while columns and columns[-1] >= spaces:
            columns.pop()
        begun = [at for at in range(spaces, before.end()) if line[at] in b"-?:"]
        columns += [*begun, before.end()]
        if len(columns) > _DEEPEST:
            return True
    return False


@lru_cache(maxsize=1)  # whoever asks whether it is one reads it next
def _of_yaml(data: bytes) -> Any:
    import ruamel.yaml
    import ruamel.yaml.error

    try:
        document = ruamel.yaml.YAML(typ="safe").load(data)
    except (ruamel.yaml.error.YAMLError, LookupError) as error:  # `!!bool x` has no value of that type
        raise ValueError(str(error)) from None
    return _with_text_keys(document, iter(range(_MOST_VALUES)))


def _with_text_keys(value: Any, left: Iterator[int]) -> Any:
    """The value with all keys as text (`10:` is a number in YAML); dates are text, too.

    left: as many more values as there may be. Raises ValueError for more.
    """
    if next(left, None) is None:
        raise ValueError("too many values")
    if isinstance(value, dict):
        return {_key(name): _with_text_keys(part, left) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(part, left) for part in value]
    return value if isinstance(value, bool | int | float) or value is None else str(value)


def _key(name: object) -> str:
    whole = isinstance(name, float) and math.isfinite(name) and name.is_integer()
    return str(int(name)) if whole else str(name)  # type: ignore[call-overload]
