"""Held-out prompts -> eval/* metrics. The draws are the same at every evaluation, so differences are the policy's."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import fmean, stdev

from core.rollout.collect import Groups
from core.training.step_metrics import part_means

SLUG = re.compile(r"[^\w.-]+")  # what a of a slice may not stand in a metric's name


def evaluation_metrics(groups: Groups, slice_by: str | None = None) -> dict[str, float]:
    """`eval/*` of one evaluation: expected reward with its standard error over prompts (not over completions).

    `slice_by` is a fact of the prompts; `eval/slices/<value>` is then the mean over the prompts with that value.
    """
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
        **part_means(groups.outcomes, "eval/rewards"),
        **(_slices(groups, slice_by) if slice_by is not None else {}),
    }


def _slices(groups: Groups, slice_by: str) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    k = groups.rewards_PK.shape[1]
    for index, example in enumerate(groups.rollout.prompts):
        name = SLUG.sub("_", str(example.facts.get(slice_by)))
        values.setdefault(name, []).extend(
            _present([outcome.expected for outcome in groups.outcomes[index * k : (index + 1) * k]])
        )
    return {f"eval/slices/{name}": fmean(found) if found else math.nan for name, found in sorted(values.items())}


def _present(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]
