"""Few live groups, told from the means over groups of a log; and live groups that a choice of candidates kills."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.health.case import Case, Settings, settings_of
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.rules.advantage_size import impossible_advantage, odd_advantages, small_advantage
from core.health.rules.live_groups import few_live_groups, killed_by_choice
from tests.fakes import grpo_stage, run_spec

# Section 2.1 of document 001, and what its public code adds: 640 queries, one a step, the best 3 and then 5 by reward.
TABLE: list[Row] = [
    {"step": 1, "kl": 0.094, "policy/loss": 0.00034, "advantage/group_std": 0.0063, "advantage/group_max": 0.0072},
    {"step": 2, "kl": 0.081, "policy/loss": 0.00083, "advantage/group_std": 0.0062, "advantage/group_max": 0.0090},
    {"step": 3, "kl": 0.074, "policy/loss": 0.00092, "advantage/group_std": 0.0062, "advantage/group_max": 0.0090},
]
BELIEVED = Settings(
    num_generations=5, transform="rank", ranks_break_ties=True, learning_rate=5e-6, beta=0.15, offline=True,
    groups_per_row=640, group_sizes=(3, 5),
)  # fmt: skip
RAN = replace(BELIEVED, transform="none", ranks_break_ties=None, scale_rewards="group", std_floor=0.1)


def few(rows: list[Row] = TABLE, settings: Settings = BELIEVED, **changes: Any) -> Finding | None:
    findings = few_live_groups(Case(rows=rows, settings=replace(settings, **changes)))
    return findings[0] if findings else None


@pytest.mark.parametrize("settings", [BELIEVED, RAN])
def test_four_live_groups_of_640_and_both_readings_of_why(settings: Settings) -> None:
    finding = few(settings=settings)
    assert finding is not None
    assert (finding.id, finding.severity, finding.confidence) == ("few-live-groups", "error", "certain")
    assert (finding.evidence["live"], finding.evidence["groups"], finding.evidence["share"]) == (4, 640, 0.00625)
    for part in ("4 of 640 groups", "4 / 640 = 0.00625", "= 0.00722", "= 0.00901", "chosen by reward", "all wrong"):
        assert part in finding.summary
    assert finding.decider is not None
    assert "check --data" in finding.decider.question
    assert "before any are chosen" in finding.decider.question
    ruled = {cause.id: cause.why for cause in finding.rules_out}
    assert list(ruled) == ["rank-normalisation", "small-learning-rate", "kl-share-of-loss"]
    assert "0.707" in ruled["rank-normalisation"]  # by n; 0.791 by n - 1
    assert "0.791" in ruled["rank-normalisation"]


@pytest.mark.parametrize("settings", [BELIEVED, RAN])
def test_equal_rewards_everywhere_are_no_reading_any_more(settings: Settings) -> None:
    findings = examine(Case(rows=TABLE, settings=settings))
    assert findings[0].id == "few-live-groups"
    assert "small-advantage" not in {one.id for one in findings}
    assert not any("implied_reward_std" in one.evidence or "0.0006" in one.summary for one in findings)
    assert not {change.partition("=")[0] for one in findings for change in one.suggest} & {"learning_rate", "beta"}


def test_ranks_are_still_impossible() -> None:
    (finding,) = impossible_advantage(Case(rows=TABLE, settings=BELIEVED))
    assert finding.confidence == "certain"
    assert "4 of 640 groups" in finding.summary
    assert finding.evidence["live_at_least"] == finding.evidence["live_at_most"] == 4
    assert finding.suggest == ()


def test_without_a_known_normaliser_it_is_no_certainty() -> None:
    unknown = few(transform=None, ranks_break_ties=None)
    assert unknown is not None
    assert unknown.confidence == "moderate"


@pytest.mark.parametrize(
    "changes",
    [
        {"groups_per_row": None},
        {"group_sizes": None},  # groups of five do not give the first row
        {"groups_per_row": 641, "ddof": 0},  # nothing fits
        {"scale_rewards": "none"},
        {"scale_rewards": "batch"},
        {"baseline": "running"},
        {"reshaped": True},
    ],
)
def test_what_cannot_be_counted_is_not_said(changes: dict[str, Any]) -> None:
    assert few(**changes) is None


def test_healthy_logs_say_nothing() -> None:
    healthy: list[Row] = [{"step": 1, "advantage/group_std": 0.85, "advantage/group_max": 1.2}]
    assert few(healthy, RAN) is None
    assert few([{**row, "groups/dead": 0.99375} for row in TABLE], RAN) is None  # counted: core.health.rules.groups
    tenth: list[Row] = [{"step": 1, "advantage/group_std": 0.1, "advantage/group_max": 0.1155}]  # 64 x 1.1547 / 640
    assert few(tenth, RAN) is None


@pytest.mark.parametrize(("groups", "size", "digits"), [(640, 5, 4), (100, 4, 4), (32, 8, 3)])
def test_rewards_that_a_floor_presses_everywhere_are_not_taken_for_few_live_groups(
    groups: int, size: int, digits: int
) -> None:
    draw, wrong = np.random.default_rng(3), 0
    known = Settings(groups_per_row=groups, num_generations=size, scale_rewards="group", std_floor=0.1, ddof=1)
    for _ in range(300):
        rewards = draw.normal(0, 0.0006 * draw.uniform(0.5, 4), (groups, size))
        made = (rewards - rewards.mean(-1, keepdims=True)) / 0.1
        means = {"std": made.std(-1, ddof=1).mean(), "max": abs(made).max(-1).mean()}
        row = {f"advantage/group_{name}": round(float(value), digits) for name, value in means.items()}
        wrong += few([{"step": 1, **row}], known) is not None
    assert wrong <= 3


def test_where_only_the_std_fits_both_readings_stay() -> None:
    rows: list[Row] = [{**row, "advantage/group_max": 0.0085} for row in TABLE]
    case = Case(rows=rows, settings=RAN)
    assert few_live_groups(case) == ()
    (finding,) = small_advantage(case)
    assert (finding.evidence["live_at_least"], finding.evidence["live_at_most"], finding.evidence["groups"]) == (
        4, 4, 640,
    )  # fmt: skip
    assert "4 of 640 groups are live, as far as the std tells" in finding.summary
    assert finding.evidence["implied_reward_std"] == pytest.approx(0.00062333, abs=1e-8)


def test_our_own_means_over_groups_are_shares_and_no_small_advantages() -> None:
    known = settings_of(run_spec(grpo_stage(prompts_per_step=1, advantage={"std_floor": 0.1})))
    live: Row = {"advantage/std": 0.9, "advantage/group_std": 1.0, "advantage/group_max": 1.15, "groups/dead": 0.0}
    dead: Row = {"advantage/group_std": 0.0, "advantage/group_max": 0.0, "groups/dead": 1.0}
    rows: list[Row] = [{"step": i, **(live if i % 100 == 1 else dead), "advantage/mean": 0.0} for i in range(1, 401)]
    case = Case(rows=rows, settings=known)
    for rule in (few_live_groups, small_advantage, impossible_advantage, odd_advantages):
        assert rule(case) == (), rule
    without = [{name: value for name, value in row.items() if name != "advantage/std"} for row in rows]
    for rule in (few_live_groups, small_advantage, impossible_advantage, odd_advantages):
        assert rule(Case(rows=without, settings=known)) == (), rule


def chosen(dead: float, std: float, **changes: Any) -> list[Finding]:
    known = Settings(
        num_generations=12, group_sizes=(5,), scale_rewards="group", baseline="group", ddof=1, std_floor=0.0,
        **changes,
    )  # fmt: skip
    rows: list[Row] = [
        {"step": i, "groups/dead": dead + 0.01 * (i % 2), "advantage/group_std": std + 0.02 * (i % 3)}
        for i in range(1, 21)
    ]
    return list(killed_by_choice(Case(rows=rows, settings=known)))


def test_a_choice_that_leaves_equal_rewards() -> None:
    (finding,) = chosen(dead=0.1, std=0.1)
    assert (finding.id, finding.severity, finding.confidence) == ("killed-by-choice", "warning", "strong")
    # 1 - 0.105 against 0.1 + 0.02 x (7 x 1 + 7 x 2 - ...) / 20: of i % 3 over 1 to 20 the sum is 7 + 14 = 21.
    assert finding.evidence["live_before"] == pytest.approx(0.895)
    assert finding.evidence["live_after"] == pytest.approx(0.1 + 0.02 * 21 / 20)
    assert finding.suggest == ("candidate_choice=stratified",)
    assert chosen(dead=0.1, std=0.85) == []  # as many as before
    assert chosen(dead=0.95, std=0.03) == []  # all right or all wrong before the choice, too: half of them
    assert chosen(dead=0.1, std=0.1, offline=True) == []  # its groups/dead is of those that take part


def test_a_spec_says_which_candidates_take_part() -> None:
    def sizes(**stage: Any) -> tuple[int, ...] | None:
        return settings_of(run_spec(grpo_stage(num_generations=8, **stage))).group_sizes

    assert sizes() is None
    assert sizes(keep_candidates=5) == (5,)
    assert sizes(keep_candidates={"start": 3, "end": 5, "steps": 640, "shape": "step"}) == (3, 5)
    assert sizes(keep_candidates={"start": 3, "end": 5, "steps": 640}) == (3, 4, 5)
