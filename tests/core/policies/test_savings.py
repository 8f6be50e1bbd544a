"""Each thing that sampling leaves out, beside the plain way: the same tokens by the same uniforms, and less work."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from core.policies.base import Rollout, Sampling
from core.policies.lm import decoding
from core.policies.lm.causal_lm import CausalLMPolicy
from core.policies.lm.decoding import DrawnTokens, decode
from core.policies.lm.stopping import Ends
from core.policies.savings import Savings
from core.randomness import RowKey, uniforms
from core.tasks.text import text_example
from tests.fakes import VOCABULARY, LetterTokenizer, small_policy, small_qwen2

PLAIN = Savings().without(*(field.name for field in fields(Savings)))

K, LIMIT = 4, 16
KEYS = [RowKey(0, 0, 0, 0, row) for row in range(3 * K)]
HOW = Sampling(temperature=1.0, max_completion_length=LIMIT)
IDS = torch.tensor([[0, 0, 5, 9, 4], [7, 3, 3, 21, 5], [0, 2, 30, 11, 8]])
MASK = (IDS != 0).long()
ENDS = torch.tensor([1, 4, 17])

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name


class Counted:
    """A model, and how many rows and tokens each of its calls had."""

    def __init__(self, model: Any) -> None:
        self.config, self.device, self._model = model.config, model.device, model
        self.shapes: list[tuple[int, int]] = []

    def __call__(self, *, input_ids: Tensor, **inputs: Any) -> Any:
        self.shapes.append((input_ids.shape[0], input_ids.shape[1]))
        return self._model(input_ids=input_ids, **inputs)


def decoded(savings: Savings, ends: Tensor = ENDS) -> tuple[DrawnTokens, list[tuple[int, int]]]:
    model = Counted(small_qwen2())
    with torch.no_grad():
        draws = decode(
            model, (IDS, MASK), how=HOW, uniforms_NT=uniforms(KEYS, LIMIT), ends=Ends(ids=ends), savings=savings
        )
    return draws, model.shapes


def assert_same(one: DrawnTokens, other: DrawnTokens) -> None:
    assert one.ids_NT.equal(other.ids_NT)
    assert one.mask_NT.equal(other.mask_NT)
    assert one.truncated_N.equal(other.truncated_N)
    torch.testing.assert_close(one.logprobs_NT, other.logprobs_NT, rtol=0, atol=1e-5)


@pytest.mark.parametrize("ends", [ENDS, torch.tensor([VOCABULARY])])
@pytest.mark.parametrize("names", [("shared_prefill",), ("finished_leave",), ("shared_prefill", "finished_leave")])
def test_the_plain_way_draws_the_same(names: tuple[str, ...], ends: Tensor) -> None:
    assert_same(decoded(Savings().without(*names), ends)[0], decoded(Savings(), ends)[0])


def test_a_prompt_is_run_once_or_once_for_each_completion() -> None:
    assert decoded(Savings())[1][0] == (3, 5)
    assert decoded(Savings().without("shared_prefill"))[1][0] == (12, 5)


def test_a_row_that_ended_is_run_no_more_or_until_all_have_ended() -> None:
    draws, calls = decoded(Savings())
    lengths = draws.mask_NT.sum(-1).tolist()
    assert len(set(lengths)) > 3
    # Token t is run for the rows that have more than t tokens; the last token of a row is not run at all.
    assert calls[1:] == [(sum(n > t for n in lengths), 1) for t in range(1, max(lengths))]
    assert decoded(Savings().without("finished_leave"))[1][1:] == [(12, 1)] * (max(lengths) - 1)


@pytest.mark.parametrize("every", [3, 5, 100])
def test_looking_seldom_who_has_ended_changes_nothing(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = decoded(Savings())
    monkeypatch.setitem(decoding.LOOK_EVERY, "cpu", every)
    assert_same(decoded(Savings())[0], expected)


def test_multinomial_draws_others_and_records_their_logprobs() -> None:
    draws, _ = decoded(Savings().without("inverse_cdf"))
    assert_same(decoded(Savings().without("inverse_cdf"))[0], draws)
    assert not draws.ids_NT[:, :3].equal(decoded(Savings())[0].ids_NT[:, :3])
    with torch.no_grad():
        rows, model = IDS.repeat_interleave(K, 0), small_qwen2()
        first = model(input_ids=rows[K : 2 * K]).logits[:, -1].log_softmax(-1)  # the prompt without padding
    own = first.gather(-1, draws.ids_NT[K : 2 * K, :1]).squeeze(-1)
    torch.testing.assert_close(draws.logprobs_NT[K : 2 * K, 0], own, rtol=0, atol=1e-5)


def sampled(savings: Savings) -> tuple[Rollout, set[bool]]:
    """A rollout of an adapter that does something, and whether it stood in the weights meanwhile."""
    policy = CausalLMPolicy(small_policy(lora_dropout=0.3).model, LetterTokenizer())
    policy.savings = savings
    generator, seen = torch.Generator().manual_seed(5), set[bool]()
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    layer = policy.model.get_base_model().model.layers[0].self_attn.q_proj
    layer.register_forward_hook(lambda layer, *_: seen.add(layer.merged))
    prompts = [
        text_example(id="1", prompt="abc"),
        text_example(id="2", prompt="hijklmn"),
        text_example(id="3", prompt="zz"),
    ]
    return policy.sample(prompts, K, HOW, KEYS), seen


@pytest.mark.parametrize("name", ["shared_prefill", "finished_leave", "folded_adapter"])
def test_a_policy_samples_the_same_with_each_of_them_off(name: str) -> None:
    (plain, folded), (quick, _) = sampled(Savings().without(name)), sampled(Savings())
    assert folded == {name != "folded_adapter"}
    assert plain.outputs == quick.outputs
    assert plain.mask_NT.equal(quick.mask_NT)
    torch.testing.assert_close(plain.drawn_NT, quick.drawn_NT, rtol=1e-5, atol=1e-5)  # float32, by any processor


def test_a_policy_hands_every_switch_on() -> None:
    assert sampled(Savings().without("inverse_cdf"))[0].outputs != sampled(Savings())[0].outputs
    others = ("shared_prompts", "fused_head", "pulling_rows", "by_length")  # of scoring and learning
    assert sampled(PLAIN)[0].outputs == sampled(replace(PLAIN, **dict.fromkeys(others, True)))[0].outputs
