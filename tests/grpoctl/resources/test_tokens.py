"""How long prompts get: by a tokenizer that is here, else by a guess that is said to be one."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from core.tasks import registry
from core.tasks.text import prompt_of
from grpoctl.config import load
from grpoctl.resources.tokens import TEMPLATE, lengths


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
