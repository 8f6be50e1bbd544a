"""Warnings about what a configuration wastes or hides: advantages, learning rate, schedules, faults."""

from __future__ import annotations

from collections.abc import Iterator

from core.algorithms.normalisers import BASELINES, SCALES
from core.config import GrpoStage, RunSpec, Schedule
from core.health.finding import Finding
from core.health.foresight.advantage_knobs import floor_covers_all
from core.health.foresight.advantage_values import largest_std, of_identical_groups, smallest_std
from core.health.foresight.biases import bias_warnings, evaluation_noise, finding
from core.health.foresight.budget import evaluation_error
from core.health.foresight.dead_groups import silent_step
from core.health.foresight.knob import number
from core.health.foresight.other_knobs import never_leaves_warmup
from core.health.foresight.run_budget import Bounds, room, steps
from core.health.foresight.view import StageView, views

_ORDER = {"error": 0, "warning": 1, "info": 2}


def warnings(spec: RunSpec) -> list[Finding]:
    """All that is to be said of a spec, the gravest first."""
    found = list(_of_run(spec))
    for view in views(spec):
        found += [
            *_of_nothing(view),
            *_of_advantages(view),
            *bias_warnings(view),
            *_of_rates(view),
            *_of_schedules(view),
            *_of_budget(view),
        ]
    task, evaluation = spec.task, spec.evaluation
    found.append(
        evaluation_noise(evaluation_error(next(views(spec))), task.eval_prompts, evaluation.num_generations_eval)
    )
    return sorted(found, key=lambda one: _ORDER[one.severity])


def _of_run(spec: RunSpec) -> Iterator[Finding]:
    if spec.faults:
        yield Finding(
            id="faults",
            severity="warning",
            summary=f"injected on purpose: {', '.join(spec.faults)}. Its rewards tell of the fault, not of the method",
            evidence={"faults": ", ".join(spec.faults)},
        )


def _of_advantages(view: StageView) -> Iterator[Finding]:
    stage = view.grpo
    if stage is None:
        return
    how, size = stage.advantage, stage.num_generations
    baseline, scale = BASELINES[how.baseline], SCALES[how.scale_rewards]
    if size == 2 and how.virtual_best is None and baseline.scope == "group":
        yield _two(view, stage)
    if how.baseline == "leave_one_out" and not scale.centred:
        yield finding(
            view, "leave-one-out", "info",
            f"leave_one_out is the group baseline times K / (K - 1) = {number(size / (size - 1))}: a sweep over both "
            "mostly sweeps the learning rate",
            factor=size / (size - 1),
        )  # fmt: skip
    if baseline.scope != "group":
        yield finding(
            view, "difficulty-in-advantage", "info",
            f"with baseline {how.baseline} a group of equal rewards still pushes: how hard a prompt is enters the "
            "advantage",
        )  # fmt: skip
    if scale.scope == "batch" and not scale.centred and baseline.scope != "batch":
        yield finding(
            view, "difficulty-in-scale", "warning",
            f"scale {how.scale_rewards} divides by the std of raw rewards, differences between prompts included: "
            "groups of 7/8 and 1/8 right give 0.516, where the centred rewards have 0.342 (batch_centred)",
        )  # fmt: skip
    yield from _of_floor(view, stage)
    if how.transform == "rank" and size > 2 and len(view.rewards.levels or ()) != 2:
        yield finding(
            view, "rank-forgets-gaps", "info",
            "rank keeps the order of rewards and forgets their gaps; in a group with only two different rewards it is "
            "the plain advantage times a constant",
        )  # fmt: skip


def _two(view: StageView, stage: GrpoStage) -> Finding:
    up, down = of_identical_groups(stage, (1.0, 0.0), (1, 1))
    scale = SCALES[stage.advantage.scale_rewards]
    if scale.scope == "group" and scale.standard and stage.advantage.std_floor == 0:
        which = "population std, ddof 0" if stage.advantage.ddof == 0 else "sample std, ddof 1"
        text = f"eps aside, live advantages are {up:+.4f} and {down:+.4f} ({which}) whatever the rewards: only a sign"
    else:
        text = f"each completion is compared with one other ({up:+.4f} and {down:+.4f} for rewards 1 and 0)"
    return finding(
        view, "two-generations", "warning",
        f"K = 2: {text}; at pass rate 0.5 half of the groups are dead (K = 8: 0.8 %)",
        up=up, down=down,
    )  # fmt: skip


def _of_nothing(view: StageView) -> Iterator[Finding]:
    stage = view.grpo
    if stage is None:
        return
    if not (stage.policy_weight.ever or stage.supervised_weight.ever or stage.consistency_weight.ever):
        yield finding(
            view, "nothing-to-learn-from", "error",
            "policy_weight is 0 throughout and no other loss is on: no reward is learned from",
        )  # fmt: skip
    if (silent := silent_step(stage, 0.5)) == 1.0 and not stage.supervised_weight.ever:
        yield finding(
            view, "never-a-signal", "error",
            "every advantage is 0 for binary rewards, whatever they are: no step can teach anything",
            dead_step=silent,
        )  # fmt: skip


def _of_floor(view: StageView, stage: GrpoStage) -> Iterator[Finding]:
    how = stage.advantage
    if SCALES[how.scale_rewards].scope == "none" or how.std_floor <= smallest_std(
        view
    ):  # 0, or below every live group's std
        return
    if floor_covers_all(view):
        most = number(largest_std(view) or 0.0)
        yield finding(
            view, "std-floor-constant", "warning",
            f"std_floor {number(how.std_floor)} is at least every std the rewards can have ({most}): it divides all "
            "advantages by one constant, a smaller learning rate under another name",
            std_floor=how.std_floor,
        )  # fmt: skip
        return
    tenth = how.std_floor / 10
    yield finding(
        view, "std-floor-squashes", "warning",
        f"where rewards spread by less than std_floor {number(how.std_floor)}, advantages shrink with the spread: at a "
        f"std of {number(tenth)} they have {number(tenth / (how.std_floor + how.eps))} instead of 1",
        std_floor=how.std_floor,
    )  # fmt: skip


def _of_rates(view: StageView) -> Iterator[Finding]:
    warmup = view.stage.warmup_steps
    if view.stage.learning_rate == 0:
        yield finding(
            view, "learning-rate-zero", "warning", "learning_rate is 0: the stage samples, and moves no weight"
        )
    if warmup == 0:
        return
    ticks = "step" if view.stage.lr_clock == "steps" else "update"
    yield finding(
        view, "first-update-is-zero", "info",
        f"with a warm-up the learning rate of the first {ticks} is exactly 0: it moves no weight",
        warmup_steps=warmup,
    )  # fmt: skip
    if never_leaves_warmup(view):
        yield finding(
            view, "never-leaves-warmup", "warning",
            f"warmup_steps {warmup} is as long as the stage ({view.stage.max_steps} {view.tick}s): learning_rate "
            f"{view.stage.learning_rate:g} and its schedule are hardly or never reached",
            warmup_steps=warmup,
        )  # fmt: skip


def _of_schedules(view: StageView) -> Iterator[Finding]:
    stage = view.stage
    for key in type(stage).model_fields:
        value = getattr(stage, key)
        if not isinstance(value, Schedule) or value.constant or value.warmup + value.steps <= stage.max_steps:
            continue
        yield finding(
            view, "schedule-cut", "info",
            f"{key} is planned over {value.warmup + value.steps} {view.tick}s and the stage has {stage.max_steps}: "
            f"it ends before {number(value.end)}",
            key=key, end=value.end,
        )  # fmt: skip


def _of_budget(view: StageView) -> Iterator[Finding]:
    left, budget = room(view), view.spec.budget
    if left is None or budget is None:
        return
    if left.least <= 0:
        never = left.most <= 0
        yield finding(
            view, "stage-without-budget", "error" if never else "warning",
            f"the stages before it {'spend' if never else 'may spend'} the run's {budget.amount} {budget.unit}: it "
            f"{'never starts' if never else 'may never start'}",
            budget=budget.amount,
        )  # fmt: skip
    if not view.clocked or left.most <= 0:
        return
    taken, ticks = steps(view), view.stage.max_steps
    tick = left.most / ticks
    yield finding(
        view, "budget-is-the-clock", "info",
        f"it goes on until the run's {budget.amount} {budget.unit} are spent ({_between(taken)} steps): max_steps "
        f"{ticks} only says that schedules, learning rate and eval_steps count {ticks} ticks of {number(tick)} "
        f"{budget.unit}",
        budget=budget.amount, least_steps=taken.least, most_steps=taken.most, tick=tick,
    )  # fmt: skip
    if taken.most == 1:
        yield finding(
            view, "budget-of-one-step", "warning",
            f"one step spends all of the {left.most} {budget.unit} there are: nothing moves and nothing is annealed",
            budget=budget.amount,
        )  # fmt: skip


def _between(found: Bounds) -> str:
    return str(found.most) if found.least == found.most else f"{found.least} to {found.most}"
