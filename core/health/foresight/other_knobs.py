"""Knobs of KL, candidates, learning rate and stopping that cannot act in their stage."""

from __future__ import annotations

from collections.abc import Mapping

from core.health.foresight.budget import budget, evaluations_before_the_end, least_value
from core.health.foresight.knob import Rule, Why
from core.health.foresight.view import StageView

SCHEDULES = (
    "temperature", "epsilon", "epsilon_high", "beta", "entropy_coef", "policy_weight", "supervised_weight",
    "consistency_weight", "keep_candidates", "tau",
)  # fmt: skip


def _without_beta(view: StageView) -> Why | None:
    if view.grpo is None or view.grpo.beta.ever:
        return None
    return Why(reason="beta is 0: there is no KL term", acts="beta above 0")


def _of_adaptive_rule(rule_name: str) -> Rule:
    def rule(view: StageView) -> Why | None:
        adaptive = view.grpo.adaptive_beta if view.grpo else None
        if adaptive is None or adaptive.rule == rule_name:
            return None
        return Why(reason=f"the rule {adaptive.rule} has no use for it", acts=f"adaptive_beta.rule: {rule_name}")

    return rule


def _keep_candidates(view: StageView) -> Why | None:
    keep = view.get("keep_candidates")
    if keep is None or round(least_value(view, keep)) < view.num_generations:
        return None
    return Why(
        reason=f"a group has {view.num_generations} candidates: all are kept", acts="fewer than num_generations",
        any_value=False,
    )  # fmt: skip


def _policy_off(view: StageView) -> Why | None:
    if view.grpo is None or view.grpo.policy_weight.ever:
        return None
    return Why(reason="policy_weight is 0: there is no policy term", acts="policy_weight above 0")


def _evaluations(key: str) -> Rule:
    """The rule of a part that waits for `patience` evaluations without improvement after a first one."""

    def rule(view: StageView) -> Why | None:
        part = view.get(key)
        seen = evaluations_before_the_end(view)
        if part is None or seen > part.patience:
            return None
        return Why(
            reason=f"fewer than patience + 1 evaluations before the stage's last step (at most {seen})",
            acts="a smaller evaluation.eval_steps or patience",
            any_value=seen <= 1,
        )

    return rule


def never_leaves_warmup(view: StageView) -> bool:
    """Whether even the last tick of the learning rate's clock is a tick of its warm-up."""
    return budget(view).last_tick <= view.stage.warmup_steps and view.stage.warmup_steps > 0


def _after_warmup(view: StageView) -> Why | None:
    if not never_leaves_warmup(view):
        return None
    last, warmup = budget(view).last_tick, view.stage.warmup_steps
    return Why(
        reason=f"the learning rate is still warming up at the end (tick {last:g}, warmup_steps {warmup})",
        acts="warmup_steps well below the stage's length",
    )


def _scheduler_steps(view: StageView) -> Why | None:
    if view.stage.lr_scheduler_type == "constant":
        return Why(reason="a constant learning rate has no horizon", acts="another lr_scheduler_type")
    return _after_warmup(view)


def _clock(view: StageView) -> Why | None:
    if view.stage.lr_scheduler_type != "constant" or view.stage.warmup_steps > 0:
        return None
    return Why(
        reason="a constant learning rate without warm-up needs no clock", acts="warm-up, or another lr_scheduler_type"
    )


def _micro_batches(view: StageView) -> Why | None:
    return Why(
        reason="it only cuts the same update into smaller passes, for memory: the gradient does not depend on it",
        acts="nothing: change prompts_per_step, num_generations or minibatches for another batch",
        exact=view.dropout == 0,
    )


RULES: Mapping[str, Rule] = {
    "kl_estimator": _without_beta,
    "kl_in": _without_beta,
    "adaptive_beta": _without_beta,
    **{f"adaptive_beta.{key}": _of_adaptive_rule("proportional") for key in ("target", "horizon")},
    **{f"adaptive_beta.{key}": _of_adaptive_rule("threshold") for key in ("high", "low", "factor")},
    "keep_candidates": _keep_candidates,
    **{key: _evaluations(key) for key in ("lr_plateau", "early_stopping", *(f"{name}.plateau" for name in SCHEDULES))},
    "lr_scheduler_type": _after_warmup,
    "lr_scheduler_steps": _scheduler_steps,
    "lr_clock": _clock,
    "gradient_accumulation_steps": _micro_batches,
}
POLICY_KEYS = (
    "advantage", "entropy_weighting", "entropy_share", "surrogate", "epsilon", "epsilon_high", "dual_clip",
    "cispo_max_weight", "sapo_temperature_pos", "sapo_temperature_neg", "dppo_delta", "importance_sampling_cap",
)  # fmt: skip
policy_off = _policy_off
