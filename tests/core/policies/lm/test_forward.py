"""The quick forward says what the plain one says, in value and in gradient, and runs no more tokens than it must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2ForCausalLM

from core.config import LoraSpec
from core.models import adapters
from core.policies.base import ENTROPY, Rollout, Sampling
from core.policies.lm.causal_lm import CausalLMPolicy
from core.policies.lm.fast import fused_layers
from core.policies.lm.fast.decoder_weights import is_plain_decoder
from core.policies.savings import Savings
from core.randomness import INIT, RowKey, seeded
from core.tasks.text import text_example
from tests.fakes import VOCABULARY, LetterTokenizer, small_llama, small_policy, small_qwen2

PLAIN = Savings().without(*(field.name for field in fields(Savings)))

PROMPTS = [text_example(id="1", prompt="abc"), text_example(id="2", prompt="hijklmn"), text_example(id="3", prompt="z")]
S, K, N = 7, 4, 12
ORDERS = {"all": range(N), "a part of each group": [1, 3, 4, 9, 10, 11], "mixed": [9, 2, 4, 3, 0], "one": [5]}
WAYS = ("shared_prompts", "fused_head", "grouped_heads", "one_product", "fused_norms")


def small_gpt2() -> Any:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=None,
        eos_token_id=1,
        initializer_range=0.3,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    with seeded(RowKey(0, INIT, 0, 0, 0)):
        return GPT2LMHeadModel(config).eval()


def moved(policy: CausalLMPolicy) -> CausalLMPolicy:
    """Away from its start: a fresh adapter changes nothing, and nothing could be lost with it."""
    policy.end_ids = torch.arange(1, 10)  # any of nine tokens ends a row: lengths differ
    with torch.no_grad(), seeded(RowKey(1, INIT, 0, 0, 0)):
        for weight in policy.trainable().values():
            weight.add_(0.1 * torch.randn_like(weight))
    return policy


def llama_policy() -> CausalLMPolicy:
    fused_layers = LoraSpec(r=4, lora_alpha=8.0, target_modules=("q_proj", "v_proj", "down_proj"))
    return CausalLMPolicy(adapters.with_lora(small_llama(tied=True), fused_layers, seed=0), LetterTokenizer())


POLICIES = {
    "qwen2, every weight": small_policy,
    "qwen2, adapter": lambda: small_policy(lora_dropout=0.0),
    "llama, adapter, tied head": llama_policy,
}


def sampled(policy: CausalLMPolicy, tokens: int = 12) -> Rollout:
    how = Sampling(temperature=0.8, max_completion_length=tokens)
    return policy.sample(PROMPTS, K, how, [RowKey(0, 0, 1, 0, row) for row in range(N)])


def asked(policy: CausalLMPolicy, rollout: Rollout, rows: Sequence[int], savings: Savings) -> list[Tensor]:
    """Log-probs, entropies, and the gradient of a sum of both in which every token has a weight of its own."""
    policy.savings = savings
    scores = policy.score(rollout, rows, wants=frozenset({ENTROPY}), weights="current")
    assert scores.entropies_NT is not None
    mask = rollout.mask_NT[list(rows)]
    weights = torch.linspace(-1, 2, mask.numel()).view(mask.shape)
    logprobs, entropies = scores.logprobs_NT[mask], scores.entropies_NT[mask]
    total = (logprobs * weights[mask]).sum() + 0.3 * (entropies * weights.flip(0)[mask]).sum()
    gradient = torch.autograd.grad(total, list(policy.trainable().values()))
    return [logprobs.detach(), entropies.detach(), torch.cat([one.flatten() for one in gradient])]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", POLICIES)
def test_every_saving_says_what_the_plain_way_says(kind: str, order: str, checkpointing: bool) -> None:
    policy = moved(POLICIES[kind]())
    rollout = sampled(policy)
    plain = asked(policy, rollout, ORDERS[order], PLAIN)
    policy.checkpointing = checkpointing
    for savings in (Savings(), *(Savings().without(name) for name in WAYS)):
        for one, expected in zip(asked(policy, rollout, ORDERS[order], savings), plain, strict=True):
            assert float((one - expected).norm() / expected.norm()) < 1e-5, savings


@pytest.mark.parametrize("kind", POLICIES)
def test_the_reference_is_the_same_both_ways(kind: str) -> None:
    policy = moved(POLICIES[kind]())
    rollout = sampled(policy)
    found = []
    for policy.savings in (PLAIN, Savings()):
        with torch.no_grad():
            found.append(policy.score(rollout, range(N), wants=frozenset(), weights="reference").logprobs_NT)
    mask = rollout.mask_NT
    assert (found[0] - found[1])[mask].abs().max() < 3e-5  # log-probs of -10: some roundings of that
    assert rollout.drawn_NT is not None
    assert (found[1] - rollout.drawn_NT)[mask].abs().max() > 0.1  # and it is not the current weights'


def test_completions_of_one_token_need_no_pass_of_their_own() -> None:
    policy = moved(small_policy(lora_dropout=0.0))
    rollout = sampled(policy, tokens=1)
    assert rollout.mask_NT.shape == (N, 1)
    assert tokens_run(policy, rollout, range(N)) == 3 * S
    found = asked(policy, rollout, range(N), Savings())
    for one, expected in zip(found, asked(policy, rollout, range(N), PLAIN), strict=True):
        assert float((one - expected).norm() / expected.norm()) < 1e-5


def tokens_run(policy: CausalLMPolicy, rollout: Rollout, rows: Sequence[int]) -> int:
    """Positions that go through the first layer's MLP in a forward with gradients, padding counted."""
    seen: list[int] = []
    base = policy.model.get_base_model() if hasattr(policy.model, "get_base_model") else policy.model
    hook = base.model.layers[0].mlp.register_forward_hook(lambda _m, _i, out: seen.append(out.shape[:2].numel()))
    policy.score(rollout, rows, wants=frozenset(), weights="current")
    hook.remove()
    return sum(seen)


def test_a_prompt_is_run_once_and_the_last_token_not_at_all() -> None:
    policy = moved(small_policy(lora_dropout=0.0))
    rollout = sampled(policy)
    width = int(rollout.mask_NT.sum(-1).max())
    assert tokens_run(policy, rollout, range(N)) == 3 * S + N * (width - 1)
    policy.savings = Savings().without("shared_prompts")
    assert tokens_run(policy, rollout, range(N)) == N * (S + width - 1)
    policy.savings = PLAIN
    assert tokens_run(policy, rollout, range(N)) == N * (S + width)


def test_padding_that_all_rows_have_is_not_run() -> None:
    policy = moved(small_policy(lora_dropout=0.0))
    rollout = sampled(policy)
    rows = [8, 9]  # of the prompt "z", one token long
    width = int(rollout.mask_NT[rows].sum(-1).max())
    assert tokens_run(policy, rollout, rows) == 1 + 2 * (width - 1)
    scores = policy.score(rollout, rows, wants=frozenset(), weights="current")
    assert scores.logprobs_NT.shape == rollout.mask_NT[rows].shape
    assert scores.logprobs_NT[~rollout.mask_NT[rows]].abs().sum() == 0


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_checkpointing_goes_with_all_of_them(dropout: float) -> None:
    plain, again = (moved(small_policy(lora_dropout=dropout, checkpointing=one)) for one in (False, True))
    rollout = sampled(plain)
    width = int(rollout.mask_NT.sum(-1).max())
    assert tokens_run(again, rollout, range(N)) == 3 * S + N * (width - 1)
    found = []
    for policy in (plain, again):
        with seeded(RowKey(3, INIT, 0, 0, 0)):
            found.append(asked(policy, rollout, range(N), Savings()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_layer_is_run_again_as_it_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # In backward the contexts of the forward are over: whatever they replace must be replaced once more, then put back.
    ran: list[str] = []

    def noted(name: str, forward: Any) -> Any:
        def run(module: Any, x: Tensor) -> Tensor:
            ran.append(name)
            found: Tensor = forward(module, x)
            return found

        return run

    monkeypatch.setattr(fused_layers, "lora_forward", noted("adapter", fused_layers.lora_forward))
    monkeypatch.setattr(fused_layers, "norm_forward", noted("norm", fused_layers.norm_forward))
    policy = moved(small_policy(lora_dropout=0.0, checkpointing=True))
    rollout = sampled(policy)
    scores = policy.score(rollout, range(N), wants=frozenset(), weights="current")
    forward = list(ran)
    assert (forward.count("adapter"), forward.count("norm")) == (2 * 2, 2 * 2 + 1)
    scores.logprobs_NT.sum().backward()  # type: ignore[no-untyped-call]
    again = ran[len(forward) :]
    assert (again.count("adapter"), again.count("norm")) == (2 * 2, 2 * 2)  # the last norm is in no layer
    assert policy.model.config._attn_implementation == "sdpa"
    assert not any("forward" in vars(module) for module in policy.model.modules())


def windowed() -> Any:
    """A Qwen2 whose second layer sees three tokens only."""
    config = small_qwen2().config
    config.use_sliding_window, config.sliding_window, config.max_window_layers = True, 3, 1
    config.layer_types = ["full_attention", "sliding_attention"]
    with seeded(RowKey(0, INIT, 0, 0, 0)):
        return Qwen2ForCausalLM(config).eval()


@pytest.mark.parametrize("model", [small_gpt2, windowed])
def test_a_family_that_is_not_known_to_be_plain_runs_its_own_forward(model: Any) -> None:
    policy = CausalLMPolicy(model(), LetterTokenizer())
    assert not is_plain_decoder(policy.model)
    assert is_plain_decoder(small_qwen2())
    rollout = sampled(policy)
    for one, expected in zip(
        asked(policy, rollout, range(N), Savings()), asked(policy, rollout, range(N), PLAIN), strict=True
    ):
        torch.testing.assert_close(one, expected)


def test_savings_are_named() -> None:
    assert {field.name for field in fields(Savings)} >= set(WAYS)
    assert not PLAIN.shared_prompts
    assert Savings().without("fused_head") == Savings(fused_head=False)
    with pytest.raises(ValueError, match="got 'speed', which is no saving; allowed: shared_prefill"):
        Savings().without("speed")
