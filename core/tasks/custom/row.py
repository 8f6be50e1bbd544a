"""One row of the user's data, and how a message names it."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from core.errors import SpecError


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Values by column: text, numbers, booleans, null, and lists and mappings of them.

    `line` counts from 1 in a text file; elsewhere it is the number of the row, and `counted` says so.
    """

    values: Mapping[str, object]
    line: int
    file: Path | None = None
    counted: bool = False

    def refused(self, message: str, key: str | None = None) -> SpecError:
        """The error that names this row."""
        if self.counted:
            return SpecError(f"row {self.line}: {message}", file=self.file, key=key)
        return SpecError(message, file=self.file, line=self.line, key=key)

    def with_values(self, values: Mapping[str, object]) -> Row:
        """The same row with these values."""
        return replace(self, values=values)


def plain(value: object) -> object:
    """The value as JSON can hold it: NaN is null, dates are ISO text, bytes are text or else base64.

    Raises ValueError for an infinite number, and for text that is no Unicode (a lone surrogate).
    """
    match value:
        case None | bool() | int():
            made: object = value
        case str():
            made = _text(value)
        case float():
            made = _finite(value)
        case bytes():
            made = _decoded(value)
        case Mapping():
            made = {str(key): plain(below) for key, below in value.items()}
        case list() | tuple():
            made = [plain(item) for item in value]
        case _:
            iso = getattr(value, "isoformat", None)
            made = str(value) if iso is None else str(iso())
    return made


def _finite(value: float) -> float | None:
    if math.isinf(value):
        raise ValueError("an infinite number; allowed: finite ones, null where there is none")
    return None if math.isnan(value) else value


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a text with half a character (U+{ord(value[error.start]):04X}), no Unicode") from None
    return value


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()
