"""What a sweep compares besides what it says, and what in it cannot act: said before anything is started.

`refuse` raises on what makes a sweep pointless; `notes` are one line each, for the user to weigh. Arithmetic and the
spec only: no torch. Not here: whether a setting arrives at all (validation).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.config import GrpoStage, RunSpec
from core.errors import SpecError
from core.health.before.inert import inert_in_all
from core.metrics import declared
from grpoctl.config import Library, canonical, spec_sha
from grpoctl.sweeps.candidates import Candidates
from grpoctl.sweeps.space import Params, count, name_of, size
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.validation import some_points

# Keys that change what eval/* measures, and with it what a value is worth. What changes training only is not among
# them: train_prompts leaves the held-out problems alone, and overlong penalties stay out of evaluations.
YARDSTICK = (
    "task.name", "task.data_seed", "task.eval_prompts", "task.domains", "task.operator_cost", "task.digits",
    "task.path", "task.score", "task.format_reward", "task.data", "task.eval_data", "task.rewards",
    "evaluation.num_generations_eval", "evaluation.temperature",
)  # fmt: skip
LOOKING = "evaluation.eval_steps"  # how often is measured, which alone changes no run
FEW = 4  # evaluations after the start: with fewer a curve says little, and a pruner hardly acts


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A point and the run it stands for."""

    params: Params
    spec: RunSpec


def refuse(sweep: SweepSpec, made: Candidates) -> None:
    """Raises SpecError, `key` being the sweep's, for an axis that acts at no point, or that moves the yardstick."""
    tried = _tried(sweep, made)
    for key in sweep.axes:
        if (why := yardstick(sweep, key)) is not None:
            raise SpecError(why, key=key)
        if (reason := inert_in_all([one.spec for one in tried if key in one.params], key)) is not None:
            raise SpecError(f"does nothing at any point: {reason}", key=key)


def yardstick(sweep: SweepSpec, key: str) -> str | None:
    """Why values of the metric could not be compared over this axis; None where they can."""
    if _kind(sweep.metric) != "eval":
        return None
    if any(key == known or key.startswith(f"{known}.") for known in YARDSTICK) or key == "task":
        return f"changes what {sweep.metric} measures: its values could not be compared"
    return f"changes how often {sweep.metric} is measured, not the run" if key == LOOKING else None


def notes(sweep: SweepSpec, *, library: Library | None = None) -> list[str]:
    """What the user should know before it starts, one line each. Raises what loading the base raises."""
    tried = _tried(sweep, Candidates.of(sweep, library=library))
    return [*_of_size(sweep), *_of_knobs(sweep, tried), *_of_names(sweep, tried), *_of_budget(sweep, tried)]


def _tried(sweep: SweepSpec, made: Candidates) -> list[Tried]:
    return [Tried(params=params, spec=made.spec(params)) for params in some_points(sweep)]


def _of_size(sweep: SweepSpec) -> Iterator[str]:
    """Trials, seeds, and whether a pruner gets to act."""
    number, total = size(sweep), sweep.trials
    if number is not None and total is not None and total > number:
        yield f"trials is {total}, but there are only {number} points: the sweep ends when all have been tried"
    if len(sweep.seeds) < 2 and not sweep.ladder:
        yield "one seed: no interval and no significance test"
    if sweep.pruner.min_trials is not None and total is not None and total <= sweep.pruner.min_trials:
        wanted = sweep.pruner.min_trials
        yield f"pruner {sweep.pruner.name} waits for {wanted} trials, and there are {total}: it never acts"


def _of_knobs(sweep: SweepSpec, tried: Sequence[Tried]) -> Iterator[str]:
    """Axes that do nothing at some points, axes that cannot vary, and settings that coincide."""
    for key, axis in sweep.axes.items():
        if count(axis) == 1:
            yield f"{key} has one value: it belongs to settings"
        there = [one for one in tried if key in one.params]
        found = [why for one in there if (why := inert_in_all([one.spec], key)) is not None]
        if found:
            share = f"{100 * len(found) / len(there):.0f} %"
            yield f"{key} does nothing at {share} of its points ({found[0]}): a `when` would leave those out"
        if key.startswith("guards."):
            yield f"{key} decides which runs count as collapsed, not how they train"
    for key in ("advantage.baseline", "advantage.scale_rewards"):
        yield from _one_group(sweep, tried, key)


def _one_group(sweep: SweepSpec, tried: Sequence[Tried], ending: str) -> Iterator[str]:
    """A batch of one group has one set of statistics, by whichever name."""
    for key in [key for key in sweep.axes if key.endswith(ending)]:
        values = {canonical(one.params.get(key)) for one in tried}
        alone = [one for one in tried if _stage(one.spec, key).prompts_per_step == 1]
        if {'"group"', '"batch"'} <= values and alone:
            kinds = sorted({_stage(one.spec, key).num_generations for one in alone})
            yield f"{key}: batch is group where a step has one prompt (K = {', '.join(map(str, kinds))})"


def _stage(spec: RunSpec, key: str) -> GrpoStage:
    stage = spec.stages[key.split(".")[1]]
    assert isinstance(stage, GrpoStage)
    return stage


def _of_names(sweep: SweepSpec, tried: Sequence[Tried]) -> Iterator[str]:
    """Candidates and rungs: which do nothing, change the yardstick, or are one run under two names."""
    if sweep.axes:
        return
    seen: dict[str, str | None] = {}
    for one in tried:
        name, sha = name_of(sweep, one.params), spec_sha(one.spec)
        if sha in seen:
            yield f"{name} is {seen[sha]}: the same run under two names"
        seen.setdefault(sha, name)
        for key in one.params:
            if (why := yardstick(sweep, key)) is not None:
                yield f"{name}: {key} {why}"
            if (reason := inert_in_all([one.spec], key)) is not None:
                yield f"{name}: {key} does nothing: {reason}"


def _of_budget(sweep: SweepSpec, tried: Sequence[Tried]) -> Iterator[str]:
    """Batches that differ, and evaluations too few to see a curve."""
    if sweep.budget.completions is None and sweep.budget.tokens is None:
        yield "no budget: a run lasts as long as its stages, whatever that costs"
    rows = {name: {one.spec.stages[name].rows_per_step for one in tried if name in one.spec.stages}
            for name in tried[0].spec.stages}  # fmt: skip
    for name, sizes in rows.items():
        if len(sizes) > 1:
            some = ", ".join(map(str, sorted(sizes)[:6]))
            yield f"a step of {name} has {some} completions: updates differ in number, and noise in size"
    looks = min(_evaluations(one.spec) for one in tried)
    reports = looks * len(sweep.seeds) - 1  # the very last one saves nothing
    if reports < FEW and sweep.pruner.name != "none":
        yield f"a trial is measured {reports} times before its end: too few to prune by; lower {LOOKING}"
    elif looks == 1 and _kind(sweep.metric) == "eval":
        yield f"{LOOKING} is no shorter than a run: only its start and its end are measured"


def _kind(name: str) -> str:
    metric = declared(name)
    assert metric is not None  # the sweep's own type has seen to that
    return metric.kind


def _evaluations(spec: RunSpec) -> int:
    """Evaluations of a run after its start, the one at its end included."""
    return math.ceil(spec.max_steps / spec.evaluation.eval_steps)


def described(sweep: SweepSpec, *, library: Library | None = None) -> dict[str, Any]:
    """The sweep in numbers: points (null: no end of them), trials, seeds, runs, and what a run may sample."""
    tried = _tried(sweep, Candidates.of(sweep, library=library))
    looks = [_evaluations(one.spec) for one in tried]
    rows = [stage.rows_per_step for stage in tried[0].spec.stages.values()]
    total = sweep.trials or len(tried)
    return {
        "points": size(sweep),
        "trials": total,
        "seeds": list(sweep.seeds),
        "runs": total * len(sweep.seeds),
        "budget": {"completions": sweep.budget.completions, "tokens": sweep.budget.tokens},
        "completions_per_step": max(rows),
        "evaluations": [min(looks), max(looks)],
    }
