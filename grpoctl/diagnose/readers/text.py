"""The lines of a text file that may be gzipped, cut off, coloured, in UTF-16 or without an end: bounded, no traceback.

What is here: bytes to numbered lines, and the few lines that libraries print into any log and that bear on a cause
(`Notices`). What is not: what else stands in a log (the readers), and what follows from a notice (core.health).
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from core.errors import StorageError
from core.health.case import Notice

LONGEST = 1 << 20  # characters of a line: what is longer comes in pieces
CUT_OFF = "the gzip file is cut off or damaged: what could be unpacked was read"

_HEAD = 8192
_BLOCK = 1 << 16
_GZIP = b"\x1f\x8b"
_RETURNS_WITHIN = 1 << 16  # bytes in which a file of \n shows one
_COLOUR = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")  # of a terminal
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LONGEST_NOTICE = 160  # characters of a cited line
_KEPT = 3  # of each kind: a warning that is printed at every step says no more than the first ones

# What transformers and torch say when a KV cache and gradient checkpointing meet, in any model's words.
_SENTENCES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("cache-disabled-by-checkpointing", re.compile(r"`?use_cache=True`? is incompatible with gradient checkpointing")),
    ("cache-dropped-by-checkpointing", re.compile(r"Caching is incompatible with gradient checkpointing")),
    ("checkpointing-without-gradients", re.compile(r"None of the inputs have requires_grad=True")),
)
_HINTS = ("gradient checkpointing", "requires_grad=True")  # cheap to look for; every sentence has one of them


class Line(NamedTuple):
    """A line, or a piece of one. `number` counts from 1 as an editor does."""

    number: int
    text: str


def text_lines(path: Path, notes: list[str] | None = None) -> Iterator[Line]:
    """The lines of the file, unpacked where it is gzipped, without their ends; undecodable bytes become U+FFFD.

    A terminal's colours are left out. A gzip that was cut off gives the lines it has, and `notes` is told. Raises
    StorageError where the file cannot be read.
    """
    number, rest = 1, ""
    returns = _ends_by_returns(path)
    for block in _decoded(path, [] if notes is None else notes):
        text, begin = rest + (block.replace("\r", "\n") if returns else block), 0
        while (end := text.find("\n", begin)) >= 0:  # in long lines several times as fast as split
            yield Line(number, _plain(text[begin:end].removesuffix("\r")))
            number, begin = number + 1, end + 1
        rest = text[begin:]
        while len(rest) > LONGEST:
            yield Line(number, _plain(rest[:LONGEST]))
            rest = rest[LONGEST:]
    if rest:
        yield Line(number, _plain(rest))


def head(path: Path, size: int = _HEAD) -> bytes:
    """The first bytes of the file, unpacked; b"" where it cannot be read."""
    start = b""
    with suppress(StorageError):
        for block in _unpacked(path, []):
            start += block
            if len(start) >= size:
                break
    return start[:size]


def unpacked(path: Path, most: int) -> bytes:
    """All bytes of the file, unpacked where it is gzipped. Raises StorageError for more than `most` of them, too."""
    parts, size = [], 0
    for block in _unpacked(path, []):
        parts.append(block)
        size += len(block)
        if size > most:
            raise StorageError(f"{path}: larger than {most >> 20} MiB")
    return b"".join(parts)


def is_text(path: Path) -> bool:
    """Whether the file begins like text: no zero bytes, but for UTF-16."""
    start = head(path)
    return bool(start) and (b"\0" not in start or start.startswith(_UTF_16))


def _plain(text: str) -> str:
    """The text without colours. Behind the last escape character, which is found quickly, there are none."""
    last = text.rfind("\x1b")
    if last < 0:
        return text
    match = _COLOUR.match(text, last)
    end = match.end() if match else last + len("\x1b\\")  # that may end a sequence, and begins none
    return _COLOUR.sub("", text[:end]) + text[end:]


def _ends_by_returns(path: Path) -> bool:
    """Whether lines end as they did on old Macs: with a carriage return alone."""
    start = head(path, _RETURNS_WITHIN)
    return b"\r" in start and b"\n" not in start


def _decoded(path: Path, notes: list[str]) -> Iterator[str]:
    encoding = "utf-16" if head(path).startswith(_UTF_16) else "utf-8-sig"
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in _unpacked(path, notes):
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def _unpacked(path: Path, notes: list[str]) -> Iterator[bytes]:
    """The file's bytes in blocks, none of them empty, unpacked where they are a gzip's."""
    try:
        with path.open("rb") as file:
            blocks = iter(lambda: file.read(_BLOCK), b"")
            first = next(blocks, b"")
            if first.startswith(_GZIP):
                yield from _gunzipped(first, blocks, notes)
            elif first:
                yield first
                yield from blocks
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error


def _gunzipped(first: bytes, blocks: Iterator[bytes], notes: list[str]) -> Iterator[bytes]:
    """What the gzip has, as far as it goes: `gzip` would lose the block in which it was cut."""
    unpacker, packed = zlib.decompressobj(31), first
    while packed:
        try:
            data = unpacker.decompress(packed)
        except zlib.error:
            break
        if data:
            yield data
        packed = unpacker.unused_data if unpacker.eof else next(blocks, b"")
        if unpacker.eof and (packed or (packed := next(blocks, b""))):
            unpacker = zlib.decompressobj(31)  # gzips can be put behind each other
    if not unpacker.eof:
        notes.append(CUT_OFF)


def notice_of(text: str, line: int | None = None, step: int | None = None) -> Notice | None:
    """The notice that a line of a log is, or None."""
    if not any(hint in text for hint in _HINTS):
        return None
    for kind, sentence in _SENTENCES:
        if match := sentence.search(text):
            return Notice(kind=kind, text=text[match.start() :].strip()[:_LONGEST_NOTICE], line=line, step=step)
    return None


class Notices:
    """Gathers the first few notices of each kind."""

    def __init__(self) -> None:
        self._kept: list[Notice] = []

    def look(self, text: str, line: int | None, step: int | None) -> None:
        """Keeps the line where it is a notice and not one of many."""
        notice = notice_of(text, line, step)
        if notice is not None and sum(kept.kind == notice.kind for kept in self._kept) < _KEPT:
            self._kept.append(notice)

    def all(self) -> tuple[Notice, ...]:
        """What was kept, in the order of the log."""
        return tuple(self._kept)
