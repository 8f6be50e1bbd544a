"""Warnings of `grpoctl check`: what a configuration wastes, hides, or estimates with a bias.

A bias is a gradient that is not that of the expected reward. The rest: advantages, learning rate, schedules, faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from core.algorithms.names import BASELINES, SCALES
from core.config import GrpoStage, RunSpec, Schedule
from core.config.task import ExampleSelectionTaskSpec, RestorationTaskSpec, RewardMode
from core.health.before.advantages import largest_std, of_identical_groups, silent_step, smallest_std
from core.health.before.budget import evaluation_error, least_value, room, steps
from core.health.before.inert import acts_on_noise, floor_covers_all, never_leaves_warmup, noise, number, ratio_is_one
from core.health.before.view import BFLOAT16_NATS, StageView, views
from core.health.case import NO_FILTER, sampling_filters
from core.health.finding import SEVERITIES, Finding, Severity

EQUAL_MODES: frozenset[RewardMode] = frozenset({"separated", "hard_plus_soft_v2"})
WIDE_FOR_GSPO = 0.05  # its paper's bounds are 3e-4 and 4e-4


def bias_warnings(view: StageView) -> list[Finding]:
    """What is said of one GRPO stage; [] for the others."""
    if view.grpo is None:
        return []
    stage = view.grpo
    findings = [*_of_sampling(view), *_of_ratio(view, stage), *_of_scales(view, stage), *_of_loss(view, stage)]
    return [*findings, *_of_precision(view)]


def finding(view: StageView, name: str, severity: Severity, summary: str, **evidence: float | str) -> Finding:
    """A finding that says which stage it is about."""
    return Finding(
        id=name, severity=severity, summary=f"{view.name}: {summary}", evidence={"stage": view.name, **evidence}
    )


def _of_sampling(view: StageView) -> Iterator[Finding]:
    stage = view.grpo
    assert stage is not None
    if filters := sampling_filters(stage):
        yield finding(
            view, "sampling-filter", "warning",
            f"{' and '.join(f'{name} {number(value)}' for name, value in filters.items())} act on what is drawn, but "
            "log-probs are those of the distribution before: the likelihood ratio and the gradient are biased by the "
            f"mass that is moved (not with {', '.join(f'{name} {number(NO_FILTER[name])}' for name in filters)})",
            **filters,
        )  # fmt: skip
    keep = stage.keep_candidates
    if keep is not None and round(least_value(view, keep)) < stage.num_generations:
        which = "those that candidate_choice draws" if stage.candidate_choice != "best" else "the best candidates"
        came = "stored" if stage.groups == "offline" else "sampled"
        yield finding(
            view, "kept-candidates", "warning",
            f"only {which} of a group are learnt from, though they were {came} with the others: the gradient is no "
            "longer that of the expected reward",
        )  # fmt: skip
    range_ = view.spec.task.reward_range
    if range_ is not None and stage.positive_reward is not None and stage.positive_reward > range_[1]:
        yield finding(
            view, "unreachable-reward", "error",
            f"positive_reward {number(stage.positive_reward)} is above every reward the task pays (at most "
            f"{number(range_[1])}): no prompt takes part",
            positive_reward=stage.positive_reward, highest=range_[1],
        )  # fmt: skip


def _of_ratio(view: StageView, stage: GrpoStage) -> Iterator[Finding]:
    if view.dropout > 0:
        yield finding(
            view, "dropout-in-ratio", "warning",
            f"{view.dropout_name} {number(view.dropout)} is active in the update's log-probs and not in the old ones: "
            "their ratio is noise around 1, not 1",
            **{view.dropout_name: view.dropout},
        )  # fmt: skip
    if stage.surrogate == "reinforce" and view.updates_per_step > 1:
        yield finding(
            view, "off-policy-reinforce", "warning",
            f"{view.updates_per_step} updates per rollout, and reinforce has no ratio: all but the first learn from "
            "samples of another policy as if they were its own",
            updates_per_step=view.updates_per_step,
        )  # fmt: skip
    bounds = [stage.epsilon, stage.epsilon_high or stage.epsilon]
    widest, tightest = max(b.start for b in bounds), min(min(b.start, b.end) for b in bounds)
    if stage.surrogate == "gspo" and tightest >= WIDE_FOR_GSPO:
        yield finding(
            view, "gspo-never-clips", "warning",
            f"gspo bounds the ratio of a whole completion, the geometric mean over its {view.spec.policy.factor}s: an "
            f"epsilon of {number(widest)} is hardly ever reached (its paper uses 3e-4 and 4e-4)",
            epsilon=widest,
        )  # fmt: skip
    if ratio_is_one(view) and noise(view) and acts_on_noise(stage):
        yield finding(
            view, "clips-rounding", "warning",
            f"the clip's bound {number(tightest)} is below what {noise(view)} does to a ratio of 1 (bfloat16 alone: "
            f"{BFLOAT16_NATS}): which {view.spec.policy.factor}s or completions are clipped is chance",
            epsilon=tightest,
        )  # fmt: skip


def _of_scales(view: StageView, stage: GrpoStage) -> Iterator[Finding]:
    """Bounds below 1: they multiply everything, also what they were not meant for."""
    if stage.surrogate == "cispo" and stage.cispo_max_weight < 1:
        yield finding(
            view, "cispo-scales", "warning",
            f"cispo_max_weight is an absolute bound: {number(stage.cispo_max_weight)} multiplies the gradient of every "
            f"on-policy {view.spec.policy.factor} by that (TRL calls it epsilon_high; 5 is usual)",
            cispo_max_weight=stage.cispo_max_weight,
        )  # fmt: skip
    if (stage.importance_sampling_cap or 1.0) < 1:
        yield finding(
            view, "importance-scales", "warning",
            f"importance_sampling_cap {number(stage.importance_sampling_cap or 1.0)} is below 1: it multiplies every "
            f"{view.spec.policy.factor}'s gradient, also where sampler and trainer agree",
            importance_sampling_cap=stage.importance_sampling_cap or 1.0,
        )  # fmt: skip


def _of_loss(view: StageView, stage: GrpoStage) -> Iterator[Finding]:
    if stage.beta.ever and stage.kl_in == "loss" and stage.kl_estimator == "k3":
        yield finding(
            view, "k3-is-forward", "warning",
            "k3 in the loss has the gradient of the forward KL(ref || policy), not of the reverse one it is the value "
            "of; k2, k1_ratio and k3_ratio have the reverse one's",
        )  # fmt: skip
    if stage.beta.ever and stage.kl_in == "reward":
        yield from _of_kl_reward(view, stage)
    if stage.reduction == "sequence_mean" and view.spec.policy.tokens:
        yield finding(
            view, "length-bias", "info",
            "sequence_mean divides by each completion's length: a token of a long wrong answer is punished less than "
            "one of a short wrong answer (token_mean and constant_length are not biased so)",
        )  # fmt: skip
    for key in ("supervised_weight", "consistency_weight", "policy_weight"):
        weight = getattr(stage, key)
        gone = weight.warmup + weight.steps
        if weight.ever and weight.end == 0 and gone < stage.max_steps:
            yield finding(
                view, "weight-ends", "info",
                f"{key} falls to 0 at {view.tick} {gone} of {stage.max_steps}: what it held in place then moves freely",
                key=key, step=gone,
            )  # fmt: skip


def _of_precision(view: StageView) -> Iterator[Finding]:
    model = view.spec.model
    if model is not None and model.dtype == "bfloat16" and model.lora is None:
        yield finding(
            view, "bf16-weights", "warning",
            "every weight is trained in bfloat16, which drops changes below 0.4 % of a weight: at a learning rate of "
            f"{number(view.stage.learning_rate)} next to none moves (model.dtype float32, or an adapter)",
            learning_rate=view.stage.learning_rate,
        )  # fmt: skip


def _of_kl_reward(view: StageView, stage: GrpoStage) -> Iterator[Finding]:
    if stage.kl_estimator != "k1":
        yield finding(
            view, "kl-reward-estimator", "warning",
            f"{stage.kl_estimator} in the reward does not have the KL's gradient; k1 has",
            kl_estimator=stage.kl_estimator,
        )  # fmt: skip
    if SCALES[stage.advantage.scale_rewards].scope == "group":
        yield finding(
            view, "kl-reward-scaled", "warning",
            "with the KL in the reward, a group of equal task rewards is divided by the spread of its KL alone: there "
            "beta does not matter (scale_rewards none, batch or batch_centred keep it)",
        )  # fmt: skip


def evaluation_noise(error: tuple[float, float], prompts: int, each: int) -> Finding:
    """How well one evaluation can tell a difference at all."""
    low, high = error
    return Finding(
        id="evaluation-noise",
        severity="info",
        summary=(
            f"one evaluation ({prompts} prompts x {each}) has a standard error of {low:.3f} to {high:.3f} for rewards "
            f"0 or 1 at mean 0.5: two that differ by less than {2 * math.sqrt(2) * low:.3f} to "
            f"{2 * math.sqrt(2) * high:.3f} are within noise (less where completions of the same draws are compared)"
        ),
        evidence={"prompts": prompts, "generations": each, "low": low, "high": high},
    )


def warnings(spec: RunSpec) -> list[Finding]:
    """All that is to be said of a spec, the most severe first."""
    findings = list(_of_run(spec))
    for view in views(spec):
        findings += [
            *_of_nothing(view),
            *_of_advantages(view),
            *bias_warnings(view),
            *_of_rates(view),
            *_of_schedules(view),
            *_of_budget(view),
        ]
    task, evaluation = spec.task, spec.evaluation
    findings.append(
        evaluation_noise(evaluation_error(next(views(spec))), task.eval_prompts, evaluation.num_generations_eval)
    )
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _of_run(spec: RunSpec) -> Iterator[Finding]:
    if spec.faults:
        yield Finding(
            id="faults",
            severity="warning",
            summary=(
                f"fault injected by this spec ({', '.join(spec.faults)}): rewards reflect the fault, not the method"
            ),
            evidence={"faults": ", ".join(spec.faults)},
        )
    task = spec.task
    if isinstance(task, ExampleSelectionTaskSpec) and task.reward_mode in EQUAL_MODES:
        (other,) = EQUAL_MODES - {task.reward_mode}
        yield Finding(
            id="equal-reward-modes",
            severity="info",
            summary=(
                f"reward_mode {task.reward_mode} is {other} in other words: correctness is 0 or 1, so both pay "
                "soft_weight x accuracy + 2 x hard_weight x correctness; a comparison of the two compares nothing"
            ),
            evidence={"reward_mode": task.reward_mode, "equals": other},
        )
    yield from deviations(spec)


def deviations(spec: RunSpec) -> Iterator[Finding]:
    """Where a task cannot pay what its document says: told before a run, and among the findings of its result."""
    task = spec.task
    if isinstance(task, RestorationTaskSpec) and task.w_psnr + task.w_ssim < 1 - 1e-9:
        w_psnr, w_ssim = task.weights
        yield Finding(
            id="lpips-left-out",
            severity="info",
            confidence="certain",
            summary=(
                f"document 003's third term of the reward, LPIPS, needs pretrained weights: its share of "
                f"{number(1 - task.w_psnr - task.w_ssim)} is spread over the others, so PSNR counts {number(w_psnr)} "
                f"and SSIM {number(w_ssim)}"
            ),
            evidence={"w_psnr": w_psnr, "w_ssim": w_ssim},
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
            f"with baseline {how.baseline} a group of equal rewards still has a gradient: how hard a prompt is "
            "enters the advantage",
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
            "rank keeps the order of rewards and ignores their differences; in a group with only two different rewards "
            "it is the plain advantage times a constant",
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
    span = str(taken.most) if taken.least == taken.most else f"{taken.least} to {taken.most}"
    yield finding(
        view, "budget-is-the-clock", "info",
        f"it goes on until the run's {budget.amount} {budget.unit} are spent ({span} steps): max_steps "
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
