"""Warnings about what a configuration estimates: where its gradient is not that of the expected reward, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator

from core.algorithms.normalisers import SCALES
from core.config import CustomTaskSpec, GrpoStage
from core.health.finding import Finding, Severity
from core.health.foresight.budget import least_value
from core.health.foresight.knob import number
from core.health.foresight.ratio_knobs import acts_on_noise, noise, ratio_is_one
from core.health.foresight.view import BEST_REWARD, BFLOAT16_NATS, StageView

WIDE_FOR_GSPO = 0.05  # its paper's bounds are 3e-4 and 4e-4


def bias_warnings(view: StageView) -> list[Finding]:
    """What is said of one GRPO stage; [] for the others."""
    if view.grpo is None:
        return []
    stage = view.grpo
    found = [*_of_sampling(view), *_of_ratio(view, stage), *_of_scales(view, stage), *_of_loss(view, stage)]
    return [*found, *_of_precision(view)]


def finding(view: StageView, name: str, severity: Severity, summary: str, **evidence: float | str) -> Finding:
    """A finding that says which stage it is about."""
    return Finding(
        id=name, severity=severity, summary=f"{view.name}: {summary}", evidence={"stage": view.name, **evidence}
    )


def _of_sampling(view: StageView) -> Iterator[Finding]:
    stage = view.grpo
    assert stage is not None
    if stage.top_p < 1 or stage.top_k > 0:
        said = [f"top_p {number(stage.top_p)}"] * (stage.top_p < 1) + [f"top_k {stage.top_k}"] * (stage.top_k > 0)
        yield finding(
            view, "sampling-filter", "warning",
            f"{' and '.join(said)} cut tokens while sampling, but log-probs are those of the uncut distribution: the "
            "likelihood ratio and the gradient are biased by the mass cut away (top_p 1, top_k 0 are not)",
            top_p=stage.top_p, top_k=stage.top_k,
        )  # fmt: skip
    keep = stage.keep_candidates
    if keep is not None and round(least_value(view, keep)) < stage.num_generations:
        yield finding(
            view, "kept-candidates", "warning",
            "only the best candidates of a group are learnt from, though they were sampled with the others: the "
            "gradient is no longer that of the expected reward",
        )  # fmt: skip
    known = not isinstance(view.spec.task, CustomTaskSpec)
    if known and stage.positive_reward is not None and stage.positive_reward > BEST_REWARD:
        yield finding(
            view, "unreachable-reward", "error",
            f"positive_reward {number(stage.positive_reward)} is above every reward the task pays (at most "
            f"{number(BEST_REWARD)}): no prompt takes part",
            positive_reward=stage.positive_reward, highest=BEST_REWARD,
        )  # fmt: skip


def _of_ratio(view: StageView, stage: GrpoStage) -> Iterator[Finding]:
    if view.dropout > 0:
        yield finding(
            view, "dropout-in-ratio", "warning",
            f"lora_dropout {number(view.dropout)} is active in the update's log-probs and not in the recorded ones: "
            "their ratio is noise around 1, not 1",
            lora_dropout=view.dropout,
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
            f"gspo bounds the ratio of a whole completion, the geometric mean over its tokens: an epsilon of "
            f"{number(widest)} is hardly ever reached (its paper uses 3e-4 and 4e-4)",
            epsilon=widest,
        )  # fmt: skip
    if ratio_is_one(view) and noise(view) and acts_on_noise(stage):
        yield finding(
            view, "clips-rounding", "warning",
            f"the clip's bound {number(tightest)} is below what {noise(view)} does to a ratio of 1 (bfloat16 alone: "
            f"{BFLOAT16_NATS}): which tokens or completions are clipped is chance",
            epsilon=tightest,
        )  # fmt: skip


def _of_scales(view: StageView, stage: GrpoStage) -> Iterator[Finding]:
    """Bounds below 1: they multiply everything, also what they were not meant for."""
    if stage.surrogate == "cispo" and stage.cispo_max_weight < 1:
        yield finding(
            view, "cispo-scales", "warning",
            f"cispo_max_weight is an absolute bound: {number(stage.cispo_max_weight)} multiplies the gradient of every "
            "on-policy token by that (TRL calls it epsilon_high; 5 is usual)",
            cispo_max_weight=stage.cispo_max_weight,
        )  # fmt: skip
    if (stage.importance_sampling_cap or 1.0) < 1:
        yield finding(
            view, "importance-scales", "warning",
            f"importance_sampling_cap {number(stage.importance_sampling_cap or 1.0)} is below 1: it multiplies every "
            "token's gradient, also where sampler and trainer agree",
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
