"""P30's fault: after an update the sampler no longer draws from the policy; a clean scoring heals it."""

from __future__ import annotations

import pytest
import torch

from core.algorithms.masking import token_mean
from core.policies.base import Rollout, RowKey, Sampling
from core.policies.faulty import RolloutInTrainMode
from core.tasks.base import Example
from core.training.update import Update
from tests.fakes import batch_of, grpo_stage, loss_of, small_policy

PROMPTS = [Example(id="1", prompt="abc"), Example(id="2", prompt="hijklmn")]
HOW = Sampling(temperature=1.0, max_completion_length=12)
KEYS = [RowKey(0, 0, 1, 0, row) for row in range(8)]


def sampled(policy: RolloutInTrainMode) -> Rollout:
    return policy.sample(PROMPTS, 4, HOW, KEYS)


def gap_then_healed(policy: RolloutInTrainMode, rollout: Rollout) -> float:
    """Mean |recorded - clean|. The scoring switches to eval mode and leaves it so, as the seed's code did."""
    assert rollout.drawn_NT is not None
    with torch.no_grad():
        clean = policy.score(rollout, range(8), wants=frozenset(), weights="current").logprobs_NT
    return float(token_mean((rollout.drawn_NT - clean).abs(), rollout.mask_NT))


def update_without_effect(policy: RolloutInTrainMode) -> None:
    """An update with learning rate 0, as P30's first one: it moves no weight, and leaves the mode behind."""
    rollout, stage = sampled(policy), grpo_stage()
    assert rollout.drawn_NT is not None
    loss = loss_of(stage, mask_NT=rollout.mask_NT, old_NT=rollout.drawn_NT, advantages=torch.ones(8), reference_NT=None)
    Update(policy, stage).apply([batch_of(rollout, loss)], learning_rate=0.0, key=RowKey(0, 3, 1, 0, 0))


@pytest.fixture
def policy() -> RolloutInTrainMode:
    return RolloutInTrainMode(small_policy(lora_dropout=0.05))


def test_an_update_breaks_the_next_rollout_and_a_clean_scoring_heals_the_one_after(policy: RolloutInTrainMode) -> None:
    assert gap_then_healed(policy, sampled(policy)) < 1e-5
    weights = policy.state()
    for _ in range(2):
        update_without_effect(policy)
        assert gap_then_healed(policy, sampled(policy)) > 1.0
        assert gap_then_healed(policy, sampled(policy)) < 1e-5
    assert all(torch.equal(value, weights[name]) for name, value in policy.state().items())


def test_the_same_keys_break_in_the_same_way_and_leave_the_global_generator_alone(policy: RolloutInTrainMode) -> None:
    update_without_effect(policy)
    before = torch.get_rng_state()
    first, again = sampled(policy), sampled(policy)
    assert torch.equal(first.actions["ids"], again.actions["ids"])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_restored_policy_is_as_broken_as_the_one_that_was_saved(policy: RolloutInTrainMode) -> None:
    update_without_effect(policy)
    broken, other = sampled(policy), RolloutInTrainMode(small_policy(lora_dropout=0.05))
    other.load(policy.state())
    assert torch.equal(sampled(other).actions["ids"], broken.actions["ids"])
    gap_then_healed(policy, broken)
    other.load(policy.state())
    assert torch.equal(sampled(other).actions["ids"], sampled(policy).actions["ids"])
