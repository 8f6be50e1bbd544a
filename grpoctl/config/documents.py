"""YAML 1.2 text -> a Layer: plain mappings, lists and scalars with their lines.

Nothing is ever constructed from a tag. Duplicate keys, aliases that explode, non-finite numbers, several documents and
anything that is not a mapping are refused, each with one line naming the file and the line.
Not here: what the keys mean (schema.py), which file belongs to a name (library.py).
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from core.errors import NotFoundError, SpecError
from grpoctl.config.layers import Keys, Layer, Place, dotted

MAX_BYTES = 256 * 1024  # a spec is a few kilobytes; what is larger is not one, and would only take minutes to parse
MAX_NODES = 10_000  # after aliases are expanded
# What block_yaml does not write, or seldom: where parsers differ, and what is nested deeply.
_NOT_FOR_C = re.compile("[\r\t!\x85\u2028\u2029\ufeff]|^[ ?:-]{100}|(?:[\\[{][^\\[{]*+){100}", re.MULTILINE)
_TAG = "tag:yaml.org,2002:"
_TEXT = {_TAG + "str", _TAG + "timestamp", _TAG + "value"}  # the last two are YAML 1.1: in 1.2 a date is a string


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What a file is meant to be, as messages call it: its name, what stands in it, and what kind of file it is."""

    name: str
    holds: str
    file: str
    merged: str = "write the keys out"  # in place of YAML 1.1's `<<`


SPEC = Kind(
    name="a spec", holds="a mapping that starts with 'name:'", file="a .yaml file", merged="use 'extends: PARENT'"
)


def read_document(file: Path, kind: Kind = SPEC) -> Layer:
    """The mapping a YAML file holds. Raises NotFoundError where there is none, SpecError for anything else wrong."""
    return document_of(read_text(file, kind), file, kind)


def document_of(text: str, file: Path, kind: Kind = SPEC, *, generated: bool = False) -> Layer:
    """The mapping that a file's text is; `generated`: block_yaml made it, so it is read faster. Raises SpecError."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("%"):  # `%YAML 1.1` would turn `no` into false for this file only
            message = f"YAML directives are not allowed; {kind.name} is YAML 1.2"
            raise SpecError(message, file=file, line=number)
    node = _compose(text, file, _quick_nodes if generated else _nodes)
    if node is None:
        raise SpecError(f"the file is empty; {kind.name} is {kind.holds}", file=file)
    if not isinstance(node, MappingNode):
        what = "list" if isinstance(node, SequenceNode) else "single value"
        line = node.start_mark.line + 1
        raise SpecError(f"got a {what} at the top; {kind.name} is {kind.holds}", file=file, line=line)
    reader = _Reader(file=file, merged=kind.merged)
    try:
        tree = reader.value(node, ())
    except RecursionError:
        raise SpecError("not valid YAML: nested too deeply", file=file) from None
    assert isinstance(tree, dict)
    return Layer(tree=tree, places=reader.places)


def read_text(file: Path, kind: Kind = SPEC) -> str:
    """The file's text. Raises NotFoundError, or SpecError where it is no file, too large, unreadable or not UTF-8."""
    if not file.exists():
        raise NotFoundError(f"no file {file}")
    if not file.is_file():
        what = "directory" if file.is_dir() else "special file"
        raise SpecError(f"is a {what}; {kind.name} is {kind.file}", file=file)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)  # never the whole of something huge
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", file=file) from None
    return text_of(data, file, kind)


def text_of(data: bytes, file: Path, kind: Kind = SPEC) -> str:
    """The text of a file's bytes. Raises SpecError where they are too many, or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise SpecError(f"is larger than {MAX_BYTES // 1024} KiB; {kind.name} is a few kilobytes", file=file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(f"is not UTF-8 text (byte 0x{data[error.start]:02x})", file=file, line=line) from None


def read_value(text: str) -> object:
    """The value of an override: flow YAML where it starts with [ { " or ', else a plain YAML 1.2 scalar as a whole.

    So `a: b # c` is the string it looks like. Raises SpecError without a place: the caller knows it.
    """
    text = text.strip()
    if not text:
        raise SpecError("nothing after '='; write null for none, '' for an empty text")
    return copy.deepcopy(_value(text))


@lru_cache(maxsize=4096)  # a sweep writes the same ones at each of its points
def _value(text: str) -> object:
    if text[0] in "[{\"'":
        node = _compose(text, None)
    else:
        tag = YAML(typ="safe", pure=True).resolver.resolve(ScalarNode, text, (True, False))
        node = ScalarNode(tag, text)
    assert node is not None
    return _Reader(file=None).value(node, ())


@lru_cache(maxsize=64)  # a sweep reads the same few files for each of its runs; parsing is nearly all a load costs
def _nodes(text: str) -> object:
    return YAML(typ="safe", pure=True).compose(text)


def _quick_nodes(text: str) -> object:
    """The same nodes by ruamel's parser in C, where it is installed; what that refuses, the exact one is to explain.

    Not for what people write: in places it takes tabs that YAML 1.2 forbids, and counts lines otherwise. Nor for what
    is nested deeply, which exhausts its stack: block_yaml's texts are not.
    """
    if _NOT_FOR_C.search(text):
        return _nodes(text)
    try:
        return YAML(typ="safe").compose(text)
    except (YAMLError, UnicodeError):
        return _nodes(text)


def _compose(text: str, file: Path | None, parse: Callable[[str], object] = _nodes) -> Node | None:
    """The node graph of one document, or None where it is empty."""
    try:
        node = parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        hint = "; indent with spaces" if "'\\t'" in what else ""
        line = mark.line + 1 if mark is not None and file is not None else None
        raise SpecError(f"not valid YAML: {what}{hint}", file=file, line=line) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if file is not None else None
        raise SpecError(f"not valid YAML: the character U+{error.character:04X}", file=file, line=line) from None
    except YAMLError as error:
        raise SpecError(f"not valid YAML: {str(error).splitlines()[0]}", file=file) from None
    except RecursionError:
        raise SpecError("not valid YAML: nested too deeply", file=file) from None
    assert node is None or isinstance(node, Node)
    return node


@dataclass(kw_only=True, slots=True)
class _Reader:
    """Turns nodes into plain values and notes every value's place."""

    file: Path | None
    merged: str = SPEC.merged
    places: dict[Keys, Place] = field(default_factory=dict)
    open: list[Node] = field(default_factory=list)  # the nodes around this one: an alias to one of them is a cycle

    def value(self, node: Node, path: Keys, line: int | None = None) -> object:
        """The plain value; `line` is that of the key in front of it."""
        line = line or self._line(node)
        self.places[path] = Place(file=self.file, line=line)
        if any(node is outer for outer in self.open):
            raise self._refusal("an alias (*name) refers to what it stands in", path)
        if len(self.places) > MAX_NODES:
            message = f"holds more than {MAX_NODES} values, aliases (*name) expanded"
            raise SpecError(message, file=self.file, line=line)
        if isinstance(node, ScalarNode):
            try:
                return _scalar(node)
            except ValueError as error:
                raise self._refusal(str(error), path) from None
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            raise self._refusal(_tagged(node), path)
        self.open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self.open.pop()

    def _mapping(self, node: MappingNode, path: Keys) -> dict[str, object]:
        tree: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = self._line(key_node)
            if key_node.tag == _TAG + "merge":
                raise SpecError(f"'<<' is YAML 1.1; {self.merged}", file=self.file, line=line)
            key = key_node.value
            if key_node.tag not in _TEXT:
                what = repr(key) if isinstance(key, str) else "a list or mapping"
                raise SpecError(f"got {what} as a key; keys are names", file=self.file, line=line)
            if key in tree:
                first = self.places[(*path, key)].line
                where = f"; it is first set in line {first}" if first is not None else ""
                raise SpecError(f"duplicate key{where}", file=self.file, line=line, key=dotted((*path, key)))
            tree[key] = self.value(value_node, (*path, key), line)
        return tree

    def _refusal(self, message: str, path: Keys) -> SpecError:
        return SpecError(message, file=self.file, line=self.places[path].line, key=dotted(path) or None)

    def _line(self, node: Node) -> int | None:
        return node.start_mark.line + 1 if self.file is not None and node.start_mark is not None else None


def _scalar(node: ScalarNode) -> object:
    """None, bool, int, finite float or str, by the tag YAML 1.2 resolves a plain scalar to. Raises ValueError."""
    text = str(node.value)
    if node.tag in _TEXT:
        if any("\ud800" <= letter <= "\udfff" for letter in text):  # "\ud800" in quotes; no file can hold it
            raise ValueError("got a lone surrogate, which is no character")
        return text
    if node.tag in (_TAG + "null", _TAG + "bool"):
        return None if node.tag == _TAG + "null" else text.lower() == "true"
    if node.tag == _TAG + "int":
        return _number(text, _integer)
    if node.tag == _TAG + "float":
        number = _number(text, _float)
        if not math.isfinite(number):
            raise ValueError(f"got {text}; allowed: finite numbers")
        return number
    raise ValueError(_tagged(node))


def _tagged(node: Node) -> str:
    return f"got the tag {str(node.tag).replace(_TAG, '!!')}; allowed: plain data without tags"


def _number(text: str, convert: Callable[[str], float]) -> float:
    try:
        return convert(text.replace("_", "").lower())
    except ValueError:  # `!!int abc`, or more digits than Python converts
        raise ValueError(f"got {text[:40] + '...' if len(text) > 40 else text}, which is no number") from None


def _integer(text: str) -> int:
    """A decimal (leading zeros are decimal in YAML 1.2), 0o, 0x or 0b integer."""
    return int(text, {"0o": 8, "0x": 16, "0b": 2}.get(text.lstrip("+-")[:2], 10))


def _float(text: str) -> float:
    """A decimal float; .inf and .nan as YAML writes them."""
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))
