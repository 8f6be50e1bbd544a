"""Text that is not ours, made safe to show: no character of it drives a terminal, or cannot be encoded.

Passwords in URLs are not here (grpoctl.credentials).
"""

from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO


def harmless(text: str) -> str:
    """The text with control and format characters spelled out: a title, a print, a completion drives no terminal.

    These are escape sequences, signs that turn the direction of writing round (U+202E), invisible ones (U+200B) and
    whatever else does not print. Line ends, tabs and the spaces of all alphabets stay. Twice is like once.
    """
    return _spelled(text, lambda char: repr(char)[1:-1])


def harmless_json(text: str, encoding: str) -> str:
    """The same for a JSON document, in escapes of JSON: whoever parses it reads what stood there.

    What the encoding lacks is escaped, too.
    """
    spelled = _spelled(text, _escape)
    try:
        spelled.encode(encoding)
    except UnicodeEncodeError:
        return "".join(char if char.isascii() else _escape(char) for char in spelled)
    return spelled


def tolerant(stream: TextIO) -> TextIO:
    """The stream; a character its encoding lacks is replaced from now on, never an error."""
    # In the C locale Python writes with `surrogateescape`, which fails at every other character that is no ASCII.
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape", "surrogatepass"):
        with suppress(OSError):  # it looks for its place in a file, where a terminal was put in the file's place
            stream.reconfigure(errors="replace")
    return stream


def _spelled(text: str, spell: Callable[[str], str]) -> str:
    lines = text.split("\n")  # whole lines at once: next to all of them print as they are
    return "\n".join(
        line if line.isprintable() else "".join(char if _prints(char) else spell(char) for char in line)
        for line in lines
    )


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1]


def _prints(char: str) -> bool:
    return char.isprintable() or char == "\t" or unicodedata.category(char) == "Zs"
