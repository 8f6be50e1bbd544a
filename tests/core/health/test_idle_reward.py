"""A reward function that never pays while another does."""

from __future__ import annotations

from core.health.case import Case
from core.health.finding import Row
from core.health.rules.rewards import idle_reward


def rows(steps: int = 30, *, rise: float = 0.01, correct: float = 0.0) -> list[Row]:
    """rewards/format rises by `rise` a step, around it a zigzag of 0.02."""
    return [
        {"step": i, "rewards/format": 0.1 + rise * i + 0.02 * (-1) ** i, "rewards/correct": correct}
        for i in range(1, steps + 1)
    ]


def test_when() -> None:
    (found,) = idle_reward(Case(rows=rows()))
    assert (found.id, found.severity, found.confidence) == ("idle-reward", "info", "moderate")
    assert "rewards/correct is exactly 0 on all 30 steps while rewards/format rises" in found.summary
    assert idle_reward(Case(rows=rows(rise=0.0))) == ()
    assert idle_reward(Case(rows=rows(rise=-0.01))) == ()
    assert idle_reward(Case(rows=rows(correct=0.001))) == ()
    assert idle_reward(Case(rows=rows(19))) == ()
    once = rows()
    once[3] = {**once[3], "rewards/correct": 0.1}
    assert idle_reward(Case(rows=once)) == ()
