"""What a few sampled rewards say of a task: shares, dead groups, the K they call for. No model is loaded."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.config import RunSpec
from core.tasks.base import Outcome
from grpoctl.config import load
from grpoctl.dataset import Plan, dead_groups_by_size, reward_summary, sampling_findings, sampling_plan


def plan(k: int, above: float = 0.0) -> Plan:
    return Plan(
        stage="grpo", stages_before=(), prompts=2, num_generations=k, temperature=1.0, top_p=1.0, top_k=0,
        min_p=0.0, repetition_penalty=1.0, stop_strings=(), max_completion_length=8, positive_above=above,
    )  # fmt: skip


def outcomes(*rewards: float) -> list[Outcome]:
    return [Outcome(reward=r, expected=r, valid=r > 0, parts={"right": float(r == 1), "seen": r}) for r in rewards]


def spec(*overrides: str) -> RunSpec:
    return load("p31", profile="tiny", overrides=overrides).spec


def test_two_groups_on_paper() -> None:
    # Groups (1, 0) and (0, 0): one of two live, one of two with a positive sample, pass rate 1/4.
    found = reward_summary(outcomes(1.0, 0.0, 0.0, 0.0), plan(2))
    assert (found["dead"], found["missing"], found["valid"]) == (0.5, 0.0, 0.25)
    assert found["reward"] == {"mean": 0.25, "std": pytest.approx(math.sqrt(3) / 4), "group_std": 0.25}
    assert found["positive"]["share"] == 0.5
    assert found["all_positive"]["share"] == 0.0
    assert found["pass_rate"]["mean"] == 0.25
    assert found["parts"]["right"] == {"mean": 0.25, "positive": 0.5}


def test_missing_rewards_are_left_out() -> None:
    found = reward_summary(outcomes(1.0, math.nan, math.nan, math.nan), plan(2))
    assert (found["missing"], found["dead"]) == (0.75, 1.0)  # a group of one teaches nothing
    assert (found["positive"]["share"], found["reward"]["mean"]) == (1.0, 1.0)
    nothing = reward_summary(outcomes(math.nan, math.nan), plan(2))
    assert (nothing["reward"]["mean"], nothing["dead"], nothing["positive"]["share"]) == (None, None, None)
    assert [one.id for one in sampling_findings(nothing)] == ["no-rewards"]


def test_positive_is_as_much_as_the_stage_asks_for() -> None:
    above = sampling_plan(spec("positive_reward=0.5"), 4).positive_above
    assert reward_summary(outcomes(0.5, 0.4), plan(2, above))["pass_rate"]["mean"] == 0.5  # 0.5 is enough
    assert sampling_plan(spec(), 4).positive_above == 0.0


def test_what_is_sampled_is_what_the_first_sampling_stage_would() -> None:
    found = sampling_plan(spec("stages.grpo.temperature=0.7", "max_completion_length=9"), 10_000)
    assert (found.stage, found.num_generations, found.temperature, found.max_completion_length) == ("grpo", 8, 0.7, 9)
    assert found.prompts == 512  # no more than there are
    assert sampling_plan(load("g10", profile="small").spec, 4).stages_before == ("supervised",)


def test_needs_without_a_single_positive_sample() -> None:
    found = dead_groups_by_size([(0, 8)] * 16)
    # 1 - 0.05^(1/128) = 2.3 %: then 0.977^32 = 0.48 of the groups of 32 are all wrong, of 16 0.69
    assert (found["needs_is"], found["num_generations_needed"]) == ("at least", 32)
    assert dead_groups_by_size([])["num_generations_needed"] is None


def seen(**changes: Any) -> dict[str, Any]:
    fixed = {"missing": 0.0, "truncated": 0.0, "max_completion_length": 8, "dead": 0.1, "num_generations_needed": 4}
    return {
        **fixed,
        "reward": {"mean": 0.5},
        "positive": {"share": 0.9},
        "all_positive": {"share": 0.1},
        "positive_above": 0.0,
        "stages_before": [],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({}, []),
        ({"positive": {"share": 0.0}, "dead": 1.0}, ["nothing-positive"]),
        ({"positive": {"share": 0.0}, "dead": 1.0, "stages_before": ["supervised"]}, ["nothing-positive-yet"]),
        ({"positive": {"share": 1.0}, "all_positive": {"share": 1.0}, "dead": 1.0}, ["all-positive"]),
        ({"positive": {"share": 1.0}, "all_positive": {"share": 1.0}}, ["all-positive"]),
        ({"dead": 0.75}, ["dead-groups"]),
        ({"missing": 0.25, "truncated": 0.75}, ["missing-rewards", "truncated"]),
    ],
)
def test_findings(changes: dict[str, Any], ids: list[str]) -> None:
    assert [one.id for one in sampling_findings(seen(**changes))] == ids


def test_problems_are_too_easy_only_where_rewards_do_not_differ() -> None:
    """A part that every completion earns makes each of them positive: it says nothing of right answers."""
    all_of_them = {"positive": {"share": 1.0}, "all_positive": {"share": 1.0}}
    (hidden,) = sampling_findings(seen(**all_of_them, dead=0.1))
    (easy,) = sampling_findings(seen(**all_of_them, dead=0.9))
    assert (hidden.severity, "differ in 90% of the groups" in hidden.summary) == ("info", True)
    assert (easy.severity, "too easy" in easy.summary) == ("warning", True)
