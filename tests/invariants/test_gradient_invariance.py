"""The gradient of a batch does not depend on how it is cut, in what order it stands, or how wide it is padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from core.config import GrpoStage
from core.config.methods import METHODS
from core.policies.base import Rollout, Sampling, Scores, Weights
from core.policies.lm.causal_lm import CausalLMPolicy
from core.randomness import RowKey
from core.tasks.text import text_example
from core.training.requests import Learn, Score
from core.training.update import Update
from tests.fakes import PricedTask, batch_of, grpo_stage, loss_of, ran, small_policy, trainer_of

PROMPTS = [text_example(id=text, prompt=text) for text in ("abc", "hijklmn", "z")]
ADVANTAGES = torch.tensor([1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.9, 0.3, -0.2, -1.0], dtype=torch.float64)
N = 12
ROUNDING = 3e-6  # the whole batch's own gradient is 1.2e-6 from its float64 value
REDUCTIONS_AND_BETAS = [("sequence_mean", 0.0), ("sequence_mean", 0.1), ("token_mean", 0.0), ("token_mean", 0.1)]


@cache
def policy() -> CausalLMPolicy:
    """A policy that has moved away from its reference, so that the KL term has a gradient."""
    policy = small_policy()
    policy.end_ids = torch.arange(1, 10)  # any of nine tokens ends a row: lengths differ
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.mul_(1.02)
    return policy


@cache
def sampled() -> Rollout:
    """12 rows of different lengths, some ended and some cut off."""
    how = Sampling(temperature=0.8, max_completion_length=12)
    rollout = policy().sample(PROMPTS, 4, how, [RowKey(0, 0, 1, 0, row) for row in range(N)])
    assert len(set(rollout.mask_NT.sum(-1).tolist())) > 3
    return rollout


def rearranged(rollout: Rollout, rows: Sequence[int]) -> Rollout:
    """The rollout with its rows in this order."""
    index = list(rows)
    assert rollout.drawn_NT is not None
    return replace(
        rollout,
        prompt_N=rollout.prompt_N[index],
        actions={name: value[index] for name, value in rollout.actions.items()},
        mask_NT=rollout.mask_NT[index],
        drawn_NT=rollout.drawn_NT[index],
        outputs=[rollout.outputs[row] for row in rows],
        truncated_N=rollout.truncated_N[index],
    )


def widened(rollout: Rollout) -> Rollout:
    """The rollout padded further: 3 columns to the left of the prompts, 5 to the right of the completions."""
    actions = rollout.actions
    assert rollout.drawn_NT is not None
    return replace(
        rollout,
        actions={
            "prompt_ids": pad(actions["prompt_ids"], (3, 0)),
            "prompt_mask": pad(actions["prompt_mask"], (3, 0)),
            "ids": pad(actions["ids"], (0, 5), value=17),
        },
        mask_NT=pad(rollout.mask_NT, (0, 5)),
        drawn_NT=pad(rollout.drawn_NT, (0, 5)),
    )


def gradient(rollout: Rollout, stage: GrpoStage, advantages_N: Tensor = ADVANTAGES) -> Tensor:
    """The gradient an update applies, unclipped: ten times AdamW's first moment after its first step."""
    learner = policy()
    weights = learner.state()
    reference = Score(policy=learner, rollout=rollout, rows=range(N), weights="reference").run().logprobs_NT
    assert rollout.drawn_NT is not None
    loss = loss_of(
        stage,
        mask_NT=rollout.mask_NT,
        # Old log-probs are not quite the new ones: ratios between 0.74 and 1.35, some of them clipped.
        old_NT=rollout.drawn_NT + 0.3 * torch.sin(rollout.actions["ids"].float()),
        advantages=advantages_N,
        reference_NT=reference if stage.beta.ever else None,
    )
    update = Update(learner, stage)
    micro_rows = -(-N // stage.gradient_accumulation_steps)
    key = RowKey(0, 3, 1, 0, 0)
    Learn(update=update, batches=[batch_of(rollout, loss, micro_rows)], learning_rate=0.0, key=key).run()
    learner.load(weights)
    return applied(update)


def applied(update: Update) -> Tensor:
    """The gradient of an optimiser's first step: ten times AdamW's first moment."""
    moments = [value.flatten() for name, value in sorted(update.state().items()) if name.endswith("exp_avg")]
    return 10 * torch.cat(moments)


def stage_of(reduction: str, beta: float, **changes: object) -> GrpoStage:
    return grpo_stage(reduction=reduction, beta=beta, max_grad_norm=1e9, **changes)


@cache
def expected(reduction: str, beta: float) -> Tensor:
    """The gradient of the batch as it was drawn, in one piece."""
    return gradient(sampled(), stage_of(reduction, beta))


def distance(got: Tensor, reduction: str, beta: float) -> float:
    """Relative to the gradient's own size."""
    whole = expected(reduction, beta)
    return float((got - whole).norm() / whole.norm())


def test_the_four_settings_are_four_gradients() -> None:
    # Otherwise the tests below could not tell a wrong denominator or a lost penalty.
    first = expected(*REDUCTIONS_AND_BETAS[0])
    for setting in REDUCTIONS_AND_BETAS[1:]:
        assert distance(first, *setting) > 0.02


@pytest.mark.parametrize(("reduction", "beta"), REDUCTIONS_AND_BETAS)
@pytest.mark.parametrize("accumulation", [2, 3, 8])
def test_micro_batches(reduction: str, beta: float, accumulation: int) -> None:
    stage = stage_of(reduction, beta, gradient_accumulation_steps=accumulation)
    assert distance(gradient(sampled(), stage), reduction, beta) < ROUNDING


ORDERS = {
    "groups": [8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7],
    "rows": [3, 1, 0, 2, 5, 4, 7, 6, 11, 8, 10, 9],
    "all": [7, 2, 11, 4, 0, 9, 5, 1, 10, 3, 8, 6],
}


@pytest.mark.parametrize(("reduction", "beta"), REDUCTIONS_AND_BETAS)
@pytest.mark.parametrize("order", ORDERS)
def test_order(reduction: str, beta: float, order: str) -> None:
    rows = ORDERS[order]
    stage = stage_of(reduction, beta, gradient_accumulation_steps=3)
    assert distance(gradient(rearranged(sampled(), rows), stage, ADVANTAGES[rows]), reduction, beta) < ROUNDING


@pytest.mark.parametrize(("reduction", "beta"), REDUCTIONS_AND_BETAS)
def test_padding(reduction: str, beta: float) -> None:
    # A wider attention sums its (zero) weights in another order: 8e-7 of rounding.
    assert distance(gradient(widened(sampled()), stage_of(reduction, beta)), reduction, beta) < 5e-6


class Prepared:
    """A policy whose every rollout is this one: a whole step, rewards to update, on rows that stand as they are put."""

    def __init__(self, rollout: Rollout) -> None:
        assert rollout.drawn_NT is not None
        # The sampler was not quite the policy: ratios between 0.74 and 1.35, some of them clipped.
        odd_NT = rollout.drawn_NT + 0.3 * torch.sin(rollout.actions["ids"].float())
        self._rollout = replace(rollout, drawn_NT=odd_NT)

    def sample(self, *_: object) -> Rollout:
        return self._rollout

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        return policy().score(rollout, rows, wants=wants, weights=weights)

    def __getattr__(self, name: str) -> Any:
        return getattr(policy(), name)


# What a text earns depends on all of it, and every group has a signal.
PRICED = PricedTask(lambda prompt, output: sum(map(ord, output)) % 7 / 6, prompts=3)


def step_gradient(rollout: Rollout, method: str, **changes: object) -> Tensor:
    """The gradient of a method's whole step, with a KL and an entropy bonus."""
    one_step = {"max_steps": 1, "prompts_per_step": 3, "max_completion_length": 12, "temperature": 0.8}
    terms = {"method": method, "beta": 0.1, "entropy_coef": 0.05, "max_grad_norm": 1e9, "learning_rate": 1e-9}
    stage = grpo_stage(**one_step | terms | changes)
    weights = policy().state()
    trainer = trainer_of(Prepared(rollout), PRICED, stage)
    recorder = ran(trainer)
    policy().load(weights)
    assert recorder.column("update") == [1]
    assert recorder.column("groups/dead") == [0.0]
    return applied(trainer.update)


@cache
def whole_step(method: str) -> Tensor:
    """The gradient of the rows as they were drawn, in one piece."""
    return step_gradient(numbered(), method)


@cache
def numbered() -> Rollout:
    """The drawn rows, under prompts that the task can price."""
    return replace(sampled(), prompts=PRICED.examples("train"))


def apart(got: Tensor, method: str) -> float:
    whole = whole_step(method)
    return float((got - whole).norm() / whole.norm())


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_step_in_micro_batches(method: str) -> None:
    assert apart(step_gradient(numbered(), method, gradient_accumulation_steps=5), method) < 2e-6


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_step_in_another_order(method: str) -> None:
    # Groups change places, and the rows inside each: what a step draws is whole groups, so they stay together.
    rows = [row for group in (2, 0, 1) for row in ORDERS["rows"][4 * group : 4 * group + 4]]
    assert apart(step_gradient(rearranged(numbered(), rows), method), method) < 2e-6


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_step_with_more_padding(method: str) -> None:
    assert apart(step_gradient(widened(numbered()), method), method) < 5e-6
