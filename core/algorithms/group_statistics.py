"""Statistics of groups of rewards, in float64: dead or not, mean, std, ranks.

Shape suffixes: P prompts, K completions of one prompt. A missing reward is NaN and no member of its group. What is NOT
here: advantages, and statistics over steps (`running`).
"""

from __future__ import annotations

import torch
from torch import Tensor

RELATIVE_TOLERANCE = 1e-9


def dead_groups(rewards_PK: Tensor, virtual_best: float | None = None) -> Tensor:
    """True where a group's present rewards are all equal within 1e-9 * max(1, max|r|), or fewer than 2: (P, K) -> (P,).

    Args: rewards_PK: float64, NaN where missing. virtual_best counts as one more present reward where any is.
    """
    rewards_PK = with_virtual(rewards_PK, virtual_best)
    present_PK = ~rewards_PK.isnan()
    high_P = rewards_PK.masked_fill(~present_PK, -torch.inf).amax(-1)
    low_P = rewards_PK.masked_fill(~present_PK, torch.inf).amin(-1)
    return (present_PK.sum(-1) < 2) | (high_P - low_P <= _tolerance(rewards_PK).squeeze(-1))


def group_mean(rewards_PK: Tensor) -> Tensor:
    """Mean of a group's present rewards, kept as a column: (P, K) -> (P, 1); NaN where none is present."""
    return rewards_PK.nanmean(-1, keepdim=True)


def group_std(rewards_PK: Tensor, ddof: int) -> Tensor:
    """Standard deviation of a group's present rewards with divisor n - ddof, kept as a column: (P, K) -> (P, 1).

    0 where fewer than ddof + 1 rewards are present.
    """
    return moments(rewards_PK, (~rewards_PK.isnan()).double(), ddof)[1]


def with_virtual(rewards_PK: Tensor, virtual_best: float | None) -> Tensor:
    """The rewards with the virtual member as a last column: (P, K) -> (P, K + 1); NaN where no reward is present."""
    if virtual_best is None:
        return rewards_PK
    none_P1 = rewards_PK.isnan().all(-1, keepdim=True)
    virtual_P1 = torch.full_like(rewards_PK[:, :1], virtual_best).masked_fill(none_P1, torch.nan)
    return torch.cat([rewards_PK, virtual_P1], dim=-1)


def centred_ranks(rewards_PK: Tensor) -> Tensor:
    """rank - (n + 1) / 2 inside each group, the best largest, ties the average of their ranks: (P, K) -> (P, K).

    That is (members below - members above) / 2, which needs no sort and sums to exactly 0. Equal means: within the
    tolerance of `dead_groups`, so 0.1 + 0.2 ties with 0.3. NaN stays NaN.
    """
    gap_PKK = rewards_PK.unsqueeze(-1) - rewards_PK.unsqueeze(-2)  # [p, i, j] = r_i - r_j
    tolerance_P11 = _tolerance(rewards_PK).unsqueeze(-1)
    wins_PK = (gap_PKK > tolerance_P11).sum(-1) - (gap_PKK < -tolerance_P11).sum(-1)
    return (wins_PK.double() / 2).masked_fill(rewards_PK.isnan(), torch.nan)


def moments(values: Tensor, weights: Tensor, ddof: int) -> tuple[Tensor, Tensor]:
    """Mean and std of each line, kept as columns; weights are frequencies, so the divisor is sum(w) - ddof.

    values: what stands at weight 0 never matters, NaN included. 0 where there is no weight; the std also where there is
    not more of it than ddof.
    """
    total, known = weights.sum(-1, keepdim=True), values.masked_fill(weights == 0, 0.0)
    mean = (known * weights).sum(-1, keepdim=True) / total.clamp(min=1.0)  # a weight counts rows or tokens: 0, or >= 1
    squares = ((known - mean).square() * weights).sum(-1, keepdim=True)
    return mean, torch.where(total > ddof, squares / (total - ddof).clamp(min=1e-300), 0.0).sqrt()


def _tolerance(rewards_PK: Tensor) -> Tensor:
    return RELATIVE_TOLERANCE * rewards_PK.nan_to_num(0.0).abs().amax(-1, keepdim=True).clamp(min=1.0)
