"""A loss of 0 or of beta x kl beside gradients that are not 0, and one beside gradients that are."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.finding import Finding, Row
from core.health.rules.zero_loss import zero_loss


def rows(count: int, **columns: float) -> list[Row]:
    live = {"loss": 0.0, "grad_norm": 1.0, "groups/dead": 0.2}
    return [{"step": i, **live, **columns} for i in range(1, count + 1)]


def growing(*kls: float, beta: float, off: float = 0.0) -> list[Row]:
    """A loss of beta x kl, plus `off`."""
    return [
        {"step": i, "loss": beta * kl + off, "kl": kl, "grad_norm": 0.5, "reward/std": 0.3}
        for i, kl in enumerate(kls, 1)
    ]


def graded(table: list[Row], **settings: float) -> list[tuple[str, str]]:
    case = Case(rows=table, settings=Settings(**settings))  # type: ignore[arg-type]
    return [(one.severity, one.confidence) for one in zero_loss(case)]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (rows(30), [("info", "certain")]),
        (rows(30, loss=3e-8), [("info", "certain")]),  # float32's sum of advantages
        (rows(5), [("info", "strong")]),
        (rows(1), [("info", "moderate")]),
        (rows(5, loss=-0.01), []),
        (rows(30, grad_norm=0.0), []),  # no-gradient says that
        (rows(3, grad_norm=0.0, **{"groups/dead": 1.0}), [("info", "moderate")]),
        (rows(3, grad_norm=0.0, **{"groups/dead": 1.0}) + rows(9, grad_norm=0.0, **{"groups/dead": 0.5}), []),
        (rows(5, **{"groups/dead": 1.0}), []),  # a gradient of the KL alone: dead-groups
        (rows(20) + rows(21, grad_norm=0.0), []),  # most of the gradients are 0
    ],
)
def test_a_loss_of_0(table: list[Row], expected: list[tuple[str, str]]) -> None:
    assert graded(table) == expected


def test_without_a_norm_rewards_must_differ_or_nothing_tells() -> None:
    bare: list[Row] = [{"step": i, "loss": 0.0} for i in range(1, 31)]
    assert graded(bare) == [("info", "weak")]  # by construction, or nothing is learned
    assert graded(bare[:2]) == []
    assert graded([{**row, "reward/mean": 0.5} for row in bare]) == []
    assert graded([{**row, "policy/clip_share": 0.1} for row in bare]) == []
    assert graded([{**row, "grad_norm": None} for row in bare]) == []  # it was logged, and is no number
    assert graded([{**row, "learning_rate": 1e-6} for row in bare]) == [("info", "weak")]
    assert graded([{**row, "loss": 1e-3} for row in bare]) == []
    assert graded([{**row, "reward/std": 0.4} for row in bare]) == [("info", "moderate")]
    assert graded([{**row, "reward/std": 0.0} for row in bare]) == []


def test_the_policy_loss_of_a_log_that_has_no_other() -> None:
    table: list[Row] = [{"step": i, "policy/loss": 1e-9, "grad_norm": 0.2} for i in range(1, 6)]
    assert graded(table) == [("info", "strong")]
    assert zero_loss(Case(rows=table, stages={"rl": "grpo"})) == ()  # ours: every term has a column


def found(table: list[Row], **settings: float) -> Finding:
    (one,) = zero_loss(Case(rows=table, settings=Settings(**settings)))  # type: ignore[arg-type]
    return one


def test_beta_times_the_kl() -> None:
    """0.04 x 0.01, 0.02, 0.5: the loss to the last digit."""
    table = growing(0.01, 0.02, 0.5, beta=0.04)
    known = found(table, beta=0.04)
    assert (known.severity, known.confidence, known.evidence["beta"]) == ("info", "certain", 0.04)
    fitted = found(table)  # the same ratio on every row is the beta
    assert (fitted.confidence, fitted.evidence["beta"]) == ("strong", pytest.approx(0.04))
    assert found(table[:1], beta=0.04).evidence["beta_known"] == 1.0
    assert graded(table[:1]) == []  # one row shows no ratio
    assert graded(table, beta=0.1) == []
    assert graded(growing(0.01, 0.02, 0.5, beta=0.04, off=0.01), beta=0.04) == []
    assert graded(growing(0.01, 0.02, 0.5, beta=0.04, off=0.01)) == []
    assert graded(growing(0.5, 0.51, 0.52, beta=0.04)) == []  # a KL that stays shows no ratio
    still: list[Row] = [{**row, "grad_norm": 0.0} for row in table]
    assert graded(still, beta=0.04) == []


def test_another_loss_is_0_and_the_policys_is_not() -> None:
    assert graded([{**row, "policy/loss": 0.02} for row in rows(20, grad_norm=0.2)]) == []
    assert graded([{**row, "policy/loss": 1e-9} for row in rows(20, grad_norm=0.2)]) == [("info", "certain")]


def test_it_does_not_hide_that_nothing_is_learned() -> None:
    case = Case(rows=rows(30, grad_norm=0.0, **{"groups/dead": 1.0, "reward/mean": 0.0, "reward/std": 0.0}))
    ids = {one.id: one for one in examine(case)}
    assert "every group having equal rewards" in ids["zero-loss"].summary
    assert (ids["zero-loss"].severity, ids["dead-run"].severity) == ("info", "error")
    unknown = Case(rows=rows(30, grad_norm=0.0))  # whether rewards differ nobody knows: a weight without a gradient?
    assert ("no-gradient", "warning") in {(one.id, one.severity) for one in examine(unknown)}


@pytest.mark.parametrize(("losses", "expected"), [((0.0, 0.0001, 0.0001), 1), ((0.0001, 0.0, -0.0001), 0)])
def test_a_kl_term_in_four_decimals(losses: tuple[float, ...], expected: int) -> None:
    """0.04 x (1e-5, 0.0017, 0.0023) rounds to 0, 0.0001 and 0.0001; a loss that goes the other way is another term."""
    kls = (1e-5, 0.0017, 0.0023)
    table: list[Row] = [
        {"step": i, "loss": loss, "kl": kl, "reward/std": 0.3}
        for i, (loss, kl) in enumerate(zip(losses, kls, strict=True))
    ]
    assert len(graded(table[1:] and [{**row, "step": row["step"] + 1} for row in table])) == expected
