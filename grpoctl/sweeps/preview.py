"""What a sweep will be, before anything is started: notes for the user to weigh, its size, and its cost.

Arithmetic, the spec and the files of earlier runs only: no torch. Not here: what makes a sweep invalid (validation).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

from core.algorithms.schedules import proportional_beta
from core.config import AdaptiveBetaSpec, GrpoStage, RunSpec
from core.config.trainer import unused_seed
from core.health.before.budget import budget
from core.health.before.inert import inert_in_all
from core.health.before.pitfalls import EQUAL_MODES
from core.health.before.view import views
from core.metrics import declared
from grpoctl.analysis.sweeps.report import how_text
from grpoctl.config import Library, canonical, spec_sha
from grpoctl.executors.slots import usable_cores
from grpoctl.runs.pace import Duration, Like, budget_of, duration, rates_of_runs, rates_of_studies
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.candidates import Candidates, count, name_of, size
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.validation import LOOKING, PointRun, incomparable, point_runs
from grpoctl.wording import plural

_MORE = 1.1  # times its budget that a run may draw, for whole steps, before it is told
FEW = 4  # evaluations after the start: with fewer a curve says little, and a pruner hardly acts


def notes(sweep: SweepSpec, *, library: Library | None = None) -> list[str]:
    """What the user should know before it starts, one line each. Raises what loading the base raises."""
    runs = point_runs(Candidates.of(sweep, library=library))
    return [
        *_size_notes(sweep),
        *_seed_notes(sweep, runs),
        *_axis_notes(sweep, runs),
        *_name_notes(sweep, runs),
        *_adaptive_notes(runs),
        *_mode_notes(runs),
        *_budget_notes(sweep, runs),
    ]


def _size_notes(sweep: SweepSpec) -> Iterator[str]:
    """Trials, seeds, and whether a pruner gets to act."""
    number, total = size(sweep), sweep.trials
    if sweep.allocation == "adaptive":
        yield from _adaptive_allocation_notes(sweep)
        return
    if number is not None and total is not None and total > number:
        yield f"trials is {total}, but there are only {number} points: the sweep ends when all have been tried"
    if len(sweep.seeds) < 2 and not sweep.ladder:
        yield "one seed: no interval and no significance test"
    if sweep.pruner.min_trials is not None and total is not None and total <= sweep.pruner.min_trials:
        wanted = sweep.pruner.min_trials
        yield f"pruner {sweep.pruner.name} waits for {wanted} trials, and there are {total}: it never acts"


def _seed_notes(sweep: SweepSpec, runs: Sequence[PointRun]) -> list[str]:
    """That seeds do nothing to a command which is not told its own."""
    return [note for note in (unused_seed(run.spec.trainer, len(sweep.seeds)) for run in runs) if note][:1]


def _adaptive_allocation_notes(sweep: SweepSpec) -> Iterator[str]:
    """What has no say where the search itself decides."""
    if sweep.sampler == "tpe":
        yield f"allocation adaptive chooses its candidates itself: sampler {sweep.sampler} has no say"
    if sweep.pruner.name != "none":
        yield f"allocation adaptive pauses runs itself: pruner {sweep.pruner.name} has no say"
    if sweep.stop == "decided" and sweep.confidence == 1:
        yield "confidence is 1: hardly any choice is that sure, so that the budget will be spent; 0.9 can be met"


def search_text(sweep: SweepSpec) -> str:
    """What adaptive allocation does with the trials of a sweep; empty where every trial gets all of its seeds."""
    if sweep.allocation != "adaptive":
        return ""
    how = how_text({"allocation": sweep.allocation, "stop": sweep.stop, "confidence": sweep.confidence})
    return f"{how}: screened on one seed, the best raced on more"


def _axis_notes(sweep: SweepSpec, runs: Sequence[PointRun]) -> Iterator[str]:
    """Axes that do nothing at some points, axes that cannot vary, and settings that coincide."""
    for key, axis in sweep.axes.items():
        if count(axis) == 1:
            yield f"{key} has one value: it belongs to settings"
        there = [run for run in runs if key in run.params]
        reasons = [reason for run in there if (reason := inert_in_all([run.spec], key)) is not None]
        if reasons:
            share = f"{100 * len(reasons) / len(there):.0f} %"
            yield f"{key} does nothing at {share} of its points ({reasons[0]}): a `when` would leave those out"
        if key.startswith("guards."):
            yield f"{key} decides which runs count as collapsed, not how they train"
    for key in ("advantage.baseline", "advantage.scale_rewards"):
        yield from _single_group(sweep, runs, key)


def _single_group(sweep: SweepSpec, runs: Sequence[PointRun], ending: str) -> Iterator[str]:
    """A batch of one group has one set of statistics, by whichever name."""
    for key in [key for key in sweep.axes if key.endswith(ending)]:
        values = {canonical(run.params.get(key)) for run in runs}
        alone = [run for run in runs if _stage(run.spec, key).prompts_per_step == 1]
        if {'"group"', '"batch"'} <= values and alone:
            kinds = sorted({_stage(run.spec, key).num_generations for run in alone})
            yield f"{key}: batch is group where a step has one prompt (K = {', '.join(map(str, kinds))})"


def _stage(spec: RunSpec, key: str) -> GrpoStage:
    stage = spec.stages[key.split(".")[1]]
    assert isinstance(stage, GrpoStage)
    return stage


def _name_notes(sweep: SweepSpec, runs: Sequence[PointRun]) -> Iterator[str]:
    """Candidates and rungs: which do nothing, change the yardstick, or are one run under two names."""
    if sweep.axes:
        return
    seen: dict[str, str | None] = {}
    for run in runs:
        name, sha = name_of(sweep, run.params), spec_sha(run.spec)
        if sha in seen:
            yield f"{name} is {seen[sha]}: the same run under two names"
        seen.setdefault(sha, name)
        for key in run.params:
            if (why := incomparable(sweep, key)) is not None:
                yield f"{name}: {key} {why}"
            if (reason := inert_in_all([run.spec], key)) is not None:
                yield f"{name}: {key} does nothing: {reason}"


def _adaptive_notes(runs: Sequence[PointRun]) -> Iterator[str]:
    """A beta that is swept where a rule moves it: the points differ in where it starts, and in nothing else."""
    keys = {key for run in runs for key in run.params if key.removesuffix(".start").endswith(".beta")}
    for key in sorted(keys):
        stages = [stage for run in runs if isinstance(stage := run.spec.stages.get(key.split(".")[1]), GrpoStage)]
        starts = sorted({stage.beta.start for stage in stages if stage.adaptive_beta is not None})
        if len(starts) < 2:
            continue
        moves = max(
            math.ceil(math.log(starts[-1] / starts[0]) / math.log(_largest_move(rule, stage.rows_per_step)))
            for stage in stages
            if (rule := stage.adaptive_beta) is not None
        )
        least = min(stage.max_steps for stage in stages)
        forgets = "can forget its start: such a sweep is no study of beta, and runs that end alike do not say that beta"
        yield (
            f"{key} is only where an adaptive beta starts: {starts[0]:g} and {starts[-1]:g} are "
            f"{plural(moves, 'move')} of its rule apart, and a stage has {plural(least, 'step')}"
            + (f"; the rule {forgets} does nothing (adaptive_beta: null holds it)" if moves < least else "")
        )


def _largest_move(rule: AdaptiveBetaSpec, samples: int) -> float:
    """The most that a rule multiplies beta by on one step of so many completions."""
    match rule.rule:
        case "threshold":
            return rule.factor
        case "proportional":
            return proportional_beta(1.0, math.inf, target=rule.target, horizon=rule.horizon, samples=samples)
        case _:
            assert_never(rule.rule)


def _mode_notes(runs: Sequence[PointRun]) -> Iterator[str]:
    if {getattr(run.spec.task, "reward_mode", None) for run in runs} >= EQUAL_MODES:
        first, second = sorted(EQUAL_MODES)
        yield f"task.reward_mode: {first} and {second} are the same reward in other words"


def _budget_notes(sweep: SweepSpec, runs: Sequence[PointRun]) -> Iterator[str]:
    """Batches that differ, and evaluations too few to see a curve."""
    if sweep.budget.completions is None and sweep.budget.tokens is None:
        yield "no budget: a run lasts as long as its stages, whatever that costs"
    if (over := next(filter(None, (_over_budget(run.spec) for run in runs)), None)) is not None:
        yield over
    rows = {name: {run.spec.stages[name].rows_per_step for run in runs if name in run.spec.stages}
            for name in runs[0].spec.stages}  # fmt: skip
    for name, sizes in rows.items():
        if len(sizes) > 1:
            some = ", ".join(map(str, sorted(sizes)[:6]))
            yield f"a step of {name} has {some} completions: updates differ in number, and noise in size"
    looks = min(_evaluations(run.spec) for run in runs)
    reports = looks * len(sweep.seeds) - 1  # the very last one saves nothing
    if reports < FEW and sweep.pruner.name != "none":
        yield f"a trial is measured {reports} times before its end: too few to prune by; lower {LOOKING}"
    elif looks == 1 and (metric := declared(sweep.metric)) is not None and metric.kind == "eval":
        yield f"{LOOKING} is no shorter than a run: only its start and its end are measured"


def _over_budget(spec: RunSpec) -> str | None:
    """That a run draws more than its budget, by more than a tenth: whole steps are made."""
    drawing = {name: stage.rows_per_step for name, stage in spec.stages.items() if stage.rows_per_step}
    if spec.budget is None or spec.budget.unit != "completions" or len(drawing) != 1:
        return None
    (rows,), amount = drawing.values(), spec.budget.amount
    drawn = math.ceil(amount / rows) * rows
    if drawn <= _MORE * amount:
        return None
    return f"{amount} completions are no whole number of steps of {rows}: a run draws {drawn}"


def drawn_by(spec: RunSpec) -> int:
    """What a run draws at most, in the unit of its budget: it makes whole steps, the last one beyond the budget.

    Refills of dynamic sampling are counted: a step ends as soon as it has its groups.
    """
    stages = list(views(spec))
    if spec.budget is None or spec.budget.unit == "completions":
        return sum(budget(view).max_completions_with_refills for view in stages)
    last = stages[-1]
    return spec.budget.amount - 1 + last.stage.rows_per_step * last.attempts * last.stage.max_completion_length


def _evaluations(spec: RunSpec) -> int:
    """Evaluations of a run after its start, the one at its end included."""
    return math.ceil(spec.max_steps / spec.evaluation.eval_steps)


def described(sweep: SweepSpec, *, library: Library | None = None) -> dict[str, Any]:
    """The sweep in numbers: points (null: no end of them), trials, seeds, runs, and what a run may sample."""
    runs = point_runs(Candidates.of(sweep, library=library))
    looks = [_evaluations(run.spec) for run in runs]
    rows = [stage.rows_per_step for stage in runs[0].spec.stages.values()]
    total = sweep.trials or len(runs)
    return {
        "points": size(sweep),
        "trials": total,
        "seeds": list(sweep.seeds),
        "runs": total * len(sweep.seeds),
        "budget": {"completions": sweep.budget.completions, "tokens": sweep.budget.tokens},
        "drawn_per_run": max(drawn_by(run.spec) for run in runs),
        "completions_per_step": max(rows),
        "evaluations": [min(looks), max(looks)],
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """`each` is the budget of a run in `unit`; `time` is None where nothing like it was measured here."""

    sweep: str
    profile: str
    trials: int
    seeds: int
    slots: int
    unit: str
    each: int
    drawn: int  # by a run at most: whole steps are made
    prunes: bool  # trials may be ended, or left out, before they have spent that
    search: str  # what adaptive allocation does with them; empty where there is none
    time: Duration | None

    @property
    def runs(self) -> int:
        """Runs at most: pruned trials leave some out."""
        return self.trials * self.seeds

    def document(self) -> dict[str, Any]:
        """As JSON."""
        amount, time = self.runs * self.drawn, self.time
        return {
            "profile": self.profile, "trials": self.trials, "seeds": self.seeds, "runs": self.runs,
            "parallel": self.slots, "completions": amount if self.unit == "completions" else None,
            "tokens": amount if self.unit == "tokens" else None,
            "hours": None if time is None else time.seconds / 3600,
            "hours_interval": None if time is None else [time.low / 3600, time.high / 3600],
            "measured_on": "" if time is None else time.measured_on,
        }  # fmt: skip

    @property
    def _drawn_text(self) -> str:
        """What a run draws, and all of them."""
        if not self.drawn:
            return "which draw nothing: what they learn from is stored"
        more = f" (a run may draw {self.drawn:,})" if self.drawn > self.each else ""
        most = " at most" if self.prunes or more else ""
        return f"{self.each:,} {self.unit} each{more}: {self.runs * self.drawn:,} {self.unit}{most}"

    def lines(self) -> list[str]:
        """The two lines that matter: what is run, and what that takes."""
        time = "time unknown: nothing of this experiment and profile was measured here yet"
        if not self.drawn:
            time = "time unknown: it is told by what is drawn"
        return [
            f"{self.sweep}, profile {self.profile}: {plural(self.trials, 'trial')} x {plural(self.seeds, 'seed')} = "
            f"{plural(self.runs, 'run')}, {self.slots} at a time, {self._drawn_text}"
            f"{f' ({self.search})' if self.search else ''}",
            time if self.time is None else f"{self.time.text}{', if all of it is spent' if self.prunes else ''}",
        ]


def cost_of(sweep: SweepSpec, spec: RunSpec, home: Home, *, trials: int, slots: int) -> Cost:
    """The cost of so many trials like `spec`, one of its points; what a run draws is the most that any point does."""
    unit, each = budget_of(spec)
    like = replace(Like.of(spec, sweep.experiment), profile=sweep.profile)
    rates = rates_of_studies(home, like) or rates_of_runs(home, like)
    workers = min(slots, usable_cores()) if rates and rates[0].alone else slots
    return Cost(
        sweep=sweep.name, profile=sweep.profile, trials=trials, seeds=len(sweep.seeds), slots=slots, unit=unit,
        each=each, drawn=max(drawn_by(run.spec) for run in point_runs(Candidates.of(sweep))),
        prunes=sweep.allocation == "adaptive" or sweep.pruner.name != "none", search=search_text(sweep),
        time=duration(rates, trials * len(sweep.seeds) * each, workers=workers),
    )  # fmt: skip
