"""Rewards of groups -> advantages, in float64: transform -> centre -> scale -> clip, each an axis of its own.

Why float64: in fp32 the mean of K equal rewards such as 0.3 is not 0.3, and a z-score over that rounding error gave
advantages up to 477 for groups that carry no signal at all. Here a group is dead by one rule (`dead_groups`), its
advantages are exactly 0, and the same flag feeds the metric and every filter.

Shape suffixes: P prompts, K completions of one prompt. A missing reward is NaN: left out of the baseline, advantage 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from core.algorithms.group_statistics import (
    RELATIVE_TOLERANCE,
    centred_ranks,
    dead_groups,
    group_mean,
    group_std,
    moments,
    with_virtual,
)
from core.algorithms.running import Running

__all__ = ["Normaliser", "advantages", "dead_groups", "group_mean", "group_std", "transformed"]

Transform = Literal["none", "rank"]
Baseline = Literal["group", "leave_one_out", "batch", "running", "none"]
Scale = Literal["none", "group", "batch", "batch_centred", "running"]
Weighting = Literal["rows", "tokens"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Normaliser:
    """One point of the table transform x baseline x scale.

    scale_rewards: `batch` is the std of the RAW rewards of the batch (TRL, LitePPO: arXiv 2508.08221), so that a spread
        in difficulty between prompts shrinks every advantage; `batch_centred` that of the centred ones (REINFORCE++,
        arXiv 2501.03262).
    ddof: 1 divides squares by n - 1. eps is added to the std; std_floor is its lower bound; clip bounds |A|.
    virtual_best: a reward that one more, never sampled, member of each group would have got (NGRPO, arXiv 2509.18851).
    weighting: whether batch statistics count a completion once, or once per drawn token (REINFORCE++ whitens tokens).
    """

    transform: Transform
    baseline: Baseline
    scale_rewards: Scale
    ddof: int = 1
    eps: float = 1e-4
    std_floor: float = 0.0
    clip: float | None = None
    virtual_best: float | None = None
    weighting: Weighting = "rows"


def advantages(
    rewards_PK: Tensor, how: Normaliser, *, running: Running | None = None, lengths_PK: Tensor | None = None
) -> Tensor:
    """Advantages of completions: (P, K) -> (P, K), float64, A = clip((f(r) - baseline) / (max(std, floor) + eps)).

    Args: rewards_PK: NaN where missing. running: the state before this step; None or empty: the batch's own mean and
        std (divisor n). It has to be fed with what `transformed` gives. lengths_PK: drawn tokens, for weighting tokens.
    Exactly 0: missing rewards; dead groups under the baselines `group` and `leave_one_out`; a batch without spread
    under `batch`; and where the std and its floor are both 0, since nothing can be measured in units of eps.
    Raises: ValueError where rewards are infinite, or weighting is tokens and lengths_PK is missing.
    Source: DeepSeekMath, arXiv 2402.03300, eq. 4 (group/group); Dr. GRPO, 2503.20783 (group/none); RLOO, 2402.14740
    (leave_one_out/none); REINFORCE++, 2501.03262 (batch/batch).
    """
    rewards_PK = rewards_PK.double()
    if rewards_PK.isinf().any():
        raise ValueError("got an infinite reward; rewards are finite, or NaN where one could not be computed")
    size = rewards_PK.shape[-1]
    members = with_virtual(rewards_PK, how.virtual_best)  # the virtual member leaves again on the last lines
    values = centred_ranks(members) if how.transform == "rank" else members
    weights = _weights(members, how.weighting, lengths_PK)
    centred, dead_P1 = _centred(values, members, how.baseline, weights, running)
    if how.scale_rewards != "none":
        unit = _std(values, centred, how, weights, running).clamp(min=how.std_floor)
        centred = torch.where(unit > 0, centred / (unit + how.eps), 0.0)
    if how.clip is not None:
        centred = centred.clamp(-how.clip, how.clip)
    return centred.masked_fill(dead_P1 | members.isnan(), 0.0)[:, :size]


def transformed(rewards_PK: Tensor, how: Normaliser) -> Tensor:
    """The sampled rewards after the transform, before any baseline: (P, K) -> (P, K), what `running.updated` takes."""
    members = with_virtual(rewards_PK.double(), how.virtual_best)
    values = centred_ranks(members) if how.transform == "rank" else members
    return values[:, : rewards_PK.shape[-1]]


def _weights(members: Tensor, weighting: Weighting, lengths_PK: Tensor | None) -> Tensor:
    """How often a member counts in the statistics of the batch; a virtual one drew no token. Missing: 0."""
    present = ~members.isnan()
    if weighting == "rows":
        return present.double()
    if lengths_PK is None:
        raise ValueError("weighting 'tokens' needs lengths_PK, the drawn tokens of every completion")
    virtual = members.shape[-1] - lengths_PK.shape[-1]
    return torch.nn.functional.pad(lengths_PK.double(), (0, virtual)) * present


def _centred(
    values: Tensor, members: Tensor, baseline: Baseline, weights: Tensor, running: Running | None
) -> tuple[Tensor, Tensor]:
    """The values without their baseline, and where (P, 1) or (1, 1) they carry no signal and must be exactly 0."""
    alive = torch.zeros(1, 1, dtype=torch.bool, device=values.device)
    if baseline == "none":
        return values, alive
    if baseline == "running":
        return values - _running(values, running)[0], alive
    if baseline == "batch":
        dead = dead_groups(members.reshape(1, -1)).unsqueeze(-1)
        return values - moments(values.reshape(1, -1), weights.reshape(1, -1), 0)[0], dead
    centred = values - group_mean(values)
    if baseline == "leave_one_out":  # r - mean of the others = n / (n - 1) * (r - mean of all)
        n_P1 = (~members.isnan()).sum(-1, keepdim=True).double()
        centred = centred * n_P1 / (n_P1 - 1).clamp(min=1.0)
    return centred, dead_groups(members).unsqueeze(-1)


def _std(values: Tensor, centred: Tensor, how: Normaliser, weights: Tensor, running: Running | None) -> Tensor:
    """The std that `scale_rewards` names, as a column; exactly 0 where what it measures has no spread."""
    if how.scale_rewards == "running":
        return _running(values, running)[1]
    if how.scale_rewards == "group":
        measured, weights = values, (~values.isnan()).double()
    else:
        measured = (centred if how.scale_rewards == "batch_centred" else values).reshape(1, -1)
        weights = weights.reshape(1, -1)
    counted = measured.masked_fill(weights == 0, torch.nan)  # a virtual member drew no token: it makes no spread
    return moments(measured, weights, how.ddof)[1].masked_fill(dead_groups(counted).unsqueeze(-1), 0.0)


def _running(values: Tensor, running: Running | None) -> tuple[Tensor, Tensor]:
    """Mean and std, (1, 1) each, from before this step; the batch's own where there is no step before."""
    if running is None or running.count == 0:
        flat = values.reshape(1, -1)
        mean, std = moments(flat, (~flat.isnan()).double(), 0)
        return mean, std.masked_fill(dead_groups(flat).unsqueeze(-1), 0.0)
    level, spread = running.corrected_mean, running.corrected_std
    if spread <= RELATIVE_TOLERANCE * max(1.0, abs(level)):  # every reward so far was equal: the rest is rounding
        spread = 0.0
    return values.new_full((1, 1), level), values.new_full((1, 1), spread)
