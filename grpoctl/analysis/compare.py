"""Whether B is better than A, or whether that is seed noise: a `Comparison` of two sides' runs.

What is here: the numbers, and the sentences that must stand beside them (notes and verdict). What is not: reading and
choosing runs (collect), printing (grpoctl.console).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from core.config.policy import LM
from core.errors import UserError
from core.health.finding import SEVERITIES
from core.health.rules.gains import HEADLINE, Gain, mean_gain, stage_gains
from core.health.statistics import Difference, Estimate, clipped, mean, mean_interval, paired, welch
from core.metrics import EVAL, RUN, limits
from grpoctl.analysis.agreement import Agreement, agreement
from grpoctl.analysis.baselines import Reached, means_over_seeds
from grpoctl.analysis.collect import Leaves, RunRecord, number
from grpoctl.analysis.curves import Curve, axis_of, mean_curve
from grpoctl.analysis.outcome import ruler_of
from grpoctl.config.schema import fields
from grpoctl.runs.status import UNDISTURBED
from grpoctl.wording import BEST, label, metric_text, plural, setting_text

_EVAL = tuple(metric.name for metric in EVAL if metric.name != "eval/reward_se")  # a precision, not an outcome
_RUN = tuple(dict.fromkeys([*(metric.name for metric in RUN), "completions", "seconds"]))
# What tells runs apart without changing what they do.
_IDENTITY = frozenset({"name", "title", "question", "source", "revision", "profile", "expects", "recorded", "seed"})
# Guards act by stopping a run only, checkpoints not at all: where every run ended by itself neither made a difference.
_INERT_UNLESS_STOPPED = ("guards.", "checkpoints.")
_RULERS = ("task.", "evaluation.")
_HOW_OFTEN = "evaluation.eval_steps"  # the held-out draws are the same each time
_SCHEDULE = frozenset({"start", "end", "steps"})

Changed = Mapping[str, tuple[object, object]]


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
    baselines: Mapping[str, Reached] = field(default_factory=dict)  # side -> what it reached beside baselines
    agreement: Agreement = field(default_factory=Agreement)
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
            "findings": {letter: dict(counts) for letter, counts in self.findings.items()},
            "baselines": {letter: dict(reached) for letter, reached in self.baselines.items()},
            **self.agreement.document(),
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
        notes=_notes(a, b, changed),
        findings={"a": _findings(a), "b": _findings(b)},
        stages={"a": _stage_gains(a), "b": _stage_gains(b)},
        baselines={letter: means_over_seeds([run.result for run in side]) for letter, side in (("a", a), ("b", b))},
        agreement=agreement(a, b),
        axis=axis,
        verdict=_verdict(HEADLINE, (side_a.name, side_b.name), headline),
    )


def changed_settings(a: Mapping[str, object], b: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Dotted key -> (A, B) where they differ; a setting that only one side has is None on the other.

    A key that came later is not written while it stands at its default: then the other side's value is that.
    """
    keys = sorted({key for key in [*a, *b] if key.split(".", 1)[0] not in _IDENTITY})
    pairs = ((key, _stated(key, a), _stated(key, b)) for key in keys)
    return {key: (mine, theirs) for key, mine, theirs in pairs if mine != theirs}


def _stated(key: str, spec: Mapping[str, object]) -> object:
    """The value of a key, or the default of one that is not written in a part that is."""
    parent = key.rpartition(".")[0]
    if key in spec or not any(other.startswith(f"{parent}.") for other in spec):
        return spec.get(key)
    stages = {
        name.split(".")[1]: spec.get(".".join([*name.split(".")[:2], "kind"]), "grpo")
        for name in spec
        if name.startswith("stages.")
    }
    tree = {
        "task": {"name": spec.get("task.name")},
        "policy": {"kind": spec.get("policy.kind", LM)},
        "stages": {name: {"kind": kind} for name, kind in stages.items()},
    }
    field = fields(tree).get(tuple(key.split(".")))
    return field.default if field is not None and isinstance(field.default, (bool, int, float, str)) else None


def _side(letter: str, runs: Sequence[RunRecord], axis: str) -> Side:
    if not runs:
        raise UserError(f"side {letter} has no runs; name an experiment or runs that have ended (see: grpoctl ls)")
    for key in ("profile", "spec_sha"):
        kinds = sorted({str(run.result[key]) for run in runs})
        if len(kinds) > 1:
            raise UserError(f"side {letter} mixes runs of different {key} ({', '.join(kinds)}); name runs of one spec")
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
        replace(estimate, interval=estimate.interval and clipped(estimate.interval, low, high))
        if (estimate := mean_interval(list(values.values())) if values else None)
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


def _notes(a: Sequence[RunRecord], b: Sequence[RunRecord], changed: Changed) -> tuple[str, ...]:
    """What stands between the numbers and a conclusion, the heaviest first."""
    return (
        *_fault(a[0].spec, b[0].spec),
        *_errors(a, b),
        *_same_runs(a, b, changed),
        *_attribution(a, b, changed),
        *_adaptive_starts(a[0].spec, b[0].spec, changed),
        *_ruler(changed),
        *_budget(a, b),
        *_seeds(a, b),
        *_endings(a, b),
    )


def _findings(runs: Sequence[RunRecord]) -> dict[str, dict[str, object]]:
    """Id of each finding of a side's runs -> its gravest `severity`, and the ids of the `runs` that have it."""
    findings: dict[str, dict[str, object]] = {}
    for severity in SEVERITIES:
        for run in runs:
            for name in _finding_ids(run, severity):
                entry = findings.setdefault(name, {"severity": severity, "runs": []})
                named = entry["runs"]
                assert isinstance(named, list)
                named += [] if run.run_id in named else [run.run_id]
    return findings


def _verdict(metric: str, names: tuple[str, str], row: Row) -> str:
    """Which side is better on a metric that is better when higher, with its interval, or why that cannot be said."""
    a, b, gap = row.a, row.b, row.difference
    if a is None or b is None or gap is None:
        missing = " and ".join(letter for letter, side in (("A", a), ("B", b)) if side is None)
        return f"no verdict: {missing} has no {metric}"
    seeds = f"n={a.n} seeds" if a.n == b.n else f"n={a.n} and {b.n} seeds"
    if gap.interval is None:
        return (
            f"no significance test ({seeds.replace('n=1 seeds', 'n=1 seed')}): B - A is {_signed(gap.mean)} on "
            f"{metric}, without an interval; run more seeds, e.g. with --seeds 0,1,2"
        )
    low, high = gap.interval
    if low <= 0 <= high:
        span = f"[{_signed(low)}, {_signed(high)}]"
        return f"no significant difference: B - A is {_signed(gap.mean)} {span} on {metric} ({gap.method}, {seeds})"
    letter, name = ("B", names[1]) if low > 0 else ("A", names[0])
    smaller, larger = sorted((abs(low), abs(high)))
    span = f"[{metric_text(metric, smaller)}, {metric_text(metric, larger)}]"
    size = metric_text(metric, abs(gap.mean))
    return f"{letter} ({name}) is better by {size} {span} on {metric} ({gap.method}, {seeds})"


def knobs(changed: Changed, a: Leaves, b: Leaves) -> list[str]:
    """The changed settings, but a schedule's keys count as one, and so does a part that one side lacks altogether."""
    keys: dict[str, None] = {}
    for key in changed:
        parent, _, leaf = key.rpartition(".")
        schedule = leaf in _SCHEDULE and all(f"{parent}.{part}" in side for part in _SCHEDULE for side in (a, b))
        absent = any(side.get(parent, 0) is None for side in (a, b))
        keys.setdefault(parent if schedule or absent else key)
    return list(keys)


def _fault(a: Leaves, b: Leaves) -> list[str]:
    faults = [_listed(side.get("faults")) for side in (a, b)]
    if faults[0] == faults[1]:
        return [f"both sides ran with a fault switched on: {faults[0]}"] if faults[0] else []
    sides = " and ".join(f"{letter} with {fault}" for letter, fault in zip("AB", faults, strict=True) if fault)
    other = {0: "A", 1: "B"}[faults.index("")] if "" in faults else None
    return [f"a fault was switched on: {sides}" + (f"; {other} without any" if other else "")]


def _errors(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[str]:
    """A side with an error: until it is explained, nothing can be attributed to the settings."""
    notes = []
    for letter, side in (("A", a), ("B", b)):
        with_error = [run for run in side if _finding_ids(run, "error")]
        if with_error:
            names = ", ".join(dict.fromkeys(name for run in with_error for name in _finding_ids(run, "error")))
            notes.append(
                f"{letter} has an error in {len(with_error)} of {plural(len(side), 'run')} ({names}): until it is "
                "explained, no difference can be attributed to the settings; evidence: "
                f"grpoctl diagnose {with_error[0].run_id}"
            )
    return notes


def _finding_ids(run: RunRecord, severity: str) -> list[str]:
    """The ids of a run's findings of this severity."""
    entries = run.result.get("findings")
    entries = entries if isinstance(entries, list) else []
    return [str(entry["id"]) for entry in entries if entry.get("severity") == severity]


def _listed(faults: object) -> str:
    return setting_text(list(faults))[1:-1] if isinstance(faults, (list, tuple)) else ""


def _same_runs(a: Sequence[RunRecord], b: Sequence[RunRecord], changed: Changed) -> list[str]:
    common = sorted({run.run_id for run in a} & {run.run_id for run in b})
    if common:
        return [f"{', '.join(common)} {'is' if len(common) == 1 else 'are'} on both sides"]
    return [] if changed else ["no setting differs: any difference is noise or a code change"]


def _attribution(a: Sequence[RunRecord], b: Sequence[RunRecord], changed: Changed) -> list[str]:
    ended_alone = all(run.status in UNDISTURBED for run in [*a, *b])
    weighing = {
        key: pair for key, pair in changed.items() if not (ended_alone and key.startswith(_INERT_UNLESS_STOPPED))
    }
    count = len(knobs(weighing, a[0].spec, b[0].spec))
    alone = "either alone" if count == 2 else "any one alone"
    return [f"{count} settings differ: a difference cannot be attributed to {alone}"] if count > 1 else []


def _adaptive_starts(a: Leaves, b: Leaves, changed: Changed) -> list[str]:
    """A beta that differs and that a rule moves on both sides is no other KL weight but another start of one."""
    keys = sorted(key for key in changed if key.removesuffix(".start").endswith(".beta"))
    adaptive = [
        key for key in keys if all(f"{key.partition('.beta')[0]}.adaptive_beta.rule" in side for side in (a, b))
    ]
    return [
        f"{key} is only where an adaptive beta starts: sides that end alike do not say that beta does nothing"
        for key in adaptive
    ]


def _ruler(changed: Changed) -> list[str]:
    rulers = ", ".join(key for key in changed if key.startswith(_RULERS) and key != _HOW_OFTEN)
    return [f"the evaluations themselves differ ({rulers}): eval/* is not the same measure"] if rulers else []


def _budget(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[str]:
    used = [_sampled(side) for side in (a, b)]
    plans = [_plan(side[0].spec) for side in (a, b)]
    if None in used or used[0] == used[1]:
        return []
    shown = [metric_text("completions", count) for count in used]
    text = f"unequal completions: A sampled {shown[0]}, B {shown[1]} per run"
    return [f"{text} (planned K x B x steps: {plans[0]} and {plans[1]})" if all(plans) else text]


def _sampled(runs: Sequence[RunRecord]) -> float | None:
    counts = [count for count in (run.value("completions") for run in runs) if count is not None]
    return mean(counts) if counts else None


def _plan(spec: Leaves) -> str:
    """`8 x 2 x 200 = 3200`, one per stage; empty where the spec does not say."""
    stages = dict.fromkeys(key.split(".")[1] for key in spec if key.startswith("stages."))
    plans = []
    for stage in stages:
        keys = ("num_generations", "prompts_per_step", "max_steps")
        factors = [number(spec.get(f"stages.{stage}.{key}")) for key in keys]
        if any(factor is None for factor in factors):
            return ""
        k, b, steps = (int(factor or 0) for factor in factors)
        plans.append(f"{k} x {b} x {steps} = {k * b * steps}")
    return " + ".join(plans)


def _seeds(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[str]:
    notes = []
    single = [letter for letter, side in (("A", a), ("B", b)) if len(side) == 1]
    if single:
        verb = "has" if len(single) == 1 else "have"
        notes.append(f"{' and '.join(single)} {verb} one seed: no interval, no significance test")
    seeds = [sorted(run.seed for run in side) for side in (a, b)]
    if seeds[0] != seeds[1]:
        shown = [", ".join(map(str, side)) for side in seeds]
        notes.append(f"the seeds differ (A {shown[0]}; B {shown[1]}): the sides cannot be paired")
    return notes


def _endings(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[str]:
    notes = []
    for letter, side in (("A", a), ("B", b)):
        odd = [run for run in side if run.status not in UNDISTURBED]
        if odd:
            runs = ", ".join(f"{run.run_id} {run.status}" for run in odd)
            notes.append(f"{letter}: {len(odd)} of {plural(len(side), 'run')} did not end normally: {runs}")
    return notes


def _signed(value: float) -> str:
    return f"{value:+.3f}"
