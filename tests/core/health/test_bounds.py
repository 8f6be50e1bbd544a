"""Numbers that no training computes in: no number for the rules, whatever a log's text says."""

from __future__ import annotations

from core.health.case import Case, Sample, bounded, huge
from core.health.examine import examine
from core.health.facts import facts
from core.health.finding import Row


def test_what_is_huge_is_recorded_and_no_number() -> None:
    rows: list[Row] = [{"step": 1e200, "loss": -1e100, "kl": 9e99, "entropy": None}]
    case = Case(rows=rows, samples=(Sample(step=1, reward=1e308, advantage=0.5),))
    assert huge(case) == 2
    assert bounded(case).rows == [{"step": 1e200, "loss": None, "kl": 9e99, "entropy": None}]
    assert bounded(case).samples == (Sample(step=1, reward=None, advantage=0.5),)


def test_a_case_without_is_the_very_same() -> None:
    case = Case(rows=[{"step": 1, "loss": 3e38, "kl": float("nan")}])
    assert bounded(case) is case


def test_every_rule_and_fact_bears_them() -> None:
    """Sums of squares of 1e155 overflow, and so does a sum of 1e308 and -1e308 as Python adds them."""
    for size in (1e155, 1e308):
        rows: list[Row] = [
            {
                "step": step,
                "update": 1,
                "completions/valid": 1.0,
                **dict.fromkeys(
                    ("reward/mean", "reward/std", "loss", "grad_norm", "kl", "entropy", "advantage/std", "eval/reward"),
                    size * (-1) ** step,
                ),
            }
            for step in range(1, 41)
        ]
        samples = tuple(Sample(step=step, group="a", reward=size, advantage=-size) for step in range(1, 41))
        ids = {one.id for one in examine(Case(rows=rows, samples=samples))}
        assert {"numerical", "lost-rewards"} <= ids
        assert "reward/first" not in facts(Case(rows=rows, samples=samples))
