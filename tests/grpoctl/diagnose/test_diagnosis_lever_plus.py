"""Document 001's table, read from the CSV in docs/cases as a user reads it: the verdict, and who is not blamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.health.finding import Finding
from core.health.rules.advantage_size import impossible_advantage
from grpoctl.diagnose.diagnosis import diagnose
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source

CSV = Path(__file__).parents[3] / "docs" / "cases" / "lever-plus.csv"
COLUMNS = {"KL": "kl", "PPO Loss": "policy/loss", "Adv Std": "advantage/group_std", "Adv Max": "advantage/group_max"}
ONE_A_STEP = {**COLUMNS, "Adv Std": "advantage/std_all", "Adv Max": "advantage/max_abs"}
# What the document states; that its ranks break ties is in its formula, a double argsort.
STATED = {
    "num_generations": "5", "transform": "rank", "ranks_break_ties": "true", "learning_rate": "5e-6", "beta": "0.15",
    "epsilon": "0.2",
}  # fmt: skip
# Of its public code: 640 queries an epoch, the best 3 candidates by reward in the first and the best 5 after it.
KNOWN_SINCE = {"offline": "true", "old_is_reference": "true", "groups_per_row": "640", "group_sizes": "3,5"}


def findings(columns: dict[str, str] = COLUMNS, **settings: str) -> list[Finding]:
    asked = Source(name=str(CSV), path=None, columns=columns, settings=settings)
    return list(diagnose(open_source(asked)).findings)


def evidence(finding: Finding) -> dict[str, Any]:
    return dict(finding.evidence)


@pytest.mark.parametrize(("columns", "more"), [(COLUMNS, {}), (ONE_A_STEP, {"prompts_per_step": "1"})])
def test_the_verdict(columns: dict[str, str], more: dict[str, str]) -> None:
    """Four live groups of 640, with the sums that give 0.0062, 0.0072 and 0.0090, and what decides why."""
    first, ranks, *rest = findings(columns, **STATED, **KNOWN_SINCE, **more)
    assert (first.id, first.severity, first.confidence) == ("few-live-groups", "error", "certain")
    assert (evidence(first)["live"], evidence(first)["groups"], evidence(first)["rows"]) == (4, 640, 3)
    sums = " ".join(evidence(first)["arithmetic"])
    # One odd of three: 2 / sqrt(3); one odd of five: 4 / sqrt(5), two of five: sqrt(6 / 5).
    for part in ("4 / 640 = 0.00625", "(4 x 1.155) / 640 = 0.00722", "(2 x 1.789 + 2 x 1.095) / 640 = 0.00901"):
        assert part in sums
    assert evidence(first)["chance"] < 0.003
    assert {"rank-normalisation", "kl-share-of-loss", "small-learning-rate"} <= {one.id for one in first.rules_out}
    assert first.decider is not None
    assert "check --data" in first.decider.question
    assert (ranks.id, ranks.severity, ranks.confidence) == ("impossible-advantage", "error", "certain")
    assert evidence(ranks)["std_all"] == pytest.approx(0.0062333, abs=1e-7)
    assert evidence(ranks)["rank_std"] == pytest.approx(0.5**0.5)
    assert all(one.severity == "info" for one in rest)
    assert not any("implied_reward_std" in one.evidence for one in (first, ranks, *rest))


def test_what_the_document_alone_says_leaves_two_readings() -> None:
    (first, *_) = findings(**STATED)
    assert (first.id, first.severity, first.confidence) == ("impossible-advantage", "error", "certain")
    assert evidence(first)["implied_reward_std"] == pytest.approx(0.00062333, abs=1e-8)
    assert evidence(first)["implied_live_share"] < 0.01
    assert first.summary.index("groups are live") < first.summary.index("rewards of all groups")


@pytest.mark.parametrize("settings", [STATED, {**STATED, **KNOWN_SINCE}])
def test_who_is_not_blamed(settings: dict[str, str]) -> None:
    for one in findings(**settings):
        assert one.id not in ("rank-normalisation", "learning-rate", "kl-weight", "kl-share-of-loss")
        changed = json.dumps(one.suggest)
        assert "learning_rate" not in changed
        assert "beta" not in changed
        assert "transform" not in changed


def test_plan_5_would_log_what_was_logged_before() -> None:
    """Its outcome is public: an advantage std of 0.0062 after plan 5, and after plans 5 and 6."""
    asked = Source(name=str(CSV), path=None, columns=COLUMNS, settings=STATED)
    (finding,) = impossible_advantage(open_source(asked).case)
    assert finding.evidence["predicted_std_of_z_score"] == pytest.approx(0.0062, abs=5e-5)
    plan = {**STATED, "transform": "none", "scale_rewards": "group", "std_floor": "0.1"}
    (first, *_) = findings(**plan)
    assert (first.id, first.confidence) == ("small-advantage", "certain")
    assert evidence(first)["implied_reward_std"] == pytest.approx(0.00062333, abs=1e-8)
    (counted, *_) = findings(**plan, **KNOWN_SINCE)
    assert (counted.id, counted.confidence) == ("few-live-groups", "certain")


def test_the_number_of_groups_matters() -> None:
    """Three times as many groups: twelve live ones of 1,920 by the std, in too many ways to be sure."""
    (first, *_) = findings(**{**STATED, **KNOWN_SINCE, "groups_per_row": "1920"})
    assert first.id == "impossible-advantage"
