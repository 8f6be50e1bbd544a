"""Clips that never clipped, an old policy that never moves, ratios that explode, and a policy loss that rises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.finding import Finding, Row
from core.health.rules.ratio import inert_live, policy_loss


def case(ratios: list[float], clipped: list[float] | None = None, settings: Settings | None = None) -> Case:
    clipped = clipped or [0.0] * len(ratios)
    rows: list[Row] = [
        {"step": i, "policy/ratio_max": ratio, "policy/clip_low": 0.0, "policy/clip_high": share}
        for i, (ratio, share) in enumerate(zip(ratios, clipped, strict=True), 1)
    ]
    return Case(rows=rows, settings=settings or Settings())


def said(case: Case) -> list[str]:
    return [f"{one.id} {one.severity} {one.confidence}" for one in inert_live(case)]


def test_a_clip_that_cannot_act() -> None:
    assert said(case([1.000003] * 10)) == ["inert-clip info certain"]
    assert said(case([1.1] * 10)) == ["inert-clip info strong"]  # it could, and never did
    assert said(case([1.1] * 10, settings=Settings(updates_per_rollout=1))) == ["inert-clip info certain"]
    # The old policy is not the sampler: ratios are off 1, and none of those with an advantage was clipped.
    assert said(case([1.1] * 10, settings=Settings(updates_per_rollout=1, old_is_reference=True, epsilon=0.2)))[0] == (
        "inert-clip info strong"
    )
    far = case([2.0] * 10, settings=Settings(updates_per_rollout=1, old_is_reference=True, epsilon=0.2))
    assert not any(text.startswith("inert-clip") for text in said(far))
    assert said(case([1.0] * 9)) == []
    assert said(case([1.0] * 10, [0.0] * 9 + [1e-4])) == []  # one token
    assert said(case([1.0] * 10, settings=Settings(surrogate="reinforce"))) == []  # has no clip


def test_a_log_without_ratios() -> None:
    # Document 003: a clip fraction of exactly 0, one update a batch.
    rows: list[Row] = [{"step": i, "policy/clip_high": 0.0} for i in range(1, 21)]
    (found,) = inert_live(Case(rows=rows, settings=Settings(epsilon=0.2, updates_per_rollout=1)))
    assert "by construction" in found.summary
    assert found.evidence == {"steps": 20, "clipped": 0.0, "epsilon": 0.2}
    assert found.decider is not None
    assert found.decider.overrides == ("num_iterations=2",)
    assert inert_live(Case(rows=[{"step": 1}])) == []


@pytest.mark.parametrize(("growing", "severity"), [(True, "warning"), (False, "info")])
def test_an_old_policy_that_is_the_reference(growing: bool, severity: str) -> None:
    ratios = [1.0 + (0.5 * i if growing else 0.01 * (i % 2)) for i in range(20)]
    found = inert_live(case(ratios, [0.1] * 20, Settings(old_is_reference=True, offline=True)))
    assert [(one.id, one.severity) for one in found] == [("frozen-old-policy", severity)]
    assert ("grows from 1 to 10.5" in found[0].summary) == growing


def test_ratios_that_explode() -> None:
    # 2 of 20 steps are a tenth; 1 in 25 is under 5 %.
    wild = [1.5] * 18 + [11.0, 40.0]
    (found,) = inert_live(case(wild, [0.01] * 20))
    assert (found.id, found.severity) == ("ratio-explosion", "warning")
    assert (found.evidence["beyond"], found.evidence["largest"], found.evidence["at_step"]) == (2, 40.0, 20)
    assert said(case([1.5] * 24 + [40.0], [0.01] * 25)) == []
    assert said(case([1.5] * 18 + [9.9, 9.9], [0.01] * 20)) == []
    assert said(case(wild, [0.01] * 20, Settings(updates_per_rollout=1))) == []  # the sampler's fault, said elsewhere


WOBBLE = (0.1, -0.1, 0.05, -0.05)  # adds up to 0 over four steps


def losses(slope: float, *, steps: int = 40, **settings: float | bool) -> Case:
    rows: list[Row] = [{"step": i, "policy/loss": slope * i + WOBBLE[i % 4]} for i in range(1, steps + 1)]
    return Case(rows=rows, settings=Settings(**settings))  # type: ignore[arg-type]


def test_a_rise_is_a_weak_warning_with_the_guides_suggestions() -> None:
    # The guide goes from 5e-6 to 2e-6, from 1 to 0.5 and from 0.2 to 0.1.
    (found,) = policy_loss(losses(0.02, learning_rate=5e-6, max_grad_norm=1.0, epsilon=0.2))
    assert (found.id, found.severity, found.confidence) == ("policy-loss", "warning", "weak")
    assert found.suggest == ("learning_rate=2e-06", "max_grad_norm=0.5", "epsilon=0.1")
    assert float(str(found.evidence["p"])) < 1e-3
    # The first 13 steps are 0.02 * 7 on average and the last 13 0.02 * 34, the wobble of one left over in each.
    assert abs(float(str(found.evidence["early"])) - 0.14) < 0.01
    assert abs(float(str(found.evidence["late"])) - 0.68) < 0.01


def test_what_falls_or_hardly_rises_is_let_be() -> None:
    assert policy_loss(losses(-0.02)) == ()
    assert policy_loss(losses(0.0)) == ()
    assert policy_loss(losses(0.001)) == ()  # 0.04 in all, under the wobble's 0.08
    assert policy_loss(losses(0.02, steps=19)) == ()


def test_at_a_ratio_of_one_it_says_nothing() -> None:
    (found,) = policy_loss(losses(0.02, updates_per_rollout=1))
    assert (found.severity, found.confidence, found.suggest) == ("info", "certain", ())
    assert [ruled.id for ruled in found.rules_out] == ["policy-loss-rising"]
    (frozen,) = policy_loss(losses(0.02, updates_per_rollout=1, old_is_reference=True))
    assert frozen.severity == "warning"
    measured = [{**row, "policy/ratio_max": 1.3} for row in losses(0.02).rows]
    assert policy_loss(Case(rows=measured, settings=Settings(updates_per_rollout=1)))[0].severity == "warning"


ONCE = Settings(updates_per_rollout=1, epsilon=0.2)


@pytest.mark.parametrize(
    ("settings", "confidence", "word"),
    [
        (replace(ONCE, old_policy="reference", old_is_reference=True), "strong", "another policy's"),
        (replace(ONCE, old_policy="start_of_epoch"), "moderate", "sampler is at fault"),  # the first epoch's weights
        (
            replace(ONCE, old_policy="start_of_epoch", update_dropout=0.5),
            "strong",
            "1: a dropout of 0.5 acts",
        ),
        (replace(ONCE, update_dropout=0.5), "strong", "dropout of 0.5"),
        (replace(ONCE, lora_dropout=0.05), "strong", "dropout of 0.05"),
        (ONCE, "moderate", "sampler is at fault"),
    ],
)
def test_a_ratio_that_is_off_at_the_first_update(settings: Settings, confidence: str, word: str) -> None:
    for ratios, clipped in (([1.4] * 3, [0.3] * 3), ([2.5] * 3, [0.0] * 3)):
        findings = [one for one in inert_live(case(ratios, clipped, settings)) if one.id == "first-step-clip"]
        assert [(one.severity, one.confidence) for one in findings] == [("warning", confidence)]
        assert word in findings[0].summary
        assert findings[0].evidence["ratio_max"] == ratios[0]


def test_an_experiment_that_leaves_a_dropout_in_place_decides_nothing() -> None:
    def first(settings: Settings) -> Finding:
        return next(one for one in inert_live(case([2.5] * 3, [0.0] * 3, settings)) if one.id == "first-step-clip")

    both = first(replace(ONCE, old_policy="reference", update_dropout=0.5))
    assert (both.decider, both.suggest) == (None, ("old_policy=sampler",))
    assert both.advice.endswith("the policy's own dropout has to be 0 for that, too")
    adapter = first(replace(ONCE, old_policy="reference", lora_dropout=0.05)).decider
    assert adapter is not None
    assert adapter.overrides == ("old_policy=sampler", "model.lora.lora_dropout=0")


@pytest.mark.parametrize(
    ("ratios", "clipped", "settings"),
    [
        ([1.0] * 3, [0.0] * 3, ONCE),
        ([1.0, 2.5, 2.5], [0.0, 0.3, 0.3], replace(ONCE, old_policy="reference")),  # later: what was learned since
        ([1.3] * 3, [0.001] * 3, ONCE),  # bfloat16's worst token
        ([1.3] * 3, [0.3] * 3, replace(ONCE, epsilon=3e-4)),  # a bound that clips rounding
        ([2.5] * 3, [0.3] * 3, replace(ONCE, updates_per_rollout=4)),
        ([2.5] * 3, [0.3] * 3, replace(ONCE, updates_per_rollout=None)),
        ([2.5] * 3, [0.3] * 3, replace(ONCE, surrogate="reinforce")),
    ],
)
def test_where_the_first_update_says_nothing(ratios: list[float], clipped: list[float], settings: Settings) -> None:
    assert "first-step-clip" not in {one.id for one in inert_live(case(ratios, clipped, settings))}


def test_a_sampler_at_fault_has_a_finding_of_its_own() -> None:
    off: list[Row] = [{"step": 1, "policy/ratio_max": 9.0, "rollout/logprob_gap": 3.0}]
    assert inert_live(Case(rows=off, settings=ONCE)) == []


def test_a_clip_that_never_acts_is_by_construction_only_where_the_old_policy_is_the_sampler() -> None:
    assert said(case([1.1] * 10, settings=ONCE)) == ["inert-clip info certain"]
    assert said(case([1.1] * 10, settings=replace(ONCE, old_policy="start_of_epoch"))) == ["inert-clip info strong"]


@pytest.mark.parametrize(
    ("shares", "epsilon", "found"),
    [
        ([0.54, 0.47, 0.47], 0.2, True),
        ([0.54, 0.47, 0.47], None, True),
        ([0.54, 0.47, 0.47], 0.0003, False),  # a sequence's ratio: so narrow a bound is meant to be passed
        ([0.54, 0.1, 0.47], 0.2, False),
        ([0.32, 0.35, 0.34], 0.2, False),
        ([0.54], 0.2, False),
    ],
)
def test_clips_of_half_the_tokens_on_every_row(shares: list[float], epsilon: float | None, found: bool) -> None:
    rows: list[Row] = [{"step": 100 * i, "policy/clip_share": share} for i, share in enumerate(shares, 1)]
    findings = inert_live(Case(rows=rows, settings=Settings(epsilon=epsilon), averaged_over=100))
    assert [(one.id, one.confidence) for one in findings] == [("first-step-clip", "weak")] * found
    frozen = Case(rows=rows, settings=Settings(epsilon=epsilon, old_is_reference=True))
    assert "first-step-clip" not in {one.id for one in inert_live(frozen)}  # it is known why
    whole = Settings(epsilon=epsilon, factor="sequence")
    assert all("of the sequences are" in one.summary for one in inert_live(Case(rows=rows, settings=whole)))


def test_a_share_of_both_sides_is_looked_at_where_a_log_has_no_other() -> None:
    """verl's pg_clipfrac; beside TRL's two sides it is not asked."""
    none: list[Row] = [{"step": i, "policy/clip_share": 0.0} for i in range(1, 11)]
    assert [one.id for one in inert_live(Case(rows=none))] == ["inert-clip"]
    assert inert_live(Case(rows=[{**row, "policy/clip_share": 0.01} for row in none])) == []
    assert inert_live(Case(rows=[{**row, "policy/clip_high": 0.01} for row in none])) == []


def test_a_policy_loss_below_zero_or_around_it_is_no_trouble() -> None:
    rising = [0.001 * step for step in range(1, 31)]
    for start, found in ((0.0, True), (-0.05, False), (-0.5, False)):
        rows: list[Row] = [{"step": step, "policy/loss": start + rise} for step, rise in enumerate(rising, 1)]
        assert bool(policy_loss(Case(rows=rows))) == found
    tiny: list[Row] = [{"step": step, "policy/loss": rise / 1000} for step, rise in enumerate(rising, 1)]
    assert policy_loss(Case(rows=tiny)) == ()
