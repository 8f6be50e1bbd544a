"""P30's fault: after an update the sampler draws from another policy; a clean scoring heals it. And the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from core.algorithms.reductions import token_mean
from core.faults import DropoutInScoring, MissingEos, RolloutInTrainMode, StalePrefix, StaleSamplerWeights, WrongAdapter
from core.policies.base import Policy, Rollout, Sampling
from core.randomness import RowKey
from core.tasks.text import text_example
from core.training.update import Update
from tests.fakes import batch_of, grpo_stage, loss_of, small_policy

PROMPTS = [text_example(id="1", prompt="abc"), text_example(id="2", prompt="hijklmn")]
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


def scored(policy: Policy, rollout: Rollout) -> Tensor:
    """Clean log-probs of all rows."""
    with torch.no_grad():
        return policy.score(rollout, range(len(rollout)), wants=frozenset(), weights="current").logprobs_NT


def gap(policy: Policy, rollout: Rollout) -> float:
    """Mean |recorded - clean|."""
    assert rollout.drawn_NT is not None
    return float(token_mean((rollout.drawn_NT - scored(policy, rollout)).abs(), rollout.mask_NT))


def moved(policy: Policy) -> None:
    """Every trained weight a little further."""
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.add_(0.05)


def test_a_stale_sampler_draws_from_the_first_weights_and_leaves_the_new_ones_in_place() -> None:
    policy, sound = StaleSamplerWeights(small_policy()), small_policy()
    first = policy.sample(PROMPTS, 4, HOW, KEYS)
    assert gap(policy, first) < 1e-5
    moved(policy)
    now = policy.trainable()
    wanted = {name: value.detach().clone() for name, value in now.items()}
    again = policy.sample(PROMPTS, 4, HOW, KEYS)
    assert torch.equal(again.actions["ids"], first.actions["ids"])
    assert gap(policy, again) > 1e-2
    assert all(torch.equal(now[name], value) for name, value in wanted.items())
    moved(sound)
    assert gap(sound, sound.sample(PROMPTS, 4, HOW, KEYS)) < 1e-5


def test_a_restored_stale_sampler_still_has_its_old_weights() -> None:
    policy, other = StaleSamplerWeights(small_policy()), StaleSamplerWeights(small_policy(seed=1))
    moved(policy)
    drawn = policy.sample(PROMPTS, 4, HOW, KEYS)
    other.load(policy.state())
    assert torch.equal(other.sample(PROMPTS, 4, HOW, KEYS).actions["ids"], drawn.actions["ids"])
    assert torch.equal(scored(other, drawn), scored(policy, drawn))


def test_weights_without_a_samplers_are_where_it_starts() -> None:
    """Those that a run starts from (`init_from`)."""
    policy, source = StaleSamplerWeights(small_policy(seed=1)), small_policy()
    policy.load(source.state())
    assert gap(policy, policy.sample(PROMPTS, 4, HOW, KEYS)) < 1e-5


def canary_gap(policy: Policy) -> float:
    """Mean |sampler - trainer| on the first prompt's own tokens."""
    fixed = policy.canary(PROMPTS[0])
    assert fixed is not None
    rollout = policy.sample(PROMPTS, 4, replace(HOW, canary=True), KEYS)
    assert rollout.canary_T is not None
    return float((rollout.canary_T - scored(policy, fixed)[0]).abs().mean())


@pytest.mark.parametrize("lora", [None, 0.0])
def test_a_sound_sampler_and_the_trainer_say_the_same_of_the_canary(lora: float | None) -> None:
    policy = small_policy(lora_dropout=lora)
    assert canary_gap(policy) < 1e-5
    moved(policy)
    assert canary_gap(policy) < 1e-5
    assert policy.sample(PROMPTS, 4, HOW, KEYS).canary_T is None  # nobody asked
    later = [key._replace(row=key.row + 8) for key in KEYS]
    assert policy.sample(PROMPTS, 4, replace(HOW, canary=True), later).canary_T is None  # another piece of the step


def test_the_canary_sees_old_weights() -> None:
    policy = StaleSamplerWeights(small_policy())
    assert canary_gap(policy) < 1e-5
    moved(policy)
    assert canary_gap(policy) > 1e-2


def test_an_old_prefix_is_drawn_from_until_another_prompt_comes() -> None:
    policy = StalePrefix(small_policy())
    assert gap(policy, policy.sample(PROMPTS[:1], 4, HOW, KEYS[:4])) < 1e-5
    assert canary_gap(policy) < 1e-5
    moved(policy)
    both = policy.sample(PROMPTS, 4, HOW, KEYS)
    new = scored(policy, both)
    assert both.drawn_NT is not None
    away_NT = ((both.drawn_NT - new).abs() * both.mask_NT).sum(-1)
    assert float(away_NT[:4].min()) > 1e-2  # the prompt whose cache was kept
    assert canary_gap(policy) > 1e-2
    fresh = StalePrefix(small_policy())
    moved(fresh)
    assert gap(fresh, fresh.sample(PROMPTS, 4, HOW, KEYS)) < 1e-5  # nothing was kept before the update


def test_kept_prefixes_are_restored_with_the_weights() -> None:
    policy, other = StalePrefix(small_policy()), StalePrefix(small_policy(seed=1))
    policy.sample(PROMPTS, 4, HOW, KEYS)
    moved(policy)
    state = policy.state()
    drawn = policy.sample(PROMPTS, 4, HOW, KEYS)
    other.load(state)
    again = other.sample(PROMPTS, 4, HOW, KEYS)
    assert torch.equal(again.actions["ids"], drawn.actions["ids"])
    assert again.drawn_NT is not None
    assert drawn.drawn_NT is not None
    assert torch.equal(again.drawn_NT, drawn.drawn_NT)


def test_another_adapter_is_drawn_from_once_there_is_one() -> None:
    policy = WrongAdapter(small_policy(lora_dropout=0.0))
    assert (
        gap(policy, policy.sample(PROMPTS, 4, HOW, KEYS)) < 1e-5
    )  # an adapter begins as nothing, and so does the other
    moved(policy)
    wanted = policy.state()
    assert gap(policy, policy.sample(PROMPTS, 4, HOW, KEYS)) > 1e-3
    assert canary_gap(policy) > 1e-3
    assert all(torch.equal(value, wanted[name]) for name, value in policy.state().items())


def test_noisy_scoring_differs_from_the_first_rollout_on_and_learning_is_left_alone() -> None:
    policy = DropoutInScoring(small_policy())
    before = torch.get_rng_state()
    rollout = policy.sample(PROMPTS, 4, HOW, KEYS)
    first, second = scored(policy, rollout), scored(policy, rollout)
    assert gap(policy, rollout) > 1e-2
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    learning = policy.score(rollout, range(8), wants=frozenset(), weights="current").logprobs_NT.detach()
    assert rollout.drawn_NT is not None
    assert float(token_mean((rollout.drawn_NT - learning).abs(), rollout.mask_NT)) < 1e-5
    policy.sample(PROMPTS, 4, HOW, KEYS)  # noise is that of the rollout, and counted from there
    assert torch.equal(scored(policy, rollout), first)


def test_without_an_end_token_every_completion_is_cut_off() -> None:
    how, keys = replace(HOW, max_completion_length=40), [RowKey(0, 0, 1, 0, row) for row in range(64)]
    policy, sound = MissingEos(small_policy()), small_policy()
    rollout, other = policy.sample(PROMPTS, 32, how, keys), sound.sample(PROMPTS, 32, how, keys)
    assert not bool(other.truncated_N.all())  # some end, of 64 with one chance in forty a token
    assert bool(rollout.truncated_N.all())
    assert bool(rollout.mask_NT.all())
    assert gap(policy, rollout) < 1e-5  # nothing else is wrong
    drawn = other.mask_NT
    assert torch.equal(rollout.actions["ids"][:, : drawn.shape[1]][drawn], other.actions["ids"][drawn])
    assert policy.replay(PROMPTS, ["ab", "c"]).mask_NT.tolist() == sound.replay(PROMPTS, ["ab", "c"]).mask_NT.tolist()
