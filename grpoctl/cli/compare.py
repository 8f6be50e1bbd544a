"""`grpoctl compare`: is B really better than A, or is that seed noise?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from core.errors import UserError
from core.health.rules.gains import HEADLINE, Gain
from grpoctl.analysis import compare as comparison_of
from grpoctl.analysis.agreement import agreement_lines
from grpoctl.analysis.baselines import side_by_side
from grpoctl.analysis.caveats import how_many
from grpoctl.analysis.collect import sides
from grpoctl.analysis.compare import Comparison, Place, Row, Side
from grpoctl.analysis.contrasts import Contrast
from grpoctl.analysis.curves import Curve, chart
from grpoctl.analysis.outcome import GAIN_LEGEND
from grpoctl.cli.options import Json
from grpoctl.console import chart_width, print_json, print_line, print_sections, print_table, write
from grpoctl.runs import liveness
from grpoctl.runs.run_dir import Home
from grpoctl.sections import Line
from grpoctl.wording import estimate_text, metric_text, plural, setting_text

SIDES = (
    "Experiments (finished runs, one per seed), specs by the hash in their runs' ids (p31-5707c461), "
    "trials of a study (STUDY-t0007), or runs."
)
# How a policy answers comes before what it earns: a reward may have been bought with length, or with cut-off answers.
BEFORE_SCORES = ("eval/length", "eval/truncated", "eval/valid")


def compare(
    names: Annotated[list[str], typer.Argument(metavar="A B [C ...]", help=SIDES)],
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Only runs of this profile.")] = None,
    json: Json = False,
) -> None:
    if len(names) < 2:
        raise UserError(f"got one side, {names[0]}; name what to compare it with: grpoctl compare {names[0]} B [C ...]")
    home = Home.locate()
    liveness.reconcile(home)
    comparison = comparison_of.compare(*sides(home, names, profile))
    if json:
        print_json(comparison.document())
    else:
        print_comparison(comparison)


def print_comparison(comparison: Comparison) -> None:
    """Print the verdict and what would change it, the sides and how they differ, checks, then scores and curves."""
    print_line(Line(label="Verdict", text=comparison.verdict))
    for text in comparison.would_change:
        print_line(Line(label="Unless", text=text))
    write("")
    letters = [side.letter for side in comparison.sides]
    for side in comparison.sides:
        print_line(Line(label=side.letter, text=_side(side)))
    changed = [
        (key + (" (inert)" if key in comparison.inert else ""), *map(setting_text, values))
        for key, values in comparison.changed.items()
    ]
    write("")
    print_table("Changed settings", ("", *letters), changed)
    for key, why in comparison.inert.items():
        print_line(Line(label="Inert", text=f"{key}: {why}"))
    for note in comparison.notes:
        print_line(Line(label="Note", text=note))
    for side in comparison.sides:
        print_line(Line(label=f"Checks {side.letter}", text=_checks(comparison, side)))
    write("")
    _print_means(
        comparison, "How they answer, means over seeds", [name for name in comparison.metrics if name in BEFORE_SCORES]
    )
    for place in comparison.places:
        _print_place(comparison, place)
    _print_means(comparison, "Means over seeds", [name for name in comparison.metrics if name not in BEFORE_SCORES])
    if any(len(gains) > 1 for gains in comparison.stages.values()):
        stages = _stage_rows(comparison)
        print_table("Gains of eval/reward by stage", ("stage", *letters), stages, note=GAIN_LEGEND)
    print_sections(side_by_side({side.letter: comparison.baselines.get(side.key, {}) for side in comparison.sides}))
    alike = agreement_lines(comparison.agreement)
    for line in alike:
        print_line(line)
    if alike:
        write("")
    write(chart("eval/reward, mean over seeds", _curves(comparison), axis=comparison.axis, width=chart_width()))


def _side(side: Side) -> str:
    statuses = ", ".join(f"{count} {status}" for status, count in Counter(side.statuses).items())
    seeds = "seed " if len(side.seeds) == 1 else "seeds "
    return f"{side.name}, profile {side.profile}, {seeds}{', '.join(map(str, side.seeds))} ({statuses})"


def _checks(comparison: Comparison, side: Side) -> str:
    """Whether the side's runs are sound, and what was found in how many of them."""
    bad = len(side.excluded)
    total = len(side.seeds) + bad if side.sound else bad
    sampler = f"{bad} of {plural(total, 'run')} unsound" if bad else f"{plural(total, 'run')}, all sound"
    found = comparison.findings.get(side.key, {})
    shown = [
        f"{entry['severity']} {name} in {how_many(entry, total)}"
        for name, entry in found.items()
        if entry["severity"] != "info"
    ]
    return f"{sampler}; {', '.join(shown) if shown else 'no warnings'}"


def _print_place(comparison: Comparison, place: Place) -> None:
    """The headline metric of every side against the best one."""
    sides, best = comparison.sides, place.best
    if best is None:
        return
    where = "at the end"
    if place.completions is not None:
        where = f"at {metric_text('completions', place.completions)} completions each"
    rows, sources = [], []
    for number, side in enumerate(sides):
        value = place.means[number]
        gap = place.over(best, number) if number != best and value is not None else None
        against = ("left out", "") if side.key in comparison.left_out else _against(gap, best=number == best)
        rows.append((side.letter, side.name, metric_text(HEADLINE, value), *against))
        if gap is not None and gap.sources is not None and (shares := gap.sources.shares()):
            shown = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
            sources.append(f"{sides[best].letter} - {side.letter}: {shown}")
    columns = ("", "", HEADLINE, "below the best", "runs below")
    note = "* excludes 0; runs below: chance that one of the best beats one of these"
    note += f"; variance by source of {'; '.join(sources)}" if sources else ""
    print_table(f"{HEADLINE} {where} ([ ]: 95 %, all pairs at once)", columns, rows, note=note)


def _against(gap: Contrast | None, *, best: bool) -> tuple[str, str]:
    if gap is None:
        return ("best" if best else "-", "")
    return estimate_text(HEADLINE, gap.mean, gap.family) + (" *" if gap.clear else ""), f"{gap.improvement.value:.0%}"


def _print_means(comparison: Comparison, title: str, names: Sequence[str]) -> None:
    """The means of these metrics over seeds; two sides with their gap."""
    if not names:
        return
    rows = [_metric_row(name, comparison.metrics[name]) for name in names]
    letters = [side.letter for side in comparison.sides]
    two = len(letters) == 2
    columns = ("", *letters, "B - A", "") if two else ("", *letters)
    note = "* the 95 % interval of B - A excludes 0" if two and any(row[-1] for row in rows) else ""
    print_table(f"{title} (±, [ ]: 95 % t interval over seeds)", columns, rows, note=note)


def _stage_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The gain of each stage on every side."""
    sides = [comparison.stages.get(side.key, {}) for side in comparison.sides]
    names = list(dict.fromkeys(name for side in sides for name in side))
    return [(name, *(_gain_cell(side.get(name)) for side in sides)) for name in names]


def _gain_cell(gain: Gain | None) -> str:
    known = gain is not None and gain.gain is not None
    return estimate_text(HEADLINE, gain.gain, gain.interval, signed=True) if known and gain is not None else "-"


def _metric_row(name: str, row: Row) -> tuple[str, ...]:
    gap = row.difference
    cells = [
        "-" if entry is None else estimate_text(name, entry.mean, entry.interval) for entry in row.estimates.values()
    ]
    if len(cells) > 2:
        return (name, *cells)
    cells.append("-" if gap is None else estimate_text(name, gap.mean, gap.interval, signed=gap.mean > 0))
    clear = gap is not None and gap.interval is not None and not gap.interval[0] <= 0 <= gap.interval[1]
    return (name, *cells, "*" if clear else "")


def _curves(comparison: Comparison) -> list[Curve]:
    """Both curves, or of several sides the two that end highest: more cannot be told apart without colour."""
    means = comparison.places[-1].means
    known = [at for at, value in enumerate(means) if value is not None]
    highest = sorted(known, key=lambda at: -(means[at] or 0.0))[:2]
    return [comparison.sides[at].curve for at in sorted(highest)]
