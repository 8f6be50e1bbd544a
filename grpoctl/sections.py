"""The parts of a report that is printed: labelled sentences, and tables under their titles. Printing is not here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["plain", "good", "bad", "warn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One labelled sentence; `mark` is the word that carries the tone. `verbatim`: a command, to be copied whole."""

    label: str
    mark: str = ""
    tone: Tone = "plain"
    text: str
    verbatim: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Sentences first, then the table where there are columns, then a note under it."""

    lines: tuple[Line, ...] = ()
    title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    spare: tuple[str, ...] = ()  # columns to leave out, the first one first, where the table is wider than the terminal
