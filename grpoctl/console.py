"""Everything that is printed: progress, verdicts, comparisons, tables. What is said is decided in grpoctl.analysis.

Text goes to standard output, progress too; where standard output carries a JSON document, progress goes to standard
error. Colour is rich's: off where NO_COLOR is set or the stream is no terminal. Nothing is ever parsed as markup.
"""

from __future__ import annotations

import io
import json as jsonlib
import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from core.health.gains import HEADLINE, Gain
from grpoctl.analysis.compare import Comparison, Row, Side
from grpoctl.analysis.curves import chart
from grpoctl.analysis.outcome import GAIN_LEGEND, LEGEND, Line, beside_the_record, evaluations, sentences
from grpoctl.analysis.sweeps.report import head
from grpoctl.analysis.sweeps.section import Section
from grpoctl.analysis.wording import estimate_text, harmless, setting_text
from grpoctl.runs.records import finite

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_STYLES = {"plain": "", "good": "green", "bad": "bold red", "warn": "yellow"}
_LABEL = 10  # columns of a label, the space after it included
_PLAIN_LINES = 20  # progress lines of a whole run where there is no terminal
_BESIDE_GUARDS = 67  # columns of a progress line without the guards: a bar of 4, step, time left, numbers
_PIPED_WIDTH = 80  # of a chart where there is no terminal; sentences and tables are not wrapped at all there
_WIDEST = 100  # of a chart or a paragraph
_UNWRAPPED = 10_000
_GUTTER = 3  # columns between the columns of a table
_NUMBER = re.compile(r"[-+]?(\d|$)")


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether the stream (standard output by default) is a terminal that can redraw a line."""
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def print_json(document: object) -> None:
    """One JSON document on standard output; a number that is not finite becomes null, for JSON has no such number."""
    write(jsonlib.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False))


def print_error(message: str) -> None:
    """One line on standard error; a traceback after it stays as it is."""
    line, _, rest = message.partition("\n")
    _say(Line(label="", mark="error", tone="bad", text=line), sys.stderr)
    if rest:
        write(harmless(rest), sys.stderr)


def print_note(message: str) -> None:
    """One line on standard error that is no error."""
    _say(Line(label="", mark="note", tone="warn", text=message), sys.stderr)


def print_text(text: str) -> None:
    """The text as it is, on standard output."""
    write(text)


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
        print_table("", ("", "start", "final", "best"), rows, note=LEGEND)
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
    width = console_on(sys.stdout).width
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
            columns, rows = _fitted(section, console_on(sys.stdout).width)
            print_table(section.title, columns, rows, note=section.note)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> None:
    """A titled table, columns of numbers to the right; not squeezed where it is not for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = console_on(sys.stdout)
    if title:
        write(_render(console, Text(title, style="bold")))
    if not rows:
        write("  none\n")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True)
    for index, column in enumerate(columns):
        right = all(_NUMBER.match(row[index]) for row in rows)
        table.add_column(Text(column), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    write(_render(console, table) + (f"\n  {note}\n" if note else "\n"))


def console_on(stream: TextIO) -> Console:
    """A console on the stream, which wraps and squeezes nothing where the stream is no terminal."""
    from rich.console import Console

    piped = not is_terminal(stream) and "COLUMNS" not in os.environ
    width = _UNWRAPPED if piped else None
    return Console(file=_tolerant(stream), width=width, highlight=False, markup=False, emoji=False)


def write(text: str, stream: TextIO | None = None) -> None:
    """Print a text at once. A reader that has gone (`| head`) is no error: the run behind it goes on."""
    stream = stream or sys.stdout
    try:
        print(text, file=_tolerant(stream), flush=True)
    except BrokenPipeError:
        # What is still buffered would fail again at exit, so the descriptor itself leads nowhere from now on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_part(text: str, stream: TextIO) -> None:
    """Print a text without ending its line: a counter that writes over itself."""
    stream.write(text)
    stream.flush()


def _render(console: Console, what: RenderableType) -> str:
    """The renderable as the console would print it, without spaces at line ends."""
    with console.capture() as captured:
        console.print(what, soft_wrap=True)  # texts come wrapped, tables take what they need up to the width
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _tolerant(stream: TextIO) -> TextIO:
    """The stream; a character its encoding lacks is replaced from now on, never an error."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")
    return stream


def _say(line: Line, stream: TextIO | None = None) -> None:
    """Print a labelled sentence, wrapped under itself; a path or an id is never broken, a command not even wrapped."""
    from rich.text import Text

    console = console_on(stream or sys.stdout)
    label = line.label.ljust(_LABEL) if line.label else ""
    mark = f"{line.mark}: " if line.mark else ""
    wide = line.verbatim or console.width == _UNWRAPPED
    wrapped = textwrap.wrap(
        label + mark + harmless(line.text),
        width=_UNWRAPPED if wide else min(console.width, _WIDEST),
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
    text = Text("\n".join(wrapped))
    text.stylize("bold", 0, len(label))
    text.stylize(_STYLES[line.tone], len(label), len(label) + len(line.mark))
    write(_render(console, text), stream)


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
