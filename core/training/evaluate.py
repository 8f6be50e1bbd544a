"""Held-out prompts -> eval/* metrics. The draws are the same at every evaluation, so differences are the policy's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from core.rollout.collect import Groups


def evaluation_metrics(groups: Groups) -> dict[str, float]:
    """`eval/*` of one evaluation: expected reward with its standard error over prompts (not over completions)."""
    k = groups.rewards_PK.shape[1]
    expected = [outcome.expected for outcome in groups.outcomes]
    per_prompt = [present for i in range(0, len(expected), k) if (present := _present(expected[i : i + k]))]
    means = [fmean(values) for values in per_prompt]
    rollout = groups.rollout
    return {
        "eval/reward": fmean(means) if means else math.nan,
        "eval/reward_se": stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0,
        "eval/valid": fmean(outcome.valid for outcome in groups.outcomes),
        "eval/length": float(rollout.mask_NT.sum(-1).double().mean()),
        "eval/truncated": float(rollout.truncated_N.double().mean()),
    }


def _present(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]
