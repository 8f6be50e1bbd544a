"""Advantages of a step's groups, which may differ, in plain floats: what core.algorithms.advantages does on tensors.

A group is given by how many completions earned which reward: completions that earned the same get the same advantage,
so that a group of 1,024 costs no more than one of 2. The tests hold both codes together over random rewards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.spec import AdvantageSpec

TOLERANCE = 1e-9  # of core.algorithms.group_statistics

Cells = Sequence[tuple[float, int]]  # reward, and how many completions earned it


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """Mean and standard deviation of the rewards of the steps before, for `running` statistics."""

    mean: float
    std: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Members:
    """One group with its virtual member: rewards, what is centred, how many of each, and their weight in the batch."""

    rewards: list[float]
    values: list[float]
    counts: list[float]
    weights: list[float]

    @property
    def mean(self) -> float:
        return _moments(self.values, self.counts, 0)[0]


def advantages(
    groups: Sequence[Cells], how: AdvantageSpec, *, length: int = 1, before: Level | None = None
) -> list[list[float]]:
    """The advantage of each cell of each group of one step.

    Args: groups: none of them without a completion. length: tokens of every completion, for `weighting: tokens`.
    before: running statistics; None: the step's own, as on the first step.
    """
    members = [_members(cells, how, length) for cells in groups]
    centred, dead = _centred(members, how, before)
    if how.scale_rewards != "none":
        units = [max(std, how.std_floor) for std in _stds(members, centred, how, before)]
        centred = [
            [value / (unit + how.eps) if unit > 0 else 0.0 for value in row]
            for row, unit in zip(centred, units, strict=True)
        ]
    if how.clip is not None:
        centred = [[min(max(value, -how.clip), how.clip) for value in row] for row in centred]
    return [
        [0.0] * len(cells) if gone else row[: len(cells)]
        for cells, row, gone in zip(groups, centred, dead, strict=True)
    ]


def group_by_group(how: AdvantageSpec) -> bool:
    """Whether a group's advantages depend on no other group of the step (running statistics are the past's)."""
    return how.baseline != "batch" and how.scale_rewards not in ("batch", "batch_centred")


def all_equal(rewards: Sequence[float], counts: Sequence[float]) -> bool:
    """Whether rewards that occur (so often) are equal within the tolerance, or fewer than two: a dead group."""
    seen = [reward for reward, count in zip(rewards, counts, strict=True) if count > 0]
    if sum(counts) < 2 or len(seen) < 2:
        return True
    return max(seen) - min(seen) <= TOLERANCE * max(1.0, *map(abs, seen))


def _members(cells: Cells, how: AdvantageSpec, length: int) -> _Members:
    rewards, counts = [reward for reward, _ in cells], [float(count) for _, count in cells]
    tokens = how.weighting == "tokens"
    weights = [count * (length if tokens else 1) for count in counts]
    if how.virtual_best is not None:  # one more member, that drew no token
        rewards, counts, weights = [*rewards, how.virtual_best], [*counts, 1.0], [*weights, 0.0 if tokens else 1.0]
    values = _centred_ranks(rewards, counts) if how.transform == "rank" else rewards
    return _Members(rewards=rewards, values=values, counts=counts, weights=weights)


def _centred_ranks(rewards: Sequence[float], counts: Sequence[float]) -> list[float]:
    """(members below - members above) / 2, ties within the tolerance."""
    slack = TOLERANCE * max(1.0, *(abs(one) for one, count in zip(rewards, counts, strict=True) if count))
    return [
        sum(
            count * ((one - other > slack) - (other - one > slack))
            for other, count in zip(rewards, counts, strict=True)
        )
        / 2
        for one in rewards
    ]


def _centred(
    members: Sequence[_Members], how: AdvantageSpec, before: Level | None
) -> tuple[list[list[float]], list[bool]]:
    """The values without their baseline, and which groups carry no signal and must be exactly 0."""
    alive = [False] * len(members)
    match how.baseline:
        case "none":
            return [list(one.values) for one in members], alive
        case "running":
            level = _before(members, before).mean
            return [[value - level for value in one.values] for one in members], alive
        case "batch":
            level = _moments(_all(members, "values"), _all(members, "weights"), 0)[0]
            dead = all_equal(_all(members, "rewards"), _all(members, "counts"))
            return [[value - level for value in one.values] for one in members], [dead] * len(members)
    centred = []
    for one in members:
        mean, n = one.mean, sum(one.counts)
        factor = n / max(n - 1.0, 1.0) if how.baseline == "leave_one_out" else 1.0
        centred.append([(value - mean) * factor for value in one.values])
    return centred, [all_equal(one.rewards, one.counts) for one in members]


def _stds(
    members: Sequence[_Members], centred: Sequence[Sequence[float]], how: AdvantageSpec, before: Level | None
) -> list[float]:
    """For each group the std that `scale_rewards` names; exactly 0 where what it measures has no spread."""
    if how.scale_rewards == "running":
        return [_before(members, before).std] * len(members)
    if how.scale_rewards == "group":
        return [_spread(one.values, one.counts, how.ddof) for one in members]
    of_centred = how.scale_rewards == "batch_centred"
    values = [value for row in centred for value in row] if of_centred else _all(members, "values")
    return [_spread(values, _all(members, "weights"), how.ddof)] * len(members)


def _before(members: Sequence[_Members], before: Level | None) -> Level:
    if before is not None:
        level = max(1.0, abs(before.mean))
        return Level(mean=before.mean, std=before.std if before.std > TOLERANCE * level else 0.0)
    values, counts = _all(members, "values"), _all(members, "counts")
    return Level(mean=_moments(values, counts, 0)[0], std=_spread(values, counts, 0))


def _all(members: Sequence[_Members], name: str) -> list[float]:
    return [value for one in members for value in getattr(one, name)]


def _spread(values: Sequence[float], weights: Sequence[float], ddof: int) -> float:
    return 0.0 if all_equal(values, weights) else _moments(values, weights, ddof)[1]


def _moments(values: Sequence[float], weights: Sequence[float], ddof: int) -> tuple[float, float]:
    """Mean and std; weights are frequencies, so the divisor is their sum - ddof."""
    total = sum(weights)
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / max(total, 1.0)
    squares = sum((value - mean) ** 2 * weight for value, weight in zip(values, weights, strict=True))
    return mean, math.sqrt(squares / (total - ddof)) if total > ddof else 0.0
