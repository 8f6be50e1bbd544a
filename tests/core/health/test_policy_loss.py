"""A policy loss that rises: what document 003's guide warns of, and when it says nothing."""

from __future__ import annotations

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.ratio import policy_loss

WOBBLE = (0.1, -0.1, 0.05, -0.05)  # adds up to 0 over four steps


def case(slope: float, *, steps: int = 40, **settings: float | bool) -> Case:
    rows: list[Row] = [{"step": i, "policy/loss": slope * i + WOBBLE[i % 4]} for i in range(1, steps + 1)]
    return Case(rows=rows, settings=Settings(**settings))  # type: ignore[arg-type]


def test_a_rise_is_a_weak_warning_with_the_guides_suggestions() -> None:
    # The guide goes from 5e-6 to 2e-6, from 1 to 0.5 and from 0.2 to 0.1.
    (found,) = policy_loss(case(0.02, learning_rate=5e-6, max_grad_norm=1.0, epsilon=0.2))
    assert (found.id, found.severity, found.confidence) == ("policy-loss", "warning", "weak")
    assert found.suggest == ("learning_rate=2e-06", "max_grad_norm=0.5", "epsilon=0.1")
    assert float(str(found.evidence["p"])) < 1e-3
    # The first 13 steps are 0.02 * 7 on average and the last 13 0.02 * 34, the wobble of one left over in each.
    assert abs(float(str(found.evidence["early"])) - 0.14) < 0.01
    assert abs(float(str(found.evidence["late"])) - 0.68) < 0.01


def test_what_falls_or_hardly_rises_is_let_be() -> None:
    assert policy_loss(case(-0.02)) == ()
    assert policy_loss(case(0.0)) == ()
    assert policy_loss(case(0.001)) == ()  # 0.04 in all, under the wobble's 0.08
    assert policy_loss(case(0.02, steps=19)) == ()


def test_at_a_ratio_of_one_it_says_nothing() -> None:
    (found,) = policy_loss(case(0.02, updates_per_rollout=1))
    assert (found.severity, found.confidence, found.suggest) == ("info", "certain", ())
    assert [ruled.id for ruled in found.rules_out] == ["policy-loss-rising"]
    (frozen,) = policy_loss(case(0.02, updates_per_rollout=1, old_is_reference=True))
    assert frozen.severity == "warning"
    measured = [{**row, "policy/ratio_max": 1.3} for row in case(0.02).rows]
    assert policy_loss(Case(rows=measured, settings=Settings(updates_per_rollout=1)))[0].severity == "warning"
