"""Knobs of the advantage that cannot change any advantage of the stage."""

from __future__ import annotations

from collections.abc import Mapping

from core.algorithms.normalisers import BASELINES, SCALES, scopes
from core.health.foresight.advantage_values import largest, largest_std, smallest_std
from core.health.foresight.knob import Rule, Why, number
from core.health.foresight.view import StageView

_SCALED = "advantage.scale_rewards other than none"


def floor_covers_all(view: StageView) -> bool:
    """Whether the std never gets above its floor, so that all advantages are divided by one constant."""
    most = largest_std(view)
    return view.grpo is not None and most is not None and view.grpo.advantage.std_floor >= most


def _clip(view: StageView) -> Why | None:
    if view.grpo is None or view.grpo.advantage.clip is None:
        return None
    most = largest(view)
    if most is None or view.grpo.advantage.clip < most:
        return None
    return Why(reason=f"no |advantage| gets above {number(most)}", acts=f"below {number(most)}", any_value=False)


def _std_floor(view: StageView) -> Why | None:
    if view.grpo is None:
        return None
    how = view.grpo.advantage
    if SCALES[how.scale_rewards].scope == "none":
        return Why(reason="nothing is divided by a std", acts=_SCALED)
    least = smallest_std(view)
    if how.std_floor > least or how.std_floor == 0 or BASELINES[how.baseline].scope != "group":
        return None
    return Why(reason=f"no live group's std is below {number(least)}", acts=f"above {number(least)}", any_value=False)


def _ddof(view: StageView) -> Why | None:
    if view.grpo is None:
        return None
    name = view.grpo.advantage.scale_rewards
    scale = SCALES[name]
    if scale.scope == "none":
        return Why(reason="nothing is divided by a std", acts=_SCALED)
    if not scale.ddof:
        why = "running statistics divide by n" if scale.scope == "history" else f"{name} has no divisor of n - ddof"
        return Why(reason=why, acts=f"advantage.scale_rewards other than {name}")
    if floor_covers_all(view):
        return Why(
            reason="the std never gets above std_floor, which divides instead",
            acts=f"advantage.std_floor below {number(largest_std(view) or 0.0)}",
        )
    return None


def _eps(view: StageView) -> Why | None:
    if view.grpo is None or SCALES[view.grpo.advantage.scale_rewards].scope != "none":
        return None
    return Why(reason="nothing is divided by a std", acts=_SCALED)


def _transform(view: StageView) -> Why | None:
    """Two different rewards have ranks -1/2 and 1/2, and a z-score forgets the size of the gap."""
    stage = view.grpo
    if stage is None:
        return None
    how = stage.advantage
    scale = SCALES[how.scale_rewards]
    z_score = BASELINES[how.baseline].balanced and scale.scope == "group" and scale.standard
    plain = z_score and how.std_floor == 0 and how.virtual_best is None
    binary = len(view.rewards.levels or ()) == 2
    if how.transform not in ("none", "rank") or not plain or not (stage.num_generations == 2 or binary):
        return None
    what = "with K = 2" if stage.num_generations == 2 else "with two reward levels"
    acts = "num_generations above 2" if stage.num_generations == 2 else "graded rewards"
    return Why(
        reason=f"{what} the z-score of ranks is that of rewards, eps aside",
        acts=f"{acts}, or a scale other than group",
        exact=False,
    )


def _running_decay(view: StageView) -> Why | None:
    if view.grpo is None or "history" in scopes(view.grpo.advantage):
        return None
    return Why(reason="no running statistics are used", acts="advantage.baseline or scale_rewards: running")


def _weighting(view: StageView) -> Why | None:
    if view.grpo is None or "batch" in scopes(view.grpo.advantage):
        return None
    return Why(
        reason="no statistics of the batch are used",
        acts="advantage.baseline: batch, or scale_rewards: batch or batch_centred",
    )


def _entropy_share(view: StageView) -> Why | None:
    if view.grpo is None or view.grpo.entropy_weighting != "none":
        return None
    return Why(reason="nothing is weighted by entropy", acts="entropy_weighting: token or sequence")


def _entropy_weighting(view: StageView) -> Why | None:
    if view.grpo is None or view.grpo.entropy_share > 0:
        return None
    return Why(reason="entropy_share is 0: every weight is 1", acts="entropy_share above 0")


RULES: Mapping[str, Rule] = {
    "advantage.clip": _clip,
    "advantage.std_floor": _std_floor,
    "advantage.ddof": _ddof,
    "advantage.eps": _eps,
    "advantage.transform": _transform,
    "advantage.running_decay": _running_decay,
    "advantage.weighting": _weighting,
    "entropy_share": _entropy_share,
    "entropy_weighting": _entropy_weighting,
}
