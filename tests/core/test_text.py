"""Text of others drives no terminal, and every stream takes every text."""

from __future__ import annotations

import io
import json
import os
import unicodedata
from pathlib import Path

import pytest

from core.text import harmless, harmless_json, tolerant


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),  # sets the title of the window
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31mred", "\\x9b31mred"),  # one character for ESC [
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),  # turns the direction of writing round
        ("a\u200bb\ufeff\u200d", "a\\u200bb\\ufeff\\u200d"),  # cannot be seen
        ("a\u2028b\x85c\rd\x7f", "a\\u2028b\\x85c\\rd\\x7f"),  # ends a line, or goes back to its start
        ("\udc80\U000e0001", "\\udc80\\U000e0001"),
        ("two\nlines\ta 数\xa0±\u3000é", "two\nlines\ta 数\xa0±\u3000é"),
        ("", ""),
    ],
)
def test_what_drives_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert harmless(text) == shown
    assert harmless(shown) == shown


def test_no_control_and_no_format_character_is_left() -> None:
    every = "".join(map(chr, range(0x110000)))
    left = {char for char in harmless(every) if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert left == {"\n", "\t"}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_reads_back_as_it_was(encoding: str) -> None:
    document = {"a": "\x1b[31m\x9b\u202e数±\x7f\U000e0001 é", "b\u200b": [1.5, None, "\n\t"]}
    text = harmless_json(json.dumps(document, indent=2, ensure_ascii=False), encoding)
    assert json.loads(text.encode(encoding)) == document
    assert all(char.isprintable() or char == "\n" for char in text)
    assert ("数" in text) == (encoding == "utf-8")


@pytest.mark.parametrize("errors", ["strict", "surrogateescape", "surrogatepass"])
def test_a_stream_takes_every_character(errors: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors=errors)
    tolerant(stream).write("0.6 ± 0.1 \udc80")
    stream.flush()
    assert raw.getvalue() == b"0.6 ? 0.1 ?"


def test_a_stream_that_became_a_pipe_takes_every_character(tmp_path: Path) -> None:
    """Opened as a file, in which it knows its place; then the descriptor is led elsewhere."""
    reading, writing = os.pipe()
    with (tmp_path / "file").open("w", encoding="ascii", errors="surrogateescape") as stream:
        os.dup2(writing, stream.fileno())
        tolerant(stream).write("±")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"?"
