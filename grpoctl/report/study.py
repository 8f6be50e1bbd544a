"""The part of a report that is about a study: what the search says, from its sweep.json and from its runs' files.

Every statistic is one of the sweep's own report (grpoctl.analysis.sweeps); what is here is the choice and order of what
is shown, and the tables that the charts are drawn from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import GrpoError, NotFoundError
from core.health.rules.gains import gain_metric
from grpoctl.analysis.collect import RunRecord, load_run, number
from grpoctl.analysis.curves import axis_of
from grpoctl.analysis.problems import Answers
from grpoctl.analysis.sweeps import tables
from grpoctl.analysis.sweeps.axes import is_range, table_axes, two_way
from grpoctl.analysis.sweeps.budget import account
from grpoctl.analysis.sweeps.document import Digest, digest, read_study
from grpoctl.analysis.sweeps.effects import EFFECT_KIND, INTERVAL_KIND
from grpoctl.analysis.sweeps.findings import study_conclusions
from grpoctl.analysis.sweeps.report import text_report
from grpoctl.analysis.sweeps.wording import value_text
from grpoctl.report import answers as recorded
from grpoctl.report import charts, series
from grpoctl.report.charts import BEST, STATES, STOPPED, UNTESTED, WORSE
from grpoctl.report.document import Block, Chart, Part, Table, labelled
from grpoctl.report.provenance import command, provenance, provenance_of, repeat, study_command
from grpoctl.report.sides import SIDE_BY_SIDE, pictures, shown_answers
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sections import Line, Section
from grpoctl.wording import metric_text, plural

_FIRST = ("Best", "Learning", "Winner")
_BACKGROUND = ("Study", "Question", "Setup", "Done", "Shared", "Search", "Runs", "Note", "Database")
_NEXT = "Next"
_MOST_ROWS = 60  # candidates in the chart; the table in the page has as many as `show`, the numbers all
_MOST_RUNS = 300  # whose files are read; of more, those of the best candidate alone


def part_of(study: StudyDir, prefix: str) -> Part:
    """The part of a study. Raises StorageError where its sweep.json is damaged, NotFoundError where no trial ended."""
    document = read_study(study)
    if account(document).ended == 0:
        raise NotFoundError(f"no trial of {study.id} has ended; how it stands: grpoctl show {study.id}")
    of = digest(document)
    runs, left_out = _runs(study, of)
    head, *_ = text_report(document)
    said = [line for line in head.lines if line.label not in (*_BACKGROUND, _NEXT)]
    asked = [line for line in head.lines if line.label in _BACKGROUND]
    further = [line for line in head.lines if line.label == _NEXT]
    blocks: list[Block] = [
        labelled(asked, "What was asked, and how it went"),
        *_settings(of),
        *_candidates(of, prefix),
        *tables.ranking(of, most=_MOST_ROWS),
        *tables.baselines(of),
        *tables.rungs(of),
        *_effects(of, prefix),
        *tables.marginal(of),
        *_pair(of, prefix),
        *_collapse(of, prefix),
        *tables.unranked(of),
        *([labelled(further, "What to try next")] if further else []),
        *_curves(of, runs, left_out, prefix),
        *_best(of, runs, prefix),
        *([provenance([run for records in runs.values() for run in records])] if runs else []),
        repeat([(study_command(document), "runs the study again"), (command("show", study.id), "shows its report")]),
    ]
    return Part(
        kind="study",
        title=f"{document.get('title') or document.get('sweep')} ({study.id})",
        verdict=tuple(sorted(said, key=lambda line: line.label not in _FIRST)),
        blocks=tuple(blocks),
        numbers=_numbers(of, runs),
    )


def _settings(of: Digest) -> list[Section]:
    """The settings that differ between the candidates, and the values that were to be tried."""
    rows = []
    for key, spec in (of.document.get("axes") or {}).items():
        values = ", ".join(value_text(value) for value in spec.get("values") or ())
        if is_range(spec):
            values = (
                f"{value_text(spec['low'])} to {value_text(spec['high'])}{', log scale' if spec.get('log') else ''}"
            )
        when = "; ".join(f"{other} is {value_text(at)}" for other, at in (spec.get("when") or {}).items())
        rows.append((key, values, when))
    if not any(when for *_, when in rows):
        return [Section(title="Settings that differ", columns=("", "values"), rows=tuple(row[:2] for row in rows))]
    return [Section(title="Settings that differ", columns=("", "values", "only where"), rows=tuple(rows))]


def _runs(study: StudyDir, of: Digest) -> tuple[Mapping[int, list[RunRecord]], int]:
    """Trial -> the records of its finished runs, and how many were not read because there are too many."""
    every = study.runs()
    best = of.ranking.best
    chosen = every if len(every) <= _MOST_RUNS else [run for run in every if _trial(run.id) == best]
    records: dict[int, list[RunRecord]] = {}
    for run in chosen:
        try:
            records.setdefault(_trial(run.id), []).append(load_run(run.path))
        except GrpoError:  # under way, or damaged: the study itself says how it stands
            continue
    return records, len(every) - len(chosen)


def _trial(run_id: str) -> int:
    match = re.search(r"-t(\d+)-s\d+$", run_id)
    return -1 if match is None else int(match[1])


def _state(of: Digest, index: int) -> str:
    if index in of.ranking.flagged:
        return STOPPED
    if not of.ranking.tested:
        return UNTESTED
    return BEST if index in of.ranking.indistinguishable else WORSE


def _label(of: Digest, index: int, keys: Sequence[str]) -> str:
    """`#7: 8, none, 0.003`: what varies, in the order of `keys`."""
    trial = of.trials[index]
    values = [value_text(trial["params"][key]) if key in trial["params"] else "-" for key in keys]
    return f"#{index}: {trial.get('name') or ', '.join(values)}"


def _candidates(of: Digest, prefix: str) -> list[Block]:
    """The candidates in their order, each with its interval and its seeds."""
    order = of.ranking.order[:_MOST_ROWS]
    if not order:
        return [labelled([Line(label="", text="No candidate has come to an end of its own.")], "Candidates")]
    keys = tables.varying(of)
    labels = dict(zip(order, charts.distinct([_label(of, index, keys) for index in order]), strict=True))
    rows, seeds = [], []
    for index in order:
        interval = of.ranking.intervals[index] or (None, None)
        rows.append((labels[index], of.ranking.scores[index], *interval, _state(of, index), float(index)))
        trial = of.trials[index]
        for seed, value in zip(trial["seeds"], trial.get("values") or (), strict=False):
            if (known := number(value)) is not None:
                seeds.append((labels[index], float(seed), known))
    more = len(of.ranking.order) - len(order)
    alike = len(of.ranking.indistinguishable)
    shown = f" Beside each: {', '.join(of.names[key] for key in keys)}." if keys else ""
    reads = f"{shown} Dot: the mean over seeds; ticks: the seeds.".strip()
    if of.ranking.noise is not None:
        reads += f" Bar: {tables.interval_kind(of.ranking.noise).removeprefix('±, [ ]: ')}."
        reads += (
            f" {plural(alike, 'candidate')} cannot be told apart from the best, itself included." if alike > 1 else ""
        )
    else:
        reads += f" {of.ranking.why_untested.capitalize()}: nothing can be told apart."
    reads += f" {plural(more, 'further candidate')} not drawn." if more else ""
    table = f"{prefix}-candidates"
    return [
        Chart(
            name=table,
            title=f"Candidates, {of.ranking.by}",
            reads=reads,
            spec=charts.forest(table, list(labels.values()), series.measured(of.metric), seeds=f"{table}-seeds",
                               states=[row[4] for row in rows] if of.ranking.noise else ()),
            tables={
                table: Table(columns=("label", "mean", "low", "high", "state", "number"), rows=tuple(rows)),
                f"{table}-seeds": Table(columns=("label", "seed", "value"), rows=tuple(seeds)),
            },
        )
    ]  # fmt: skip


def _effects(of: Digest, prefix: str) -> list[Block]:
    """How much of the differences each axis explains, and what each of its values does."""
    known = [effect for effect in of.effects if effect.share is not None and effect.interval is not None]
    title = "What each axis does"
    if not of.effects:
        return [labelled([Line(label="", text="No axis varies over the candidates: none can have an effect.")], title)]
    if not known:
        text = f"{of.effects[0].judgement}: {of.effects[0].why}."
        return [labelled([Line(label="", text=text[0].upper() + text[1:])], title)]
    names = {effect.key: of.names.get(effect.key, effect.key) for effect in known}
    axes = charts.distinct([f"{names[effect.key]}: {effect.judgement}" for effect in known])
    shares = [
        (label, effect.share, *(effect.interval or (None, None))) for label, effect in zip(axes, known, strict=True)
    ]
    pairs = [(effect, value) for effect in known for value in effect.values]
    levels = charts.distinct([f"{names[effect.key]} = {value.label}" for effect, value in pairs])
    values = [(label, value.effect, *value.interval) for label, (_, value) in zip(levels, pairs, strict=True)]
    columns = ("label", "mean", "low", "high")
    share, value = f"{prefix}-shares", f"{prefix}-effects"
    return [
        Chart(
            name=share,
            title=title,
            reads=(
                "The share of the variance between candidates that goes with an axis alone, beyond chance. Bar: "
                f"{INTERVAL_KIND}."
            ),
            spec=charts.forest(share, axes, "share of the differences", zero=True),
            tables={share: Table(columns=columns, rows=tuple(shares))},
        ),
        Chart(
            name=value,
            title="What each value does",
            reads=f"How far the mean {of.metric} there lies from the mean over all candidates. Bar: {EFFECT_KIND}.",
            spec=charts.forest(value, levels, f"effect on {of.metric}", zero=True),
            tables={value: Table(columns=columns, rows=tuple(values))},
        ),
    ]


def _pair(of: Digest, prefix: str) -> list[Block]:
    """Mean scores over two axes."""
    axes = table_axes(of.axes, of.document.get("importances") or {})
    if axes is None:
        return []
    made = two_way(*axes, of.ranking)
    levels = [charts.distinct([level.label for level in axis.levels], 28) for axis in (made.rows, made.columns)]
    rows = [
        (levels[0][row], levels[1][column], cell.mean, f"{metric_text(of.metric, cell.mean)} ({cell.n})")
        for row, cells in enumerate(made.cells)
        for column, cell in enumerate(cells)
        if cell.mean is not None
    ]
    if not rows:
        return []
    table, scores = f"{prefix}-pair", of.ranking.scores.values()
    return [
        Chart(
            name=table,
            title=f"{made.rows.name} and {made.columns.name} together",
            reads=(
                f"Mean {of.metric} of the candidates ranked there, and how many those are. The blue that stands out "
                "most from the page is the highest score of any candidate, the faintest the lowest."
            ),
            spec=charts.heat(
                table,
                (made.rows.name, made.columns.name),
                (levels[0], levels[1]),
                title=f"mean {of.metric}",
                domain=(min(scores), max(scores)),
            ),
            tables={table: Table(columns=("row", "column", "value", "text"), rows=tuple(rows))},
        )
    ]


def _collapse(of: Digest, prefix: str) -> list[Block]:
    """Where in the space runs collapse, have unsound rollouts or learn nothing."""
    cross = tables.crossing_of(of)
    health = tables.health(of)
    if cross is None:
        runs = plural(len(of.facts), "run")
        text = f"Of {runs}, none collapsed, had unsound rollouts or made no update: there is no map to draw."
        if any(fact.events for fact in of.facts):
            text = "All runs went the same way, or one axis alone varies: the table by value says all there is."
        return [labelled([Line(label="", text=text)], "Collapse map"), *health]
    levels = [charts.distinct([level.label for level in axis.levels], 28) for axis in (cross.rows, cross.columns)]
    rows = [
        (levels[0][row], levels[1][column], hit / of_runs, f"{hit} of {of_runs}")
        for row, cells in enumerate(cross.counts)
        for column, (hit, of_runs) in enumerate(cells)
        if of_runs
    ]
    table = f"{prefix}-collapse"
    return [
        Chart(
            name=table,
            title=f"Collapse map: runs that {tables.VERBS[cross.event]}",
            reads=f"Of the runs at each pair of values, how many {tables.VERBS[cross.event]}.",
            spec=charts.heat(table, (cross.rows.name, cross.columns.name), (levels[0], levels[1]),
                             title="share of the runs", domain=(0.0, 1.0)),
            tables={table: Table(columns=("row", "column", "value", "text"), rows=tuple(rows))},
        ),
        *health,
    ]  # fmt: skip


def _curves(of: Digest, runs: Mapping[int, list[RunRecord]], left_out: int, prefix: str) -> list[Block]:
    """The evaluations of every run, the best candidate's apart from the others', and dead groups."""
    groups: dict[str, list[RunRecord]] = {}
    for index in (of.ranking.best, *of.ranking.order[1:]):
        if index is not None:
            name = f"#{index}, the best" if index == of.ranking.best else _state(of, index)
            groups.setdefault(name, []).extend(series.counted(run) for run in runs.get(index, ()))
    # The best comes last, so that it is drawn over the others.
    sides = {name: groups[name] for name in reversed(groups) if groups[name]}
    if not sides:
        return [labelled([Line(label="", text="The directories of its runs are not there.")], "Curves")]
    looks = {**STATES, BEST: "var(--s4)"}  # lighter than the best itself
    colours = [looks.get(name, "var(--blue)") for name in sides]
    axis = axis_of([run for records in sides.values() for run in records])
    drawn = series.evaluation_charts(
        f"{prefix}-curves", sides, [axis, "updates", "seconds"], metric=gain_metric(of.metric), colours=colours
    )
    dead = series.dead_groups(f"{prefix}-dead", sides, axis, colours)
    text = f"Thin: one run; thick: the mean over the runs of a group. {series.ENDED}"
    text += series.unscored(sides, gain_metric(of.metric))
    text += f" {plural(left_out, 'run')} of other candidates not drawn." if left_out else ""
    return [labelled([Line(label="", text=text)], "Curves"), *drawn, *([dead] if dead is not None else [])]


def _best(of: Digest, runs: Mapping[int, list[RunRecord]], prefix: str) -> list[Block]:
    """What the best candidate answered before training and at its end, and its pictures."""
    best = of.ranking.best
    records = [] if best is None else runs.get(best, [])
    if not records or best is None:
        return [labelled([Line(label="", text="The runs of the best candidate are not there.")], SIDE_BY_SIDE)]
    answers = [Answers(run) for run in records]
    name = f"#{best}"
    before = recorded.at_the_start(f"{name} before training", answers)
    return [
        *shown_answers(prefix, before, recorded.at_the_end(f"{name} at the end", answers)),
        *pictures({name: records}),
    ]


def _numbers(of: Digest, runs: Mapping[int, list[RunRecord]]) -> dict[str, Any]:
    """What JSON has of the study: what was asked, every trial without its files, and what was concluded."""
    kept = ("study", "sweep", "revision", "sweep_sha", "profile", "experiment", "title", "question", "status",
            "message", "metric", "direction", "sampler", "allocation", "seeds", "budget", "total", "axes",
            "importances", "ranking", "indistinguishable", "seconds")  # fmt: skip
    of_trial = ("number", "name", "params", "seeds", "status", "score", "interval", "values", "statuses", "completions",
                "tokens", "seconds", "message", "findings")  # fmt: skip
    document = of.document
    return {
        **{key: document.get(key) for key in kept},
        "trials": [{key: trial.get(key) for key in of_trial} for trial in of.trials.values()],
        **study_conclusions(document),
        "runs": [provenance_of(run) for records in runs.values() for run in records],
    }
