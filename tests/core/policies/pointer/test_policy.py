"""The pointer policy: its size, its distribution over picks, what it records, keeps and restores."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from core.config.policy import PointerConfig
from core.errors import CheckpointError, TaskError
from core.policies.base import ENTROPY, Sampling
from core.policies.pointer.network import PointerNetwork, draw_picks, log_probs_of_picks
from core.policies.pointer.policy import PointerPolicy
from core.randomness import TRAIN, RowKey
from core.tasks.base import Example

PLAIN = Sampling(temperature=1.0, max_completion_length=2)
GREEDY = Sampling.at(0.0, 2)


def settings(**changes: Any) -> PointerConfig:
    return PointerConfig(kind="pointer", **{"width": 8, "hidden": 8, **changes})


def query(name: str = "q0", candidates: int = 5, seed: int = 0, **inputs: Any) -> Example:
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((candidates + 1, 8)).astype(np.float32)
    return Example(id=name, inputs={"query": vectors[0], "candidates": vectors[1:], **inputs})


def keys(count: int) -> list[RowKey]:
    return [RowKey(0, TRAIN, 1, 0, row) for row in range(count)]


def pairs_of(policy: PointerPolicy, example: Example, **how: Any) -> dict[tuple[int, int], float]:
    """The probability of every ordered pair."""
    outputs = list(itertools.permutations(range(5), 2))
    rollout = policy.replay([example] * len(outputs), outputs)
    with torch.no_grad():
        scores = policy.score(rollout, range(len(outputs)), wants=frozenset(), weights=how.get("weights", "current"))
    return dict(zip(outputs, scores.logprobs_NT.sum(-1).exp().tolist(), strict=True))


def test_it_has_the_documents_size() -> None:
    def sizes(*, frozen: bool) -> tuple[int, int]:
        policy = PointerPolicy(PointerConfig(kind="pointer", frozen=frozen), seed=0)
        whole = sum(weight.numel() for weight in policy.network.parameters())
        return whole, sum(weight.numel() for weight in policy.trainable().values())

    assert sizes(frozen=False) == (525_824, 525_824)
    assert sizes(frozen=True) == (525_824, 263_680)


def test_the_maps_begin_near_the_identity() -> None:
    network = PointerPolicy(PointerConfig(kind="pointer"), seed=0).network
    off = network.query_map.weight.detach() - torch.eye(256)
    assert off.std().item() == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_probabilities_of_all_ordered_pairs_add_up_to_one(temperature: float) -> None:
    policy, example = PointerPolicy(settings(), seed=0), query()
    with torch.no_grad():
        logits = policy._logits([example], "current") / temperature
    pairs = torch.tensor(list(itertools.permutations(range(5), 2)))
    log_probs, _ = log_probs_of_picks(logits.expand(len(pairs), -1), pairs)
    assert log_probs.sum(-1).exp().sum().item() == pytest.approx(1.0, abs=1e-6)


def test_picks_by_hand() -> None:
    logits = torch.tensor([[math.log(4.0), math.log(3.0), math.log(2.0), math.log(1.0)]])
    log_probs, entropies = log_probs_of_picks(logits, torch.tensor([[1, 0]]))
    assert log_probs.exp().tolist() == [pytest.approx([3 / 10, 4 / 7])]
    first = -sum(p * math.log(p) for p in (0.4, 0.3, 0.2, 0.1))
    second = -sum(p * math.log(p) for p in (4 / 7, 2 / 7, 1 / 7))
    assert entropies.tolist() == [pytest.approx([first, second])]
    # The first pick falls where 0.4 < 0.55 < 0.7, the second where 4/7 < 0.6 < 6/7: past the one that is gone.
    assert draw_picks(logits, torch.tensor([[0.55, 0.6]])).tolist() == [[1, 2]]
    assert draw_picks(logits, torch.tensor([[0.0, 0.0]])).tolist() == [[0, 1]]
    assert draw_picks(logits, torch.tensor([[1 - 1e-16, 1 - 1e-16]], dtype=torch.float64)).tolist() == [[3, 2]]


def test_another_order_of_the_candidates_is_the_same_policy() -> None:
    policy, example = PointerPolicy(settings(), seed=0), query()
    order = [3, 0, 4, 1, 2]
    candidates: Any = example.inputs["candidates"]
    moved = Example(id="q0", inputs={**example.inputs, "candidates": candidates[order]})
    before, after = pairs_of(policy, example), pairs_of(policy, moved)
    for first, second in after:
        assert after[first, second] == pytest.approx(before[order[first], order[second]], abs=1e-6)


def test_it_draws_what_it_says() -> None:
    policy, example, n = PointerPolicy(settings(), seed=0), query(), 20_000
    rollout = policy.sample([example], n, PLAIN, keys(n))
    assert rollout.drawn_NT is not None
    for pair, probability in pairs_of(policy, example).items():
        share = rollout.outputs.count(pair) / n
        assert share == pytest.approx(probability, abs=5 * math.sqrt(probability / n))


def test_what_it_records_is_what_is_scored() -> None:
    policy = PointerPolicy(settings(), seed=0)
    examples = [query("a", 5), query("b", 3, seed=1), query("c", 7, seed=2)]
    for how in (PLAIN, Sampling(temperature=0.3, max_completion_length=2)):
        rollout = policy.sample(examples, 4, how, keys(12))
        with torch.no_grad():
            scores = policy.score(rollout, [9, 2, 5], wants=frozenset({ENTROPY}), weights="current")
        assert rollout.drawn_NT is not None
        assert torch.allclose(scores.logprobs_NT, rollout.drawn_NT[[9, 2, 5]], atol=1e-5)
        assert scores.entropies_NT is not None
        assert scores.entropies_NT.shape == (3, 2)


def test_a_rows_draw_is_its_own() -> None:
    policy, examples = PointerPolicy(settings(), seed=0), [query("a"), query("b", 9, seed=1)]
    both = policy.sample(examples, 3, PLAIN, keys(6))
    alone = policy.sample(examples[1:], 3, PLAIN, keys(6)[3:])
    assert both.outputs[3:] == alone.outputs


def test_a_shared_pool_is_the_same_as_a_pool_each() -> None:
    policy, first, second = PointerPolicy(settings(), seed=0), query("a"), query("b", seed=1)
    shared = Example(id="b", inputs={"query": second.inputs["query"], "candidates": first.inputs["candidates"]})
    candidates: Any = first.inputs["candidates"]
    own = Example(id="b", inputs={"query": second.inputs["query"], "candidates": candidates.copy()})
    with torch.no_grad():
        together, apart = policy._logits([first, shared], "current"), policy._logits([first, own], "current")
    assert torch.allclose(together, apart, atol=1e-5)


def test_greedily_it_gives_shots_picks_the_best_first() -> None:
    policy, example = PointerPolicy(settings(shots=4), seed=0), query()
    rollout = policy.sample([example], 1, GREEDY, keys(1))
    with torch.no_grad():
        order = policy._logits([example], "current")[0].argsort(descending=True)
    assert list(rollout.outputs[0]) == order[:4].tolist()
    assert rollout.drawn_NT is not None
    assert rollout.drawn_NT.shape == (1, 4)


def test_greedily_it_takes_the_most_probable_choice() -> None:
    policy = PointerPolicy(settings(), seed=0)
    probabilities = pairs_of(policy, query())
    choices = tuple(sorted(probabilities, key=probabilities.__getitem__)[:4])  # four unlikely ones, the best one last
    rollout = policy.sample([query(choices=choices)], 1, GREEDY, keys(1))
    assert rollout.outputs == [choices[-1]]


def test_dropout_is_the_updates_alone() -> None:
    policy, example = PointerPolicy(settings(), seed=0), query()
    rollout = policy.sample([example], 2, PLAIN, keys(2))
    with torch.no_grad():
        clean = policy.score(rollout, [0, 1], wants=frozenset(), weights="current").logprobs_NT
    update = policy.score(rollout, [0, 1], wants=frozenset(), weights="current").logprobs_NT
    kept = policy.score(rollout, [0, 1], wants=frozenset(), weights="reference").logprobs_NT
    assert not torch.allclose(update, clean)
    assert torch.allclose(kept, clean, atol=1e-5)  # nothing was trained yet; and it is in no mode of training
    assert not policy.network.training


def trained(policy: PointerPolicy) -> None:
    with torch.no_grad():
        for weight in policy.network.parameters():
            weight.add_(0.1)


def test_it_keeps_what_it_is_told_to() -> None:
    policy, example = PointerPolicy(settings(), seed=0), query()
    begun = pairs_of(policy, example)
    trained(policy)
    now = pairs_of(policy, example)
    assert now != pytest.approx(begun, rel=1e-3)
    assert pairs_of(policy, example, weights="reference") == pytest.approx(begun, rel=1e-4)
    policy.keep("reference")
    assert pairs_of(policy, example, weights="reference") == pytest.approx(now, rel=1e-4)
    assert pairs_of(policy, example, weights="epoch") == pytest.approx(begun, rel=1e-4)


def test_what_it_keeps_of_a_pool_is_of_that_pool_and_those_weights() -> None:
    policy, example = PointerPolicy(settings(), seed=0), query()
    state = policy.state()

    def fresh() -> dict[tuple[int, int], float]:
        """The kept weights' answer by a policy that has kept nothing of a pool."""
        other = PointerPolicy(settings(), seed=1)
        other.load(policy.state())
        return pairs_of(other, example, weights="reference")

    begun = pairs_of(policy, example, weights="reference")
    other_pool = query("q1", seed=1)
    assert pairs_of(policy, other_pool, weights="reference") != pytest.approx(begun, rel=1e-2)
    again = Example(id="q2", inputs=example.inputs)  # another query of the first pool
    assert pairs_of(policy, again, weights="reference") == begun
    with torch.no_grad():
        for weight in policy.network.parameters():
            weight.add_(0.3)
    policy.keep("reference")
    moved = pairs_of(policy, example, weights="reference")
    assert moved == fresh() != pytest.approx(begun, rel=1e-2)
    policy.load(state)
    assert pairs_of(policy, example, weights="reference") == begun == fresh()


def test_its_state_comes_back_with_what_it_keeps() -> None:
    policy, example = PointerPolicy(settings(), seed=0), query()
    trained(policy)
    policy.keep("epoch")
    trained(policy)
    other = PointerPolicy(settings(), seed=1)
    other.load(policy.state())
    for weights in ("current", "reference", "epoch"):
        assert pairs_of(other, example, weights=weights) == pairs_of(policy, example, weights=weights)
    with pytest.raises(CheckpointError, match="candidate_map"):
        other.load({name: weight for name, weight in policy.state().items() if name != "candidate_map.weight"})


def test_a_frozen_backbone_gets_no_gradient_and_the_rest_does() -> None:
    policy = PointerPolicy(settings(frozen=True), seed=0)
    assert {name.partition(".")[0] for name in policy.trainable()} == {"attention", "norm"}
    whole = PointerPolicy(settings(), seed=0)
    rollout = whole.sample([query()], 4, PLAIN, keys(4))
    whole.score(rollout, range(4), wants=frozenset(), weights="current").logprobs_NT.sum().backward()
    # A bias of the keys shifts every attention score alike: no gradient but rounding.
    assert all(weight.grad is not None for weight in whole.trainable().values())


def test_seeds_differ_and_one_seed_is_one_network() -> None:
    first, again, other = (PointerPolicy(settings(), seed=seed).state() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["shared.weight"], other["shared.weight"])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_canary_is_the_same_to_sampler_and_trainer(temperature: float) -> None:
    policy, example = PointerPolicy(settings(), seed=0), query()
    canary = policy.canary(example)
    assert canary is not None
    how = Sampling(temperature=temperature, max_completion_length=2, canary=True)
    rollout = policy.sample([query("b", seed=3)], 2, how, keys(2))
    beside = policy.join([rollout, canary])  # as a step scores it: with the group, at the rollout's temperature
    with torch.no_grad():
        scored = policy.score(beside, [0, len(rollout)], wants=frozenset(), weights="current").logprobs_NT[1]
    assert rollout.canary_T is not None
    assert torch.allclose(rollout.canary_T, scored, atol=1e-6)


@pytest.mark.parametrize(
    ("candidates", "output"),
    [(5, (0, 5)), (5, (1, 1)), (5, (-1, 0))],
)
def test_picks_that_are_none_are_refused(candidates: int, output: tuple[int, ...]) -> None:
    with pytest.raises(TaskError, match="q7"):
        PointerPolicy(settings(), seed=0).replay([query("q7", candidates)], [output])


def test_too_few_candidates_or_another_width_are_one_line() -> None:
    policy = PointerPolicy(settings(), seed=0)
    with pytest.raises(TaskError, match="q1 has 1 candidates; allowed: at least 2"):
        policy.sample([query("q1", 1)], 1, PLAIN, keys(1))
    with pytest.raises(TaskError, match=r"policy\.width is 16"):
        PointerPolicy(settings(width=16), seed=0).sample([query()], 1, PLAIN, keys(1))


def test_its_attention_is_torchs() -> None:
    network = PointerNetwork(settings()).eval()
    torch.nn.init.normal_(network.attention.in_proj_bias)  # torch begins with none
    asked, candidates = torch.randn(3, 2, 8), torch.randn(3, 5, 8)
    absent = torch.tensor([[False] * 5, [False] * 4 + [True], [False] * 2 + [True] * 3])
    with torch.no_grad():
        expected, _ = network.attention(asked, candidates, candidates, key_padding_mask=absent)
        assert torch.allclose(network._attend(asked, candidates, absent), expected, atol=1e-5)
        # With every share doubled or dropped, the bias of the values is as well.
        network.train()
        torch.manual_seed(0)
        expected = torch.stack([network.attention(asked, candidates, candidates)[0] for _ in range(4000)]).mean(0)
        got = torch.stack([network._attend(asked, candidates, None) for _ in range(4000)]).mean(0)
    assert torch.allclose(got, expected, atol=0.05)


def test_padding_reaches_nothing() -> None:
    network = PointerNetwork(settings()).eval()
    example = query()
    candidates: Any = example.inputs["candidates"]
    vector: Any = example.inputs["query"]
    plain = torch.from_numpy(candidates).unsqueeze(0)
    padded = torch.cat([plain, torch.full((1, 3, 8), 50.0)], dim=1)
    absent = torch.tensor([[False] * 5 + [True] * 3])
    with torch.no_grad():
        asked = torch.from_numpy(vector).view(1, 1, 8)
        got = network(asked, padded, absent)[0][0, 0]
        assert torch.allclose(got[:5], network(asked, plain, None)[0][0, 0], atol=1e-5)
    assert got[5:].tolist() == [-math.inf] * 3
