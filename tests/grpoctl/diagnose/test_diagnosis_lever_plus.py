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
COLUMNS = {"KL": "kl", "PPO Loss": "policy/loss", "Adv Std": "advantage/std_all", "Adv Max": "advantage/max"}
# What the document states; that its ranks break ties is in its formula, a double argsort.
STATED = {
    "num_generations": "5", "transform": "rank", "ranks_break_ties": "true", "learning_rate": "5e-6", "beta": "0.15",
    "epsilon": "0.2",
}  # fmt: skip
KNOWN_SINCE = {"offline": "true", "old_is_reference": "true"}


def findings(**settings: str) -> list[Finding]:
    asked = Source(name=str(CSV), path=None, columns=COLUMNS, settings=settings)
    return list(diagnose(open_source(asked)).findings)


def evidence(finding: Finding) -> dict[str, Any]:
    return dict(finding.evidence)


@pytest.mark.parametrize("settings", [STATED, {**STATED, **KNOWN_SINCE}])
def test_the_verdict(settings: dict[str, str]) -> None:
    first, *rest = findings(**settings)
    assert (first.id, first.severity, first.confidence) == ("impossible-advantage", "error", "certain")
    assert evidence(first)["std_all"] == pytest.approx(0.0062333, abs=1e-7)
    assert evidence(first)["rank_std"] == pytest.approx(0.5**0.5)
    assert evidence(first)["implied_reward_std"] == pytest.approx(0.00062333, abs=1e-8)
    assert evidence(first)["implied_live_share"] < 0.01
    assert {"rank-normalisation", "kl-share-of-loss", "small-learning-rate"} <= {one.id for one in first.rules_out}
    assert all(one.severity == "info" for one in rest)


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
