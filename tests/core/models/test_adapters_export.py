"""What is exported is loaded by peft and transformers themselves and says the same, greedily, as the policy it was."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, pipeline

from core.config import LoraSpec
from core.errors import ModelError
from core.models import adapters
from core.models.adapters import with_lora
from core.policies.base import Sampling
from core.policies.lm.causal_lm import CausalLMPolicy
from core.randomness import RowKey, seeded
from core.tasks.text import text_example
from tests.fakes import LetterTokenizer, small_qwen2

LORA = LoraSpec(r=4, lora_alpha=8.0, target_modules=("q_proj", "v_proj"))
GREEDY = Sampling(temperature=1.0, max_completion_length=12, top_k=1)


def said(policy: CausalLMPolicy, *prompts: str) -> list[str]:
    """What the policy answers greedily."""
    examples = [text_example(id=prompt, prompt=prompt) for prompt in prompts]
    return list(policy.sample(examples, 1, GREEDY, [RowKey(0, 0, 0, 0, n) for n in range(len(prompts))]).outputs)


def trained(model: Any, tokenizer: Any, lora: LoraSpec | None = LORA, size: float = 0.3) -> CausalLMPolicy:
    """The model with an adapter (or weights of its own) that has moved."""
    adapted = with_lora(model, lora, seed=0) if lora is not None else model
    policy = CausalLMPolicy(adapted, tokenizer)
    with torch.no_grad(), seeded(RowKey(5, 0, 0, 0, 0)):
        for weight in policy.trainable().values():
            weight.add_(size * torch.randn_like(weight))
    return policy


def of_letters(model: Any) -> CausalLMPolicy:
    return CausalLMPolicy(model, LetterTokenizer())


def test_an_adapter_is_put_back_on_its_base(tmp_path: Path) -> None:
    policy = trained(small_qwen2(), LetterTokenizer())
    before = said(of_letters(small_qwen2()), "abc", "xy")
    policy.export(tmp_path)
    again = of_letters(adapters.load_adapter(small_qwen2(), tmp_path))
    assert said(again, "abc", "xy") == said(policy, "abc", "xy") != before
    assert not again.trainable()
    assert not again.model.training


def test_merged_weights_are_base_and_adapter_in_one(tmp_path: Path) -> None:
    policy = trained(small_qwen2(), LetterTokenizer())
    policy.export(tmp_path / "adapter")
    merged = adapters.merge_adapter(adapters.load_adapter(small_qwen2(), tmp_path / "adapter"))
    adapters.save(merged, tmp_path / "merged")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert said(of_letters(loaded.eval()), "abc", "xy") == said(policy, "abc", "xy")
    # W + alpha / r * B A, with alpha / r = 8 / 4
    layer = policy.model.base_model.model.model.layers[0].self_attn.q_proj
    by_hand = layer.base_layer.weight + 2 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    torch.testing.assert_close(loaded.model.layers[0].self_attn.q_proj.weight, by_hand)
    assert "lora" not in "".join(loaded.state_dict())


def test_a_fully_trained_model_is_a_model_of_its_own(tmp_path: Path) -> None:
    policy = trained(small_qwen2(), LetterTokenizer(), lora=None, size=0.02)
    policy.export(tmp_path)
    assert not (tmp_path / "adapter_config.json").exists()
    assert said(of_letters(AutoModelForCausalLM.from_pretrained(tmp_path)), "abc") == said(policy, "abc")


def test_nothing_is_merged_into_four_bits(tmp_path: Path) -> None:
    trained(small_qwen2(), LetterTokenizer()).export(tmp_path)
    adapted = adapters.load_adapter(small_qwen2(), tmp_path)
    adapted.get_base_model().is_loaded_in_4bit = True  # as transformers marks it
    with pytest.raises(ModelError, match=r"4-bit weights.*load_in_4bit=never"):
        adapters.merge_adapter(adapted)


def test_a_weight_that_two_layers_share_is_not_merged_into() -> None:
    model = small_qwen2()
    model.config.tie_word_embeddings = True
    model.tie_weights()
    adapted = with_lora(model, LORA.model_copy(update={"target_modules": ("lm_head",)}), seed=0)
    with pytest.raises(ModelError, match="lm_head: it shares its weight"):
        adapters.merge_adapter(adapted)


def damage(folder: Path, how: str) -> None:
    weights, config = folder / adapters.ADAPTER_WEIGHTS, folder / adapters.ADAPTER_CONFIG
    if how == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "gone":
        weights.unlink()
    elif how == "rank":
        config.write_text(config.read_text().replace('"r": 4', '"r": 8'))
    elif how == "target":
        config.write_text(config.read_text().replace('"v_proj"', '"w_proj"').replace('"q_proj"', '"u_proj"'))
    elif how == "fewer":
        config.write_text(config.read_text().replace('"v_proj"', '"v_proj", "k_proj"'))
    elif how == "json":
        config.write_text("{")


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("cut", "does not fit its base"),
        ("gone", "has no adapter_model.safetensors"),
        ("rank", "does not fit its base"),
        ("target", "does not fit its base"),
        ("fewer", "lacks weights"),
        ("json", "does not fit its base"),
    ],
)
def test_a_damaged_adapter_is_one_clear_error(tmp_path: Path, how: str, match: str) -> None:
    trained(small_qwen2(), LetterTokenizer()).export(tmp_path)
    damage(tmp_path, how)
    with pytest.raises(ModelError, match=match) as caught:
        adapters.load_adapter(small_qwen2(), tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"base_model_name_or_path": null}'])
def test_an_adapter_that_does_not_name_its_base(tmp_path: Path, text: str) -> None:
    (tmp_path / adapters.ADAPTER_CONFIG).write_text(text)
    with pytest.raises(ModelError, match="adapter_config"):
        adapters.base_model_of(tmp_path)


def loaded_by_others(folder: Path, base: str, tokenizer: Any = None) -> list[Any]:
    """A pipeline on the folder, and one on the base with the folder's adapter put on by peft."""
    on_base = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).merge_and_unload()
    return [
        pipeline("text-generation", model=str(folder), tokenizer=tokenizer),
        pipeline("text-generation", model=on_base, tokenizer=tokenizer or AutoTokenizer.from_pretrained(folder)),
    ]


def answers(generate: Any, prompt: Any) -> str:
    words = {"do_sample": False, "max_new_tokens": GREEDY.max_completion_length, "return_full_text": False}
    (found,) = generate(prompt, **words)
    return str(found["generated_text"])


def test_peft_and_a_pipeline_load_an_adapter_of_the_builtin_model(tmp_path: Path, tiny_model: tuple[Any, Any]) -> None:
    model, tokenizer = tiny_model
    prompts = ("12+7=", "Question: how many?\nDSL:")
    before = said(CausalLMPolicy(model, tokenizer), *prompts)
    policy = trained(copy.deepcopy(model), tokenizer)
    policy.export(tmp_path)
    own = said(policy, *prompts)
    assert own != before
    base = json.loads((tmp_path / adapters.ADAPTER_CONFIG).read_text())["base_model_name_or_path"]
    for generate in loaded_by_others(tmp_path, base, PreTrainedTokenizerFast.from_pretrained(tmp_path)):
        assert [answers(generate, prompt) for prompt in prompts] == own


@pytest.mark.slow
def test_peft_and_a_pipeline_load_an_adapter_of_smollm2(tmp_path: Path, small_model: tuple[Any, Any]) -> None:
    model, tokenizer = small_model
    prompt = "Tell me about foxes."
    before = said(CausalLMPolicy(model, tokenizer), prompt)
    policy = trained(copy.deepcopy(model), tokenizer)
    policy.export(tmp_path)
    own = said(policy, prompt)
    assert own != before
    asked = [{"role": "user", "content": prompt}]
    for generate in loaded_by_others(tmp_path, model.name_or_path):
        assert answers(generate, asked) == own[0]
