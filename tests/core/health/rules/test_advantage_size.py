"""What ranks and z-scores can give, by hand and on random rewards: impossible, small and off-centre advantages."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from core.algorithms.advantages import advantages
from core.config import AdvantageSpec
from core.health.case import Case, Settings, settings_of
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.rules.advantage_size import (
    advantage_means,
    impossible_advantage,
    least_rank_std,
    odd_advantages,
    small_advantage,
    spread_of,
)
from tests.fakes import grpo_stage, run_spec


@pytest.mark.parametrize(
    ("n", "std"),
    [
        (2, 1.0),  # 1, -1
        (3, math.sqrt(2 / 3)),  # 1, 0, -1
        (5, math.sqrt(0.5)),  # 1, .5, 0, -.5, -1: squares add to 2.5, over 5: 0.707
        (1001, math.sqrt(1002 / 3000)),  # evenly from -1 to 1: close to sqrt(1 / 3)
    ],
)
def test_ranks_have_a_std_that_no_reward_changes(n: int, std: float) -> None:
    spread = spread_of(replace(RANKS, num_generations=n))
    assert spread is not None
    assert spread.least == spread.most == pytest.approx(std, rel=1e-9)


def test_a_double_argsort_breaks_ties_so_that_equal_rewards_get_the_same_spread() -> None:
    for rewards in ([0.5] * 5, [0.0, 0.0, 1.0, 1.0, 1.0], [0.1, 0.2, 0.3, 0.4, 0.5]):
        ranks = torch.tensor(rewards).argsort(descending=True).argsort().double()
        made = 1.0 - 2.0 * ranks / 4
        assert float(made.std(correction=0)) == pytest.approx(math.sqrt(0.5))
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
    assert max(stds) < math.sqrt(0.5)


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
    seen = advantage_means(Case(rows=rows, settings=Settings(stage=1)))
    assert (seen.everyone, seen.largest, seen.mean_largest) == (pytest.approx(0.6), 2.0, 1.5)
    assert (seen.live, seen.dead) == (None, None)


SAMPLE_Z = Settings(num_generations=5, scale_rewards="group", baseline="group", ddof=1)


def of(std: float, settings: Settings, **more: float) -> Finding | None:
    rows = [{"step": step, "advantage/std_all": std, **more} for step in range(1, 4)]
    found = small_advantage(Case(rows=rows, settings=settings))
    return found[0] if found else None


def test_plan_5_has_the_same_advantages_as_before() -> None:
    """What document 001's plan 5 would log: a z-score with a floor of 0.1, and still 0.0062."""
    finding = of(0.0062, replace(SAMPLE_Z, std_floor=0.1))
    assert finding is not None
    assert (finding.id, finding.severity, finding.confidence) == ("small-advantage", "warning", "certain")
    assert finding.evidence["implied_reward_std"] == pytest.approx(0.00062)
    assert finding.evidence["implied_live_share"] == pytest.approx(0.0062 / 0.8**0.5)  # u = sqrt(4 / 5)
    assert finding.suggest[0] == "advantage.std_floor=0.0"


def test_a_floor_that_nobody_stated_is_a_guess() -> None:
    finding = of(0.0062, SAMPLE_Z)
    assert finding is not None
    assert finding.confidence == "moderate"
    assert finding.evidence["std_floor"] == 0.1


def test_without_a_floor_few_groups_are_live() -> None:
    finding = of(0.0062, replace(SAMPLE_Z, std_floor=0.0))
    assert finding is not None
    assert (finding.id, finding.confidence) == ("dead-groups", "certain")
    assert finding.evidence["implied_live_share"] == pytest.approx(0.0062 / 0.8**0.5)
    assert of(0.0062, replace(SAMPLE_Z, std_floor=0.0), **{"groups/dead": 0.99}) is None  # known: rules.groups


@pytest.mark.parametrize(
    ("std", "settings"),
    [
        (0.3, SAMPLE_Z),  # no more than a third of a z-score: dead groups do that
        (1.0, SAMPLE_Z),
        (0.0062, Settings()),
        (0.0062, replace(SAMPLE_Z, scale_rewards="none")),  # no z-score: as small as its rewards
        (0.0062, replace(SAMPLE_Z, transform="rank")),  # core.health.rules.advantage_size
        (0.0062, replace(SAMPLE_Z, reshaped=True)),
    ],
)
def test_what_says_nothing(std: float, settings: Settings) -> None:
    assert of(std, settings) is None


def test_completions_drawn_in_advance_are_not_drawn_again() -> None:
    offline = of(0.0062, replace(SAMPLE_Z, std_floor=0.1, offline=True))
    online = of(0.0062, replace(SAMPLE_Z, std_floor=0.1))
    assert offline is not None
    assert online is not None
    assert offline.suggest == ("advantage.std_floor=0.0",)
    assert online.suggest[1:] == ("dynamic_sampling.max_attempts=10", "num_generations=10")


def test_of_live_groups_only_a_floor_is_left() -> None:
    rows = [{"step": step, "advantage/std": 0.01, "groups/dead": 0.2} for step in range(1, 9)]
    (finding,) = small_advantage(Case(rows=rows, settings=replace(SAMPLE_Z, std_floor=0.1)))
    assert finding.id == "small-advantage"
    assert "of the groups are live" not in finding.summary
    assert small_advantage(Case(rows=rows, settings=replace(SAMPLE_Z, std_floor=0.0))) == ()


# Section 2.1 of document 001: KL, PPO loss, Adv Std, Adv Max of three epochs; and the settings it states.
EPOCHS = ((0.094, 0.00034, 0.0063, 0.0072), (0.081, 0.00083, 0.0062, 0.0090), (0.074, 0.00092, 0.0062, 0.0090))
ROWS: list[Row] = [
    {"step": epoch, "kl": kl, "policy/loss": loss, "advantage/std_all": std, "advantage/max": largest}
    for epoch, (kl, loss, std, largest) in enumerate(EPOCHS, start=1)
]
BELIEVED = Settings(
    num_generations=5, transform="rank", ranks_break_ties=True, learning_rate=5e-6, beta=0.15, surrogate="clip",
    epsilon=0.2, offline=True, old_is_reference=True,
)  # fmt: skip


def found(case: Case) -> Finding:
    (one,) = impossible_advantage(case)
    return one


def lever_plus(**changes: object) -> Case:
    return Case(rows=ROWS, settings=replace(BELIEVED, **changes))  # type: ignore[arg-type]


def test_ranks_of_five_are_never_six_thousandths() -> None:
    finding = found(lever_plus())
    assert (finding.id, finding.severity, finding.confidence) == ("impossible-advantage", "error", "certain")
    # (63 + 62 + 62) / 30000 = 0.00623 against sqrt(6 / 12) = 0.7071; (72 + 90 + 90) / 30000 = 0.0084 against 1.
    assert finding.evidence["std_all"] == pytest.approx(0.0062333, abs=1e-7)
    assert finding.evidence["rank_std"] == pytest.approx(0.7071, abs=1e-4)
    assert (finding.evidence["mean_largest"], finding.evidence["largest_rank"]) == (pytest.approx(0.0084), 1.0)


def test_what_gives_them_is_named_with_numbers() -> None:
    finding = found(lever_plus())
    # A floor of 0.1: rewards differ by 0.0062 x 0.1. Or 0.0062 / sqrt(4 / 5) = 0.7 % of the groups are live.
    assert finding.evidence["std_floor"] == 0.1
    assert finding.evidence["implied_reward_std"] == pytest.approx(0.00062333, abs=1e-8)
    assert finding.evidence["implied_live_share"] == pytest.approx(0.0062333 / 0.8944, abs=1e-5)
    assert "z-score with a std floor of 0.1" in finding.summary
    assert "0.0006" in finding.summary
    assert "0.7% of the groups" in finding.summary


def test_switching_ranks_off_is_predicted_to_change_nothing() -> None:
    finding = found(lever_plus())
    assert finding.evidence["predicted_std_of_z_score"] == finding.evidence["std_all"]
    assert finding.decider is not None
    assert "predicted to give the same 0.0062" in finding.decider.question
    assert finding.decider.overrides == (
        "advantage.transform=none",
        "advantage.scale_rewards=group",
        "advantage.std_floor=0.1",
    )


def test_the_documents_causes_are_ruled_out() -> None:
    ruled = {one.id: one.why for one in found(lever_plus()).rules_out}
    assert list(ruled) == ["rank-normalisation", "small-learning-rate", "kl-share-of-loss"]
    # 0.15 x 0.094 / (0.15 x 0.094 + 0.00034) = 0.976, then 0.936 and 0.923: 95 % on average.
    assert "95% of the loss" in ruled["kl-share-of-loss"]
    without_kl = replace(BELIEVED, beta=None)
    assert "kl-share-of-loss" not in {one.id for one in found(Case(rows=ROWS, settings=without_kl)).rules_out}


def test_nothing_else_is_blamed() -> None:
    findings = examine(lever_plus())
    assert findings[0].id == "impossible-advantage"
    blamed = json.dumps([{"id": one.id, "summary": one.summary, "suggest": one.suggest} for one in findings[1:]])
    for word in ("rank", "learning_rate", "learning rate", "beta="):
        assert word not in blamed
    assert not {one.id for one in findings} & {"rank-normalisation", "learning-rate", "kl-weight", "dead-groups"}


def test_without_the_formula_of_the_ranks_the_claim_is_weaker() -> None:
    finding = found(lever_plus(ranks_break_ties=None))
    assert finding.confidence == "strong"
    assert finding.evidence["least_rank_std"] == 0.5
    assert "at least 0.5" in finding.summary


def everyone(std: float, dead: float | None = None, **more: float) -> list[Row]:
    shares = {} if dead is None else {"groups/dead": dead}
    return [{"step": step, "advantage/std_all": std, "reward/group_std": 0.3, **shares, **more} for step in range(1, 9)]


SHARED = Settings(num_generations=5, transform="rank")
Z_OF_EIGHT = Settings(num_generations=8, scale_rewards="group", baseline="group", ddof=0, std_floor=0.0, eps=1e-8)


@pytest.mark.parametrize(
    ("settings", "rows", "impossible"),
    [
        (RANKS, everyone(0.7071), False),
        (RANKS, everyone(0.7906), False),  # the same by n - 1 of one group: 0.7071 sqrt(5 / 4)
        (RANKS, everyone(0.6), True),
        (RANKS, everyone(0.95), True),
        (RANKS, everyone(0.35, dead=0.5), True),  # argsort ranks spread dead groups too
        (SHARED, everyone(0.35, dead=0.5), False),  # at least (1 - 0.5) 0.5
        (SHARED, everyone(0.20, dead=0.5), True),
        (SHARED, everyone(0.15, dead=0.8), False),  # at least 0.2 x 0.5
        (SHARED, everyone(0.06), False),  # 12 % of the groups may be live
        (SHARED, everyone(0.04), True),
        (replace(RANKS, group_sizes=(3, 5)), everyone(0.7435), False),  # an epoch of 3, then two of 5: .816 and .707
        (replace(RANKS, group_sizes=(3, 5)), everyone(0.69), False),  # all of 5, and few digits
        (replace(RANKS, group_sizes=(3, 5)), everyone(0.6), True),
        (replace(RANKS, group_sizes=(3, 5)), everyone(1.1), True),  # 3 by n - 1: 1
        (replace(RANKS, num_generations=15, offline=True), everyone(0.95), False),  # stored: some queries have 2
        (Z_OF_EIGHT, everyone(1.0, dead=0.0), False),
        (Z_OF_EIGHT, everyone(0.5, dead=0.6), False),  # sqrt(0.4) = 0.63 in one batch, 0.4 over many
        (Z_OF_EIGHT, everyone(0.15, dead=0.6), True),  # below half of 0.4
        (Z_OF_EIGHT, everyone(0.3, dead=0.8), False),  # 0.2 to sqrt(0.2)
        (Z_OF_EIGHT, everyone(0.15), False),  # few live groups, perhaps: core.health.rules.advantage_size
        (Z_OF_EIGHT, everyone(1.2), True),
        (replace(Z_OF_EIGHT, std_floor=0.1), everyone(0.15, dead=0.0), False),
        (replace(Z_OF_EIGHT, eps=0.1), everyone(0.15, dead=0.0), False),  # eps is a floor here
        (Z_OF_EIGHT, everyone(1.0, **{"advantage/max_abs": 2.6}), False),  # sqrt(7) = 2.65
        (Z_OF_EIGHT, everyone(1.0, **{"advantage/max_abs": 477.0}), True),  # fp32 over equal rewards
        (Z_OF_EIGHT, everyone(1.0, **{"advantage/max_abs": 477.0, "reward/missing": 0.1}), False),
        (Settings(), everyone(477.0), False),
    ],
)
def test_what_a_normaliser_can_give(settings: Settings, rows: list[Row], impossible: bool) -> None:
    assert bool(impossible_advantage(Case(rows=rows, settings=settings))) == impossible


@pytest.mark.parametrize(
    ("std", "steps", "impossible"),
    [
        (1.0, 8, False),
        (0.45, 8, True),
        (0.45, 4, False),  # four steps say nothing: groups are few
        (1.2, 8, True),
    ],
)
def test_our_own_logs_have_the_std_of_live_groups(std: float, steps: int, impossible: bool) -> None:
    rows = [{"step": i, "advantage/std": std, "reward/group_std": 0.2, "groups/dead": 0.5} for i in range(1, steps + 1)]
    assert bool(impossible_advantage(Case(rows=rows, settings=Z_OF_EIGHT))) == impossible
    assert impossible_advantage(Case(rows=rows, settings=replace(Z_OF_EIGHT, reshaped=True))) == ()


Z_SCORE = Settings(baseline="group", scale_rewards="group", transform="none")


def case(means: list[float], settings: Settings = Z_SCORE, *, largest: float = 2.0, std: float = 1.0) -> Case:
    rows: list[Row] = [
        {"step": i, "advantage/mean": mean, "advantage/max_abs": largest, "advantage/std": std + 0.01 * (i % 2)}
        for i, mean in enumerate(means, 1)
    ]
    return Case(rows=rows, settings=settings)


def test_a_group_baseline_leaves_a_mean_of_zero() -> None:
    assert odd_advantages(case([1e-7] * 20)) == ()
    assert odd_advantages(case([0.09] * 20)) == ()  # under 5 % of the largest, 2.0
    (found,) = odd_advantages(case([0.3, 0.5] * 10))
    assert (found.id, found.severity, found.confidence) == ("odd-advantages", "warning", "strong")
    # Mean 0.4, sd 0.1026 over 20 steps: se 0.0229.
    assert found.evidence["mean"] == pytest.approx(0.4)
    assert found.evidence["se"] == pytest.approx(0.0229, abs=1e-4)
    assert odd_advantages(case([0.5] * 9)) == ()


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(baseline="running", scale_rewards="group"),  # moves, and its mean with it
        Settings(baseline="group", advantage_clip=1.0, scale_rewards="group"),  # cuts one tail more than the other
        Settings(baseline="group", reshaped=True, scale_rewards="group"),
    ],
)
def test_where_a_mean_is_allowed_nothing_is_said(settings: Settings) -> None:
    assert odd_advantages(case([0.4] * 20, settings)) == ()


@pytest.mark.parametrize(
    ("scale", "std", "found"),
    [
        ("running", 0.3, True),
        ("running", 3.0, True),
        ("running", 0.6, False),
        ("running", 1.8, False),
        ("group", 0.3, False),  # impossible_advantage says that
        ("none", 0.3, False),  # no scale: the spread is the rewards'
    ],
)
def test_the_spread_under_a_moving_scale(scale: str, std: float, found: bool) -> None:
    known = Settings(baseline="running", scale_rewards=scale)
    assert bool(odd_advantages(case([0.0] * 20, known, std=std))) == found


def test_of_an_unknown_scale_it_is_a_weak_hint() -> None:
    (found,) = odd_advantages(case([0.0] * 20, Settings(), std=0.006))
    assert (found.confidence, found.evidence["std"]) == ("weak", pytest.approx(0.011, abs=1e-3))
    assert odd_advantages(case([0.0] * 20, Settings(transform="rank"), std=0.006)) == ()
    imitating = [{**row, "rce/loss": 1.0} for row in case([0.0] * 20, Settings(), std=0.006).rows]
    assert odd_advantages(Case(rows=imitating)) == ()


def over_all(std: float, dead: float | None) -> Case:
    """Steps whose std is of all groups: two in three were dead as a whole, each with a std of 0."""
    known = {} if dead is None else {"groups/dead": dead}
    rows: list[Row] = [
        {"step": i, "advantage/std_all": 0.0, **({} if dead is None else {"groups/dead": 1.0})}
        if i % 3
        else {"step": i, "advantage/std_all": std + 0.001 * (i % 2), **known}
        for i in range(1, 61)
    ]
    return Case(rows=rows)


def test_dead_groups_do_not_make_a_scale_too_small() -> None:
    assert odd_advantages(over_all(1.0, None)) == ()  # 0 or 1 by steps of one group each
    assert odd_advantages(over_all(0.3, None)) == ()  # nine in ten may be dead
    assert odd_advantages(over_all(0.3, 0.9)) == ()  # they are: 0.3 / sqrt(0.1)
    (finding,) = odd_advantages(over_all(0.3, 0.0))  # none is, and the std is still small
    assert finding.evidence["std"] == pytest.approx(0.3, abs=0.01)
    assert [one.id for one in odd_advantages(over_all(3.0, None))] == ["odd-advantages"]


def test_a_z_score_that_is_too_large_may_be_of_more_rows_than_answers() -> None:
    """Another trainer may count each turn of an answer as a row of its group; ours does not."""
    rows: list[Row] = [{"step": 1, "advantage/max": 2.85}]
    known = Settings(num_generations=4, scale_rewards="group")
    theirs, ours = (found(Case(rows=rows, settings=known, stages=stages)) for stages in ({}, {"grpo": "grpo"}))
    assert (theirs.severity, theirs.confidence) == ("warning", "moderate")
    assert "several turns" in theirs.summary
    assert (ours.severity, ours.confidence) == ("error", "certain")
