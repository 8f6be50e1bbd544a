"""A reward that rises while validity falls."""

from __future__ import annotations

import pytest

from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.rules.validation import reward_hacking


def case(reward: float, valid: float, *, steps: int = 40, **more: float) -> Case:
    """Lines with these slopes per step, around which steps wobble by 0.05."""
    rows: list[Row] = []
    for step in range(1, steps + 1):
        wobble = 0.05 if step % 2 else -0.05
        row: Row = {"step": step, "reward/mean": 0.4 + reward * step + wobble}
        rows.append({**row, "completions/valid": 0.9 + valid * step + wobble, **more})
    return Case(rows=rows)


@pytest.mark.parametrize(
    ("reward", "valid", "found"),
    [
        (0.005, -0.01, True),
        (-0.005, -0.01, False),  # both fall: a policy that gets worse
        (0.005, 0.001, False),
        (0.005, -0.002, False),  # 0.054 lost between the first and the last third: under 0.1
        (0.0, -0.01, False),
    ],
)
def test_both_trends_are_needed(reward: float, valid: float, found: bool) -> None:
    assert bool(reward_hacking(case(reward, valid))) == found


def test_what_is_said() -> None:
    (found,) = reward_hacking(case(0.005, -0.01))
    assert (found.id, found.severity) == ("reward-hacking", "warning")
    # Thirds of 13 steps: 0.9 - 0.01 * 7 and 0.9 - 0.01 * 34, the wobble of one step left over in each.
    assert found.evidence["valid_first"] == pytest.approx(0.83, abs=0.005)
    assert found.evidence["valid_last"] == pytest.approx(0.56, abs=0.005)
    assert reward_hacking(case(0.005, -0.01, steps=19)) == ()
    assert reward_hacking(case(0.005, -0.01, **{"rollout/logprob_gap": 3.0})) == ()


def test_two_stages_are_not_one_trend() -> None:
    # Reward 0.3 and 95 % valid, then 0.8 and 75 %: other prompts, and no trend inside a stage.
    rows: list[Row] = []
    for step in range(1, 81):
        later, wobble = step > 40, 0.05 if step % 2 else -0.05
        row: Row = {"step": step, "stage": later, "reward/mean": (0.8 if later else 0.3) + wobble}
        rows.append({**row, "completions/valid": (0.75 if later else 0.95) + wobble})
    assert reward_hacking(Case(rows=rows, settings=Settings(stage=1))) == ()
    assert reward_hacking(Case(rows=rows))  # taken for one
