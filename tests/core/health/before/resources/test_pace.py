"""Seconds and disk, on paper: the run of paper.py."""

from __future__ import annotations

import pytest

from core.health.before.resources.memory import Tokens
from core.health.before.resources.pace import BACKWARD, CALL, LAYER, Speed, evaluation_seconds, evaluations, paces
from tests.core.health.before.resources.paper import PAPER, run

TOKENS = Tokens(prompt=3, answer=4)
SLOW = Speed(operations=1.0, bytes=1e30)  # so that seconds are operations
ONE_CALL = CALL + 2 * LAYER


@pytest.mark.parametrize(
    ("grpo", "model", "learn"),
    [
        # 4 rows of 8 tokens through 960 weights, 5 of each through the head's 800; forward 2 and backward 2 of each
        ({}, {}, 4 * (960 * 32 + 800 * 20)),
        ({}, {"lora": None}, 6 * (960 * 32 + 800 * 20)),
        ({}, {"gradient_checkpointing": True}, 6 * (960 * 32 + 800 * 20)),
        ({"num_iterations": 3}, {}, 3 * 4 * (960 * 32 + 800 * 20)),
        ({"gradient_accumulation_steps": 4}, {}, 4 * (960 * 32 + 800 * 20)),  # the same work in smaller parts
    ],
)
def test_learning_on_paper(grpo: dict[str, int], model: dict[str, object], learn: int) -> None:
    (found,) = paces(run(grpo=grpo, model=model), PAPER, TOKENS, SLOW)
    calls = BACKWARD * grpo.get("gradient_accumulation_steps", 1) * grpo.get("num_iterations", 1) * ONE_CALL
    assert found.seconds["learn"] == pytest.approx(learn + calls, abs=1e-6)
    assert (found.least, found.most) == (10, 10)


def test_sampling_reads_all_weights_for_each_token() -> None:
    (found,) = paces(run(), PAPER, TOKENS, Speed(operations=1e30, bytes=1.0))
    assert found.seconds["sample"] == pytest.approx(5 * 10_400, rel=1e-4)
    (found,) = paces(run(), PAPER, TOKENS, SLOW)
    # prompts once: 2 x 3 tokens through the blocks; then 4 x 5 tokens through everything
    assert found.seconds["sample"] == pytest.approx(2 * (960 * 6 + 1760 * 20), abs=0.1)


def test_a_reference_is_scored_for_all_rows_and_integrity_for_one_group() -> None:
    whole = 2 * (960 * 32 + 800 * 20)
    (plain,), (with_kl,) = (paces(run(grpo={"beta": beta}), PAPER, TOKENS, SLOW) for beta in (0.0, 0.1))
    assert plain.seconds["score"] == pytest.approx(whole / 2, abs=0.1)
    assert with_kl.seconds["score"] == pytest.approx(whole * 1.5, abs=0.1)


def test_evaluations() -> None:
    # 10 steps, one every 5: before the first, after 5, after 10; of 3 prompts x 2
    assert evaluations(run()) == 3
    assert evaluations(run(grpo={"max_steps": 12})) == 4  # and after the last step
    assert evaluation_seconds(run(), PAPER, TOKENS, SLOW) == pytest.approx(2 * (960 * 9 + 1760 * 30), abs=0.1)
