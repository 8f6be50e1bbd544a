"""The part of a report that is about runs: one spec by itself, or two and more compared.

Every statistic is one that `compare` makes (grpoctl.analysis.compare); what is here is the choice and order of what is
shown, and the tables that the charts are drawn from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from core.health.finding import SEVERITIES
from core.health.rules.gains import HEADLINE, Gain
from grpoctl.analysis.agreement import agreement_lines
from grpoctl.analysis.baselines import beside_baselines, side_by_side
from grpoctl.analysis.caveats import findings_of, how_many, unsound
from grpoctl.analysis.collect import RunRecord
from grpoctl.analysis.compare import Comparison, Place, Row, Side, compare, run_gain
from grpoctl.analysis.contrasts import Contrast
from grpoctl.analysis.curves import axis_of
from grpoctl.analysis.outcome import GAIN_LEGEND, evaluations, legend_of, met_in_words, sentences
from grpoctl.analysis.problems import Answers
from grpoctl.analysis.sweeps.wording import params_text, short_keys
from grpoctl.report import answers as recorded
from grpoctl.report import charts, series
from grpoctl.report.document import Block, Cell, Chart, Part, Picture, Pictures, Table, labelled
from grpoctl.report.provenance import command, provenance, provenance_of, repeat, run_command
from grpoctl.runs.run_dir import RunDir
from grpoctl.sections import Line, Section
from grpoctl.wording import count_text, estimate_text, gain_text, label, metric_text, plural, setting_text

Runs = Sequence[RunRecord]

BEFORE_SCORES = ("eval/length", "eval/truncated", "eval/valid")  # a reward may have been bought with these
_MOST_PICTURES = 6
_LONGEST_NAME = 60  # characters of a side's name
_MOST_SENTENCES = 3  # runs whose endings are told in full

SIDE_BY_SIDE = "The same prompts side by side"


def part_of(sides: Sequence[Runs], prefix: str) -> Part:
    """The part of these sides, each the runs of one spec; `prefix` begins the names of its charts and tables."""
    return _alone(sides[0], prefix) if len(sides) == 1 else _compared(sides, prefix)


def _compared(sides: Sequence[Runs], prefix: str) -> Part:
    comparison = compare(*sides)
    experiments = [str(runs[0].result["recorded_as"]) for runs in sides]
    names = _names(comparison, experiments)
    kept = [
        [run for run in runs if run.run_id in side.run_ids] for side, runs in zip(comparison.sides, sides, strict=True)
    ]
    named = dict(zip(names, kept, strict=True))
    verdict = [Line(label="Verdict", text=comparison.verdict)]
    verdict += [Line(label="Unless", text=text) for text in comparison.would_change]
    every = [run for runs in sides for run in runs]
    blocks: list[Block] = [
        Section(title="Sides", columns=("", "", "profile", "seeds", "ended", "completions", HEADLINE),
                rows=tuple(_side_row(side, name[2:], comparison)
                           for side, name in zip(comparison.sides, names, strict=True))),
        *_settings(comparison),
        *([labelled([Line(label="Note", text=note) for note in comparison.notes], "Before reading on")]
          if comparison.notes else []),
        findings({side.letter: runs for side, runs in zip(comparison.sides, sides, strict=True)}),
        *_forests(comparison, named, prefix),
        _means(comparison),
        *_stages(comparison),
        *side_by_side({side.letter: comparison.baselines.get(side.key, {}) for side in comparison.sides}),
        *curves(named, prefix),
        *_answers(comparison, names, kept, prefix),
        *_alike(comparison),
        *pictures(named),
        provenance(every),
        repeat([
            *((run_command(runs), "trains one side") for runs in sides),
            (command("compare", *(str(runs[0].result["experiment"]) if _plain(runs, sides) else runs[0].run_id
                                  for runs in sides)), "compares them"),
        ]),
    ]  # fmt: skip
    return Part(
        kind="comparison",
        title=_title(names, experiments),
        verdict=tuple(verdict),
        blocks=tuple(blocks),
        numbers={"comparison": comparison.document(), "runs": [run_numbers(run) for run in every]},
    )


def _title(names: Sequence[str], experiments: Sequence[str]) -> str:
    """The sides by name where there are two, and what they are all of."""
    of_all = f"{experiments[0]}: " if len(set(experiments)) == 1 else ""
    return of_all + (" and ".join(names) if len(names) == 2 else f"{len(names)} sides, A to {names[-1][0]}")


def _names(comparison: Comparison, experiments: Sequence[str]) -> list[str]:
    """`A p30@1`; of sides of one experiment `A num_generations=2 learning_rate=0.0003`: what tells them apart.

    `experiments` are theirs, as recorded. Settings that can have made no difference are left out.
    """
    shown = {key: values for key, values in comparison.changed.items() if key not in comparison.inert}
    if len(set(experiments)) == len(experiments) or not shown:
        return [charts.shortened(f"{side.letter} {side.name}", _LONGEST_NAME) for side in comparison.sides]
    short, one = short_keys(shown), len(set(experiments)) == 1
    names = []
    for place, (side, experiment) in enumerate(zip(comparison.sides, experiments, strict=True)):
        settings = params_text({key: values[place] for key, values in shown.items()}, short)
        names.append(" ".join([side.letter, *([] if one else [experiment]), settings]))
    return names


def _alone(runs: Runs, prefix: str) -> Part:
    name = label(runs[0].result)
    verdict = [Line(label="Verdict", text=_gained(runs))]
    verdict += [Line(label="Expected", mark=mark, tone=tone, text=text) for mark, tone, text in _expectations(runs)]
    last = [Answers(run) for run in runs]
    before = recorded.at_the_start("before training", last)
    # Findings stand in their own table.
    told = [line for run in runs[:_MOST_SENTENCES] for line in sentences(run.result) if line.label != "Finding"]
    blocks: list[Block] = [
        Section(title="Runs", columns=("run", "seed", "ended", "steps", "updates", "completions", HEADLINE),
                rows=tuple(_run_row(run) for run in runs)),
        findings({name: runs}),
        labelled(told, "How each run ended"),
        *(Section(title=f"Evaluations of {run.run_id}", columns=("", "start", "final", "best"),
                  rows=tuple(evaluations(run.result)), note=legend_of(run.result))
          for run in runs[:_MOST_SENTENCES] if evaluations(run.result)),
        *(beside_baselines(runs[0].result) if len(runs) == 1 else []),
        *curves({name: runs}, prefix),
        *shown_answers(prefix, before, recorded.at_the_end("at the end", last)),
        *pictures({name: runs}),
        Section(title="All settings", columns=("setting", "value"),
                rows=tuple((key, setting_text(value)) for key, value in sorted(runs[0].spec.items()))),
        provenance(runs),
        repeat([(run_command(runs), "trains it again")]),
    ]  # fmt: skip
    return Part(
        kind="runs",
        title=f"{name}, profile {runs[0].result['profile']}",
        verdict=tuple(verdict),
        blocks=tuple(blocks),
        numbers={"runs": [run_numbers(run) for run in runs]},
    )


def _gained(runs: Runs) -> str:
    """What training gained, over all seeds."""
    bad = {run.run_id: why for run in runs if (why := unsound(run)) is not None}
    if bad:
        shown = ", ".join(f"{run} ({why})" for run, why in bad.items())
        return f"no verdict: {shown} unsound: its numbers are of its sampler, not of what it trained"
    seeds = f" ({plural(len(runs), 'seed')}; one seed says nothing of others)" if len(runs) == 1 else ""
    seeds = seeds or f" (mean over {plural(len(runs), 'seed')})"
    return gain_text(run_gain(runs).document()) + seeds


def _expectations(runs: Runs) -> list[tuple[str, Any, str]]:
    """How many seeds meet each expectation of the experiment: mark, tone, text."""
    entries: dict[str, list[tuple[str, Any]]] = {}
    for run in runs:
        listed = run.result.get("expects")
        for entry in listed if isinstance(listed, list) else ():
            entries.setdefault(str(entry["expectation"]), []).append(met_in_words(entry))
    rows = []
    for text, words in entries.items():
        counts = Counter(words)
        (mark, tone), count = counts.most_common(1)[0]
        rows.append((mark, tone, f"{text}, in {count} of {plural(len(words), 'run')}"))
    return rows


def _run_row(run: RunRecord) -> tuple[str, ...]:
    result, drawn = run.result, run.value("completions")
    return (run.run_id, str(run.seed), run.status, str(result.get("steps", "-")), str(result.get("updates", "-")),
            "-" if drawn is None else count_text(drawn), metric_text(HEADLINE, run.value(HEADLINE)))  # fmt: skip


def _side_row(side: Side, name: str, comparison: Comparison) -> tuple[str, ...]:
    statuses = ", ".join(f"{count} {status}" for status, count in Counter(side.statuses).items())
    statuses += "; left out" if side.key in comparison.left_out else ""
    drawn = "-" if side.completions is None else count_text(side.completions)
    row = comparison.metrics.get(HEADLINE)
    return (
        side.letter,
        name,
        side.profile,
        ", ".join(map(str, side.seeds)),
        statuses,
        drawn,
        _cell(HEADLINE, row, side),
    )


def _cell(name: str, row: Row | None, side: Side) -> str:
    estimate = None if row is None else row.estimates[side.key]
    return "-" if estimate is None else estimate_text(name, estimate.mean, estimate.interval)


def _settings(comparison: Comparison) -> list[Section]:
    """The settings that differ, and why some of them can have made no difference."""
    letters = [side.letter for side in comparison.sides]
    if not comparison.changed:
        return [labelled([Line(label="", text="No setting differs.")], "Settings that differ")]
    rows = tuple(
        (key + (" (inert)" if key in comparison.inert else ""), *map(setting_text, values))
        for key, values in comparison.changed.items()
    )
    note = "; ".join(f"{key} is inert: {why}" for key, why in comparison.inert.items())
    return [Section(title="Settings that differ", columns=("", *letters), rows=rows, note=note)]


def findings(sides: Mapping[str, Runs]) -> Section:
    """What the rules of health say of the runs of each side, and which of them are unsound."""
    rows = []
    for side, runs in sides.items():
        said = {
            (str(entry["id"]), entry.get("severity")): str(entry.get("summary", ""))
            for run in reversed(runs)
            for entry in _list(run.result.get("findings"))
        }
        rows += [
            (side, entry["severity"].upper(), name, how_many(entry, len(runs)), said.get((name, entry["severity"]), ""))
            for name, entry in sorted(findings_of(runs).items(), key=lambda one: SEVERITIES.index(one[1]["severity"]))
        ]
    bad = {run.run_id: why for runs in sides.values() for run in runs if (why := unsound(run)) is not None}
    total = sum(map(len, sides.values()))
    sound = f"{plural(total, 'run')}: no check of the rollouts found one unsound"
    shown = ", ".join(f"{run} ({why})" for run, why in bad.items())
    lines = [Line(label="Integrity", tone="bad" if bad else "good", mark="unsound" if bad else "",
                  text=f"{len(bad)} of {total}: {shown}" if bad else sound)]  # fmt: skip
    if not rows:
        lines.append(Line(label="Findings", text="none"))
    columns = ("", "", "finding", "runs", "what it says of the first of them") if rows else ()
    return Section(title="Findings and integrity", lines=tuple(lines), columns=columns, rows=tuple(rows))


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _forests(comparison: Comparison, named: Mapping[str, Runs], prefix: str) -> list[Block]:
    """The mean of each side, and how far each is from the best, at equal completions and at the end."""
    row = comparison.metrics.get(HEADLINE)
    if row is None:
        return [labelled([Line(label="", text=f"No side has {HEADLINE}.")], "How the sides compare")]
    sides, means, seeds = [], [], []
    for side, (full, runs) in zip(comparison.sides, named.items(), strict=True):
        estimate = row.estimates[side.key]
        if estimate is None or side.key in comparison.left_out:
            continue
        name = charts.shortened(full)
        sides.append(name)
        means.append((name, estimate.mean, *(estimate.interval or (None, None)), float(estimate.n)))
        seeds += [(name, float(run.seed), value) for run in runs if (value := run.value(HEADLINE)) is not None]
    titled = series.measured(HEADLINE)
    first = Chart(
        name=f"{prefix}-sides",
        title=f"{HEADLINE} of each side at the end",
        reads="Dot: the mean over seeds; bar: its 95 % t interval over seeds; ticks: the seeds.",
        spec=charts.forest(f"{prefix}-sides", sides, titled, seeds=f"{prefix}-side-seeds"),
        tables={
            f"{prefix}-sides": Table(columns=("label", "mean", "low", "high", "n"), rows=tuple(means)),
            f"{prefix}-side-seeds": Table(columns=("label", "seed", "value"), rows=tuple(seeds)),
        },
    )
    return [first, *_differences(comparison, prefix)]


def _differences(comparison: Comparison, prefix: str) -> list[Block]:
    rows: list[tuple[Cell, ...]] = []
    for place in comparison.places:
        where = "at the end"
        if place.completions is not None:
            where = f"at {count_text(place.completions)} completions"
        for text, gap in _gaps(comparison.sides, place):
            low, high = gap.family or (None, None)
            name = charts.shortened(f"{text} {where}")
            needed = None if gap.clear or gap.seeds_to_show is None else float(gap.seeds_to_show)
            rows.append((name, gap.mean, low, high, gap.clear, gap.improvement.value, gap.smallest, needed))
    if not rows:
        return []
    table = f"{prefix}-differences"
    columns = ("label", "mean", "low", "high", "clear", "improvement", "smallest", "seeds_needed")
    several = (
        "for all pairs of sides at once"
        if len(comparison.places[0].contrasts) > 1
        else "for new seeds and new problems"
    )
    return [
        Chart(
            name=table,
            title=f"Differences of {HEADLINE}",
            reads=(
                f"Dot: the difference of the means; bar: its 95 % interval, {several}. A bar that crosses the dashed "
                "line leaves open which side is better."
            ),
            spec=charts.forest(table, [str(row[0]) for row in rows], f"difference of {HEADLINE}", zero=True),
            tables={table: Table(columns=columns, rows=tuple(rows))},
        ),
        _odds(rows),
    ]


def _gaps(sides: Sequence[Side], place: Place) -> list[tuple[str, Contrast]]:
    """B - A of two sides, else the best less each of the others."""
    if len(place.contrasts) == 1:
        (((a, b), gap),) = place.contrasts.items()
        return [(f"{sides[b].letter} - {sides[a].letter}", gap)]
    best = place.best
    if best is None:
        return []
    others = [other for other, value in enumerate(place.means) if other != best and value is not None]
    return [(f"{sides[best].letter} - {sides[other].letter}", place.over(best, other)) for other in others]


def _odds(rows: Sequence[tuple[Cell, ...]]) -> Section:
    """What the chart of differences has no room for."""
    cells = []
    for name, mean, low, high, clear, odds, smallest, needed in rows:
        interval = None if low is None or high is None else (float(low), float(high))
        size = estimate_text(HEADLINE, float(mean or 0.0), interval, signed=True)
        cells.append((str(name), size, "yes" if clear else "no", f"{float(odds or 0.0):.0%}",
                      metric_text(HEADLINE, None if smallest is None else float(smallest)),
                      "-" if needed is None else f"{float(needed):.0f}"))  # fmt: skip
    columns = ("", "difference", "clear", "chance that a run is better", "smallest difference shown in 4 of 5 tries",
               "seeds a side to show this one")  # fmt: skip
    note = "±, [ ]: 95 % interval; clear: it excludes 0; -: it is shown already, or no number of seeds would do"
    return Section(columns=columns, rows=tuple(cells), note=note)


def _means(comparison: Comparison) -> Section:
    """Every metric of every side, lengths and cut-off answers before rewards."""
    names = sorted(comparison.metrics, key=lambda name: name not in BEFORE_SCORES)
    two = len(comparison.sides) == 2
    rows = []
    for name in names:
        row = comparison.metrics[name]
        cells = [name, *(_cell(name, row, side) for side in comparison.sides)]
        if two:
            gap = row.difference
            cells.append("-" if gap is None else estimate_text(name, gap.mean, gap.interval, signed=gap.mean > 0))
        rows.append(tuple(cells))
    columns = ("", *(side.letter for side in comparison.sides), *(["B - A"] if two else []))
    return Section(
        title="Means over seeds", columns=columns, rows=tuple(rows), note="±, [ ]: 95 % t interval over seeds"
    )


def _stages(comparison: Comparison) -> list[Section]:
    """What each stage gained, where there are several."""
    gains = [comparison.stages.get(side.key, {}) for side in comparison.sides]
    if all(len(of_side) < 2 for of_side in gains):
        return []
    names = list(dict.fromkeys(name for of_side in gains for name in of_side))
    rows = tuple((name, *(_gain_text(of_side.get(name)) for of_side in gains)) for name in names)
    columns = ("stage", *(side.letter for side in comparison.sides))
    return [Section(title=f"Gains of {HEADLINE} by stage", columns=columns, rows=rows, note=GAIN_LEGEND)]


def _gain_text(gain: Gain | None) -> str:
    return "-" if gain is None else estimate_text(HEADLINE, gain.gain, gain.interval, signed=True)


def curves(sides: Mapping[str, Runs], prefix: str) -> list[Block]:
    """The evaluations over completions (or steps), updates and seconds, then dead groups."""
    counted = {name: [series.counted(run) for run in runs] for name, runs in sides.items()}
    axis = axis_of([run for runs in counted.values() for run in runs])
    drawn = series.evaluation_charts(f"{prefix}-curves", counted, [axis, "updates", "seconds"])
    reads = labelled([Line(label="", text=(
        f"Thin: one seed; thick: the mean over seeds. {series.ENDED} The same evaluations against what they cost: a "
        "side that is ahead for its completions may be behind for its time."
        f"{series.unscored(counted)}"
    ))], "Curves")  # fmt: skip
    blocks: list[Block] = [reads, *drawn] if drawn else [
        labelled([Line(label="", text="No run has two evaluations: there is no curve to draw.")], "Curves")
    ]  # fmt: skip
    dead = series.dead_groups(f"{prefix}-dead", counted, axis)
    if dead is None:
        return [
            *blocks,
            labelled([Line(label="", text="No run recorded groups of completions.")], "Dead groups over time"),
        ]
    return [*blocks, dead]


def _answers(comparison: Comparison, names: Sequence[str], kept: Sequence[Runs], prefix: str) -> list[Block]:
    """The first side against the second, or against the best of the others."""
    means = comparison.places[-1].means
    first, *rest = [place for place, side in enumerate(comparison.sides) if side.key not in comparison.left_out]
    others = [place for place in rest if means[place] is not None]
    second = max(others, key=lambda place: means[place] or 0.0, default=rest[0])
    pair = [recorded.at_the_end(names[place], [Answers(run) for run in kept[place]]) for place in (first, second)]
    return shown_answers(prefix, pair[0], pair[1])


def shown_answers(prefix: str, first: recorded.Evaluated | None, second: recorded.Evaluated | None) -> list[Block]:
    """The scatter and the texts, or why there are none."""
    blocks: list[Block] = [*recorded.side_by_side(f"{prefix}-problems", first, second)]
    if blocks:
        return blocks
    known = first is not None and second is not None
    why = "the two sides were asked different problems" if known else recorded.NOT_RECORDED
    return [labelled([Line(label="", text=why[0].upper() + why[1:] + ".")], SIDE_BY_SIDE)]


def _alike(comparison: Comparison) -> list[Section]:
    """How many greedy outputs (picks, of a selector) are the same, and how far weights are apart."""
    lines = agreement_lines(comparison.agreement)
    return [labelled(lines, "How alike the two policies are")] if lines else []


def pictures(sides: Mapping[str, Runs]) -> list[Pictures]:
    """What the first run of each side answered before training and at its end, of image tasks."""
    shown = []
    for name, runs in sides.items():
        run = next((run for run in runs if run.path is not None), None)
        files = [] if run is None or run.path is None else sorted(RunDir(path=run.path).pictures.glob("*.png"))
        for file in dict.fromkeys([*files[:1], *files[-1:]]):
            step = int(file.stem.rpartition("-")[2])
            shown.append(Picture(title=f"{name}, seed {run.seed if run else '-'}, step {step}", file=file))
    if not shown:
        return []
    more = len(shown) - _MOST_PICTURES
    reads = "Of the first seed: the evaluation before training, and the last one."
    reads += f" {plural(more, 'further picture')} not shown." if more > 0 else ""
    return [Pictures(title="Pictures", reads=reads, pictures=tuple(shown[:_MOST_PICTURES]))]


def run_numbers(run: RunRecord) -> dict[str, Any]:
    """What JSON has of a run: how it ended, its evaluations and findings, and where it comes from. No path."""
    kept = ("experiment", "recorded_as", "spec_sha", "profile", "overrides", "seed", "run_id", "status", "steps",
            "updates", "seconds", "start", "final", "best", "gain", "stages", "expects", "findings")  # fmt: skip
    return {**{key: run.result.get(key) for key in kept}, "provenance": provenance_of(run)}


def _plain(runs: Runs, sides: Sequence[Runs]) -> bool:
    """True where the name of the experiment means this side: no override, and no other side of the same name."""
    same = [other for other in sides if other[0].result["experiment"] == runs[0].result["experiment"]]
    return len(same) == 1 and not runs[0].result.get("overrides")
