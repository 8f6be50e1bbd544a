"""What ranks and z-scores can give, by hand, and against core.algorithms.advantages on random rewards."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from core.algorithms.advantages import advantages
from core.config import AdvantageSpec
from core.health.case import Case, Settings, settings_of
from core.health.rules.advantage_size import least_rank_std, rank_std, seen_in, spread_of
from tests.fakes import grpo_stage, run_spec


@pytest.mark.parametrize(
    ("n", "std"),
    [
        (2, 1.0),  # 1, -1
        (3, math.sqrt(2 / 3)),  # 1, 0, -1
        (5, math.sqrt(0.5)),  # 1, .5, 0, -.5, -1: squares add to 2.5, over 5: 0.707
        (10**6, math.sqrt(1 / 3)),  # evenly from -1 to 1
    ],
)
def test_ranks_have_a_std_that_no_reward_changes(n: int, std: float) -> None:
    assert rank_std(n) == pytest.approx(std, rel=1e-5)
    assert rank_std(n) > 0.577


def test_a_double_argsort_breaks_ties_so_that_equal_rewards_get_the_same_spread() -> None:
    for rewards in ([0.5] * 5, [0.0, 0.0, 1.0, 1.0, 1.0], [0.1, 0.2, 0.3, 0.4, 0.5]):
        ranks = torch.tensor(rewards).argsort(descending=True).argsort().double()
        made = 1.0 - 2.0 * ranks / 4
        assert float(made.std(correction=0)) == pytest.approx(rank_std(5))
        assert float(made.max()) == 1.0


def test_shared_ranks_are_narrowest_where_one_differs_from_the_rest() -> None:
    # n = 5: the best has rank 0, the others share (1 + 2 + 3 + 4) / 4 = 2.5: advantages 1 and four times -1/4;
    # squares 1 + 4 / 16 = 1.25, over 5: 0.25, std 0.5 = 1 / sqrt(5 - 1).
    assert least_rank_std(5) == 0.5
    stds = set()
    for number in range(1, 2**5 - 1):  # all groups of 0 and 1 that are not all equal
        rewards = torch.tensor([[float(number >> bit & 1) for bit in range(5)]], dtype=torch.float64)
        how = AdvantageSpec(transform="rank", baseline="group", scale_rewards="none")
        stds.add(round(float((advantages(rewards, how) / 2).std()), 9))  # (n - 1) / 2 ranks are 1
    assert min(stds) == pytest.approx(0.5)
    assert max(stds) < rank_std(5)


RANKS = Settings(num_generations=5, transform="rank", ranks_break_ties=True)
Z = Settings(num_generations=5, scale_rewards="group", baseline="group", ddof=0, std_floor=0.0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # least, most, largest, of equal rewards
        (RANKS, (0.7071, 0.7071, 1.0, 0.7071)),
        (replace(RANKS, ranks_break_ties=None), (0.5, 0.7071, 1.0, None)),
        (replace(RANKS, ranks_break_ties=False), (0.5, 0.7071, 1.0, 0.0)),
        (replace(RANKS, advantage_clip=0.5), (0.4472, 0.4472, 0.5, 0.4472)),  # .5 .5 0 -.5 -.5: sqrt(1 / 5)
        (Z, (1.0, 1.0, 2.0, 0.0)),  # the largest: sqrt(4)
        (replace(Z, ddof=1), (0.8944, 0.8944, 1.7889, 0.0)),  # sqrt(4 / 5); 4 / sqrt(5)
        (replace(Z, ddof=None), (0.8944, 1.0, 2.0, 0.0)),
        (replace(Z, std_floor=0.1), (0.0, 1.0, 2.0, 0.0)),
        (replace(Z, std_floor=None), (0.0, 1.0, 2.0, 0.0)),
        (replace(Z, advantage_clip=1.5), (0.0, 1.0, 1.5, 0.0)),
        (replace(Z, transform="rank", ranks_break_ties=False), (1.0, 1.0, 2.0, 0.0)),  # ours: a z-score of ranks
    ],
)
def test_the_spread_that_settings_fix(settings: Settings, expected: tuple[float | None, ...]) -> None:
    found = spread_of(settings)
    assert found is not None
    given = (found.least, found.most, found.largest, found.of_equal)
    assert given == tuple(None if value is None else pytest.approx(value, abs=1e-4) for value in expected)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        replace(RANKS, num_generations=None),
        replace(Z, scale_rewards="batch"),
        replace(Z, scale_rewards=None),
        replace(Z, baseline="leave_one_out"),
        replace(Z, reshaped=True),
        replace(RANKS, ranks_break_ties=False, scale_rewards="none"),  # ranks in units of one rank
    ],
)
def test_other_normalisers_fix_nothing(settings: Settings) -> None:
    assert spread_of(settings) is None


@pytest.mark.parametrize("ddof", [0, 1])
def test_no_rewards_leave_the_bounds_of_a_z_score(ddof: int) -> None:
    spread = spread_of(replace(Z, ddof=ddof))
    assert spread is not None
    how = AdvantageSpec.model_validate({"ddof": ddof, "eps": 1e-12})
    drawn = torch.rand(500, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).pow(8)
    made = advantages(drawn, how)
    stds = made.std(-1)
    assert float(stds.min()) >= spread.least - 1e-6
    assert float(stds.max()) <= spread.most + 1e-6
    assert float(abs(made).max()) <= spread.largest + 1e-6
    assert float(abs(made).max()) > 0.99 * spread.largest  # and the bound is met


def test_a_spec_says_what_stands_between_rewards_and_advantages() -> None:
    plain = settings_of(run_spec(grpo_stage()))
    assert (plain.reshaped, plain.ranks_break_ties, plain.stage) == (False, False, 0)
    for change in (
        {"advantage": {"virtual_best": 1.0}}, {"keep_candidates": 2}, {"positive_reward": 0.5},
        {"overlong": {"weight": 0.5}}, {"kl_in": "reward", "beta": 0.1},
    ):  # fmt: skip
        assert settings_of(run_spec(grpo_stage(**change))).reshaped is True


def test_what_is_seen_leaves_out_other_stages_and_missing_rewards() -> None:
    rows = [
        {"step": 0, "advantage/std_all": 9.0},
        {"step": 1, "stage": 0, "advantage/std_all": 9.0},
        {"step": 2, "stage": 1, "advantage/std_all": 9.0, "reward/missing": 0.1},
        {"step": 3, "stage": 1, "advantage/std_all": 0.5, "advantage/max": 1.0, "reward/missing": 0.0},
        {"step": 4, "stage": 1, "advantage/std_all": 0.7, "advantage/max": 2.0},
    ]
    seen = seen_in(Case(rows=rows, settings=Settings(stage=1)))
    assert (seen.everyone, seen.largest, seen.mean_largest) == (pytest.approx(0.6), 2.0, 1.5)
    assert (seen.live, seen.dead) == (None, None)
