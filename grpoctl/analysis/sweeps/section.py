"""A part of a report: sentences, or a table under a title."""

from __future__ import annotations

from dataclasses import dataclass

from grpoctl.analysis.outcome import Line


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Sentences first, then the table where there are columns, then a note under it."""

    lines: tuple[Line, ...] = ()
    title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    spare: tuple[str, ...] = ()  # columns to leave out, the first one first, where the table is wider than the terminal
