"""A gradient that reaches no weight."""

from __future__ import annotations

from core.health.case import Case
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.learning_rate import no_gradient


def case(steps: int = 20, **columns: float) -> Case:
    row: Row = {"update": 1, "learning_rate": 1e-6, "grad_norm": 0.0, "loss": 0.01, "kl": 0.0, **columns}
    return Case(rows=[{"step": step, **row} for step in range(1, steps + 1)])


def said(case: Case) -> str:
    found = no_gradient(case)
    return f"{found[0].severity} {found[0].confidence}" if found else ""


def test_when() -> None:
    assert said(case()) == "error certain"
    assert said(case(steps=9)) == ""
    assert said(case(grad_norm=1e-9)) == ""
    assert said(case(loss=0.0)) == ""  # zero-loss says that
    assert said(case(kl=1e-4)) == ""  # the weights move: the log has no norm
    rows = case().rows
    assert said(Case(rows=[{**row, "loss": 0.01 * (i < 9)} for i, row in enumerate(rows)])) == ""  # 9 of 20
    assert said(Case(rows=[{**rows[0], "grad_norm": 0.1}, *rows[1:]])) == ""


def test_without_a_kl_the_log_may_have_no_norm() -> None:
    bare = [{name: value for name, value in row.items() if name != "kl"} for row in case().rows]
    (found,) = no_gradient(Case(rows=bare))
    assert (found.severity, found.confidence) == ("warning", "moderate")
    assert "or the log has no norm" in found.summary


def test_a_larger_rate_is_no_help() -> None:
    ids = [one.id for one in examine(case(steps=40))]
    assert "no-gradient" in ids
    assert "learning-rate" not in ids  # a KL of 0 would be a rate that is too small, were there a gradient
