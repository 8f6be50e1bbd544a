"""Rows that pull at nothing are not run, and nobody can tell from the gradient or from what is recorded."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from core.algorithms.names import SurrogateKind
from core.policies.savings import Savings
from core.tasks.base import Outcome
from core.training.trainer import drive
from tests.fakes import PricedTask, Recorder, grpo_stage, loss_of, small_policy, trainer_of

COUNTS = ("policy/tokens", "policy/tokens_drawn", "policy/ratio_max")  # of the rows that are learned from


def learned(savings: Savings, **stage: Any) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Rows recorded and AdamW's moments after three steps; half of the prompts earn the same whatever is said."""
    task = PricedTask(lambda number, output: 1.0 if number % 2 else float("b" in output), prompts=4, answer="bdf")
    stages = grpo_stage(max_steps=3, learning_rate=1e-5, num_generations=4, **stage)
    policy, recorder = small_policy(lora_dropout=0.0), Recorder()
    trainer = trainer_of(policy, task, stages)
    trainer.savings = savings
    drive(trainer.steps(), recorder)
    return [dict(row) for row in recorder.rows], trainer.update.state()


@pytest.mark.parametrize("kind", get_args(SurrogateKind))
def test_the_gradient_and_the_metrics_are_the_same(kind: str) -> None:
    stage = {"surrogate": kind, "num_iterations": 2, "reduction": "sequence_mean"}
    rows, moments = learned(Savings(), **stage)
    plain_rows, plain = learned(Savings().without("pulling_rows"), **stage)
    counts = [[row.get("policy/tokens", 0) for row in one] for one in (rows, plain_rows)]
    assert sum(less < all_of_them for less, all_of_them in zip(*counts, strict=True)) >= 2
    for row, expected in zip(rows, plain_rows, strict=True):
        assert row.get("policy/tokens") == row.get("policy/tokens_drawn")  # else the mask would seem to be off
        same = {name: value for name, value in row.items() if name not in COUNTS}
        assert same == pytest.approx({name: expected[name] for name in same}, rel=1e-4, abs=1e-5, nan_ok=True)
        assert set(row) == set(expected)
    for name, value in plain.items():
        torch.testing.assert_close(moments[name], value, rtol=0, atol=1e-4 * float(value.abs().max()), msg=name)


ADVANTAGES = torch.tensor([0.0, 1.0, 0.0, -2.0])
MASK = torch.tensor([[True, True], [True, False], [True, True], [False, False]])


def pulling(rows: list[int], advantages: Tensor = ADVANTAGES, **fields: Any) -> list[int]:
    plain: dict[str, Any] = {"mask_NT": MASK, "old_NT": torch.zeros(4, 2), "advantages": advantages}
    return loss_of(grpo_stage(), **{**plain, **fields}).rows_with_gradient(rows)


def test_which_rows_pull() -> None:
    assert pulling([0, 1, 2, 3]) == [1]  # row 3 has an advantage, and no token that may be learned from
    assert pulling([0, 2, 3]) == [0]  # none: one is run all the same, or the optimiser's momentum would stand still
    assert pulling([]) == []
    by_token = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]])  # row 1: only where nothing was drawn
    assert pulling([0, 1, 2, 3], by_token) == [0]


def test_every_row_counts_where_more_than_the_advantage_is_learned_from() -> None:
    assert pulling([0, 1, 2], reference_NT=torch.zeros(4, 2)) == [0, 1, 2]
    assert pulling([0, 1, 2], entropy_coef=0.1) == [0, 1, 2]


def test_momentum_moves_the_weights_where_no_row_pulls() -> None:
    # Step 1 gives the optimiser a moment; on step 2 every reward is equal, and the stage does not skip such a step.
    def weights(savings: Savings) -> dict[str, Tensor]:
        task = Fading(lambda number, output: float("b" in output), prompts=4)
        policy = small_policy(lora_dropout=0.0)
        trainer = trainer_of(policy, task, grpo_stage(max_steps=2, learning_rate=0.01, skip_without_signal=False))
        trainer.savings = savings
        drive(trainer.steps(), Recorder())
        return dict(policy.state())

    quick, plain = weights(Savings()), weights(Savings().without("pulling_rows"))
    for name, value in plain.items():
        torch.testing.assert_close(quick[name], value, rtol=1e-4, atol=1e-6, msg=name)


class Fading(PricedTask):
    """Pays for the first training batch only; what is asked at the start and at the end are evaluations."""

    asked = 0

    def score(self, examples: Any, outputs: Any, ids: Any = ()) -> list[Outcome]:
        found = super().score(examples, outputs, ids)
        if examples[0].id.startswith("train"):
            self.asked += 1
        return found if self.asked < 2 else [Outcome(reward=0.0, expected=0.0, valid=True) for _ in found]
