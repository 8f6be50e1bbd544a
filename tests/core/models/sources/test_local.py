"""What a folder of model files is, before anything is loaded: whole, or one line that says what it lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from core.errors import ModelError
from core.models.sources import local

Damage = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of 2 x 3 + 4 weights in two files, as far as its files tell."""
    save_file({"a": torch.zeros(2, 3)}, tmp_path / "model-1.safetensors")
    save_file({"b": torch.zeros(4, dtype=torch.bfloat16)}, tmp_path / "model-2.safetensors", {"format": "pt"})
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def test_a_whole_folder(folder: Path) -> None:
    local.check(folder)
    assert local.is_complete(folder)
    assert local.count_parameters(folder) == 10
    assert [file.name for file in local.weight_files(folder)] == ["model-1.safetensors", "model-2.safetensors"]


def cut(name: str, size: int) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def without(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def text(name: str, content: str) -> Damage:
    return lambda folder: (folder / name).write_text(content)


def adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def only_gguf(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "x.gguf").write_text("")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (without("config.json"), "is not a model: it has no config.json; give a folder that save_pretrained wrote"),
        (adapter, "is not a model: it is an adapter; merge it first"),
        (only_gguf, r"give the GGUF file itself: model\.source=.*x\.gguf"),
        (text("config.json", "{"), r"config\.json cannot be read as JSON; download the model again"),
        (text("config.json", "[]"), r"config\.json is no JSON object"),
        (without("model.safetensors.index.json"), "has no weights: neither model.safetensors nor"),
        (text("model.safetensors.index.json", "{}"), r"index\.json is damaged: it names no weight files"),
        (text("model.safetensors.index.json", '{"weight_map": {"a": 1}}'), r"index\.json is damaged"),
        (without("model-2.safetensors"), r"lacks model-2\.safetensors, which its index names"),
        (cut("model-1.safetensors", -1), r"model-1\.safetensors is damaged: it has \d+ bytes, its head says \d+"),
        (cut("model-1.safetensors", 20), r"model-1\.safetensors is damaged: its head cannot be read"),
        (cut("model-1.safetensors", 0), r"model-1\.safetensors is damaged: its head cannot be read"),
        (text("model-2.safetensors", "version https://git-lfs"), r"model-2\.safetensors is damaged"),
        (without("tokenizer.json"), "has no tokenizer"),
    ],
)
def test_what_is_no_model_is_told_in_one_line(folder: Path, damage: Damage, says: str) -> None:
    damage(folder)
    with pytest.raises(ModelError, match=says) as caught:
        local.check(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model-1.safetensors", "model.safetensors.index.json"]
)
def test_a_folder_that_lacks_a_file_is_not_complete(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert not local.is_complete(folder)


def test_what_cannot_be_counted_is_not_known(folder: Path) -> None:
    cut("model-1.safetensors", 9)(folder)
    assert local.count_parameters(folder) is None
    assert local.count_parameters(folder / "nowhere") is None
