"""What is known of a model without loading it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.config import ModelSpec
from core.errors import ModelError
from grpoctl.resources.model import known

CONFIG = {
    "model_type": "qwen2",
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "tie_word_embeddings": True,
}


@pytest.fixture(autouse=True)
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cached, and nothing is asked of the hub."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def folder(path: Path, text: str) -> str:
    path.mkdir()
    (path / "config.json").write_text(text)
    return str(path)


def test_a_folder_is_read(tmp_path: Path) -> None:
    found = known(ModelSpec(source=folder(tmp_path / "m", json.dumps(CONFIG))))
    assert (found.shape.layers, found.shape.biases, found.at_hand) == (2, ("q_proj", "k_proj", "v_proj"), True)


def test_the_language_part_of_a_model_that_sees_is_read(tmp_path: Path) -> None:
    nested = {"model_type": "sees", "text_config": CONFIG}
    assert known(ModelSpec(source=folder(tmp_path / "m", json.dumps(nested)))).shape.hidden == 16


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "cannot read"), ("[]", "holds no mapping"), ("{}", "has no vocab_size"), ("\ud800", "cannot read")],
)
def test_a_damaged_configuration_is_one_error(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_bytes(
        text.encode("utf-16" if text == "\ud800" else "utf-8", "surrogatepass")
    )
    with pytest.raises(ModelError, match=why):
        known(ModelSpec(source=str(tmp_path / "m")))


def test_published_shapes_stand_in_for_a_model_that_is_not_here() -> None:
    found = known(ModelSpec(source="Qwen/Qwen2.5-7B-Instruct"))
    assert (found.shape.total, found.at_hand) == (7_615_616_512, False)


def test_the_built_in_model_is_built_where_it_is_not_there() -> None:
    found = known(ModelSpec(source="builtin:tiny"))
    assert (found.folder, found.at_hand) == (None, True)


@pytest.mark.parametrize("source", ["nobody/nothing", "builtin:huge", "./nothing"])
def test_what_is_not_known_is_refused(source: str) -> None:
    with pytest.raises(ModelError, match=r"allowed|hf download nobody/nothing config\.json"):
        known(ModelSpec(source=source))


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF but not really" * 100)
    with pytest.raises(ModelError, match="not a whole GGUF file"):
        known(ModelSpec(source=str(tmp_path / "m.gguf")))
