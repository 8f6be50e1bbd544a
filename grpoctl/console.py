"""How everything is printed: sentences, tables, JSON, errors. What a run or a sweep came to is not here.

Text goes to standard output, progress too; where standard output carries a JSON document, progress goes to standard
error. Colour is rich's: off where NO_COLOR is set or the stream is no terminal. Nothing is ever parsed as markup, and
no character of a text drives the terminal: each passes `harmless` on its way out, rich's own codes are added after it.
"""

from __future__ import annotations

import io
import json as jsonlib
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TextIO

from core.errors import StorageError
from core.text import harmless, harmless_json, tolerant
from grpoctl.credentials import without_credentials
from grpoctl.files import finite
from grpoctl.sections import Line, Section

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_STYLES = {"plain": "", "good": "green", "bad": "bold red", "warn": "yellow"}
_LABEL = 10  # columns of a label, the space after it included
_PIPED_WIDTH = 80  # of a paragraph, and of a chart where there is no terminal; tables are not squeezed there
_WIDEST = 100  # of a chart or a paragraph
_UNWRAPPED = 10_000
_NARROWEST = 40  # a table of fewer columns would lose its cells; the terminal itself breaks the lines
_GUTTER = 3  # columns between the columns of a table
_NUMBER = re.compile(r"[-+]?(\d|$)")


def is_terminal(stream: TextIO | None = None) -> bool:
    """True where the stream (standard output by default) is a terminal that can redraw a line."""
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def print_json(document: object) -> None:
    """One JSON document on standard output; a number that is not finite becomes null, for JSON has no such number."""
    print_json_text(jsonlib.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False))


def print_json_text(text: str) -> None:
    """A JSON document that is text already, on standard output."""
    _emit(f"{harmless_json(text, sys.stdout.encoding or 'utf-8')}\n", sys.stdout)


def print_error(message: str) -> None:
    """One line on standard error, without passwords; a traceback after it keeps its lines."""
    line, _, rest = without_credentials(message).partition("\n")
    print_line(_marked("error", "bad", line), sys.stderr)
    if rest:
        write(rest, sys.stderr)


def print_note(message: str) -> None:
    """One line on standard error that is no error, without passwords; one that begins `warning: ` is a warning."""
    mark = "warning" if message.startswith("warning: ") else "note"
    print_line(_marked(mark, "warn", without_credentials(message.removeprefix("warning: "))), sys.stderr)


def _marked(mark: str, tone: Literal["bad", "warn"], text: str) -> Line:
    """A line for standard error, which is one line wherever a program may read it."""
    return Line(label="", mark=mark, tone=tone, text=text, verbatim=not is_terminal(sys.stderr))


def print_text(text: str) -> None:
    """Sentences on standard output, a line each, broken between words where the terminal is too narrow for one.

    A line with a command is left whole, for it is copied. Text that is data (YAML, a log) is for `write`.
    """
    width = _wide_enough(console_on(sys.stdout)).width
    lines = text.split("\n")
    write("\n".join(line if "grpoctl " in line else _wrapped(line, width, "", "  ") for line in lines))


def print_paragraph(text: str, indent: str = "") -> None:
    """The text on standard output in lines of at most 80 columns; with an indent, later ones stand two further in."""
    width = min(_wide_enough(console_on(sys.stdout)).width, _PIPED_WIDTH)
    write(_wrapped(text, width, indent, indent + "  " * bool(indent)))


def print_data(text: str) -> None:
    """A text that is data where standard output is no terminal: not a character of it is changed there."""
    _emit(f"{harmless(text) if is_terminal() else text}\n", sys.stdout)


def print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A traceback on standard error, without passwords: what the interpreter calls for an error that nobody caught."""
    write(without_credentials("".join(traceback.format_exception(kind, error, trace)).rstrip()), sys.stderr)


def short(value: float | None) -> str:
    """A number in five places."""
    if value is None:
        return "-"
    if abs(value) >= 100 or 0 < value < 0.001:
        return f"{value:.0e}".replace("e+0", "e")
    return f"{value:.3f}"[:5].rstrip(".")


def print_sections(sections: Sequence[Section]) -> None:
    """Sentences, and tables under their titles."""
    for section in sections:
        for line in section.lines:
            print_line(line)
        if section.lines and section is not sections[-1]:
            write("")
        if section.columns:
            columns, rows = _fitted(section, _wide_enough(console_on(sys.stdout)).width)
            print_table(section.title, columns, rows, note=section.note)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> None:
    """A titled table, columns of numbers to the right; not squeezed where it is not for a terminal."""
    from rich import box
    from rich.table import Table

    console = _wide_enough(console_on(sys.stdout))
    if title:
        heading = rich_text(_wrapped(title, console.width, "", "  "))
        heading.stylize("bold")
        _emit(_render(console, heading), sys.stdout)
    if not rows:
        write("  none\n")
        return
    widths = _widths([columns, *rows], console.width - _GUTTER * len(columns) + 1)
    if widths is None:
        _print_records(columns, rows, console.width)
    else:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True)
        for index, column in enumerate(columns):
            right = all(_NUMBER.match(row[index]) for row in rows)
            justify: Literal["right", "left"] = "right" if right else "left"
            table.add_column(rich_text(column), justify=justify, overflow="fold", width=widths[index])
        for row in rows:
            table.add_row(*map(rich_text, row))
        _emit(_render(console, table), sys.stdout)
    write(f"{_wrapped(note, console.width, '  ', '  ')}\n" if note else "")


def _widths(lines: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """The columns' widths, no word of a cell broken, headers (the first line) wrapped before the cells below them.

    None where the longest words alone need more than the room.
    """
    from rich.cells import cell_len

    def widest(index: int, parts: Callable[[str], list[str]], first: int = 0) -> int:
        cells = (harmless(line[index]).expandtabs() for line in lines[first:])
        return max((cell_len(part) for cell in cells for part in parts(cell)), default=0)

    least = [widest(index, str.split) for index in range(len(lines[0]))]
    most = [widest(index, str.splitlines) for index in range(len(lines[0]))]
    if sum(most) <= room:
        return most
    if sum(least) > room:
        return None
    below = [max(widest(index, str.splitlines, 1), least[index]) for index in range(len(least))]
    widths, wanted = (below, most) if sum(below) <= room else (list(least), below)
    while sum(widths) < room:  # the narrowest of those that want more, cell by cell
        index = min((index for index in range(len(widths)) if widths[index] < wanted[index]), key=lambda i: widths[i])
        widths[index] += 1
    return widths


def _print_records(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    """A table that is too wide for its words: each row as a block, its first cell above the others."""
    for first, *others in rows:
        write(f" {columns[0]}: {first}" if columns[0] and first else f" {first}".rstrip())
        for column, cell in zip(columns[1:], others, strict=True):
            text = f"{' '.join(column.split())}: {cell}" if column else cell
            if cell:
                write(_wrapped(text, width, "   ", "     "))
    write("")


def _wrapped(text: str, width: int, first: str, later: str) -> str:
    """The text in lines of that width, no word broken."""
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def rich_text(text: str, *, one_line: bool = False) -> Text:
    """The text for rich: nothing in it drives the terminal or is markup; cut off rather than wrapped where asked."""
    from rich.text import Text

    how: Mapping[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if one_line else {}
    return Text(harmless(text).expandtabs(), **how)


def console_on(stream: TextIO) -> Console:
    """A console on the stream, which wraps and squeezes nothing where the stream is no terminal.

    COLUMNS and LINES count where they are numbers above 0, as everywhere; rich takes a 0 and fails at a "²".
    """
    from rich.console import Console

    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    width = _number_of("COLUMNS") or (None if is_terminal(stream) else _UNWRAPPED)
    return Console(
        file=tolerant(stream), width=width, height=_number_of("LINES"), highlight=False, markup=False, emoji=False,
        _environ=environ,
    )  # fmt: skip


def chart_width() -> int:
    """The columns of a chart on standard output."""
    width = _wide_enough(console_on(sys.stdout)).width
    return _PIPED_WIDTH if width == _UNWRAPPED else min(width, _WIDEST)


def _wide_enough(console: Console) -> Console:
    """The console, at least so wide that a table keeps its cells."""
    console.width = max(console.width, _NARROWEST)
    return console


def terminal_width() -> int | None:
    """The columns of the terminal on standard output; None where what is printed is not for one."""
    width = _wide_enough(console_on(sys.stdout)).width
    return None if width == _UNWRAPPED else width


def write_wrapped(text: str, stream: TextIO) -> None:
    """Print lines, broken between words where the stream's terminal is too narrow for one; a path stays whole."""
    width = _wide_enough(console_on(stream)).width
    write("\n".join(_wrapped(line, width, "", "  ") for line in text.split("\n")), stream)


def write(text: str, stream: TextIO | None = None) -> None:
    """Print a text at once, nothing in it driving the terminal.

    A reader that has gone (`| head`) is no error: the run behind it goes on. Raises StorageError for a full disk.
    """
    _emit(f"{harmless(text)}\n", stream or sys.stdout)


def write_part(text: str, stream: TextIO) -> None:
    """Print a text of ours without ending its line: a counter that writes over itself."""
    _emit(text, stream)


def _emit(text: str, stream: TextIO) -> None:
    """The text on the stream as it is: what is not ours is harmless by now."""
    try:
        tolerant(stream).write(text)
        stream.flush()
    except OSError as error:
        # What is still buffered would fail again at exit, so the descriptor itself leads nowhere from now on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            name = "standard error" if stream is sys.stderr else "standard output"
            raise StorageError(f"cannot write {name}: {error.strerror or error}") from error


def _number_of(variable: str) -> int | None:
    """Columns or lines as the environment has them, at most `_UNWRAPPED`; None where it has no number above 0."""
    digits = os.environ.get(variable, "").strip().lstrip("0")
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) if len(digits) < len(str(_UNWRAPPED)) else _UNWRAPPED


def _render(console: Console, what: RenderableType) -> str:
    """The renderable as the console would print it, without spaces at line ends."""
    rendered = io.StringIO()
    console.file = rendered  # colours are decided by now; rich's own capture would write to the stream, if only ""
    console.print(what, soft_wrap=True)  # texts come wrapped, tables take what they need up to the width
    return "".join(f"{line.rstrip()}\n" for line in rendered.getvalue().split("\n")[:-1])


def print_line(line: Line, stream: TextIO | None = None) -> None:
    """Print a labelled sentence, wrapped under itself; a path or an id is never broken, a command not even wrapped."""
    stream = stream or sys.stdout
    console = _wide_enough(console_on(stream))
    label = line.label.ljust(_LABEL) if line.label else ""
    mark = f"{line.mark}: " if line.mark else ""
    wide = line.verbatim or console.width == _UNWRAPPED
    wrapped = textwrap.wrap(
        harmless(label + mark + line.text),
        width=_UNWRAPPED if wide else min(console.width, _WIDEST),
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
    text = rich_text("\n".join(wrapped))
    text.stylize("bold", 0, len(label))
    text.stylize(_STYLES[line.tone], len(label), len(label) + len(line.mark))
    _emit(_render(console, text), stream)


def _fitted(section: Section, width: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of a table; where it is too wide its spare columns go, then headings are broken."""
    kept = list(range(len(section.columns)))
    for name in section.spare:
        if _wide(section, kept) > width:
            kept = [index for index in kept if section.columns[index] != name]
    columns, *rows = [tuple(row[index] for index in kept) for row in (section.columns, *section.rows)]
    if section.spare and _wide(section, kept) > width:
        columns = tuple(re.sub(r"(?<=[_/])", "\n", column) for column in columns)
    return columns, rows


def _wide(section: Section, kept: Sequence[int]) -> int:
    cells = [section.columns, *section.rows]
    return sum(max(len(row[index]) for row in cells) + _GUTTER for index in kept)
