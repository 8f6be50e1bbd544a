"""Everything that is printed: progress, verdicts, comparisons, tables. What is said is decided in grpoctl.analysis.

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
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from core.errors import StorageError
from core.health.gains import HEADLINE, Gain
from core.text import harmless, harmless_json, tolerant
from grpoctl.analysis.compare import Comparison, Row, Side
from grpoctl.analysis.curves import chart
from grpoctl.analysis.outcome import GAIN_LEGEND, Line, beside_the_record, evaluations, legend_of, sentences
from grpoctl.analysis.sweeps.report import head
from grpoctl.analysis.sweeps.section import Section
from grpoctl.analysis.wording import estimate_text, setting_text
from grpoctl.runs.credentials import without_credentials
from grpoctl.runs.records import finite

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_STYLES = {"plain": "", "good": "green", "bad": "bold red", "warn": "yellow"}
_LABEL = 10  # columns of a label, the space after it included
_PLAIN_LINES = 20  # progress lines of a whole run where there is no terminal
_BESIDE_GUARDS = 67  # columns of a progress line without the guards: a bar of 4, step, time left, numbers
_PIPED_WIDTH = 80  # of a chart where there is no terminal; sentences and tables are not wrapped at all there
_WIDEST = 100  # of a chart or a paragraph
_UNWRAPPED = 10_000
_NARROWEST = 40  # a table of fewer columns would lose its cells; the terminal itself breaks the lines
_GUTTER = 3  # columns between the columns of a table
_NUMBER = re.compile(r"[-+]?(\d|$)")


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether the stream (standard output by default) is a terminal that can redraw a line."""
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
    _say(Line(label="", mark="error", tone="bad", text=line), sys.stderr)
    if rest:
        write(rest, sys.stderr)


def print_note(message: str) -> None:
    """One line on standard error that is no error, without passwords."""
    _say(Line(label="", mark="note", tone="warn", text=without_credentials(message)), sys.stderr)


def print_text(text: str) -> None:
    """The text as it is, on standard output."""
    write(text)


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


def print_result(result: Mapping[str, Any], recorded: Mapping[str, float]) -> None:
    """The verdict on one run: ending, gains, evaluations, expectations, findings, the record beside it, files."""
    lines = sentences(result)
    first = [line for line in lines if line.label in ("Run", "Reached", "Stage")]
    for line in first:
        _say(line)
    rows = evaluations(result)
    if rows:
        write("")
        print_table("", ("", "start", "final", "best"), rows, note=legend_of(result))
    for line in lines[len(first) :]:
        _say(line)
    if recorded:
        write("")
        print_table("The record and this run", ("", "record", "this run"), beside_the_record(result, recorded))
    _say(Line(label="Files", text=str(result["run_dir"])))


def print_comparison(comparison: Comparison) -> None:
    """Both sides, the changed settings, notes, metrics over seeds, curves, and the verdict last."""
    for side in (comparison.a, comparison.b):
        _say(Line(label=side.letter, text=_side(side)))
    changed = [(key, setting_text(a), setting_text(b)) for key, (a, b) in comparison.changed.items()]
    write("")
    print_table("Changed settings", ("", "A", "B"), changed)
    for note in comparison.notes:
        _say(Line(label="Note", text=note))
    write("")
    rows = [_comparison_row(name, row) for name, row in comparison.metrics.items()]
    print_table("Means over seeds (±, [ ]: 95 % t interval over seeds)", ("", "A", "B", "B - A", ""), rows)
    if any(row[-1] for row in rows):
        write("  * the interval of B - A leaves 0 out\n")
    if any(len(gains) > 1 for gains in comparison.stages.values()):
        print_table("Gains of eval/reward by stage", ("stage", "A", "B"), _stage_rows(comparison), note=GAIN_LEGEND)
    width = _wide_enough(console_on(sys.stdout)).width
    width = _PIPED_WIDTH if width == _UNWRAPPED else min(width, _WIDEST)
    write(
        chart(
            "eval/reward, mean over seeds", [comparison.a.curve, comparison.b.curve], axis=comparison.axis, width=width
        )
        + "\n"
    )
    _say(Line(label="Verdict", text=comparison.verdict))


def print_study(document: Mapping[str, Any]) -> None:
    """The verdict on a sweep: what was asked, how it stands, what came out, and its best candidates."""
    print_sections(head(document))


def print_sections(sections: Sequence[Section]) -> None:
    """Sentences, and tables under their titles."""
    for section in sections:
        for line in section.lines:
            _say(line)
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
        heading = rich_text(title)
        heading.stylize("bold")
        _emit(_render(console, heading), sys.stdout)
    if not rows:
        write("  none\n")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True)
    for index, column in enumerate(columns):
        right = all(_NUMBER.match(row[index]) for row in rows)
        table.add_column(rich_text(column), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(rich_text, row))
    _emit(_render(console, table), sys.stdout)
    write(f"  {note}\n" if note else "")


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


def _wide_enough(console: Console) -> Console:
    """The console, at least so wide that a table keeps its cells."""
    console.width = max(console.width, _NARROWEST)
    return console


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


def _say(line: Line, stream: TextIO | None = None) -> None:
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


def _side(side: Side) -> str:
    statuses = ", ".join(f"{count} {status}" for status, count in Counter(side.statuses).items())
    seeds = "seed " if len(side.seeds) == 1 else "seeds "
    return f"{side.name}, profile {side.profile}, {seeds}{', '.join(map(str, side.seeds))} ({statuses})"


def _stage_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """What each stage gained on either side."""
    sides = [comparison.stages.get(letter, {}) for letter in ("a", "b")]
    names = list(dict.fromkeys(name for side in sides for name in side))
    return [(name, _gain_cell(sides[0].get(name)), _gain_cell(sides[1].get(name))) for name in names]


def _gain_cell(gain: Gain | None) -> str:
    known = gain is not None and gain.gain is not None
    return estimate_text(HEADLINE, gain.gain, gain.interval, signed=True) if known and gain is not None else "-"


def _comparison_row(name: str, row: Row) -> tuple[str, str, str, str, str]:
    gap = row.difference
    cells = ["-" if entry is None else estimate_text(name, entry.mean, entry.interval) for entry in (row.a, row.b)]
    cells.append("-" if gap is None else estimate_text(name, gap.mean, gap.interval, signed=gap.mean > 0))
    clear = gap is not None and gap.interval is not None and not gap.interval[0] <= 0 <= gap.interval[1]
    return (name, cells[0], cells[1], cells[2], "*" if clear else "")
