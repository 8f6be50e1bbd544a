"""Given outputs as a rollout: scored as the same tokens are that were drawn."""

from __future__ import annotations

import pytest
import torch

from core.faults import RolloutInTrainMode
from core.policies.base import Policy, Rollout, Sampling
from core.policies.lm.causal_lm import CausalLMPolicy
from core.randomness import RowKey
from core.tasks.text import text_example
from tests.fakes import TabularPolicy, small_policy

PROMPTS = [text_example(id=text, prompt=text) for text in ("abc", "hijklmn", "z")]
HOW = Sampling(temperature=1.0, max_completion_length=20)
K = 16


def scored(policy: Policy, rollout: Rollout) -> torch.Tensor:
    with torch.no_grad():
        return policy.score(rollout, range(len(rollout)), wants=frozenset(), weights="current").logprobs_NT


def finished(rollout: Rollout) -> list[int]:
    """The rows that ended by themselves and that their text says all of (id 0 pads, and has no letter)."""
    ids, lengths = rollout.actions["ids"].tolist(), rollout.mask_NT.sum(-1).tolist()
    return [row for row in range(len(rollout)) if ids[row][lengths[row] - 1] == 1 and 0 not in ids[row][: lengths[row]]]


@pytest.mark.parametrize("fault", [False, True])
def test_replayed_outputs_score_as_the_drawn_ones(fault: bool) -> None:
    inner = small_policy(lora_dropout=0.3)
    policy: Policy = RolloutInTrainMode(inner) if fault else inner
    drawn = inner.sample(PROMPTS, K, HOW, [RowKey(1, 0, 1, 0, row) for row in range(len(PROMPTS) * K)])
    rows = finished(drawn)
    lengths = drawn.mask_NT[rows].sum(-1)
    assert len({int(drawn.prompt_N[row]) for row in rows}) > 1  # prompts of different widths
    assert len(set(lengths.tolist())) > 2
    again = policy.replay([PROMPTS[int(drawn.prompt_N[row])] for row in rows], [drawn.outputs[row] for row in rows])
    assert again.mask_NT.sum(-1).tolist() == lengths.tolist()  # the end token is one of the factors
    expected, got = scored(policy, drawn), scored(policy, again)
    for place, row in enumerate(rows):
        length = int(lengths[place])
        assert got[place, :length].tolist() == pytest.approx(expected[row, :length].tolist(), abs=1e-4)


def test_nothing_of_it_was_drawn() -> None:
    rollout = small_policy().replay(PROMPTS, ["ab", "", "cdefg"])
    assert rollout.drawn_NT is None
    assert rollout.prompt_N.tolist() == [0, 1, 2]
    assert rollout.mask_NT.sum(-1).tolist() == [3, 1, 6]
    assert rollout.actions["ids"][0].tolist() == [2, 3, 1, 1, 1, 1]  # a b end, filled with ends
    assert rollout.actions["prompt_ids"][0].tolist() == [0, 0, 0, 0, 2, 3, 4]
    assert list(rollout.outputs) == ["ab", "", "cdefg"]
    assert not rollout.truncated_N.any()
    assert rollout.how.temperature == 1.0


def test_cross_entropy_on_it_raises_its_likelihood() -> None:
    policy: CausalLMPolicy = small_policy()
    rollout = policy.replay(PROMPTS, ["ab", "ba", "c"])
    before = scored(policy, rollout)[rollout.mask_NT].sum()
    optimizer = torch.optim.SGD(policy.trainable().values(), lr=0.01)
    scores = policy.score(rollout, range(3), wants=frozenset(), weights="current")
    (-scores.logprobs_NT[rollout.mask_NT].sum()).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert scored(policy, rollout)[rollout.mask_NT].sum() > before


def test_a_tables_replay_scores_as_its_draws() -> None:
    policy = TabularPolicy()
    with torch.no_grad():
        policy.logits.copy_(torch.tensor([1.0, 0.0, -1.0, 2.0]))
    assert scored(policy, policy.replay(PROMPTS, ["3", "0", "2"])).flatten().tolist() == pytest.approx(
        policy.logits.detach().log_softmax(-1)[[3, 0, 2]].tolist()
    )
