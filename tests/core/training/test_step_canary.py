"""The canary of a step: when it is due, and that what the step is otherwise does not depend on it."""

from __future__ import annotations

from typing import Any

import pytest

from core.health.finding import Row
from core.policies.lm.causal_lm import CANARY_TOKENS
from tests.fakes import PricedTask, grpo_stage, ran, small_policy, trainer_of

TASK = PricedTask(lambda _, output: sum(map(ord, output)) % 7, answer="abc")


def rows(*, every: int | None, **stage: Any) -> list[Row]:
    """What a run records whose canary is due so often, or that has none."""
    policy = small_policy()
    if every is None:
        policy.canary = lambda example: None  # type: ignore[assignment,method-assign,return-value]
    else:
        policy.canary_every = every
    return list(ran(trainer_of(policy, TASK, grpo_stage(**stage))).rows)


@pytest.mark.parametrize("length", [CANARY_TOKENS // 2, 2 * CANARY_TOKENS])  # less than the canary's, and more
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_step_is_the_same_with_it_and_a_sound_sampler_agrees_on_it(length: int, temperature: float) -> None:
    stage = {"max_steps": 3, "max_completion_length": length, "temperature": temperature}
    with_it, without = rows(every=1, **stage), rows(every=None, **stage)
    for row, plain in zip(with_it, without, strict=True):
        assert {name: value for name, value in row.items() if not name.startswith("canary/")} == pytest.approx(
            dict(plain), rel=1e-6, abs=1e-5, nan_ok=True
        )  # a group whose prompt is shorter than the canary's is padded, and rounds otherwise
    gaps = [row["canary/logit_gap"] for row in with_it if row["step"]]
    assert len(gaps) == 3
    assert all(gap is not None and gap < 1e-5 for gap in gaps)


def test_it_is_due_on_the_first_two_steps_and_every_so_many() -> None:
    recorded = rows(every=4, max_steps=9, max_completion_length=8)
    assert [row["step"] for row in recorded if "canary/logit_gap" in row] == [1, 2, 4, 8]
