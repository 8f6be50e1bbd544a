"""The tables of a study's report, each a section or none where it has nothing to show; and one flat table for CSV.

Writing the lines of the latter is in grpoctl.cli.show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpoctl.analysis.baselines import side_by_side
from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.axes import Axis, marginals, table_axes, two_way, varied
from grpoctl.analysis.sweeps.budget import mean_curve, unit_of
from grpoctl.analysis.sweeps.document import Digest, Trial
from grpoctl.analysis.sweeps.effects import EFFECT_KIND, INTERVAL_KIND
from grpoctl.analysis.sweeps.ranking import Noise
from grpoctl.analysis.sweeps.regions import EVENTS, Event, crossed, regions, separations
from grpoctl.analysis.sweeps.wording import params_text, score_text, value_text
from grpoctl.sections import Section
from grpoctl.wording import count_text, estimate_text, metric_text, plural

_MOST = 24  # rows of a ranking; --csv has them all
_MOST_UNRANKED = 12
_MOST_BESIDE = 6  # candidates beside baselines
_K = "num_generations"
_CSV_FIRST = ("number", "name", "status", "rank", "score", "low", "high", "indistinguishable")
_CSV_LAST = ("attempts", "completions", "tokens", "seconds", "findings", "message", "runs")

VERBS: Mapping[Event, str] = {
    "collapsed": "collapsed",
    "invalid": "had unsound rollouts",
    "learned nothing": "learned nothing",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """For each pair of levels of two axes: runs that show the event, runs."""

    event: Event
    rows: Axis
    columns: Axis
    counts: list[list[tuple[int, int]]]


def ranking(of: Digest, most: int = _MOST) -> list[Section]:
    """The candidates in their order: what varies, score and interval, the seeds, where it came near the best."""
    order = of.ranking.order[:most]
    if not order:
        return []
    keys = varying(of)
    named = any(of.trials[index].get("name") for index in order)
    unit, _ = unit_of(of.document)
    near = of.reached is not None and bool(of.reached.per_run) and unit != "trials"
    columns = [
        "", "#", *(["name"] if named else []), *(of.names[key] for key in keys), of.metric, "seeds", "status",
        *([f"{unit} to 2 %"] if near else []),
    ]  # fmt: skip
    rows = []
    for index in order:
        trial = of.trials[index]
        row = ["=" if of.ranking.tested and index in of.ranking.indistinguishable else "", str(index)]
        row += [str(trial.get("name") or "")] if named else []
        row += [value_text(trial["params"][key]) if key in trial["params"] else "-" for key in keys]
        row += [_score(of, index), _seeds(of, trial), str(trial["status"])]
        row += [_near(of, index)] if near else []
        rows.append(tuple(row))
    hidden = len(of.ranking.order) - len(order)
    told = (
        "= not significantly different from the best" if of.ranking.tested else f"{of.ranking.why_untested}: not tested"
    )
    notes = [of.ranking.by] if of.ranking.common_first else []
    notes += [told] if len(of.ranking.indistinguishable) > 1 else []
    notes += [interval_kind(of.ranking.noise)] if of.ranking.noise else []
    notes += ["! a guard stopped some of its runs"] if any(index in of.ranking.flagged for index in order) else []
    notes += [f"{plural(hidden, 'further candidate')} not shown (--csv has all)"] if hidden else []
    return [
        Section(
            title="Ranking", columns=tuple(columns), rows=tuple(rows), note="; ".join(notes),
            spare=("seeds", f"{unit} to 2 %", "status"),
        )
    ]  # fmt: skip


def baselines(of: Digest) -> list[Section]:
    """The best candidates beside the baselines of their task, and what their supervised stages reached."""
    order = of.ranking.order[:_MOST_BESIDE]
    sides = {f"#{index}": of.trials[index].get("baselines") or {} for index in order}
    return side_by_side(sides, ("supervised", "final")) if sides else []


def interval_kind(noise: Noise) -> str:
    """What the intervals of scores are, in one line."""
    also = ", and the standard error of one evaluation over prompts" if noise.evaluation else ""
    return f"±, [ ]: 95 % t interval from the seed standard deviation (pooled, {noise.df} df){also}"


def unranked(of: Digest) -> list[Section]:
    """Trials that were pruned, failed, or are not over."""
    trials = [trial for index, trial in of.trials.items() if index not in of.ranking.scores]
    if not trials:
        return []
    unit, each = unit_of(of.document)
    runs = len(of.document.get("seeds") or ()) or 1
    rows = []
    for trial in trials[:_MOST_UNRANKED]:
        share = "-" if unit == "trials" else f"{(trial.get(unit) or 0.0) / (each * runs):.0%}"
        what = params_text(trial["params"], of.names)
        last = score_text(of.metric, _last(trial), None)
        rows.append((str(trial["number"]), what, str(trial["status"]), share, last, str(trial.get("message") or "")))
    hidden = len(trials) - len(rows)
    note = f"{plural(hidden, 'further trial')} not shown (--csv has all)" if hidden else ""
    spent = "spent" if unit == "trials" else f"spent of {plural(runs, 'run')}"
    columns = ("#", "candidate", "status", spent, "last", "why")
    return [Section(title="Not ranked", columns=columns, rows=tuple(rows), note=note)]


def _last(trial: Trial) -> float | None:
    """What a trial that has no rank came to: its score, else what the seeds that came furthest showed there."""
    if (score := number(trial.get("score"))) is not None:
        return score
    curve = mean_curve(trial.get("curve") or ())
    return curve[-1][1] if curve else None


def rungs(of: Digest) -> list[Section]:
    """A ladder, rung by rung, with its expectations."""
    if of.document.get("sampler") != "ladder":
        return []
    words = {True: "met", False: "not met", None: "not observed"}
    rows = []
    for trial in of.trials.values():
        checks: Sequence[Mapping[str, Any]] = trial.get("expects") or ({},)
        for check in checks:
            metric = str(check.get("expectation", "")).partition(" ")[0]
            seen = metric_text(metric, check.get("observed")) if check else "-"
            met = words[check.get("met")] if check else str(trial["status"])
            rows.append((str(trial.get("name")), str(check.get("expectation", "-")), seen, met))
    return [Section(title="Rungs", columns=("rung", "expected", "mean", ""), rows=tuple(rows))] if rows else []


def importances(of: Digest) -> list[Section]:
    """How much of the differences between scores each axis explains."""
    shares = sorted((of.document.get("importances") or {}).items(), key=lambda entry: -entry[1])
    rows = [(of.names.get(key, key), f"{share:.0%}", "▇" * round(20 * share)) for key, share in shares]
    return [Section(title="Importances", columns=("axis", "share", ""), rows=tuple(rows))] if len(rows) > 1 else []


def effects(of: Digest) -> list[Section]:
    """What each axis does to the mean score by the model of main effects, value by value."""
    rows = []
    for effect in of.effects:
        if effect.share is None or effect.interval is None:
            continue
        low, high = effect.interval
        axis = of.names.get(effect.key, effect.key)
        share = f"{effect.share:.0%} [{100 * low:.0f}, {100 * high:.0f}]"
        first: tuple[str, str, str] = (axis, share, effect.judgement)
        for value in effect.values:
            moved = estimate_text(of.metric, value.effect, value.interval, signed=True)
            rows.append((*first, value.label, str(value.candidates), moved))
            first = ("", "", "")
    if not rows:
        return []
    note = (
        "share: of the variance between candidates that goes with this axis alone, beyond chance, "
        f"[{INTERVAL_KIND}]; effect: against the mean over the candidates, ±, [ ]: {EFFECT_KIND}"
    )
    if of.document.get("sampler") == "tpe":
        note += "; TPE tries good values more often: shares are of what it tried, and values it left early are vague"
    columns = ("axis", "share", "judged", "value", "candidates", "effect")
    title = f"Main effects ({plural(of.effects[0].candidates, 'candidate')})"
    return [Section(title=title, columns=columns, rows=tuple(rows), note=note)]


def marginal(of: Digest) -> list[Section]:
    """The mean score of each value of each axis."""
    rows = []
    for axis in varied(of.axes):
        if not axis.crowded:
            continue  # one trial per value: the ranking has it
        for entry in marginals(axis, of.ranking, of.trials.values(), sign=of.sign):
            estimate = entry.estimate
            score = score_text(of.metric, estimate.mean, estimate.interval) if estimate else "-"
            count = "0" if estimate is None else str(estimate.n)
            rows.append((axis.name, entry.label, score, count, str(entry.pruned), metric_text(of.metric, entry.best)))
    if not rows:
        return []
    note = "±, [ ]: 95 % t interval over ranked trials (none of too few); it includes the effect of the other axes"
    if of.document.get("sampler") == "tpe":
        note += "; TPE samples good values more often: compare with care"
    columns = ("axis", "value", f"mean {of.metric}", "ranked", "pruned", "best")
    return [Section(title="By value", columns=columns, rows=_once(rows), note=note)]


def pair(of: Digest) -> list[Section]:
    """K x normalisation, or the two most important axes: mean score and number of ranked trials."""
    axes = table_axes(of.axes, of.document.get("importances") or {})
    if axes is None:
        return []
    table = two_way(*axes, of.ranking)
    rows = [
        (
            row.label,
            *("-" if cell.mean is None else f"{metric_text(of.metric, cell.mean)} ({cell.n})" for cell in cells),
        )
        for row, cells in zip(table.rows.levels, table.cells, strict=True)
    ]
    title = f"{table.rows.name} (down) x {table.columns.name} (across): mean {of.metric} (ranked trials)"
    return [Section(title=title, columns=("", *(level.label for level in table.columns.levels)), rows=tuple(rows))]


def health(of: Digest) -> list[Section]:
    """For each value of each axis: how many runs collapsed, were invalid, learned nothing, and which rules spoke."""
    if not any(fact.events or fact.rules for fact in of.facts):
        return []
    rows, rules = [], []
    for axis in varied(of.axes):
        for region in regions(axis, of.facts):
            rows.append((axis.name, region.label, *(f"{region.events[event]}/{region.runs}" for event in EVENTS)))
            found = ", ".join(f"{rule}\u00a0{count}" for rule, count in region.rules.items())
            rules.append((axis.name, region.label, found or "none"))
    if not rows:
        return []
    return [
        Section(title="Health by region (runs)", columns=("axis", "value", *EVENTS), rows=_once(rows)),
        Section(title="Findings by region (runs that have them)", columns=("axis", "value", ""), rows=_once(rules)),
    ]


def crossing(of: Digest) -> list[Section]:
    """Of what happened to some runs: how many, for each pair of values of the two axes that tell most of it."""
    cross = crossing_of(of)
    if cross is None:
        return []
    cells = [
        (level.label, *(f"{hit}/{runs}" if runs else "-" for hit, runs in line))
        for level, line in zip(cross.rows.levels, cross.counts, strict=True)
    ]
    title = f"{cross.rows.name} (down) x {cross.columns.name} (across): runs that {VERBS[cross.event]}, of all"
    return [Section(title=title, columns=("", *(level.label for level in cross.columns.levels)), rows=tuple(cells))]


def crossing_of(of: Digest) -> Crossing | None:
    """The first event that only some runs show, over the axis that tells most of it and K (or the next axis)."""
    for event in EVENTS:
        axes = [separation.axis for separation in separations(event, varied(of.axes), of.facts)]
        if len(axes) > 1:
            first = axes[0]
            other = min(axes[1:], key=lambda axis: axis.key.rsplit(".", 1)[-1] != _K)
            rows, columns = (first, other) if first.key.endswith(_K) else (other, first)
            counts = crossed(event, (rows, columns), of.facts)
            return Crossing(event=event, rows=rows, columns=columns, counts=counts)
    return None


def varying(of: Digest) -> list[str]:
    """The parameters that are not the same in all trials, in the order of the axes."""
    keys = [*(of.document.get("axes") or {})]
    keys += [key for trial in of.trials.values() for key in trial["params"] if key not in keys]
    missing = object()
    return [
        key
        for key in dict.fromkeys(keys)
        if len({repr(trial["params"].get(key, missing)) for trial in of.trials.values()}) > 1
    ]


def _score(of: Digest, index: int) -> str:
    text = score_text(of.metric, of.ranking.scores[index], of.ranking.intervals[index])
    return f"{text} !" if index in of.ranking.flagged else text


def _seeds(of: Digest, trial: Trial) -> str:
    return " ".join(metric_text(of.metric, value) for value in trial.get("values") or ())


def _near(of: Digest, index: int) -> str:
    cost = of.reached.per_run.get(index) if of.reached else None
    return "-" if cost is None else count_text(cost)


def _once(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The rows with a repeated first cell left empty."""
    cleared, last = [], None
    for row in rows:
        cleared.append(("" if row[0] == last else row[0], *row[1:]))
        last = row[0]
    return tuple(cleared)


def flat(document: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(columns, one row per trial by number), for spreadsheets.

    A row has place, score, dotted parameters, the value of each seed, cost and paths. A parameter that was not active
    is empty; lists and mappings are written as JSON.
    """
    trials = document.get("trials") or ()
    keys = list(document.get("axes") or {})
    keys = list(dict.fromkeys([*keys, *(key for trial in trials for key in trial.get("params") or {})]))
    seeds = list(dict.fromkeys([*(document.get("seeds") or ()), *(s for trial in trials for s in trial["seeds"])]))
    columns = (*_CSV_FIRST, *keys, *(f"seed {seed}" for seed in seeds), *_CSV_LAST)
    ranks = {number: place for place, number in enumerate(document.get("ranking") or (), start=1)}
    listed = document.get("indistinguishable")
    alike = None if listed is None else set(listed)
    return columns, [_csv_row(trial, (keys, seeds), ranks, alike) for trial in trials]


def _csv_row(
    trial: Mapping[str, Any], names: tuple[list[str], list[int]], ranks: Mapping[int, int], alike: set[int] | None
) -> tuple[str, ...]:
    keys, seeds = names
    low, high = trial.get("interval") or (None, None)
    values = dict(zip(trial["seeds"], trial.get("values") or (), strict=False))
    rules = dict.fromkeys(rule for run in trial.get("findings") or () for rule in run)
    first = (
        trial["number"], trial.get("name"), trial["status"], ranks.get(trial["number"]), trial.get("score"), low, high,
        None if alike is None or trial["number"] not in ranks else trial["number"] in alike,
    )  # fmt: skip
    params = trial.get("params") or {}
    last = [trial.get(key) for key in ("attempts", "completions", "tokens", "seconds")]
    words = (" ".join(rules), trial.get("message"), " ".join(trial.get("runs") or ()))
    cells = [*first, *(params.get(key, "") for key in keys), *(values.get(seed) for seed in seeds), *last, *words]
    return tuple(map(_csv_cell, cells))


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
