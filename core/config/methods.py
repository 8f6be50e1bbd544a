"""The named methods: each name is a point on the axes of a GRPO stage. No torch; the maths is in core.algorithms.

A stage that says `method: dapo` gets that row's values for every axis it does not set itself. A layer (child file,
profile, override) that names a method sets aside what the layers below it said about AXES and about what the row itself
states: so `method: dapo` always means DAPO, not a mixture with what a parent once wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The keys of a GRPO stage that make up a method; whatever else it has (steps, lr, K, beta) belongs to the experiment.
AXES = (
    "advantage", "entropy_weighting", "entropy_share", "surrogate", "epsilon", "epsilon_high", "dual_clip",
    "cispo_max_weight", "sapo_temperature_pos", "sapo_temperature_neg", "dppo_delta", "reduction", "kl_estimator",
    "kl_in", "dynamic_sampling", "overlong",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A row of the registry: where the axes differ from `grpo`, whose values are the defaults of the stage."""

    title: str
    source: str
    axes: Mapping[str, Any]


METHODS: dict[str, Method] = {
    "grpo": Method(
        title="group z-score, clipped ratio, mean per completion", source="DeepSeekMath, arXiv 2402.03300", axes={}
    ),
    "dr_grpo": Method(
        title="mean only, constant length: no division by std or length",
        source="arXiv 2503.20783",
        axes={"advantage": {"scale_rewards": "none"}, "reduction": "constant_length"},
    ),
    "rloo": Method(
        title="leave-one-out baseline, REINFORCE on whole completions, KL in the reward",
        source="arXiv 2402.14740",
        axes={
            "advantage": {"baseline": "leave_one_out", "scale_rewards": "none"},
            "surrogate": "reinforce",
            "reduction": "sequence_sum",
            "kl_in": "reward",
            "kl_estimator": "k1",
        },
    ),
    "reinforce": Method(
        title="REINFORCE on whole completions, no baseline",
        source="Williams 1992",
        axes={
            "advantage": {"baseline": "none", "scale_rewards": "none"},
            "surrogate": "reinforce",
            "reduction": "sequence_sum",
        },
    ),
    "reinforce_pp": Method(
        title="whitened over all tokens of the batch, KL in the reward",
        source="REINFORCE++, arXiv 2501.03262",
        axes={
            "advantage": {"baseline": "batch", "scale_rewards": "batch", "weighting": "tokens", "ddof": 0, "eps": 1e-8},
            "reduction": "token_mean",
            "kl_in": "reward",
            "kl_estimator": "k1",
        },
    ),
    "reinforce_pp_baseline": Method(
        title="group mean, then the std of the centred rewards over all tokens of the batch",
        source="REINFORCE++-baseline, arXiv 2501.03262",
        axes={
            "advantage": {"scale_rewards": "batch_centred", "weighting": "tokens", "ddof": 0, "eps": 1e-8},
            "reduction": "token_mean",
        },
    ),
    "lite_ppo": Method(
        title="group mean, std of the raw rewards of the batch, token mean",
        source="arXiv 2508.08221",
        axes={"advantage": {"scale_rewards": "batch"}, "reduction": "token_mean"},
    ),
    "dapo": Method(
        title="clip-higher, token mean, dynamic sampling, soft overlong penalty, no KL",
        source="arXiv 2503.14476",
        axes={
            "epsilon_high": 0.28,
            "reduction": "token_mean",
            "dynamic_sampling": {"max_attempts": 10},
            "overlong": {"buffer": 0.2},
            "beta": 0.0,
        },
    ),
    "gspo": Method(
        title="ratio and clip of the whole completion",
        source="arXiv 2507.18071",
        axes={"surrogate": "gspo", "epsilon": 3e-4, "epsilon_high": 4e-4},
    ),
    "cispo": Method(
        title="bounded, detached ratio as a weight: no token loses its gradient",
        source="MiniMax-M1, arXiv 2506.13585",
        axes={"surrogate": "cispo", "reduction": "token_mean"},
    ),
    "sapo": Method(title="a soft gate in place of the clip", source="arXiv 2511.20347", axes={"surrogate": "sapo"}),
    "dppo": Method(
        title="tokens whose probability moved too far are masked, in place of a ratio clip",
        source="arXiv 2602.04879",
        axes={"surrogate": "dppo", "reduction": "token_mean"},
    ),
    "gtpo": Method(
        title="each token's reward weighted by its entropy",
        source="arXiv 2508.04349",
        axes={"entropy_weighting": "token", "reduction": "token_mean"},
    ),
    "grpo_s": Method(
        title="each completion's reward weighted by its mean entropy, mean ratio of the completion",
        source="arXiv 2508.04349",
        axes={"entropy_weighting": "sequence", "surrogate": "mean_ratio"},
    ),
    "ngrpo": Method(
        title="a virtual best sample in every group, so that an all-wrong group teaches",
        source="arXiv 2509.18851",
        axes={"advantage": {"virtual_best": 1.0}, "epsilon": 0.16, "epsilon_high": 0.24},
    ),
}


def filled(stage: Mapping[str, Any]) -> dict[str, Any]:
    """The stage's mapping with its method's axes where it has none of its own; an unknown method changes nothing."""
    name = stage.get("method", "grpo")
    method = METHODS.get(name) if isinstance(name, str) else None
    result = dict(stage)
    for key, value in (method.axes if method else {}).items():
        if isinstance(value, Mapping) and isinstance(result.get(key, {}), Mapping):
            result[key] = {**value, **result.get(key, {})}
        elif key not in result:
            result[key] = value
    return result


def set_aside(below: Mapping[str, Any], method: object) -> dict[str, Any]:
    """What stays of a lower layer's stage under a layer that names `method`."""
    row = METHODS.get(method) if isinstance(method, str) else None
    return {key: value for key, value in below.items() if key not in AXES and key not in (row.axes if row else {})}
