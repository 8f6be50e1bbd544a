"""What is known of a model without loading it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from core.config import ModelSpec
from core.errors import ModelError
from core.tasks import registry
from core.tasks.text import prompt_of
from grpoctl.config import load
from grpoctl.resources.model import TEMPLATE, known_model, lengths

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
    found = known_model(ModelSpec(source=folder(tmp_path / "m", json.dumps(CONFIG))))
    assert (found.shape.layers, found.shape.biases, found.at_hand) == (2, ("q_proj", "k_proj", "v_proj"), True)


def test_the_language_part_of_a_model_that_sees_is_read(tmp_path: Path) -> None:
    nested = {"model_type": "sees", "text_config": CONFIG}
    assert known_model(ModelSpec(source=folder(tmp_path / "m", json.dumps(nested)))).shape.hidden == 16


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
        known_model(ModelSpec(source=str(tmp_path / "m")))


def test_published_shapes_stand_in_for_a_model_that_is_not_here() -> None:
    found = known_model(ModelSpec(source="Qwen/Qwen2.5-7B-Instruct"))
    assert (found.shape.total, found.at_hand) == (7_615_616_512, False)


def test_the_built_in_model_is_built_where_it_is_not_there() -> None:
    found = known_model(ModelSpec(source="builtin:tiny"))
    assert (found.folder, found.at_hand) == (None, True)


@pytest.mark.parametrize("source", ["nobody/nothing", "builtin:huge", "./nothing"])
def test_what_is_not_known_is_refused(source: str) -> None:
    with pytest.raises(ModelError, match=r"allowed|hf download nobody/nothing config\.json"):
        known_model(ModelSpec(source=source))


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF but not really" * 100)
    with pytest.raises(ModelError, match="not a whole GGUF file"):
        known_model(ModelSpec(source=str(tmp_path / "m.gguf")))


def words(folder: Path) -> Path:
    """A folder with a tokenizer that counts words and signs."""
    raw = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.save(str(folder / "tokenizer.json"))
    return folder


def test_a_tokenizer_counts_the_longest(tmp_path: Path) -> None:
    spec = load("p31", profile="tiny").spec
    task = registry.build(spec.task)
    split = pre_tokenizers.Whitespace().pre_tokenize_str
    longest = max(len(split(prompt_of(one).text)) for name in ("train", "eval") for one in task.examples(name))
    found = lengths(spec, task, words(tmp_path))
    assert (found.tokens.prompt, found.tokens.answer) == (longest, 1)  # no stage imitates answers
    assert found.whence == "the model's tokenizer"


def test_answers_count_where_a_stage_imitates_them(tmp_path: Path) -> None:
    spec = load("staged", profile="tiny").spec
    assert lengths(spec, registry.build(spec.task), words(tmp_path)).tokens.answer > 1


def test_without_one_it_is_a_guess(tmp_path: Path) -> None:
    spec = load("p31").spec
    task = registry.build(spec.task)
    longest = max(len(prompt_of(one).text) for name in ("train", "eval") for one in task.examples(name))
    for folder in (None, tmp_path):
        found = lengths(spec, task, folder)
        assert found.tokens.prompt == round(longest / 3) + TEMPLATE
        assert "guess" in found.whence


def test_a_damaged_tokenizer_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    spec = load("p31", profile="tiny").spec
    assert "guess" in lengths(spec, registry.build(spec.task), tmp_path).whence
