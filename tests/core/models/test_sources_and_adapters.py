"""Where weights come from, what is said when they do not, and fresh adapters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from core.errors import ModelError, SpecError
from core.models import loading
from core.models.adapters import with_lora
from core.spec import LoraSpec, ModelSpec
from tests.fakes import small_qwen2

LORA = LoraSpec(r=4, lora_alpha=8.0, target_modules=("q_proj", "v_proj"))


def test_a_directory_is_loaded(tmp_path: Path) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=3, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path)
    raw = Tokenizer(models.BPE({"<end>": 0, "a": 1, "b": 2}, []))
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>").save_pretrained(tmp_path)
    model, tokenizer = loading.load(ModelSpec(source=str(tmp_path), dtype="bfloat16"), list)
    assert model.dtype is torch.bfloat16
    assert not model.training
    assert tokenizer.padding_side == "left"
    assert tokenizer.pad_token == tokenizer.eos_token == "<end>"  # it had no padding token


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("builtin:huge", r"got model 'builtin:huge'; the built-in models are: builtin:tiny"),
        ("EMPTY", r"is not a model: it has no config.json; give a folder"),
        ("/nowhere/at/all", r"'/nowhere/at/all', which is no directory; .*--profile tiny"),
    ],
)
def test_what_cannot_be_loaded_is_told_in_one_line(source: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        loading.load(ModelSpec(source=str(tmp_path) if source == "EMPTY" else source), list)
    assert "\n" not in str(caught.value)


def test_an_adapter_belongs_to_its_seed_and_changes_nothing_at_first() -> None:
    before = torch.get_rng_state()
    one, same, other = (with_lora(small_qwen2(), LORA, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    first, again, another = ({n: p for n, p in m.named_parameters() if p.requires_grad} for m in (one, same, other))
    assert first
    assert all("lora_" in name for name in first)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], another[name]) for name in first)
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        assert torch.allclose(one.eval()(input_ids=ids).logits, small_qwen2()(input_ids=ids).logits, atol=1e-6)


def test_a_module_the_model_does_not_have_is_named() -> None:
    lora = LORA.model_copy(update={"target_modules": ("q_proj", "query")})
    with pytest.raises(SpecError, match="got 'query', this model has no module") as caught:
        with_lora(small_qwen2(), lora, seed=0)
    assert caught.value.key == "model.lora.target_modules"
