"""Documents 001 and 004 by arithmetic: which normaliser can have an advantage std of 0.0062, and what is within noise.

    python benchmarks/lever_plus.py

Advantages are those of core.algorithms, over groups that are drawn here; docs/cases/lever-plus.md has the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from core.algorithms.advantages import advantages
from core.config import AdvantageSpec
from core.health.rules.gains import answers_needed, difference_se
from core.health.statistics import chance_beyond

LOGGED = 0.0062
BEAMS, QUERIES = 5, 20_000
FLOORED = AdvantageSpec(scale_rewards="group", std_floor=0.1, eps=1e-8)
# What is compared, before and after (points), and on how many samples. Where a document gives only the difference it
# starts from one half, where the standard error of shares is largest.
COMPARED = (
    ("001's follow-up: plan 5", 50.0, 50.38, 800),
    ("001's follow-up: plans 5 and 6", 50.0, 50.33, 800),
    ("004: fewer epochs, 1 shot", 57.3, 51.6, 200),
    ("004: fewer epochs, 2 shots", 50.2, 48.0, 200),
    ("004: fewer epochs, 3 shots", 48.3, 47.2, 200),
    ("004: fewer epochs, 4 shots", 49.6, 46.0, 200),
    ("004: v3 against v1, 1 shot", 57.8, 57.3, 200),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Rewards of one kind and what ranks and the floored z-score make of them."""

    rewards: str
    ranks: float
    z_score: float


def double_argsort(rewards_PK: Tensor) -> Tensor:
    """1 - 2 rank / (n - 1), as document 001 has it: equal rewards get different ranks."""
    ranks_PK = rewards_PK.argsort(dim=-1, descending=True).argsort(dim=-1).double()
    return 1.0 - 2.0 * ranks_PK / (rewards_PK.shape[-1] - 1)


def batch_std(advantages_PK: Tensor) -> float:
    """The mean over queries of the std of a query's advantages: one query is a batch there."""
    return float(advantages_PK.std(-1, correction=0).mean())


def normalised() -> Iterator[Case]:
    """The std of advantages, for rewards of five kinds."""
    drawn = torch.Generator().manual_seed(0)
    normal_PK = torch.randn(QUERIES, BEAMS, generator=drawn, dtype=torch.float64)
    right_PK = (torch.rand(QUERIES, BEAMS, generator=drawn, dtype=torch.float64) < 0.5).double()
    few_P1 = torch.rand(QUERIES, 1, generator=drawn) < 0.0074
    for rewards, values_PK in (
        ("0 or 1, half each", right_PK),
        ("std 0.5 inside groups", 0.5 * normal_PK),
        ("std 0.00062 inside groups", 0.00074 * normal_PK),  # by n = 5: 0.00074 x 0.940 x sqrt(4 / 5) on average
        ("0 or 1 in 0.74 % of the groups, equal in the others (0.69 % live)", right_PK * few_P1),  # 1 in 16 all equal
        ("all equal", torch.full_like(normal_PK, 0.3)),
    ):
        made_PK = torch.from_numpy(advantages(values_PK.numpy(), FLOORED))
        yield Case(rewards=rewards, ranks=batch_std(double_argsort(values_PK)), z_score=batch_std(made_PK))


def main() -> None:
    """Two markdown tables."""
    print(f"logged: {LOGGED}\n\n| rewards | ranks | z-score, std floor 0.1 |\n|---|---|---|")
    for case in normalised():
        print(f"| {case.rewards} | {case.ranks:.4f} | {case.z_score:.4f} |")
    print("\n| compared | samples | difference | standard error | p | samples a side, for 4 of 5 tries |")
    print("|---|---|---|---|---|---|")
    for what, before, after, n in COMPARED:
        p1, p2 = before / 100, after / 100
        se, needed = difference_se(p1, p2, n), answers_needed(p1, p2)
        p = chance_beyond((p2 - p1) / se)
        print(f"| {what} | {n} | {after - before:+.2f} | {100 * se:.1f} | {p:.2f} | {float(f'{needed:.2g}'):,.0f} |")


if __name__ == "__main__":
    main()
