"""Which lines of a text stand in one table, and how they are cut into cells: by bars, tabs, spaces or commas.

What is not here: what the cells mean and which way round the table is (written_tables).
"""

from __future__ import annotations

import re
from typing import Literal, assert_never

from grpoctl.diagnose.readers.written_tables import WrittenTable

Cut = Literal["bars", "gaps", "words", "commas"]  # what stands between a table's cells

_GAP = re.compile(r"\s{2,}")
_RULE = re.compile(r"[\s|:+=\-─━═┼╪│┃╋┿╇┏┓┗┛┡┩└┘├┤┬┴╭╮╰╯┳┻╈]*")
_REMARKS = ("<-", "<--", "<---", "←", "#", "//", "<=", "<==", "--", "⇐")  # behind a row's last value
_BOXES = str.maketrans("│┃║", "|||")


class TableLines:
    """The lines of a table as cells, while they come: its header first."""

    def __init__(self, cut: Cut = "bars", title: str = "") -> None:
        self.cut = cut
        self.title = title  # the words above it
        self.rows: list[tuple[int, list[str]]] = []  # (line, cells)
        self.size = 0  # characters
        self.blank = False  # the line before was empty
        self._parted = False  # an empty line stood before the last row

    @property
    def is_open(self) -> bool:
        """Whether there is a header."""
        return bool(self.rows)

    def add(self, number: int, cells: list[str], size: int) -> None:
        """A row, or the header."""
        self.rows.append((number, cells))
        self.size += size
        self._parted, self.blank = self.blank, False

    def row_of(self, text: str, cells: list[str] | None) -> list[str] | None:
        """The line as a row of this table; None where it is none. Markdown leaves out empty cells at the end."""
        if (self.cut == "bars") != (cells is not None):
            return None
        width = len(self.rows[0][1])
        if cells is not None:
            row = [*cells, *[""] * (width - len(cells))]
            return None if any(map(str.strip, row[width:])) else row[:width]
        row = cut_cells(text, self.cut)
        if len(row) != width:
            row = text.split()
        if len(row) == width + 1 and row[0].isdigit():
            row = row[1:]  # the index that pandas prints
        if len(row) > width and row[width] in _REMARKS:
            row = row[:width]
        return row if len(row) == width else None

    def begins_another(self, rule: str) -> bool:
        """Whether the rule (Markdown) makes the row before it, behind an empty line, the header of another table."""
        return "|" in rule and "-" in rule and self._parted and len(self.rows) > 1

    def last_as_header(self) -> TableLines:
        """The table that the last row begins; it is taken out of this one."""
        following = TableLines(self.cut)
        following.rows.append(self.rows.pop())
        return following

    def rest(self) -> TableLines:
        """A table with this one's header, for the rows that follow."""
        following = TableLines(self.cut, self.title)
        following.rows.append(self.rows[0])
        return following

    def written(self) -> WrittenTable:
        """The table to be read."""
        return WrittenTable(lines=[number for number, _ in self.rows], rows=[cells for _, cells in self.rows])


def is_rule(text: str) -> bool:
    """Whether the line is drawn between a table's rows."""
    return _RULE.fullmatch(text) is not None


def split_cells(text: str) -> list[str] | None:
    """The cells of a table's line: by tabs, or between bars; None where it has neither."""
    if "\t" in text:
        return text.rstrip("\n").split("\t")
    text = text.translate(_BOXES)
    if text.count("|") >= 2 and "%|" not in text:
        stripped = text.strip()
        return stripped.removeprefix("|").removesuffix("|").split("|")
    return None


def cut_cells(text: str, cut: Cut) -> list[str]:
    """The cells of a line of a table without bars and tabs."""
    match cut:
        case "gaps":
            return _GAP.split(text.strip())
        case "commas":
            return text.strip().split(",")
        case "words" | "bars":
            return text.split()
        case _:
            assert_never(cut)
