"""Whether B is better than A, or whether that is seed noise: a `Comparison` of two sides' runs.

What is here: the numbers and the record. What is not: reading and choosing runs (collect), the sentences that go with
the numbers (remarks), printing (grpoctl.console).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from core.errors import UserError
from core.health.rules.gains import HEADLINE, Gain, mean_gain, stage_gains
from core.health.statistics import Difference, Estimate, clipped, mean_interval, paired, welch
from core.metrics import EVAL, RUN, limits
from grpoctl.analysis import remarks
from grpoctl.analysis.collect import RunRecord, number
from grpoctl.analysis.curves import Curve, axis_of, mean_curve
from grpoctl.analysis.outcome import ruler_of
from grpoctl.wording import BEST, label

_EVAL = tuple(metric.name for metric in EVAL if metric.name != "eval/reward_se")  # a precision, not an outcome
_RUN = tuple(dict.fromkeys([*(metric.name for metric in RUN), "completions", "seconds"]))
# What tells runs apart without changing what they do.
_IDENTITY = frozenset({"name", "title", "question", "source", "revision", "profile", "expects", "recorded", "seed"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The runs of one side, in the order of their seeds."""

    letter: str
    name: str  # the recorded revision, e.g. p31@1
    profile: str
    seeds: tuple[int, ...]
    run_ids: tuple[str, ...]
    statuses: tuple[str, ...]
    curve: Curve


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One metric on both sides; a side is None where none of its runs has it, and then there is no difference."""

    a: Estimate | None
    b: Estimate | None
    difference: Difference | None

    def document(self) -> dict[str, object]:
        """The row as JSON has it: every side with `mean`, `interval` and `n`, null where it has no value."""
        empty: dict[str, object] = {"mean": None, "interval": None, "n": 0}
        no_difference: dict[str, object] = {"mean": None, "interval": None, "method": "none"}
        return {
            "a": asdict(self.a) if self.a else empty,
            "b": asdict(self.b) if self.b else empty,
            "difference": asdict(self.difference) if self.difference else no_difference,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Everything that can be said of A against B; a metric's plain name means its final value, `best/` its best."""

    a: Side
    b: Side
    changed: Mapping[str, tuple[object, object]]
    metrics: Mapping[str, Row]
    notes: tuple[str, ...]
    verdict: str
    findings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # side -> id -> severity and runs
    stages: Mapping[str, Mapping[str, Gain]] = field(default_factory=dict)  # side -> stage -> mean gain over its runs
    axis: str = "completions"  # what the curves are over

    def document(self) -> dict[str, object]:
        """The JSON document of `grpoctl compare --json`."""
        return {
            "schema": 1,
            "changed": {key: list(pair) for key, pair in self.changed.items()},
            "metrics": {name: row.document() for name, row in self.metrics.items()},
            "runs": {"a": list(self.a.run_ids), "b": list(self.b.run_ids)},
            "stages": {
                letter: {name: gain.document() for name, gain in gains.items()} for letter, gains in self.stages.items()
            },
            "findings": {letter: dict(found) for letter, found in self.findings.items()},
            "notes": list(self.notes),
            "verdict": self.verdict,
        }


def compare(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> Comparison:
    """The comparison of two sides, each the runs of one spec, one per seed.

    Raises UserError for an empty side, for sides of different profiles or tasks, and for a side that mixes specs.
    """
    axis = axis_of([*a, *b])
    side_a, side_b = _side("A", a, axis), _side("B", b, axis)
    _refuse_unlike(side_a, side_b, a[0], b[0])
    changed = changed_settings(a[0].spec, b[0].spec)
    metrics = _metrics(a, b)
    headline = metrics.get(HEADLINE, Row(a=None, b=None, difference=None))
    return Comparison(
        a=side_a,
        b=side_b,
        changed=changed,
        metrics=metrics,
        notes=remarks.notes(a, b, changed),
        findings={"a": remarks.findings(a), "b": remarks.findings(b)},
        stages={"a": _stage_gains(a), "b": _stage_gains(b)},
        axis=axis,
        verdict=remarks.verdict(HEADLINE, (side_a.name, side_b.name), headline.a, headline.b, headline.difference),
    )


def changed_settings(a: Mapping[str, object], b: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Dotted key -> (A, B) where they differ; a setting that only one side has is None on the other."""
    keys = sorted({key for key in [*a, *b] if key.split(".", 1)[0] not in _IDENTITY})
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def _side(letter: str, runs: Sequence[RunRecord], axis: str) -> Side:
    if not runs:
        raise UserError(f"side {letter} has no runs; name an experiment or runs that have ended (see: grpoctl ls)")
    for key in ("profile", "spec_sha"):
        found = sorted({str(run.result[key]) for run in runs})
        if len(found) > 1:
            raise UserError(f"side {letter} mixes runs of different {key} ({', '.join(found)}); name runs of one spec")
    runs = sorted(runs, key=lambda run: run.seed)
    seeds = tuple(run.seed for run in runs)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"side {letter} has a seed twice ({', '.join(map(str, seeds))}); name one run per seed")
    first = runs[0].result
    name = label(first)
    return Side(
        letter=letter,
        name=name,
        profile=str(first["profile"]),
        seeds=seeds,
        run_ids=tuple(run.run_id for run in runs),
        statuses=tuple(run.status for run in runs),
        curve=Curve(label=f"{letter} {name}", points=mean_curve(runs, HEADLINE, axis)),
    )


def _stage_gains(runs: Sequence[RunRecord]) -> dict[str, Gain]:
    """The mean gain of each stage over the runs of a side, by their rows."""
    names = runs[0].stages
    prompts = number(runs[0].spec.get("task.eval_prompts"))
    ruler = replace(ruler_of(runs[0].result), prompts=None if prompts is None else int(prompts))
    gains = [
        stage_gains([{key: number(value) for key, value in row.items()} for row in run.rows], names, ruler)
        for run in runs
    ]
    return {name: mean_gain([of_run[name] for of_run in gains], ruler) for name in names}


def _refuse_unlike(side_a: Side, side_b: Side, a: RunRecord, b: RunRecord) -> None:
    if side_a.profile != side_b.profile:
        raise UserError(
            f"A ran under profile {side_a.profile}, B under {side_b.profile}: profiles are not mixed; "
            f"run one again with --profile {side_a.profile}"
        )
    tasks = (a.spec.get("task.name"), b.spec.get("task.name"))
    if tasks[0] != tasks[1]:
        raise UserError(
            f"A was trained on {tasks[0]}, B on {tasks[1]}: rewards of different tasks are not comparable; "
            "compare runs of one task"
        )


def _metrics(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> dict[str, Row]:
    """Every metric that a side has: final evaluations, best ones, then the whole run's."""
    rows = {name: _row(a, b, name, "final") for name in _EVAL}
    rows |= {BEST + name: _row(a, b, name, "best") for name in _EVAL}
    rows |= {name: _row(a, b, name, "final") for name in _RUN}
    return {name: row for name, row in rows.items() if row.a or row.b}


def _row(a: Sequence[RunRecord], b: Sequence[RunRecord], name: str, part: str) -> Row:
    values_a, values_b = _by_seed(a, name, part), _by_seed(b, name, part)
    low, high = limits(name, ruler_of(a[0].result).reward_range)
    estimates = [
        replace(found, interval=found.interval and clipped(found.interval, low, high))
        if (found := mean_interval(list(values.values())) if values else None)
        else None
        for values in (values_a, values_b)
    ]
    difference = None
    if values_a and values_b:
        # With other seeds on a side there is nothing to pair; with the same ones, what a seed does to both cancels.
        same = values_a.keys() == values_b.keys()
        difference = paired(values_a, values_b) if same else welch(list(values_a.values()), list(values_b.values()))
        if difference.interval is not None and low is not None and high is not None:
            difference = replace(difference, interval=clipped(difference.interval, low - high, high - low))
    return Row(a=estimates[0], b=estimates[1], difference=difference)


def _by_seed(runs: Sequence[RunRecord], name: str, part: str) -> dict[int, float]:
    values = {run.seed: run.value(name, part) for run in runs}
    return {seed: value for seed, value in values.items() if value is not None}
