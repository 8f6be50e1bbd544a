"""Where weights come from, which source has which name, and what is said when none can have it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from core.config import ModelSpec
from core.errors import ModelError
from core.models import loading
from core.models.loading import SOURCES
from core.models.sources import builtin, gguf_file, hub, local


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


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("builtin:tiny", builtin),
        ("builtin:huge", builtin),
        ("FOLDER", local),
        ("FOLDER/no.gguf", gguf_file),  # it is not there, and says so as what it is called
        ("FOLDER/some.gguf", local),  # a folder whatever it is called
        ("FOLDER/file.bin", gguf_file),  # a file is read as a GGUF file, which its first bytes decide
        ("./nowhere", local),
        ("~/nowhere", local),
        ("Qwen/Qwen2.5-7B-Instruct", hub),
        ("no hub id either", hub),
    ],
)
def test_the_first_source_that_claims_a_name_has_it(source: str, module: object, tmp_path: Path) -> None:
    (tmp_path / "some.gguf").mkdir()
    (tmp_path / "file.bin").write_bytes(b"GGUF")
    name = source.replace("FOLDER", str(tmp_path))
    assert next(one for one in SOURCES if one.claims(name)) is module
