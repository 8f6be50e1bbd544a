"""What must be said beside a comparison's numbers: notes, and the verdict in one sentence.

What is here: sentences from records. What is not: the numbers (compare, statistics) and how they are printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.health.finding import SEVERITIES
from core.health.statistics import Difference, Estimate, mean
from grpoctl.analysis.collect import Leaves, RunRecord, number
from grpoctl.runs.status import UNDISTURBED
from grpoctl.wording import metric_text, plural, setting_text

Changed = Mapping[str, tuple[object, object]]

# Guards act by stopping a run only, checkpoints not at all: where every run ended by itself neither made a difference.
_INERT_UNLESS_STOPPED = ("guards.", "checkpoints.")
_RULERS = ("task.", "evaluation.")
_HOW_OFTEN = "evaluation.eval_steps"  # the held-out draws are the same each time
_SCHEDULE = frozenset({"start", "end", "steps"})


def notes(a: Sequence[RunRecord], b: Sequence[RunRecord], changed: Changed) -> tuple[str, ...]:
    """What stands between the numbers and a conclusion, the heaviest first."""
    return (
        *_fault(a[0].spec, b[0].spec),
        *_errors(a, b),
        *_same_runs(a, b, changed),
        *_attribution(a, b, changed),
        *_ruler(changed),
        *_budget(a, b),
        *_seeds(a, b),
        *_endings(a, b),
    )


def findings(runs: Sequence[RunRecord]) -> dict[str, dict[str, object]]:
    """Id of each finding of a side's runs -> its gravest `severity`, and the ids of the `runs` that have it."""
    found: dict[str, dict[str, object]] = {}
    for severity in SEVERITIES:
        for run in runs:
            for name in _found(run, severity):
                entry = found.setdefault(name, {"severity": severity, "runs": []})
                named = entry["runs"]
                assert isinstance(named, list)
                named += [] if run.run_id in named else [run.run_id]
    return found


def verdict(metric: str, names: tuple[str, str], a: Estimate | None, b: Estimate | None, gap: Difference | None) -> str:
    """Which side is better on a metric that is better when higher, with its interval, or why that cannot be said."""
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
    """The changed settings as decisions: a schedule's leaves are one, and so is a part that one side has not at all."""
    found: dict[str, None] = {}
    for key in changed:
        parent, _, leaf = key.rpartition(".")
        schedule = leaf in _SCHEDULE and all(f"{parent}.{part}" in side for part in _SCHEDULE for side in (a, b))
        absent = any(side.get(parent, 0) is None for side in (a, b))
        found.setdefault(parent if schedule or absent else key)
    return list(found)


def _fault(a: Leaves, b: Leaves) -> list[str]:
    faults = [_listed(side.get("faults")) for side in (a, b)]
    if faults[0] == faults[1]:
        return [f"both sides ran with a fault switched on: {faults[0]}"] if faults[0] else []
    said = " and ".join(f"{letter} with {fault}" for letter, fault in zip("AB", faults, strict=True) if fault)
    other = {0: "A", 1: "B"}[faults.index("")] if "" in faults else None
    return [f"a fault was switched on: {said}" + (f"; {other} without any" if other else "")]


def _errors(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[str]:
    """A side with an error: until it is explained, nothing can be attributed to the settings."""
    said = []
    for letter, side in (("A", a), ("B", b)):
        with_error = [run for run in side if _found(run, "error")]
        if with_error:
            names = ", ".join(dict.fromkeys(name for run in with_error for name in _found(run, "error")))
            said.append(
                f"{letter} has an error in {len(with_error)} of {plural(len(side), 'run')} ({names}): until it is "
                "explained, no difference can be attributed to the settings; evidence: "
                f"grpoctl diagnose {with_error[0].run_id}"
            )
    return said


def _found(run: RunRecord, severity: str) -> list[str]:
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
    said = []
    single = [letter for letter, side in (("A", a), ("B", b)) if len(side) == 1]
    if single:
        verb = "has" if len(single) == 1 else "have"
        said.append(f"{' and '.join(single)} {verb} one seed: no interval, no significance test")
    seeds = [sorted(run.seed for run in side) for side in (a, b)]
    if seeds[0] != seeds[1]:
        shown = [", ".join(map(str, side)) for side in seeds]
        said.append(f"the seeds differ (A {shown[0]}; B {shown[1]}): the sides cannot be paired")
    return said


def _endings(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[str]:
    said = []
    for letter, side in (("A", a), ("B", b)):
        odd = [run for run in side if run.status not in UNDISTURBED]
        if odd:
            runs = ", ".join(f"{run.run_id} {run.status}" for run in odd)
            said.append(f"{letter}: {len(odd)} of {plural(len(side), 'run')} did not end normally: {runs}")
    return said


def _signed(value: float) -> str:
    return f"{value:+.3f}"
