"""The restoration policy: its draws and their densities, its losses, what it keeps, restores, loads and adapts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Beta

from core.errors import CheckpointError, ModelError, TaskError
from core.faults import leaking_samples, unused_heads
from core.metrics import PROBES
from core.policies.base import ENTROPY, WEIGHTS, Sampling
from core.policies.restoration.policy import (
    EDGE,
    FACTORS,
    RestorationPolicy,
    draw,
    entropies,
    log_densities,
    means,
)
from core.randomness import uniforms
from tests.core.policies.restoration.pictures import keys, picture, policy_of

DRAWN = Sampling(temperature=1.0, max_completion_length=FACTORS)
GREEDY = Sampling.at(0.0, FACTORS)
NOTHING: frozenset[str] = frozenset()


def moved(policy: RestorationPolicy) -> None:
    """Move every trained weight a little."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(0.02 * torch.randn_like(weight))


def test_what_was_recorded_while_sampling_is_what_the_trainer_scores() -> None:
    policy, prompts = policy_of(), [picture(seed=0), picture(seed=1)]
    rollout = policy.sample(prompts, 3, DRAWN, keys(6))
    assert rollout.drawn_NT is not None
    with torch.no_grad():
        whole = policy.score(rollout, range(6), wants=NOTHING, weights="current")
        some = policy.score(rollout, [5, 1], wants=frozenset({"supervised"}), weights="current")
    assert float((whole.logprobs_NT - rollout.drawn_NT).abs().max()) < 1e-5
    assert torch.allclose(some.logprobs_NT, whole.logprobs_NT[[5, 1]], atol=1e-5)
    assert bool(rollout.mask_NT.all())
    assert not bool(rollout.truncated_N.any())
    assert [output.shape for output in rollout.outputs] == [(16, 16, 3)] * 6
    assert {output.dtype for output in rollout.outputs} == {np.dtype(np.float32)}


def test_a_row_does_not_depend_on_its_batch() -> None:
    policy, prompts = policy_of(), [picture(seed=0), picture(seed=1)]
    together = policy.sample(prompts, 2, DRAWN, keys(4))
    alone = policy.sample(prompts[1:], 1, DRAWN, keys(4)[3:])
    assert torch.allclose(together.actions["factors"][3], alone.actions["factors"][0], atol=1e-6)
    assert np.allclose(together.outputs[3], alone.outputs[0], atol=1e-5)
    parts = [policy.sample(prompts[:1], 2, DRAWN, keys(4)[:2]), policy.sample(prompts[1:], 2, DRAWN, keys(4)[2:])]
    joined = policy.join(parts)
    assert torch.allclose(joined.actions["factors"], together.actions["factors"], atol=1e-6)
    assert joined.prompt_N.tolist() == [0, 0, 1, 1]


def test_greedy_is_the_means_and_always_the_same() -> None:
    policy, prompts = policy_of(), [picture()]
    rollout, again = (policy.sample(prompts, 1, GREEDY, [key]) for key in keys(2))
    assert np.array_equal(rollout.outputs[0], again.outputs[0])
    assert policy.probe(prompts, keys(1)[0])["greedy_gap"] < 1e-6
    unused_heads(policy)
    assert set(policy.sample(prompts, 1, GREEDY, keys(1)).actions["factors"].flatten().tolist()) == {0.5}
    assert policy.probe(prompts, keys(1)[0])["greedy_gap"] > 1e-3


def test_draws_follow_their_distribution_and_stay_off_the_edges() -> None:
    betas_NT2 = torch.tensor([[2.0, 5.0], [0.05, 0.05]]).expand(4000, 2, 2)
    factors_NT = draw(betas_NT2, uniforms(keys(4000), 2))
    assert float(factors_NT[:, 0].mean()) == pytest.approx(2 / 7, abs=4 * math.sqrt(10 / (49 * 8 * 4000)))
    assert float(factors_NT[:, 1].min()) == pytest.approx(EDGE)
    assert float(factors_NT[:, 1].max()) == pytest.approx(1 - EDGE)
    assert bool(log_densities(factors_NT, betas_NT2).isfinite().all())
    assert not factors_NT.requires_grad


def test_densities_and_entropies_are_torchs() -> None:
    betas_NT2 = torch.tensor([[[0.7, 0.7], [2.0, 3.0], [40.0, 1.0]]])
    factors_NT = torch.tensor([[0.1, 0.5, 0.99]])
    theirs = Beta(betas_NT2[..., 0].double(), betas_NT2[..., 1].double())
    assert log_densities(factors_NT, betas_NT2).tolist()[0] == pytest.approx(
        theirs.log_prob(factors_NT.double()).tolist()[0], abs=1e-5
    )
    assert entropies(betas_NT2).tolist()[0] == pytest.approx(theirs.entropy().tolist()[0], abs=1e-5)
    assert means(betas_NT2).tolist()[0] == pytest.approx(theirs.mean.tolist()[0])


def expected_reward(parameters_2: torch.Tensor) -> torch.Tensor:
    """E[sin(3 x) + x^2] of a Beta by quadrature over the middle points of 20,000 intervals."""
    grid = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    densities = Beta(parameters_2[0], parameters_2[1]).log_prob(grid).exp()
    return (densities * toy_reward(grid)).mean()


def toy_reward(factor: torch.Tensor) -> torch.Tensor:
    return torch.sin(3 * factor) + factor.square()


def estimated_gradient(policy: RestorationPolicy, parameters_2: torch.Tensor) -> torch.Tensor:
    """The score function's: mean of reward times the gradient of log pi, over stratified draws."""
    count = 100_000
    parameters_2 = parameters_2.clone().requires_grad_()
    betas_NT2 = parameters_2.expand(count, 1, 2)
    uniforms_NT = ((torch.arange(count, dtype=torch.float64) + 0.5) / count).unsqueeze(-1)
    factors_NT = draw(betas_NT2, uniforms_NT)
    scored_NT = policy.given_factors(betas_NT2, factors_NT)
    rewards_NT = toy_reward(factors_NT.double())
    (rewards_NT * log_densities(scored_NT, betas_NT2).double()).mean().backward()
    assert parameters_2.grad is not None
    return parameters_2.grad


def test_the_score_functions_gradient_is_the_exact_one_and_with_leaking_samples_it_is_not() -> None:
    policy = policy_of(width=2, heads=[1, 1, 1, 1])
    start = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    expected_reward(start).backward()
    assert start.grad is not None
    sound = estimated_gradient(policy, start.detach())
    assert sound.tolist() == pytest.approx(start.grad.tolist(), rel=0.02)
    leaking_samples(policy)
    leaking = estimated_gradient(policy, start.detach())
    assert float((leaking - start.grad).abs().max() / start.grad.abs().max()) > 0.2


def test_leaking_samples_change_no_value() -> None:
    policy, prompts = policy_of(), [picture()]
    rollout = policy.sample(prompts, 4, DRAWN, keys(4))
    before = policy.score(rollout, range(4), wants=NOTHING, weights="current").logprobs_NT
    leaking_samples(policy)
    after = policy.score(rollout, range(4), wants=NOTHING, weights="current").logprobs_NT
    assert torch.equal(before, after)


def test_what_it_measures_of_itself_is_declared_and_finds_the_leak() -> None:
    policy, prompts = policy_of(), [picture(32, 32, seed) for seed in range(2)]
    sound = policy.probe(prompts, keys(1)[0])
    assert {f"probe/{name}" for name in sound} == {metric.name for metric in PROBES}
    assert sound["rate_effect"] > 0
    assert sound["gate_effect"] > 0
    assert sound["score_z"] < 4
    leaking_samples(policy)
    assert policy.probe(prompts, keys(1)[0])["score_z"] > 5
    assert all(weight.grad is None for weight in policy.trainable().values())


def test_a_branch_that_is_switched_off_lets_neither_rates_nor_gates_act() -> None:
    policy = policy_of()
    with torch.no_grad():
        for module in policy.network.frequency:
            module.para1.zero_()
    probed = policy.probe([picture()], keys(1)[0])
    assert (probed["rate_effect"], probed["gate_effect"]) == (0, 0)


def test_the_losses_are_of_the_pictures() -> None:
    policy, prompts = policy_of(), [picture(seed=0), picture(seed=1)]
    rollout = policy.sample(prompts, 2, DRAWN, keys(4))
    greedy = policy.sample(prompts, 1, GREEDY, keys(2))
    wants = frozenset({"supervised", "consistency", "penalty", ENTROPY})
    scores = policy.score(rollout, [3, 0], wants=wants, weights="current")
    for place, (row, prompt) in enumerate([(3, 1), (0, 0)]):
        apart = rollout.outputs[row] - greedy.outputs[prompt]
        error = np.abs(rollout.outputs[row] - prompts[prompt].facts["clean"]).mean()
        assert scores.losses_N["supervised"][place].item() == pytest.approx(error, rel=1e-5)
        assert scores.losses_N["consistency"][place].item() == pytest.approx(np.abs(apart).mean(), rel=1e-3)
        assert scores.losses_N["penalty"][place].item() == pytest.approx(np.square(apart).mean(), rel=1e-3)
    assert scores.entropies_NT is not None
    assert scores.entropies_NT.shape == (2, FACTORS)
    assert not policy.score(rollout, [0], wants=NOTHING, weights="current").losses_N


def test_a_photograph_has_no_clean_one_and_a_picture_no_factors() -> None:
    policy, photo = policy_of(), picture(clean=False)
    rollout = policy.sample([photo], 1, DRAWN, keys(1))
    with pytest.raises(TaskError, match="no clean one"):
        policy.score(rollout, [0], wants=frozenset({"supervised"}), weights="current")
    with pytest.raises(TaskError, match=r"policy_weight 0 and loss_weights\.supervised"):
        policy.replay([photo], rollout.outputs)


@pytest.mark.parametrize("size", [(50, 70), (8, 9), (3, 20), (1, 1)])
def test_a_picture_of_any_size_comes_back_in_its_size(size: tuple[int, int]) -> None:
    policy, photo = policy_of(), picture(*size)
    rollout = policy.sample([photo], 1, GREEDY, keys(1))
    assert rollout.outputs[0].shape == (*size, 3)
    losses = policy.score(rollout, [0], wants=frozenset({"supervised"}), weights="current").losses_N
    assert bool(losses["supervised"].isfinite().all())


def test_pictures_of_several_sizes_are_drawn_one_by_one() -> None:
    policy, photos = policy_of(), [picture(16, 24), picture(24, 16, 1)]
    rollout = policy.sample(photos, 2, DRAWN, keys(4))
    assert [output.shape[:2] for output in rollout.outputs] == [(16, 24)] * 2 + [(24, 16)] * 2
    assert rollout.prompt_N.tolist() == [0, 0, 1, 1]


def test_the_reference_stays_until_it_is_set_anew() -> None:
    policy = policy_of()
    rollout = policy.sample([picture()], 2, DRAWN, keys(2))

    def scored(weights: str) -> torch.Tensor:
        with torch.no_grad():
            return policy.score(rollout, [0, 1], wants=NOTHING, weights=weights).logprobs_NT  # type: ignore[arg-type]

    before = scored("current")
    moved(policy)
    assert torch.allclose(scored("reference"), before, atol=1e-6)
    assert not torch.allclose(scored("current"), before, atol=1e-3)
    policy.keep("epoch")
    assert torch.allclose(scored("epoch"), scored("current"), atol=1e-6)
    policy.keep("reference")
    assert torch.allclose(scored("reference"), scored("current"), atol=1e-6)


def test_a_state_is_restored_to_the_bit_and_another_networks_is_refused() -> None:
    policy, other = policy_of(), policy_of(seed=1)
    moved(policy)
    state = policy.state()
    other.load(state)
    assert all(torch.equal(other.state()[name], weight) for name, weight in state.items())
    outputs = [one.sample([picture()], 1, DRAWN, keys(1)).outputs[0] for one in (policy, other)]
    assert np.array_equal(*outputs)
    with pytest.raises(CheckpointError, match="another shape"):
        policy_of(width=16).load(state)


def test_a_run_can_start_from_what_another_exported(tmp_path: Path) -> None:
    policy = policy_of()
    moved(policy)
    policy.export(tmp_path)
    file = str(tmp_path / WEIGHTS)
    started = policy_of(seed=1, weights=file)
    expected = policy.sample([picture()], 1, GREEDY, keys(1)).outputs[0]
    assert np.array_equal(started.sample([picture()], 1, GREEDY, keys(1)).outputs[0], expected)
    adapted = policy_of(seed=1, weights=file, lora={"r": 2})
    assert np.allclose(adapted.sample([picture()], 1, GREEDY, keys(1)).outputs[0], expected, atol=1e-6)
    moved(adapted)
    (tmp_path / "adapted").mkdir()
    adapted.export(tmp_path / "adapted")
    again = policy_of(seed=2, weights=str(tmp_path / "adapted" / WEIGHTS), lora={"r": 2})
    outputs = [one.sample([picture()], 1, GREEDY, keys(1)).outputs[0] for one in (adapted, again)]
    assert np.array_equal(*outputs)


def test_weights_of_another_network_and_no_weights_at_all_are_refused_by_name(tmp_path: Path) -> None:
    policy_of(width=16).export(tmp_path)
    with pytest.raises(ModelError, match=r"is not of this network: 'decoder.*policy\.width"):
        policy_of(weights=str(tmp_path / WEIGHTS))
    policy_of(blocks=[2, 1, 1, 1]).export(tmp_path)
    with pytest.raises(ModelError, match="missing or unknown"):
        policy_of(weights=str(tmp_path / WEIGHTS))
    pickled = tmp_path / "odd.safetensors"
    torch.save({"a": torch.ones(1)}, pickled)
    with pytest.raises(CheckpointError, match=r"odd\.safetensors"):
        policy_of(weights=str(pickled))


def test_an_adapter_is_on_the_1x1_convolutions_of_the_attentions_and_the_heads_are_trained_too() -> None:
    policy = policy_of(lora={"r": 2, "lora_alpha": 8})
    names = list(policy.trainable())
    adapted = {name.split(".lora_")[0].rsplit(".", 1)[-1] for name in names if ".lora_" in name}
    assert adapted == {"queries_keys_values", "query", "keys_values", "project"}
    assert {weight.shape[2:] for name, weight in policy.trainable().items() if ".lora_" in name} == {(1, 1)}
    assert {name.split(".")[2] for name in names if ".lora_" not in name} == {"rates", "gates"}
    before = policy.sample([picture()], 1, GREEDY, keys(1)).outputs[0]
    moved(policy)
    assert not np.allclose(policy.sample([picture()], 1, GREEDY, keys(1)).outputs[0], before, atol=1e-6)


def test_a_tiny_network_computes_on_one_thread() -> None:
    policy_of()
    assert torch.get_num_threads() == 1
