"""A token through our few operations says what the model's own forward says, whichever rows leave; and its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from core.policies.base import Sampling
from core.policies.lm import decoding
from core.policies.lm.decoding import DrawnTokens, decode
from core.policies.lm.fast import decoder_step, kv_cache
from core.policies.lm.fast import decoder_step as module
from core.policies.lm.fast.fused_layers import folded_adapter
from core.policies.lm.stopping import Ends
from core.policies.savings import Savings
from core.randomness import INIT, RowKey, seeded, uniforms
from tests.fakes import SMALL, VOCABULARY, small_llama, small_qwen2
from tests.replayed import replayed

K, LIMIT = 4, 16
KEYS = [RowKey(0, 0, 0, 0, row) for row in range(3 * K)]
HOW = Sampling(temperature=1.0, max_completion_length=LIMIT)
IDS = torch.tensor([[0, 0, 5, 9, 4], [7, 3, 3, 21, 5], [0, 2, 30, 11, 8]])
NEVER, SOME = torch.tensor([VOCABULARY]), torch.tensor([1, 4, 17])
EVERY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name


def qwen3() -> Any:
    with seeded(RowKey(0, INIT, 0, 0, 0)):
        model = Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=16, tie_word_embeddings=True)).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.data = torch.linspace(0.3, 2.0, len(weight))
    return model


def scaled_llama() -> Any:
    """With biases, and positions that are stretched."""
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    with seeded(RowKey(0, INIT, 0, 0, 0)):
        config = LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True, rope_parameters=rope)
        model = LlamaForCausalLM(config).eval()
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.data = 0.3 * torch.randn_like(weight)
    return model


def adapted(targets: list[str] | None = None) -> Any:
    """Qwen2 with an adapter that does something."""
    model = get_peft_model(small_qwen2(), LoraConfig(r=4, lora_alpha=8, target_modules=targets or EVERY)).eval()
    generator = torch.Generator().manual_seed(5)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data = 0.3 * torch.randn(weight.shape, generator=generator)
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "qwen2": small_qwen2,
    "llama": small_llama,
    "llama, tied": lambda: small_llama(tied=True),
    "llama, biases, stretched": scaled_llama,
    "qwen3": qwen3,
    "adapter everywhere": adapted,
    "adapter on some": lambda: adapted(["q_proj", "v_proj", "down_proj"]),
}


class Ways:
    """How each decoding ran its tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []

        def watched(*args: Any) -> Any:
            found = module.decoder_step(*args)
            self.seen.append("own forward" if found is None else "lean")
            return found

        monkeypatch.setattr(decoding, "decoder_step", watched)


# What is recorded is what is run anew, and recorded the whole way.
@pytest.fixture(autouse=True, params=["side by side", pytest.param("run anew", marks=pytest.mark.slow), "recorded"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a step is run: as on the CPU, or as on a GPU without and with a graph; a graph is played by `replayed`."""
    if request.param != "side by side":
        monkeypatch.setattr(module, "COLUMN_DEVICES", ())
        monkeypatch.setattr(decoder_step, "MIN_RECORDED", 0)
    if request.param == "recorded":
        monkeypatch.setitem(decoder_step.RECORDERS, "cpu", replayed)
    return str(request.param)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


def decoded(model: Any, savings: Savings, ends: Tensor = SOME, how: Sampling = HOW, ids: Tensor = IDS) -> DrawnTokens:
    draws = uniforms(KEYS[: K * len(ids)], how.max_completion_length)
    with torch.no_grad():
        return decode(model, (ids, (ids != 0).long()), how=how, uniforms_NT=draws, ends=Ends(ids=ends), savings=savings)


def assert_same(one: DrawnTokens, other: DrawnTokens, close: float = 2e-5) -> None:
    assert one.ids_NT.equal(other.ids_NT)
    assert one.mask_NT.equal(other.mask_NT)
    assert one.truncated_N.equal(other.truncated_N)
    torch.testing.assert_close(one.logprobs_NT, other.logprobs_NT, rtol=0, atol=close)


OWN = Savings().without("lean_steps")


@pytest.mark.parametrize("ends", [NEVER, SOME])
@pytest.mark.parametrize("name", MODELS)
def test_it_draws_what_the_models_own_forward_draws(name: str, ends: Tensor, ways: Ways) -> None:
    model = MODELS[name]()
    quick, own = decoded(model, Savings(), ends), decoded(model, OWN, ends)
    assert ways.seen == ["lean"]
    assert_same(quick, own)
    if ends is SOME:
        assert len(set(quick.mask_NT.sum(-1).tolist())) > 3  # rows left at different times


@pytest.mark.parametrize("most", [0, module.MAX_JOINED_BYTES])
def test_weights_that_are_too_many_are_not_copied(most: int, ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JOINED_BYTES", most)
    model = adapted()
    assert_same(decoded(model, Savings()), decoded(model, OWN))
    assert ways.seen == ["lean"]


@pytest.mark.parametrize("savings", [Savings().without("shared_prefill"), Savings().without("finished_leave")])
def test_it_goes_with_the_other_savings_off(savings: Savings, ways: Ways) -> None:
    model = small_qwen2()
    assert_same(decoded(model, savings), decoded(model, replace(savings, lean_steps=False)))
    assert ways.seen == ["lean"]


@pytest.mark.parametrize("room", [1, 2, 5])
def test_room_is_made_when_it_is_used_up(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_llama()
    expected = decoded(model, Savings(), NEVER)
    monkeypatch.setitem(kv_cache.FIRST_ROOM, "cpu", room)
    assert_same(decoded(model, Savings(), NEVER), expected)
    assert_same(decoded(model, Savings(), SOME), decoded(model, OWN, SOME))


@pytest.mark.parametrize("worth", [0.0, 0.5, 1.0])
def test_when_the_table_is_made_smaller_changes_nothing(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_llama()
    expected = decoded(model, OWN)
    monkeypatch.setattr(kv_cache, "COMPACT_BELOW", worth)
    assert_same(decoded(model, Savings()), expected)


def test_one_prompt_without_padding_and_one_token_alone(ways: Ways) -> None:
    model = small_qwen2()
    assert_same(decoded(model, Savings(), ids=IDS[1:2]), decoded(model, OWN, ids=IDS[1:2]))
    for limit in (1, 2):
        how = replace(HOW, max_completion_length=limit)
        assert_same(decoded(model, Savings(), how=how), decoded(model, OWN, how=how))
    assert ways.seen == ["lean", "own forward", "lean"]  # one token comes of the prompt alone


def test_a_folded_adapter_is_in_the_weights_it_reads(ways: Ways) -> None:
    model = adapted()
    with folded_adapter(model) as base:
        assert base is not model
        quick = decoded(base, Savings())
    assert_same(quick, decoded(model, OWN))
    assert ways.seen == ["lean"]
    with model.disable_adapter():
        off = decoded(model, Savings())
        assert_same(off, decoded(model, OWN))
    assert not off.ids_NT.equal(quick.ids_NT) or not torch.allclose(off.logprobs_NT, quick.logprobs_NT)


def test_autocast_rounds_to_bfloat16_and_no_further(ways: Ways) -> None:
    model = adapted()
    exact = decoded(model, OWN, NEVER)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        quick, own = decoded(model, Savings(), NEVER), decoded(model, OWN, NEVER)
    assert ways.seen == ["lean"]
    same = (quick.ids_NT == exact.ids_NT).cumprod(-1).bool() & (own.ids_NT == exact.ids_NT).cumprod(-1).bool()
    assert same.float().mean() > 0.3

    def off(one: DrawnTokens) -> float:
        return float((one.logprobs_NT - exact.logprobs_NT)[same].abs().mean())

    assert 1e-4 < off(quick) < 2 * off(own)


def test_bfloat16_weights_with_an_adapter_of_float32(ways: Ways) -> None:
    model = adapted()
    for name, weight in model.named_parameters():
        if "lora_" not in name:
            weight.data = weight.data.bfloat16()
    exact = decoded(adapted(), OWN, NEVER)
    quick, own = decoded(model, Savings(), NEVER), decoded(model, OWN, NEVER)
    assert ways.seen == ["lean"]
    same = (quick.ids_NT == exact.ids_NT).cumprod(-1).bool() & (own.ids_NT == exact.ids_NT).cumprod(-1).bool()
    gaps = [float((one.logprobs_NT - exact.logprobs_NT)[same].abs().mean()) for one in (quick, own)]
    assert 1e-3 < gaps[0] < 1.5 * gaps[1]


def biased_keys(size: float, dtype: torch.dtype) -> Any:
    """What all keys of a head have in common is as large as in Qwen2, at the frequency that turns least."""
    model = small_qwen2()
    with torch.no_grad():
        for layer in model.model.layers:
            for projection, bias in ((layer.self_attn.k_proj, size), (layer.self_attn.q_proj, 3.0)):
                projection.bias.zero_()
                projection.bias.view(-1, 8)[:, [3, 7]] = torch.tensor([bias, -bias])
    return model.to(dtype)


def test_what_all_keys_have_in_common_costs_no_precision(ways: Ways) -> None:
    exact = decoded(biased_keys(40.0, torch.float32), OWN, NEVER)
    assert_same(decoded(biased_keys(40.0, torch.float32), Savings(), NEVER), exact, close=1e-4)
    model = biased_keys(40.0, torch.bfloat16)
    found = [decoded(model, savings, NEVER) for savings in (Savings(), OWN)]
    assert ways.seen == ["lean"] * 2
    gaps = []
    for one in found:
        same = (one.ids_NT == exact.ids_NT).cumprod(-1).bool()
        assert same.float().mean() > 0.2
        gaps.append(float((one.logprobs_NT - exact.logprobs_NT)[same].abs().mean()))
    # torch's own attention has scores in float32; rounded to bfloat16 these would be 1.6 times as far off.
    assert gaps[0] < 1.1 * gaps[1]


def hooked() -> Any:
    model = small_qwen2()
    model.model.layers[1].mlp.register_forward_hook(lambda _m, _i, out: 0.5 * out)
    return model


def patched() -> Any:
    model = small_qwen2()
    attention = model.model.layers[0].self_attn
    own = attention.forward
    attention.forward = lambda *args, **how: (0.5 * own(*args, **how)[0], None)
    return model


def other_layer() -> Any:
    class Doubled(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    model = small_qwen2()
    layer = Doubled(64, 32, bias=False)
    layer.weight = model.model.layers[1].mlp.down_proj.weight
    model.model.layers[1].mlp.down_proj = layer
    return model


def other_head() -> Any:
    model = small_qwen2()
    model.lm_head = torch.nn.Sequential(model.lm_head, torch.nn.Tanh())
    return model


def stretching() -> Any:
    """Positions depend on how long the row is."""
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    with seeded(RowKey(0, INIT, 0, 0, 0)):
        return LlamaForCausalLM(LlamaConfig(**SMALL | {"max_position_embeddings": 8}, rope_parameters=rope)).eval()


def dora() -> Any:
    return get_peft_model(small_qwen2(), LoraConfig(r=4, use_dora=True, target_modules=EVERY)).eval()


def embedding_adapted() -> Any:
    """An adapter on the embedding, whose weight does not have it."""
    model = get_peft_model(small_qwen2(), LoraConfig(r=4, target_modules=["embed_tokens"])).eval()
    for name, weight in model.named_parameters():
        if "lora_embedding" in name:
            weight.data = 0.5 * torch.ones_like(weight)
    return model


def prompt_tuned() -> Any:
    return get_peft_model(small_qwen2(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()


@pytest.mark.parametrize("model", [hooked, patched, other_layer, other_head, stretching, dora, embedding_adapted])
def test_a_model_that_is_not_as_it_was_made_runs_its_own_forward(model: Callable[[], Any], ways: Ways) -> None:
    changed = model()
    found = decoded(changed, Savings(), NEVER)
    assert ways.seen == ["own forward"]
    assert_same(found, decoded(changed, OWN, NEVER), close=0.0)


def test_neither_does_a_prompt_that_is_learned_nor_train_mode(ways: Ways) -> None:
    model = prompt_tuned()
    cache = decoding.DynamicCache()
    with torch.no_grad():
        model(input_ids=IDS, past_key_values=cache, use_cache=True)
    assert cache.get_seq_length() == 8
    assert module.decoder_step(model, cache, (IDS != 0).long(), K, LIMIT) is None
    decoded(small_qwen2().train(), Savings())
    assert ways.seen == ["own forward"]


def test_what_checkpointing_leaves_behind_is_no_hindrance(ways: Ways) -> None:
    model = small_qwen2()
    model.enable_input_require_grads()
    decoded(model, Savings())
    assert ways.seen == ["lean"]


@pytest.mark.parametrize("name", ["qwen2", "adapter everywhere"])
def test_nothing_of_the_model_is_changed(name: str) -> None:
    model = MODELS[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    decoded(model, Savings())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
