"""`grpoctl compare`: is B really better than A, or is that seed noise?"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from core.health.rules.gains import HEADLINE, Gain
from grpoctl.analysis import compare as comparison_of
from grpoctl.analysis.agreement import Agreement
from grpoctl.analysis.baselines import side_by_side
from grpoctl.analysis.collect import sides
from grpoctl.analysis.compare import Comparison, Row, Side
from grpoctl.analysis.curves import chart
from grpoctl.analysis.outcome import GAIN_LEGEND
from grpoctl.cli.options import Json
from grpoctl.console import chart_width, print_json, print_line, print_sections, print_table, write
from grpoctl.runs import liveness
from grpoctl.runs.run_dir import Home
from grpoctl.sections import Line
from grpoctl.wording import estimate_text, plural, setting_text


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Experiment (its finished runs, one per seed) or run.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Experiment or run to compare with A.")],
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Only runs of this profile.")] = None,
    json: Json = False,
) -> None:
    home = Home.locate()
    liveness.reconcile(home)
    comparison = comparison_of.compare(*sides(home, a, b, profile))
    if json:
        print_json(comparison.document())
    else:
        print_comparison(comparison)


def print_comparison(comparison: Comparison) -> None:
    """Print both sides, the changed settings, notes, metrics over seeds, curves, and the verdict last."""
    for side in (comparison.a, comparison.b):
        print_line(Line(label=side.letter, text=_side(side)))
    changed = [(key, setting_text(a), setting_text(b)) for key, (a, b) in comparison.changed.items()]
    write("")
    print_table("Changed settings", ("", "A", "B"), changed)
    for note in comparison.notes:
        print_line(Line(label="Note", text=note))
    write("")
    rows = [_metric_row(name, row) for name, row in comparison.metrics.items()]
    print_table("Means over seeds (±, [ ]: 95 % t interval over seeds)", ("", "A", "B", "B - A", ""), rows)
    if any(row[-1] for row in rows):
        write("  * the 95 % interval of B - A excludes 0\n")
    if any(len(gains) > 1 for gains in comparison.stages.values()):
        print_table("Gains of eval/reward by stage", ("stage", "A", "B"), _stage_rows(comparison), note=GAIN_LEGEND)
    print_sections(side_by_side({letter: comparison.baselines.get(letter.lower(), {}) for letter in "AB"}))
    alike = agreement_lines(comparison.agreement)
    for line in alike:
        print_line(line)
    if alike:
        write("")
    curves = [comparison.a.curve, comparison.b.curve]
    write(chart("eval/reward, mean over seeds", curves, axis=comparison.axis, width=chart_width()) + "\n")
    print_line(Line(label="Verdict", text=comparison.verdict))


def agreement_lines(agreement: Agreement) -> list[Line]:
    """How many greedy outputs are the same at the end, and how far the trained weights differ, where that is known."""
    lines = []
    if agreement.of:
        share = f"{agreement.equal:,} of {agreement.of:,} held-out problems"
        seeds = f" (over {len(agreement.outputs)} seeds)" if len(agreement.outputs) > 1 else ""
        text = f"{share} get the same greedy output from both sides at the end{seeds}"
        lines.append(Line(label="Outputs", text=text))
    if agreement.weights_mean is not None:
        seeds = f" (mean over {plural(len(agreement.weights), 'seed')})" if len(agreement.weights) > 1 else ""
        text = f"mean absolute difference {agreement.weights_mean:.2g} between the trained weights at the end{seeds}"
        lines.append(Line(label="Weights", text=text))
    return lines


def _side(side: Side) -> str:
    statuses = ", ".join(f"{count} {status}" for status, count in Counter(side.statuses).items())
    seeds = "seed " if len(side.seeds) == 1 else "seeds "
    return f"{side.name}, profile {side.profile}, {seeds}{', '.join(map(str, side.seeds))} ({statuses})"


def _stage_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """The gain of each stage on either side."""
    sides = [comparison.stages.get(letter, {}) for letter in ("a", "b")]
    names = list(dict.fromkeys(name for side in sides for name in side))
    return [(name, _gain_cell(sides[0].get(name)), _gain_cell(sides[1].get(name))) for name in names]


def _gain_cell(gain: Gain | None) -> str:
    known = gain is not None and gain.gain is not None
    return estimate_text(HEADLINE, gain.gain, gain.interval, signed=True) if known and gain is not None else "-"


def _metric_row(name: str, row: Row) -> tuple[str, str, str, str, str]:
    gap = row.difference
    cells = ["-" if entry is None else estimate_text(name, entry.mean, entry.interval) for entry in (row.a, row.b)]
    cells.append("-" if gap is None else estimate_text(name, gap.mean, gap.interval, signed=gap.mean > 0))
    clear = gap is not None and gap.interval is not None and not gap.interval[0] <= 0 <= gap.interval[1]
    return (name, cells[0], cells[1], cells[2], "*" if clear else "")
