"""bf16 autocast: one precision for sampling, scoring and learning; what is summed, and what is trained, stays fp32."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from core.algorithms.reductions import token_mean
from core.health.rules.integrity import max_gap
from core.models import adapters
from core.policies.base import ENTROPY, Rollout, Sampling
from core.policies.lm.causal_lm import CausalLMPolicy, update_mode
from core.randomness import RowKey
from core.tasks.text import text_example
from tests.fakes import LetterTokenizer, small_llama, small_qwen2

PROMPTS = [text_example(id="1", prompt="abc"), text_example(id="2", prompt="hijklmn")]
HOW = Sampling(temperature=1.0, max_completion_length=12)
KEYS = [RowKey(0, 0, 1, 0, row) for row in range(8)]

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name


def policy(kind: str = "qwen2", *, adapter: bool = True, bf16: bool = True, checkpointing: bool = False) -> Any:
    model = small_qwen2() if kind == "qwen2" else small_llama()
    reference = None if adapter else adapters.frozen_copy(model)
    if adapter:
        torch.manual_seed(1)
        model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    precision: Any = "bf16" if bf16 else "no"
    return CausalLMPolicy(
        model, LetterTokenizer(), reference=reference, checkpointing=checkpointing, mixed_precision=precision
    )


def sampled(policy: CausalLMPolicy) -> Rollout:
    return policy.sample(PROMPTS, 4, HOW, KEYS)


def gap(policy: CausalLMPolicy) -> float:
    rollout = sampled(policy)
    with torch.no_grad():
        clean = policy.score(rollout, range(8), wants=frozenset(), weights="current")
    assert rollout.drawn_NT is not None
    return float(token_mean((rollout.drawn_NT - clean.logprobs_NT).abs(), rollout.mask_NT))


def gradients(policy: CausalLMPolicy, rollout: Rollout) -> dict[str, Tensor]:
    scores = policy.score(rollout, range(8), wants=frozenset({ENTROPY}), weights="current")
    assert scores.logprobs_NT.dtype == torch.float32
    scores.logprobs_NT.masked_fill(~rollout.mask_NT, 0.0).sum().backward()
    found = {name: one.grad for name, one in policy.trainable().items() if one.grad is not None}
    policy.model.zero_grad()
    return found


def products_of(policy: CausalLMPolicy, work: Any) -> set[torch.dtype]:
    """The precision of what the linear layers give while `work` is done."""
    seen: set[torch.dtype] = set()
    hooks = [
        module.register_forward_hook(lambda _, __, out: seen.add(out.dtype))
        for module in policy.model.modules()
        if isinstance(module, torch.nn.Linear)
    ]
    work()
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("bf16", [False, True])
def test_sampling_scoring_and_learning_take_products_in_one_precision(bf16: bool) -> None:
    one = policy(bf16=bf16)
    rollout = sampled(one)

    def scored() -> None:
        with torch.no_grad():
            one.score(rollout, range(8), wants=frozenset(), weights="reference")
            one.score(rollout, range(8), wants=frozenset(), weights="current")

    expected = {torch.bfloat16 if bf16 else torch.float32}
    assert products_of(one, lambda: sampled(one)) == expected
    assert products_of(one, scored) == expected
    assert products_of(one, lambda: gradients(one, rollout)) == expected
    assert not torch.is_autocast_enabled("cpu")


def test_what_is_trained_and_what_is_recorded_stays_fp32() -> None:
    one = policy()
    rollout = sampled(one)
    assert rollout.drawn_NT is not None
    assert rollout.drawn_NT.dtype == torch.float32
    found = gradients(one, rollout)
    assert set(found) == set(one.trainable())
    assert {value.dtype for value in (*found.values(), *one.trainable().values())} == {torch.float32}


@pytest.mark.parametrize("adapter", [False, True])
def test_the_gap_is_that_of_bf16(adapter: bool) -> None:
    # Rounding of 2^-9 is seen, or it would not be bf16; it stays below the threshold that computes_in chooses.
    assert gap(policy(adapter=adapter, bf16=False)) < max_gap("float32", 1.0) / 10
    assert max_gap("float32", 1.0) < gap(policy(adapter=adapter)) < max_gap("bfloat16", 1.0) / 3


def test_gradients_are_those_of_fp32_but_for_rounding() -> None:
    rollout = sampled(policy(bf16=False))
    exact, rounded = gradients(policy(bf16=False), rollout), gradients(policy(), rollout)
    for name, value in exact.items():
        assert torch.cosine_similarity(value.flatten(), rounded[name].flatten(), dim=0) > 0.99, name


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_checkpointing_is_the_updates_alone(kind: str, bf16: bool) -> None:
    plain, saving = policy(kind, bf16=bf16), policy(kind, bf16=bf16, checkpointing=True)
    rollout = sampled(plain)
    expected = gradients(plain, rollout)
    update_mode(saving.model, checkpointing=True)  # as an update leaves it
    again = sampled(saving)
    assert again.outputs == rollout.outputs
    torch.testing.assert_close(again.drawn_NT, rollout.drawn_NT, rtol=0, atol=0)
    runs: list[int] = []
    layer = saving.model.get_base_model().model.layers[0].self_attn
    hook = layer.register_forward_pre_hook(lambda *_: runs.append(1))
    found = gradients(saving, rollout)
    hook.remove()
    assert len(runs) == 2  # once forward, and once more in backward
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
