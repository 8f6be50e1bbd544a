"""Which source a model's name belongs to, and model files that do not fit together, refused before training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from core.config import LoraSpec, ModelSpec
from core.errors import ModelError, SpecError
from core.models import loading
from core.models.loading import SOURCES
from core.models.sources import builtin, gguf_file, hub, local


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole model: a GPT2 of one layer and a tokenizer of three words, as transformers saves them."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=3, n_embd=8, n_layer=1, n_head=1, eos_token_id=0, bos_token_id=0))
    model.save_pretrained(tmp_path)
    raw = Tokenizer(models.BPE({"<end>": 0, "a": 1, "b": 2}, []))
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>").save_pretrained(tmp_path)
    return tmp_path


def change(file: Path, **values: object) -> None:
    before = json.loads(file.read_text()) if file.exists() else {}
    after = {name: value for name, value in {**before, **values}.items() if value is not None}
    file.write_text(json.dumps(after))


def load(folder: Path, **spec: Any) -> loading.LoadedModel:
    return loading.load_with_origin(ModelSpec(source=str(folder), **spec), list)


def test_a_folder_is_loaded_as_it_is(folder: Path) -> None:
    loaded = load(folder)
    assert torch.equal(loaded.model.lm_head.weight, GPT2LMHeadModel.from_pretrained(folder).lm_head.weight)
    assert (loaded.tokenizer.padding_side, loaded.tokenizer.pad_token) == ("left", "<end>")
    assert (loaded.origin.kind, loaded.origin.path, loaded.origin.quantised) == ("directory", folder, None)
    assert loaded.origin.sha256 is not None
    assert loaded.model.name_or_path == str(folder)
    assert not loaded.model.training


def refused(folder: Path, says: str, **spec: Any) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        load(folder, **spec)
    assert "\n" not in str(caught.value)


def test_a_weight_that_is_not_in_the_files_is_never_drawn_at_random(folder: Path) -> None:
    held = load_file(folder / "model.safetensors")
    del held["transformer.ln_f.weight"]
    save_file(held, folder / "model.safetensors", {"format": "pt"})
    refused(folder, r"the weights of .* lack transformer\.ln_f\.weight \(1 such\)")


def test_a_weight_of_another_shape_is_refused(folder: Path) -> None:
    held = load_file(folder / "model.safetensors")
    held["transformer.ln_f.weight"] = torch.ones(3)
    save_file(held, folder / "model.safetensors", {"format": "pt"})
    refused(folder, r"transformer\.ln_f\.weight|another shape|size mismatch|ignore_mismatched")


def test_a_file_that_was_cut_off_is_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    refused(folder, r"model\.safetensors is damaged: it has \d+ bytes, its head says \d+; download the model again")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"model_type": "madeup"}, "cannot load the model .*madeup"),
        ({"n_embd": "wide"}, "cannot load the model"),
        ({"n_head": 0}, "cannot load the model"),
        ({"model_type": "t5", "architectures": None}, "cannot load the model"),
    ],
)
def test_a_config_that_makes_no_sense_is_one_line(folder: Path, values: dict[str, object], says: str) -> None:
    change(folder / "config.json", **values)
    refused(folder, says)


def test_a_tokenizer_that_cannot_be_read_is_one_line(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    refused(folder, "cannot load the model")


def test_a_model_that_knows_no_end_is_refused(folder: Path) -> None:
    change(folder / "tokenizer_config.json", eos_token=None)
    change(folder / "generation_config.json", eos_token_id=None)
    change(folder / "config.json", eos_token_id=None)
    refused(folder, "has no end-of-text token")


def test_an_end_that_only_the_model_knows_is_taken(folder: Path) -> None:
    change(folder / "tokenizer_config.json", eos_token=None)
    assert load(folder).tokenizer.eos_token == "<end>"


@pytest.mark.parametrize("token", ["</pad>", None])
def test_where_the_model_knows_no_padding_the_end_pads(folder: Path, token: str | None) -> None:
    if token is not None:  # a token that the tokenizer has and the model, of three rows, has not
        document = json.loads((folder / "tokenizer.json").read_text())
        added = {"id": 5000, "content": token, "single_word": False, "lstrip": False, "rstrip": False}
        document["added_tokens"] = [{**added, "normalized": False, "special": True}]
        (folder / "tokenizer.json").write_text(json.dumps(document))
        change(folder / "tokenizer_config.json", pad_token=token)
    assert load(folder).tokenizer.pad_token == "<end>"


CODE = """
from transformers import GPT2Config, GPT2LMHeadModel
class Settings(GPT2Config):
    model_type = "mine"
class Mine(GPT2LMHeadModel):
    config_class = GPT2Config
"""


def test_code_that_a_model_brings_runs_only_where_the_spec_says_so(folder: Path) -> None:
    (folder / "mine.py").write_text(CODE)
    change(
        folder / "config.json",
        model_type="mine",
        auto_map={"AutoConfig": "mine.Settings", "AutoModelForCausalLM": "mine.Mine"},
    )
    refused(folder, r"brings Python code of its own, which is not run unasked; .*model\.trust_remote_code=true")


def test_trusted_code_is_run(folder: Path) -> None:
    (folder / "mine.py").write_text(CODE)
    change(folder / "config.json", auto_map={"AutoModelForCausalLM": "mine.Mine"})
    assert type(load(folder).model).__name__ == "GPT2LMHeadModel"
    assert type(load(folder, trust_remote_code=True).model).__name__ == "Mine"


def test_4_bits_without_what_they_need_are_refused(folder: Path) -> None:
    lora = LoraSpec(r=1, lora_alpha=1, target_modules=("q_proj",))
    with pytest.raises(SpecError, match=r"model\.load_in_4bit: got always, and"):
        load(folder, lora=lora, load_in_4bit="always")
    assert load(folder, lora=lora, load_in_4bit="auto").origin.quantised is None


def test_the_real_small_model_answers(small_model: tuple[Any, Any]) -> None:
    model, tokenizer = small_model
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = tokenizer([text], add_special_tokens=False, return_tensors="pt")
    drawn = model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert tokenizer.decode(drawn, skip_special_tokens=True) == "The capital of France is Paris."
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    assert not any(len(word.strip("\u0120")) > 1 and word.strip("\u0120").isdigit() for word in tokenizer.get_vocab())


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
