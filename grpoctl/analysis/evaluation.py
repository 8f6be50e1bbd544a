"""Scored completions -> means with 95 % intervals over prompts: what `grpoctl eval` says. Pure; imports no torch.

The K completions of a prompt are no independent answers, so the prompts are what is counted; where prompts of a cluster
(patches of one picture) are not independent either, the clusters are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from core.health.statistics import Interval, clipped, cluster_df, clustered_se, mean, t_interval, wilson


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One completion: its prompt's number, what it earned (NaN where that could not be computed), and its facts."""

    prompt: int
    reward: float
    valid: bool
    parts: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    slice: str | None = None
    cluster: str | None = None  # of the prompt, where prompts are independent between clusters only
    length: int = 0
    truncated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A mean over prompts, its standard error and 95 % interval; None where there is nothing to tell it from.

    `clusters` of prompts, where these are what is independent; else None.
    """

    mean: float | None
    se: float | None
    low: float | None
    high: float | None
    prompts: int
    clusters: int | None = None


def summary(rows: Sequence[Scored], reward_range: Interval | None = None) -> dict[str, Any]:
    """reward, valid, parts, measured, slices (None where no row has one), missing, length, truncated of the rows.

    `reward_range` is the least and the most that a completion can earn, which no interval of a reward leaves. What is
    measured is there for all rows and for those of each slice, `<name>/<slice>`.
    """
    clusters = {row.prompt: row.cluster for row in rows if row.cluster is not None}

    def told(values: Sequence[tuple[int, float]], possible: Interval | None = None) -> dict[str, Any]:
        return asdict(quantity(values, possible, clusters))

    names = dict.fromkeys(name for row in rows for name in row.parts)
    measures = dict.fromkeys(name for row in rows for name in row.measured)
    values = sorted({row.slice for row in rows if row.slice is not None})
    rewards = [(row.prompt, row.reward) for row in rows]
    return {
        "reward": told(rewards, reward_range),
        "valid": told([(row.prompt, float(row.valid)) for row in rows], (0.0, 1.0)),
        "parts": {name: told([(row.prompt, row.parts.get(name, math.nan)) for row in rows]) for name in names},
        "measured": {
            name if value is None else f"{name}/{value}": told(
                [(row.prompt, row.measured.get(name, math.nan)) for row in rows if value in (None, row.slice)]
            )
            for name in measures
            for value in (None, *values)
        },
        "slices": {
            value: told([(row.prompt, row.reward) for row in rows if row.slice == value], reward_range)
            for value in values
        },
        "missing": sum(math.isnan(row.reward) for row in rows),
        "truncated": mean([float(row.truncated) for row in rows]),
        "length": mean([float(row.length) for row in rows]),
    }


def quantity(
    values: Sequence[tuple[int, float]], possible: Interval | None = None, clusters: Mapping[int, str] | None = None
) -> Quantity:
    """The mean over prompts of the mean of each prompt's values, given as (prompt, value); NaN is left out.

    Where every value is 0 or 1 the interval is Wilson's, else Student's t, within what is `possible`. One prompt has no
    interval of that kind, nor have prompts of one cluster (`clusters`: prompt -> its cluster).
    """
    prompts: dict[int, list[float]] = {}
    for prompt, value in values:
        if not math.isnan(value):
            prompts.setdefault(prompt, []).append(value)
    if not prompts:
        return Quantity(mean=None, se=None, low=None, high=None, prompts=0)
    means = [mean(of_prompt) for of_prompt in prompts.values()]
    own = [clusters[prompt] for prompt in prompts] if clusters else list(map(str, prompts))
    se, n = clustered_se(means, own), len(set(own))
    if all(value in (0.0, 1.0) for of_prompt in prompts.values() for value in of_prompt):
        interval: Interval | None = wilson(mean(means), _worth(mean(means), se, n, sum(map(len, prompts.values()))))
    else:
        df = cluster_df(list(Counter(own).values()))
        interval = None if se is None else t_interval(mean(means), [(se**2, df)])
    if interval is not None and possible is not None:
        interval = clipped(interval, *possible)
    low, high = interval or (None, None)
    return Quantity(mean=mean(means), se=se, low=low, high=high, prompts=len(means), clusters=n if clusters else None)


def _worth(share: float, se: float | None, n: int, answers: int) -> float:
    """The independent yes-or-no answers that the answers of n independent prompts, or clusters of them, are worth.

    p (1 - p) / se^2 of them would have the standard error that was seen, with n / (n - 1) for the sample's own mean, so
    that one answer a prompt is worth one. No fewer than one, no more than there are answers; where all prompts agree,
    nothing shows how alike a prompt's answers are, and each prompt counts once.
    """
    if not se:
        return n
    return min(float(answers), max(1.0, share * (1 - share) / se**2 * n / (n - 1)))
