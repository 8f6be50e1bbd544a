"""Folding: the adapter stands in the weights while tokens are drawn, says the same, and leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from core.faults import RolloutInTrainMode
from core.policies.base import Rollout, Sampling
from core.policies.lm.causal_lm import CausalLMPolicy, folded_sampling, update_mode
from core.policies.lm.fast.fused_layers import foldable_layers, folded_adapter
from core.randomness import RowKey
from core.tasks.text import text_example
from tests.fakes import LetterTokenizer, small_policy, small_qwen2

IDS = torch.tensor([[2, 9, 4, 30, 11], [7, 3, 3, 21, 5]])
PROMPTS = [text_example(id="1", prompt="abc"), text_example(id="2", prompt="hijklmn")]
HOW = Sampling(temperature=1.0, max_completion_length=12)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name


def moved(model: Any) -> Any:
    """The model after some training: an adapter that does something. A fresh one is zero, folded or not."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def lora_model(dropout: float = 0.0) -> Any:
    return moved(small_policy(lora_dropout=dropout).model)


def bits(model: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def trainable(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def sampled(policy: CausalLMPolicy | RolloutInTrainMode) -> Rollout:
    return policy.sample(PROMPTS, 4, HOW, [RowKey(0, 0, 1, 0, row) for row in range(8)])


def test_a_folded_model_says_what_the_adapter_says() -> None:
    model = lora_model().eval()
    with torch.no_grad():
        clean = model(input_ids=IDS).logits.log_softmax(-1)
        with folded_adapter(model) as plain:
            assert plain is model.get_base_model()
            there = plain(input_ids=IDS).logits.log_softmax(-1)
        base = small_qwen2()(input_ids=IDS).logits.log_softmax(-1)
    assert (there - clean).abs().max() < 1e-5
    assert (base - clean).abs().max() > 0.1  # the adapter does say something


def test_afterwards_every_weight_has_its_old_bits_and_place() -> None:
    model = lora_model()
    before, learns = bits(model), trainable(model)
    places = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    target = model.get_base_model().model.layers[0].self_attn.q_proj
    for _ in range(3):
        with folded_adapter(model):
            assert target.merged
            assert not torch.equal(target.base_layer.weight, before[f"{NAME}.base_layer.weight"])
        assert same_bits(bits(model), before)
        assert not target.merged
    assert trainable(model) == learns
    assert {name: parameter.data_ptr() for name, parameter in model.named_parameters()} == places


NAME = "base_model.model.model.layers.0.self_attn.q_proj"


def test_an_error_inside_leaves_nothing_behind() -> None:
    model = lora_model()
    before = bits(model)
    with pytest.raises(ZeroDivisionError), folded_adapter(model):
        raise ZeroDivisionError
    assert same_bits(bits(model), before)
    assert not any(layer.merged for layer in foldable_layers(model))
    assert len(foldable_layers(model)) == 4  # q and v of two layers: it can be folded again


def test_an_adapter_that_is_not_finite_is_folded_and_taken_out_again() -> None:
    model = lora_model()
    with torch.no_grad():
        dict(model.named_parameters())[f"{NAME}.lora_B.default.weight".replace("q_proj", "v_proj")].fill_(torch.nan)
    base = bits(small_qwen2())
    with folded_adapter(model) as plain, torch.no_grad():
        assert bool(plain(input_ids=IDS).logits.isnan().any())  # as without folding: a guard's business
    weight = model.get_base_model().model.layers[0].self_attn.v_proj.base_layer.weight
    assert torch.equal(weight, base["model.layers.0.self_attn.v_proj.weight"])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_what_is_recorded_is_what_the_unfolded_model_scores(dropout: float) -> None:
    policy = CausalLMPolicy(lora_model(dropout), LetterTokenizer())
    before = bits(policy.model)
    update_mode(policy.model, checkpointing=True)  # as an update leaves it
    rollout = sampled(policy)
    assert policy.model.training
    assert same_bits(bits(policy.model), before)
    with torch.no_grad():
        clean = policy.score(rollout, range(8), wants=frozenset(), weights="current").logprobs_NT
    assert rollout.drawn_NT is not None
    assert (rollout.drawn_NT - clean)[rollout.mask_NT].abs().max() < 1e-5


def test_the_fault_samples_with_the_layers_it_finds() -> None:
    policy = CausalLMPolicy(lora_model(), LetterTokenizer())
    seen: list[Any] = []
    hook = (
        policy.model.get_base_model()
        .model.layers[0]
        .self_attn.q_proj.register_forward_hook(lambda layer, _inputs, _output: seen.append(layer.merged))
    )
    sampled(policy)
    assert set(seen) == {True}
    seen.clear()
    sampled(RolloutInTrainMode(policy))
    assert set(seen) == {False}
    hook.remove()


def with_config(base: Any, **changes: Any) -> Any:
    plain: dict[str, Any] = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    return get_peft_model(base, LoraConfig(**plain | changes))


def tied() -> Any:
    config = Qwen2Config(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


def switched_off() -> Any:
    model = lora_model()
    model.base_model.disable_adapter_layers()
    return model


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(small_qwen2, id="no adapter"),
        pytest.param(lambda: lora_model().to(torch.bfloat16), id="bf16: rounding would eat the adapter"),
        pytest.param(lambda: with_config(small_qwen2(), use_dora=True), id="a variant of LoRA"),
        pytest.param(lambda: with_config(small_qwen2(), target_modules=["embed_tokens"]), id="not a linear layer"),
        pytest.param(lambda: with_config(tied(), target_modules=["lm_head"]), id="a weight of two modules"),
        pytest.param(switched_off, id="switched off"),
    ],
)
def test_what_may_not_be_folded_is_sampled_as_it_is(make: Any) -> None:
    model = make()
    before = bits(model)
    assert foldable_layers(model) == []
    with folded_sampling(model) as drawn_from:
        assert drawn_from is model
        assert same_bits(bits(model), before)
        assert not drawn_from.training
