"""Knobs of the surrogate. With one update per rollout the ratio is 1: no bound on it can act."""

from __future__ import annotations

from collections.abc import Mapping

from core.config import GrpoStage
from core.health.foresight.knob import Rule, Why, number
from core.health.foresight.view import BFLOAT16_NATS, StageView

# Which constants a surrogate reads; core.algorithms.surrogates.Trust holds them.
READS: Mapping[str, frozenset[str]] = {
    "clip": frozenset({"epsilon", "epsilon_high"}),
    "dual_clip": frozenset({"epsilon", "epsilon_high", "dual_clip"}),
    "gspo": frozenset({"epsilon", "epsilon_high"}),
    "mean_ratio": frozenset({"epsilon", "epsilon_high"}),
    "cispo": frozenset({"cispo_max_weight"}),
    "sapo": frozenset({"sapo_temperature_pos", "sapo_temperature_neg"}),
    "reinforce": frozenset(),
    "dppo": frozenset({"dppo_delta"}),
}
_MORE_UPDATES = "num_iterations or minibatches above 1"


def ratio_is_one(view: StageView) -> bool:
    """Whether every update sees the policy whose log-probs are the old ones.

    One update per rollout, and a sound sampler; with an importance_sampling_cap the trainer scores the old ones itself.
    """
    return view.updates_per_step == 1 and (not view.spec.faults or _scored_again(view))


def noise(view: StageView) -> str:
    """What still moves the ratio a little off 1; empty where it is rounding of float32 only (3e-6 nats)."""
    found = []
    if view.dropout > 0:
        found.append(f"lora_dropout {number(view.dropout)}")
    if view.spec.computes_in == "bfloat16" and not _scored_again(view):
        found.append(f"bfloat16's rounding (about {BFLOAT16_NATS} nats a token)")
    return " and ".join(found)


def _scored_again(view: StageView) -> bool:
    return view.grpo is not None and view.grpo.importance_sampling_cap is not None


def acts_on_noise(stage: GrpoStage) -> bool:
    """Whether a bound on the ratio is so tight that rounding reaches it: gspo's epsilons, as a rule."""
    bounds = [stage.epsilon, stage.epsilon_high or stage.epsilon]
    tightest = min(min(bound.start, bound.end) for bound in bounds)
    return bool(READS[stage.surrogate] & {"epsilon"}) and tightest < BFLOAT16_NATS


def _bound(key: str) -> Rule:
    """The rule of one constant of the surrogates."""

    def rule(view: StageView) -> Why | None:
        stage = view.grpo
        if stage is None:
            return None
        if key not in READS[stage.surrogate]:
            readers = " or ".join(kind for kind, keys in READS.items() if key in keys)
            return Why(reason=f"the surrogate {stage.surrogate} has no use for it", acts=f"surrogate: {readers}")
        if key == "dppo_delta" and stage.dppo_delta >= 1:
            return Why(reason="no probability moves by more than 1", acts="a value below 1", any_value=False)
        return _at_ratio_one(view, stage, key)

    return rule


def _at_ratio_one(view: StageView, stage: GrpoStage, key: str) -> Why | None:
    if not ratio_is_one(view) or (noise(view) and acts_on_noise(stage)):
        return None
    if key == "cispo_max_weight" and stage.cispo_max_weight < 1:
        return None  # it scales every weight
    what = "the gradient there does not depend on it" if key.startswith("sapo") else "no bound acts"
    but = f" (but for {noise(view)})" if noise(view) else ""
    return Why(
        reason=f"one update per rollout: the ratio is 1{but}, and {what}",
        acts=_MORE_UPDATES,
        any_value=not (key == "cispo_max_weight" or (stage.surrogate == "gspo" and noise(view))),
        exact=not noise(view),
    )


def _surrogate(view: StageView) -> Why | None:
    stage = view.grpo
    if stage is None or not ratio_is_one(view) or stage.cispo_max_weight < 1 or (noise(view) and acts_on_noise(stage)):
        return None
    but = f" (but for {noise(view)})" if noise(view) else ""
    return Why(
        reason=f"one update per rollout: the ratio is 1{but}, where all surrogates have one gradient",
        acts=_MORE_UPDATES,
        exact=not noise(view),
    )


def _cap(view: StageView) -> Why | None:
    stage = view.grpo
    if stage is None or view.spec.faults or (stage.importance_sampling_cap or 0.0) < 1:
        return None
    return Why(
        reason="the sampler is the trainer's own: every weight is 1 up to rounding",
        acts="a sampler that differs (a fault), or a cap below 1, which scales everything",
        any_value=False,
        exact=False,
    )


RULES: Mapping[str, Rule] = {
    **{key: _bound(key) for key in sorted(frozenset().union(*READS.values()))},
    "surrogate": _surrogate,
    "importance_sampling_cap": _cap,
}
