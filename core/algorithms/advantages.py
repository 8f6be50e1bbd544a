"""Rewards of groups -> advantages, in float64.

Why float64: in fp32 the mean of K equal rewards such as 0.3 is not 0.3, and a z-score over that rounding error gave
advantages up to 477 for groups that carry no signal at all. Here a group is dead by one rule (`dead_groups`), its
advantages are exactly 0, and the same flag feeds the metric and every filter.

Shape suffixes: P prompts, K completions of one prompt. A missing reward is NaN: left out of the baseline, advantage 0.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

RELATIVE_TOLERANCE = 1e-9


def dead_groups(rewards_PK: Tensor) -> Tensor:
    """True where a group's present rewards are all equal within 1e-9 * max(1, max|r|), or fewer than 2: (P, K) -> (P,).

    Args: rewards_PK: float64, NaN where missing.
    """
    present_PK = ~rewards_PK.isnan()
    high_P = rewards_PK.masked_fill(~present_PK, -torch.inf).amax(-1)
    low_P = rewards_PK.masked_fill(~present_PK, torch.inf).amin(-1)
    scale_P = rewards_PK.nan_to_num(0.0).abs().amax(-1).clamp(min=1.0)
    return (present_PK.sum(-1) < 2) | (high_P - low_P <= RELATIVE_TOLERANCE * scale_P)


def group_mean(rewards_PK: Tensor) -> Tensor:
    """Mean of a group's present rewards, kept as a column: (P, K) -> (P, 1); NaN where none is present."""
    return rewards_PK.nanmean(-1, keepdim=True)


def group_std(rewards_PK: Tensor, ddof: int) -> Tensor:
    """Standard deviation of a group's present rewards with divisor n - ddof, kept as a column: (P, K) -> (P, 1).

    0 where fewer than ddof + 1 rewards are present.
    """
    n_P1 = (~rewards_PK.isnan()).sum(-1, keepdim=True)
    squares_P1 = (rewards_PK - group_mean(rewards_PK)).square().nansum(-1, keepdim=True)
    return torch.where(n_P1 > ddof, squares_P1 / (n_P1 - ddof).clamp(min=1), 0.0).sqrt()


def group_advantages(rewards_PK: Tensor, *, scale: Literal["group", "none"], ddof: int, eps: float) -> Tensor:
    """Advantages of completions against their own group: (P, K) -> (P, K), float64.

    A = r - mean(group), for scale `group` divided by std(group, ddof) + eps (DeepSeekMath, arXiv 2402.03300, eq. 4);
    for scale `none` not divided (Dr. GRPO, arXiv 2503.20783). Exactly 0 in dead groups and for missing rewards.

    Raises: ValueError where rewards are infinite.
    """
    rewards_PK = rewards_PK.double()
    if rewards_PK.isinf().any():
        raise ValueError("got an infinite reward; rewards are finite, or NaN where one could not be computed")
    centred_PK = rewards_PK - group_mean(rewards_PK)
    if scale == "group":
        centred_PK = centred_PK / (group_std(rewards_PK, ddof) + eps)
    zero_PK = rewards_PK.isnan() | dead_groups(rewards_PK).unsqueeze(-1)
    return centred_PK.masked_fill(zero_PK, 0.0)
