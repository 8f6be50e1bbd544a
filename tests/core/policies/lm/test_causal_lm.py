"""The causal-LM policy: what it samples is what it scores, its reference stands still, its weights travel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM

from core.algorithms.reductions import token_mean
from core.errors import CheckpointError
from core.policies.base import ENTROPY, Policy, Rollout, Sampling, Weights
from core.policies.lm.causal_lm import CausalLMPolicy
from core.randomness import RowKey
from core.tasks.text import text_example
from core.training.update import Update
from tests.fakes import LetterTokenizer, batch_of, grpo_stage, loss_of, small_policy, small_qwen2

PROMPTS = [text_example(id="1", prompt="abc"), text_example(id="2", prompt="hijklmn"), text_example(id="3", prompt="z")]
HOW = Sampling(temperature=1.0, max_completion_length=12)
K = 4
KINDS = [pytest.param(None, id="full"), pytest.param(0.0, id="lora"), pytest.param(0.3, id="lora-dropout")]


def sampled(policy: Policy, how: Sampling = HOW) -> Rollout:
    return policy.sample(PROMPTS, K, how, [RowKey(0, 0, 1, 0, row) for row in range(len(PROMPTS) * K)])


def scored(policy: Policy, rollout: Rollout, weights: Weights = "current") -> Tensor:
    with torch.no_grad():
        return policy.score(rollout, range(len(rollout)), wants=frozenset(), weights=weights).logprobs_NT


def gap(policy: Policy, rollout: Rollout) -> float:
    """What the trainer measures: mean |recorded - clean|, over all rows."""
    assert rollout.drawn_NT is not None
    return float(token_mean((rollout.drawn_NT - scored(policy, rollout)).abs(), rollout.mask_NT))


def learn(policy: Policy, steps: int = 1, learning_rate: float = 0.02) -> None:
    """A few updates that prefer the first row of every group."""
    stage = grpo_stage()
    update = Update(policy, stage)
    for step in range(steps):
        rollout = sampled(policy)
        assert rollout.drawn_NT is not None
        loss = loss_of(
            stage,
            mask_NT=rollout.mask_NT,
            old_NT=rollout.drawn_NT,
            advantages=torch.tensor([3.0, -1.0, -1.0, -1.0] * len(PROMPTS)),
            reference_NT=None,
        )
        key = RowKey(0, 3, step, 0, 0)
        update.apply([batch_of(rollout, loss, 5)], learning_rate=learning_rate, key=key)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("dropout", KINDS)
def test_what_is_sampled_is_what_is_scored_also_after_an_update(dropout: float | None, checkpointing: bool) -> None:
    policy = small_policy(lora_dropout=dropout, checkpointing=checkpointing)
    for _ in range(2):
        assert gap(policy, sampled(policy)) < 1e-5
        learn(policy)
        assert policy.model.training  # an update leaves train mode behind, and sampling does not mind


@pytest.mark.parametrize("how", [HOW, Sampling(temperature=0.3, max_completion_length=12, top_p=0.9, top_k=35)])
def test_scores_are_at_the_sampling_temperature_and_unfiltered(how: Sampling) -> None:
    policy = small_policy()
    assert gap(policy, sampled(policy, how)) < 1e-5 / how.temperature


def test_a_rollout_is_complete() -> None:
    rollout = sampled(small_policy())
    assert len(rollout) == 12
    assert rollout.prompt_N.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    lengths = rollout.mask_NT.sum(-1).tolist()
    ended = rollout.actions["ids"][torch.arange(12), rollout.mask_NT.sum(-1) - 1] == 1
    assert 0 < int(ended.sum()) < 12  # both kinds are there
    assert rollout.truncated_N.tolist() == (~ended).tolist()
    assert all(rows.shape[0] == 12 for rows in rollout.actions.values())
    # The text is what was drawn, without the end (id 1) and the padding (id 0).
    ids = rollout.actions["ids"].tolist()
    texts = ["".join(chr(95 + i) for i in row[:n] if i > 1) for row, n in zip(ids, lengths, strict=True)]
    assert list(rollout.outputs) == texts


def test_some_rows_are_scored_as_among_all_rows() -> None:
    policy = small_policy()
    rollout = sampled(policy)
    everything = scored(policy, rollout)
    with torch.no_grad():
        some = policy.score(rollout, [9, 2, 4], wants=frozenset({ENTROPY}), weights="current")
    mask = rollout.mask_NT[[9, 2, 4]]
    assert (some.logprobs_NT - everything[[9, 2, 4]])[mask].abs().max() < 1e-5
    assert some.entropies_NT is not None
    assert some.entropies_NT.shape == some.logprobs_NT.shape


def test_entropy_is_that_of_the_whole_next_token_distribution() -> None:
    policy = small_policy()
    torch.nn.init.zeros_(policy.model.lm_head.weight)  # every token alike: log 40 nats at any temperature
    for temperature in (1.0, 0.3):
        rollout = sampled(policy, Sampling(temperature=temperature, max_completion_length=4))
        with torch.no_grad():
            scores = policy.score(rollout, [0], wants=frozenset({ENTROPY}), weights="current")
            assert policy.score(rollout, [0], wants=frozenset(), weights="current").entropies_NT is None
        assert scores.entropies_NT is not None
        assert scores.entropies_NT[0].tolist() == pytest.approx([torch.tensor(40.0).log().item()] * 4, rel=1e-5)


@pytest.mark.parametrize("limit", [1, 5, 12, 100])
def test_split_cuts_the_rows_in_order(limit: int) -> None:
    policy = small_policy()
    parts = policy.split(sampled(policy), range(12), limit)
    assert [row for part in parts for row in part] == list(range(12))
    assert all(0 < len(part) <= limit for part in parts)


@pytest.mark.parametrize("dropout", KINDS)
def test_the_reference_is_the_start_and_stays_there(dropout: float | None) -> None:
    policy, base = small_policy(lora_dropout=dropout), CausalLMPolicy(small_qwen2(), LetterTokenizer())
    rollout = sampled(policy)
    start = scored(base, rollout)
    assert (scored(policy, rollout) - start)[rollout.mask_NT].abs().max() < 1e-5  # a fresh adapter changes nothing
    learn(policy, steps=3)
    assert (scored(policy, rollout, "reference") - start)[rollout.mask_NT].abs().max() < 1e-5
    assert (scored(policy, rollout) - start)[rollout.mask_NT].abs().max() > 0.1  # the current weights did move
    policy.trainable()  # and what the reference switched off is trained again
    assert set(policy.trainable()) == set(small_policy(lora_dropout=dropout).trainable())


@pytest.mark.parametrize("dropout", KINDS)
def test_learning_raises_what_was_preferred(dropout: float | None) -> None:
    policy = small_policy(lora_dropout=dropout)
    rollout = sampled(policy)
    before = scored(policy, rollout)
    learn(policy, learning_rate=0.005)
    change = torch.where(rollout.mask_NT, scored(policy, rollout) - before, 0.0).sum(-1)
    assert float(change[[0, 4, 8]].sum()) > 0
    assert float(change.sum()) - float(change[[0, 4, 8]].sum()) < 0


@pytest.mark.parametrize("dropout", KINDS)
def test_weights_go_out_and_come_back(dropout: float | None) -> None:
    policy, other = small_policy(lora_dropout=dropout), small_policy(lora_dropout=dropout)
    learn(policy, steps=2)
    state = policy.state()
    rollout = sampled(policy)
    expected = scored(policy, rollout)
    other.load(state)
    assert torch.equal(scored(other, rollout), expected)
    learn(policy)
    assert not torch.equal(scored(policy, rollout), expected)
    policy.load(state)  # a copy: what was learned since did not reach it
    assert torch.equal(scored(policy, rollout), expected)


def test_weights_of_another_model_are_refused() -> None:
    policy = small_policy(lora_dropout=0.0)
    state = dict(policy.state())
    name = sorted(state)[0]
    with pytest.raises(CheckpointError, match=f"'{name}' has shape"):
        policy.load(state | {name: torch.zeros(3, 3)})
    with pytest.raises(CheckpointError, match="1 names differ, first 'stranger'"):
        policy.load(state | {"stranger": torch.zeros(1)})
    with pytest.raises(CheckpointError, match="1 names differ"):
        policy.load({other: value for other, value in state.items() if other != name})


IDS = torch.tensor([[2, 9, 4, 30, 11]])


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        result: Tensor = model.eval()(input_ids=IDS).logits
    return result


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name
def test_an_exported_adapter_is_loaded_by_peft(tmp_path: Path) -> None:
    policy = small_policy(lora_dropout=0.1)
    learn(policy, steps=2)
    policy.export(tmp_path)
    loaded = PeftModel.from_pretrained(small_qwen2(), str(tmp_path))
    assert torch.allclose(logits(loaded), logits(policy.model), atol=1e-6)
    assert not torch.allclose(logits(loaded), logits(small_qwen2()), atol=1e-2)


def test_an_exported_model_is_loaded_by_transformers(tmp_path: Path) -> None:
    policy = small_policy()
    learn(policy, steps=2)
    policy.export(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.allclose(logits(loaded), logits(policy.model), atol=1e-6)
    assert (tmp_path / "letters.txt").is_file()  # its tokenizer goes with it


class ChattyTokenizer(LetterTokenizer):
    """Has a chat template: `q` before the user's text and `r` after it."""

    chat_template = "there is one"  # type: ignore[assignment]

    def apply_chat_template(
        self, chat: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool, think: bool = True
    ) -> str:
        assert [turn["role"] for turn in chat] == ["user"]
        assert add_generation_prompt
        assert not tokenize
        return f"q{chat[0]['content']}r" if think else f"q{chat[0]['content']}n"


def test_prompts_are_padded_on_the_left_and_go_through_the_chat_template() -> None:
    # a b c = 2 3 4, z = 27, q = 18, r = 19
    plain = sampled(small_policy()).actions
    assert plain["prompt_ids"][0].tolist() == [0, 0, 0, 0, 2, 3, 4]
    assert plain["prompt_mask"][0].tolist() == [0, 0, 0, 0, 1, 1, 1]
    chatty = sampled(CausalLMPolicy(small_qwen2(), ChattyTokenizer())).actions
    assert chatty["prompt_ids"][8].tolist() == [0, 0, 0, 0, 0, 0, 18, 27, 19]


def test_variables_reach_the_chat_template_wherever_a_prompt_is_given() -> None:
    policy = CausalLMPolicy(small_qwen2(), ChattyTokenizer(), chat_template_kwargs={"think": False})
    replayed, canary = policy.replay(PROMPTS, ["a", "b", "c"]), policy.canary(PROMPTS[0])
    for rollout in (sampled(policy), replayed, canary):
        assert {int(row[-1]) for row in rollout.actions["prompt_ids"]} == {15}  # n
    plain = sampled(CausalLMPolicy(small_qwen2(), ChattyTokenizer()))
    assert {int(row[-1]) for row in plain.actions["prompt_ids"]} == {19}  # r
