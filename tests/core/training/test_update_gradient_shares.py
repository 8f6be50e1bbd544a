"""Whose pull it is: each term's share of the gradient norm, measured without touching the update."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from core.policies.base import Rollout, Sampling, Scores
from core.randomness import RowKey
from core.training.update import LossParts, Update
from tests.fakes import (
    PricedTask,
    TabularPolicy,
    asked,
    batch_of,
    grpo_stage,
    ran,
    small_policy,
    trainer_of,
)

KEY = RowKey(0, 3, 1, 0, 0)
TASK = PricedTask(lambda prompt, output: float(output))


def rollout_of(policy: TabularPolicy, n: int = 4) -> Rollout:
    how = Sampling(temperature=1.0, max_completion_length=4)
    return policy.sample(TASK.examples("train")[:1], n, how, [RowKey(0, 0, 1, 0, row) for row in range(n)])


def test_shares_of_known_gradients() -> None:
    # Gradients (3, 4), (0, -12) and (8, 0): norms 5, 12 and 8. Of 25: 0.2, 0.48 and 0.32.
    policy = TabularPolicy(2)

    def loss(scores: Scores, rows: Sequence[int]) -> LossParts:
        terms = {
            "policy": policy.logits @ torch.tensor([3.0, 4.0]),
            "kl": policy.logits @ torch.tensor([0.0, -12.0]),
            "supervised": policy.logits @ torch.tensor([8.0, 0.0]),
        }
        return LossParts(total=torch.stack(list(terms.values())).sum(), terms=terms)

    metrics = Update(policy, grpo_stage()).apply(
        [batch_of(rollout_of(policy), loss)], learning_rate=0.1, key=KEY, shares=True
    )
    assert {name: value for name, value in metrics.items() if name.startswith("grad_share/")} == {
        "grad_share/policy": pytest.approx(0.2),
        "grad_share/kl": pytest.approx(0.48),
        "grad_share/supervised": pytest.approx(0.32),
    }
    assert metrics["grad_norm"] == pytest.approx((11**2 + 8**2) ** 0.5)  # of their sum (11, -8)


def test_a_terms_gradient_is_that_of_the_whole_batch_and_of_all_batches() -> None:
    # Rows pull `policy` by +1, -1, +1, -1 (in all 0) in micro-batches of one; `kl` by 1 each (in all 4), twice.
    policy = TabularPolicy(2)

    def loss(scores: Scores, rows: Sequence[int]) -> LossParts:
        terms = {"policy": policy.logits[0] * sum((-1) ** row for row in rows), "kl": policy.logits[1] * len(rows)}
        return LossParts(total=sum(terms.values(), torch.zeros(())), terms=terms)

    def other(scores: Scores, rows: Sequence[int]) -> LossParts:
        return LossParts(total=policy.logits[1] * 3.0, terms={"supervised": policy.logits[1] * 3.0})

    rollout = rollout_of(policy)
    batches = [batch_of(rollout, loss, 1), batch_of(rollout, loss, 3), batch_of(rollout, other)]
    metrics = Update(policy, grpo_stage()).apply(batches, learning_rate=0.1, key=KEY, shares=True)
    assert metrics["grad_share/policy"] == 0.0
    assert metrics["grad_share/kl"] == pytest.approx(8 / 11)
    assert metrics["grad_share/supervised"] == pytest.approx(3 / 11)


def test_where_no_term_pulls_there_are_no_shares() -> None:
    policy = TabularPolicy(2)

    def loss(scores: Scores, rows: Sequence[int]) -> LossParts:
        return LossParts(total=policy.logits.sum() * 0.0, terms={"policy": policy.logits.sum() * 0.0})

    metrics = Update(policy, grpo_stage()).apply(
        [batch_of(rollout_of(policy), loss)], learning_rate=0.1, key=KEY, shares=True
    )
    assert not [name for name in metrics if name.startswith("grad_share/")]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_measuring_does_not_change_a_bit(checkpointing: bool) -> None:
    def updated(eval_steps: int) -> tuple[dict[str, torch.Tensor], int]:
        policy = small_policy(lora_dropout=0.3, checkpointing=checkpointing)
        stage = grpo_stage(
            max_steps=3, beta=0.1, entropy_coef=0.01, supervised_weight=0.5, gradient_accumulation_steps=2
        )
        task = PricedTask(lambda prompt, output: float(len(output)), answer="abc")
        trainer = trainer_of(policy, task, stage, evaluation={"eval_steps": eval_steps, "num_generations_eval": 1})
        measured = sum("grad_share/policy" in row for row in ran(trainer).rows)
        return {**trainer.policy.state(), **trainer.update.state()}, measured

    seldom, often = updated(3), updated(1)
    assert (seldom[1], often[1]) == (1, 3)
    assert all(torch.equal(value, seldom[0][name]) for name, value in often[0].items())


def test_shares_are_measured_at_evaluations_and_on_the_first_update_of_a_step() -> None:
    stage = grpo_stage(max_steps=5, num_generations=16, beta=0.1, num_iterations=2, entropy_coef=0.01)
    requests = asked(trainer_of(TabularPolicy(), TASK, stage, evaluation={"eval_steps": 2}))
    wanted = [request.shares for request, _ in requests if request.__class__.__name__ == "Learn"]
    assert wanted == [False, False, True, False, False, False, True, False, True, False]  # steps 2, 4 and the last
    rows = [request.row for request, _ in requests if request.__class__.__name__ == "StepDone"]
    for row in rows:
        shares = [value for name, value in row.items() if name.startswith("grad_share/")]
        assert bool(shares) == ("eval/reward" in row and row["step"] > 0)
        if shares:
            assert len(shares) == 3
            assert sum(shares) == pytest.approx(1.0)
