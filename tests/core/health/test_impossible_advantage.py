"""Document 001: advantages that ranks cannot have. And z-scores that are none, and those that are left alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.rules.advantage_size import impossible_advantage

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


RANKS = Settings(num_generations=5, transform="rank", ranks_break_ties=True)
SHARED = Settings(num_generations=5, transform="rank")
Z = Settings(num_generations=8, scale_rewards="group", baseline="group", ddof=0, std_floor=0.0, eps=1e-8)


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
        (Z, everyone(1.0, dead=0.0), False),
        (Z, everyone(0.5, dead=0.6), False),  # sqrt(0.4) = 0.63 in one batch, 0.4 over many
        (Z, everyone(0.15, dead=0.6), True),  # below half of 0.4
        (Z, everyone(0.3, dead=0.8), False),  # 0.2 to sqrt(0.2)
        (Z, everyone(0.15), False),  # few live groups, perhaps: core.health.rules.advantage_size
        (Z, everyone(1.2), True),
        (replace(Z, std_floor=0.1), everyone(0.15, dead=0.0), False),
        (replace(Z, eps=0.1), everyone(0.15, dead=0.0), False),  # eps is a floor here
        (Z, everyone(1.0, **{"advantage/max_abs": 2.6}), False),  # sqrt(7) = 2.65
        (Z, everyone(1.0, **{"advantage/max_abs": 477.0}), True),  # fp32 over equal rewards
        (Z, everyone(1.0, **{"advantage/max_abs": 477.0, "reward/missing": 0.1}), False),
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
    assert bool(impossible_advantage(Case(rows=rows, settings=Z))) == impossible
    assert impossible_advantage(Case(rows=rows, settings=replace(Z, reshaped=True))) == ()
