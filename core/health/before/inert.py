"""Inert knobs: settings that cannot change what their run does, whatever a sweep makes of them.

`inert` lists those a spec sets; `inert_in_all` answers for one key of a sweep, also where it is at its default.
Rules come by topic: the surrogate (with one update per rollout the ratio is 1: no bound on it can act), the advantage,
and KL, candidates, learning rate and stopping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from core.algorithms.names import BASELINES, SCALES, scopes
from core.config import METHODS, GrpoStage, RunSpec
from core.health.before.advantages import largest, largest_std, smallest_std
from core.health.before.budget import budget, evaluations_before_the_end, least_value
from core.health.before.view import BFLOAT16_NATS, StageView, views


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """Why a knob does nothing, and what would make it act.

    exact: False where rounding or noise still gets through.
    """

    reason: str
    acts: str
    exact: bool = True


Rule = Callable[[StageView], Why | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inert:
    """A knob that changes nothing, by its dotted key."""

    key: str
    value: object
    reason: str
    acts: str
    exact: bool


def number(value: float) -> str:
    """A number as short as it can be read."""
    return f"{value:.4g}"


# Which constants a surrogate reads; core.algorithms.surrogates.Trust holds them.
READS: Mapping[str, frozenset[str]] = {
    "clip": frozenset({"epsilon", "epsilon_high"}),
    "dual_clip": frozenset({"epsilon", "epsilon_high", "dual_clip"}),
    "gspo": frozenset({"epsilon", "epsilon_high"}),
    "mean_ratio": frozenset({"epsilon", "epsilon_high"}),
    "product_ratio": frozenset({"epsilon", "epsilon_high"}),
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
    if view.grpo is not None and view.grpo.old_policy != "sampler":
        return False
    return view.updates_per_step == 1 and (not view.spec.faults or _scored_again(view))


def noise(view: StageView) -> str:
    """What still moves the ratio a little off 1; empty where it is rounding of float32 only (3e-6 nats)."""
    sources = []
    if view.dropout > 0:
        sources.append(f"{view.dropout_name} {number(view.dropout)}")
    if view.spec.computes_in == "bfloat16" and not _scored_again(view):
        sources.append(f"bfloat16's rounding (about {BFLOAT16_NATS} nats a {view.spec.policy.factor})")
    return " and ".join(sources)


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
            return Why(reason=f"the surrogate {stage.surrogate} does not use it", acts=f"surrogate: {readers}")
        if key == "dppo_delta" and stage.dppo_delta >= 1:
            return Why(reason="no probability moves by more than 1", acts="a value below 1")
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
        exact=not noise(view),
    )


def _surrogate(view: StageView) -> Why | None:
    stage = view.grpo
    if stage is None or not ratio_is_one(view) or stage.cispo_max_weight < 1 or (noise(view) and acts_on_noise(stage)):
        return None
    if stage.surrogate == "product_ratio":
        return None  # its gradient is that of the sum over a row's factors, where the others' is that of their mean
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
        exact=False,
    )


_RATIO_RULES: Mapping[str, Rule] = {
    **{key: _bound(key) for key in sorted(frozenset().union(*READS.values()))},
    "surrogate": _surrogate,
    "importance_sampling_cap": _cap,
}


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
    return Why(reason=f"no |advantage| gets above {number(most)}", acts=f"below {number(most)}")


def _std_floor(view: StageView) -> Why | None:
    if view.grpo is None:
        return None
    how = view.grpo.advantage
    if SCALES[how.scale_rewards].scope == "none":
        return Why(reason="nothing is divided by a std", acts=_SCALED)
    least = smallest_std(view)
    if how.std_floor > least or how.std_floor == 0 or BASELINES[how.baseline].scope != "group":
        return None
    return Why(reason=f"no live group's std is below {number(least)}", acts=f"above {number(least)}")


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
    """Two different rewards have ranks -1/2 and 1/2, and a z-score ignores the size of the difference."""
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


def _running(view: StageView) -> Why | None:
    if view.grpo is None or "history" in scopes(view.grpo.advantage):
        return None
    return Why(reason="no running statistics are used", acts="advantage.baseline or scale_rewards: running")


def _running_decay(view: StageView) -> Why | None:
    if view.grpo is not None and view.grpo.advantage.running_rule == "count":
        return _running(view) or Why(reason="the rule count has weights of its own", acts="running_rule: decay")
    return _running(view)


def _loss_rows(view: StageView) -> Why | None:
    losses = [*view.stage.loss_weights.values(), *([] if view.grpo is None else [view.grpo.consistency_weight])]
    if view.grpo is None or any(weight.ever for weight in losses):
        return None
    return Why(reason="no loss of the policy's own has a weight", acts="loss_weights")


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


_ADVANTAGE_RULES: Mapping[str, Rule] = {
    "advantage.clip": _clip,
    "advantage.std_floor": _std_floor,
    "advantage.ddof": _ddof,
    "advantage.eps": _eps,
    "advantage.transform": _transform,
    "advantage.running_decay": _running_decay,
    "advantage.running_rule": _running,
    "advantage.running_after": _running,
    "advantage.weighting": _weighting,
    "entropy_share": _entropy_share,
    "entropy_weighting": _entropy_weighting,
    "loss_rows": _loss_rows,
}


SCHEDULES = (
    "temperature", "epsilon", "epsilon_high", "beta", "entropy_coef", "policy_weight", "supervised_weight",
    "consistency_weight", "keep_candidates", "tau",
)  # fmt: skip


def _without_beta(view: StageView) -> Why | None:
    if view.grpo is None or view.grpo.beta.ever:
        return None
    return Why(reason="beta is 0: there is no KL term", acts="beta above 0")


def _still_reference(view: StageView) -> Why | None:
    """A reference that never moves, or only when nothing is left to compare with it."""
    stage = view.grpo
    if stage is None:
        return None
    if not stage.sync_ref_model:
        return Why(reason="the reference stays as it is", acts="sync_ref_model: true")
    first, most = stage.ref_model_sync_steps, budget(view).max_steps
    ends = view.name == list(view.spec.stages)[-1]
    if first < most or (first == most and not ends):
        return None
    return Why(
        reason=f"the reference would move after step {first} for the first time, and the stage has at most {most}",
        acts=f"ref_model_sync_steps below {most}",
    )


def _of_adaptive_rule(rule_name: str) -> Rule:
    def rule(view: StageView) -> Why | None:
        adaptive = view.grpo.adaptive_beta if view.grpo else None
        if adaptive is None or adaptive.rule == rule_name:
            return None
        return Why(reason=f"the rule {adaptive.rule} does not use it", acts=f"adaptive_beta.rule: {rule_name}")

    return rule


def _keep_candidates(view: StageView) -> Why | None:
    keep = view.get("keep_candidates")
    if keep is None or round(least_value(view, keep)) < view.num_generations:
        return None
    return Why(
        reason=f"a group has {view.num_generations} candidates: all are kept",
        acts="fewer than num_generations",
    )


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


_OTHER_RULES: Mapping[str, Rule] = {
    "kl_estimator": _without_beta,
    "kl_in": _without_beta,
    "adaptive_beta": _without_beta,
    **dict.fromkeys(("sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"), _still_reference),
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


RULES: Mapping[str, Rule] = {**_RATIO_RULES, **_ADVANTAGE_RULES, **_OTHER_RULES}
SWEPT = ("epsilon", "kl_estimator")  # people sweep these: named although they are at their default
QUIET = ("gradient_accumulation_steps",)  # no mistake to set: it is for memory


def inert(spec: RunSpec) -> list[Inert]:
    """The knobs that do nothing in this spec: those set away from their default or by a method, and those of SWEPT."""
    knobs = []
    for view in views(spec):
        for key in _settable(view):
            if (why := _why(view, key)) is not None:
                value = _value(view, key)
                knobs.append(
                    Inert(
                        key=f"stages.{view.name}.{key}", value=value, reason=why.reason, acts=why.acts, exact=why.exact
                    )
                )
    return knobs + _run_level(spec)


def inert_in_all(specs: Sequence[RunSpec], key: str) -> str | None:
    """Why the dotted key does nothing in any of these specs, a sweep's points; None where it acts in one.

    A point at which the knob is off (None) says nothing against it, unless all are.
    """
    on = [spec for spec in specs if _present(spec, key)] or specs
    reasons = [_of_axis(spec, key) for spec in on]
    return reasons[0].reason if reasons and reasons[0] is not None and None not in reasons else None


def _of_axis(spec: RunSpec, key: str) -> Why | None:
    place, _, rest = key.partition(".")
    if place == "early_stopping":
        return _run_stops(spec)
    name, _, rest = rest.partition(".")
    view = next((view for view in views(spec) if view.name == name), None)
    return None if place != "stages" or view is None else _why(view, rest)


def _why(view: StageView, key: str) -> Why | None:
    """The rule of the key, or of the part it belongs to (`epsilon.start` is `epsilon`)."""
    words, rules = key.split("."), _rules_of(view)
    for count in range(1, len(words) + 1):
        part = ".".join(words[:count])
        if part in POLICY_KEYS and (why := _policy_off(view)) is not None:
            return why
        if part in rules and (why := rules[part](view)) is not None:
            return why
    return None


def _rules_of(view: StageView) -> Mapping[str, Rule]:
    """The rules of a stage: those by keys that stages have, and those of the weights of its policy's own losses."""
    plateaus = [f"loss_weights.{loss}.plateau" for loss in view.stage.loss_weights]
    return {**RULES, **{key: _evaluations(key) for key in plateaus}}


def _settable(view: StageView) -> Iterator[str]:
    """The rules' keys that this stage sets away from their default or by its method, or that are in SWEPT."""
    method = METHODS[view.grpo.method].axes if view.grpo else {}
    for key in _rules_of(view):
        if key in QUIET or _value(view, key) is None:
            continue
        by_method = _inside(method, key)
        if by_method or (key in SWEPT and view.grpo) or _value(view, key) != _default(type(view.stage), key):
            yield key


def _inside(axes: Mapping[str, Any], key: str) -> bool:
    first, _, rest = key.partition(".")
    below = axes.get(first)
    return first in axes and (not rest or (isinstance(below, Mapping) and rest in below))


def _value(view: StageView, key: str) -> Any:
    """The setting as one writes it: a schedule that never moves as its number."""
    value = view.get(key)
    return value.model_dump() if isinstance(value, BaseModel) else value


def _default(part: type[BaseModel], key: str) -> Any:
    """The default of a key, through defaults of the parts above it; None where it has none."""
    first, _, rest = key.partition(".")
    default = part.model_fields[first].get_default() if first in part.model_fields else None
    for word in rest.split(".") if rest else ():
        default = getattr(default, word, None)
    return default.model_dump() if isinstance(default, BaseModel) else default


def _present(spec: RunSpec, key: str) -> bool:
    value: Any = spec
    for word in key.split("."):
        value = value.get(word) if isinstance(value, Mapping) else getattr(value, word, None)
    return value is not None


def _run_stops(spec: RunSpec) -> Why | None:
    """Early stopping of the whole run, by the evaluations of the whole run."""
    if spec.early_stopping is None:
        return None
    seen = (spec.max_steps - 1) // spec.evaluation.eval_steps + 1
    if seen > spec.early_stopping.patience:
        return None
    return Why(
        reason=f"fewer than patience + 1 evaluations before the run's last step (at most {seen})",
        acts="a smaller evaluation.eval_steps or patience",
    )


def _run_level(spec: RunSpec) -> list[Inert]:
    why = _run_stops(spec)
    if why is None or spec.early_stopping is None:
        return []
    value = spec.early_stopping.model_dump()
    return [Inert(key="early_stopping", value=value, reason=why.reason, acts=why.acts, exact=True)]
