"""The built-in model: what its cache key depends on, that its cache mends itself, how its tokenizer spells."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core.config import WorkflowDslTaskSpec
from core.errors import StorageError
from core.models.cache import cache_root, intact
from core.models.sources import builtin
from core.models.sources.builtin import Recipe
from core.policies.base import Sampling
from core.policies.lm.build import tiny_pairs
from core.policies.lm.causal_lm import CausalLMPolicy
from core.randomness import RowKey
from core.tasks.registry import build
from core.tasks.workflow_dsl.grammar import Operator

SMALL = Recipe(steps=2, vocabulary=270, hidden=16, layers=1, heads=2, kv_heads=1, intermediate=16, rows=2)
PAIRS = [("solve this =>", "Custom -> Review"), ("write code =>", "Programmer"), ("2+3=", "5"), ("hm", "no idea")]


def weights(model: Any) -> dict[str, torch.Tensor]:
    return dict(model.state_dict())


def equal(one: Any, other: Any) -> bool:
    first, second = weights(one), weights(other)
    return set(first) == set(second) and all(torch.equal(first[name], second[name]) for name in first)


def folder_of(root: Path) -> Path:
    return builtin.folder_of(PAIRS, SMALL, root)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A cache with one small model in it, the model and its tokenizer."""
    root = tmp_path_factory.mktemp("cache")
    return root, *builtin.load(PAIRS, SMALL, root)


@pytest.mark.parametrize("field", [field.name for field in fields(Recipe)])
def test_the_key_changes_with_every_part_of_the_recipe(field: str) -> None:
    assert builtin.key(PAIRS, replace(SMALL, **{field: 77})) != builtin.key(PAIRS, SMALL)


@pytest.mark.parametrize(
    "pairs",
    [PAIRS[:-1], PAIRS[::-1], [*PAIRS[:-1], ("hm", "no idea.")], [*PAIRS[:-1], ("hmn", "o idea")]],
    ids=["fewer", "order", "completion", "border"],
)
def test_the_key_changes_with_the_pairs(pairs: list[tuple[str, str]]) -> None:
    assert builtin.key(pairs, SMALL) != builtin.key(PAIRS, SMALL)
    assert builtin.key([tuple(pair) for pair in PAIRS], SMALL) == builtin.key(PAIRS, SMALL)  # type: ignore[misc]


def test_a_second_load_reads_the_cache(built: tuple[Path, Any, Any]) -> None:
    root, model, tokenizer = built
    before = (folder_of(root) / "model.safetensors").stat().st_mtime_ns
    again, words = builtin.load(PAIRS, SMALL, root)
    assert equal(again, model)
    assert words.get_vocab() == tokenizer.get_vocab()
    assert (folder_of(root) / "model.safetensors").stat().st_mtime_ns == before
    with torch.no_grad():
        next(again.parameters()).zero_()  # a model is the caller's own
    assert equal(builtin.load(PAIRS, SMALL, root)[0], model)
    assert not list(root.glob("*.*.*"))  # no work left lying about
    assert sorted(path.name for path in root.iterdir()) == [folder_of(root).name, f"{folder_of(root).name}.lock"]


def test_training_is_a_function_of_recipe_and_pairs(built: tuple[Path, Any, Any], tmp_path: Path) -> None:
    before = torch.get_rng_state()
    again, _ = builtin.load(PAIRS, SMALL, tmp_path)
    assert equal(again, built[1])
    assert torch.equal(torch.get_rng_state(), before)
    other, _ = builtin.load(PAIRS, replace(SMALL, seed=1), tmp_path)
    assert not equal(other, built[1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", [*builtin.FILES, "checksums.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_damaged_entry_is_built_again(built: tuple[Path, Any, Any], name: str, damage: str) -> None:
    root, model, _ = built
    path = folder_of(root) / name
    if damage == "flipped":
        flip(path)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    assert not intact(folder_of(root), builtin.FILES)
    again, _ = builtin.load(PAIRS, SMALL, root)
    assert intact(folder_of(root), builtin.FILES)
    assert equal(again, model)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", json.dumps(dict.fromkeys(builtin.FILES, "0"))])
def test_an_entry_with_other_checksums_is_not_intact(tmp_path: Path, content: str) -> None:
    (tmp_path / "checksums.json").write_text(content)
    assert not intact(tmp_path, builtin.FILES)


def test_a_cache_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"cannot build the built-in model in .*file"):
        builtin.load(PAIRS, SMALL, tmp_path / "file" / "cache")


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "grpoctl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "grpoctl"


TEXTS = [
    "",
    "Custom -> Review ? Revise : done",
    "  two  spaces, a tab\t, lines\r\n\n and an end ",
    "caf\u00e9 \u4f60\u597d \U0001f98a\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0663",
    "don't [A,B] (C -> D) * 3 !? .,;: <|ed|> \x00\x07",
    "UPPER lower MiXeD 0123456789",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizer_spells_any_text(built: tuple[Path, Any, Any], tiny_model: tuple[Any, Any], text: str) -> None:
    for tokenizer in (built[2], tiny_model[1]):
        (ids,) = tokenizer([text], add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text
        assert tokenizer.batch_decode([ids], skip_special_tokens=True) == [text]
        assert tokenizer.eos_token_id not in ids
        assert tokenizer.pad_token_id not in ids


@pytest.mark.parametrize("name", [operator.value for operator in Operator])
@pytest.mark.parametrize("before", ["", " -> ", "[", "("])
def test_operator_names_are_spelled(tiny_model: tuple[Any, Any], name: str, before: str) -> None:
    # With one token per operator the language is nearly Markov, and a lost cache hardly shows. A capital may have the
    # letter after it and what stands before it: " -> Cu", "s", "t", "o", "m". Everything else is a letter a token.
    _, tokenizer = tiny_model
    (ids,) = tokenizer([before + name], add_special_tokens=False)["input_ids"]
    letters = ["".join(filter(str.isalpha, tokenizer.decode([token]))) for token in ids]
    assert "".join(letters) == name
    assert all(len(part) <= (2 if part[:1].isupper() else 1) for part in letters)
    assert len([part for part in letters if part]) >= 3


def test_the_cached_tokenizer_is_the_one_that_would_be_built_now(tiny_model: tuple[Any, Any]) -> None:
    # The cache key holds the recipe, not the code: whoever changes how words are cut has to raise its version.
    assert builtin.train_tokenizer(tiny_pairs(), Recipe()).get_vocab() == tiny_model[1].get_vocab()


def test_the_built_in_model_is_a_plausible_start(tiny_model: tuple[Any, Any]) -> None:
    task = build(WorkflowDslTaskSpec(name="workflow-dsl", eval_prompts=32))
    policy = CausalLMPolicy(*tiny_model)
    prompts = task.examples("eval")
    keys = [RowKey(0, 5, 0, 0, row) for row in range(2 * len(prompts))]
    rollout = policy.sample(prompts, 2, Sampling(temperature=1.0, max_completion_length=96), keys)
    outcomes = task.score([prompts[i] for i in rollout.prompt_N.tolist()], rollout.outputs)
    # About 85 % of 64 are valid: 54 +- 3. Neither perfect (something to collapse from) nor broken.
    assert 0.7 <= sum(outcome.valid for outcome in outcomes) / len(outcomes) <= 0.97
    assert len(set(rollout.outputs)) > 20
    assert rollout.truncated_N.double().mean() < 0.1


BUILDER = """
import sys, json, torch
from pathlib import Path
from core.models.sources import builtin
torch.set_num_threads(1)
pairs, root = json.loads(sys.argv[1]), Path(sys.argv[2])
recipe = builtin.Recipe(**json.loads(sys.argv[3]))
print("ready", flush=True)
sys.stdin.readline()
model, _ = builtin.load([tuple(pair) for pair in pairs], recipe, root)
folder = root / f"builtin-tiny-{builtin.key([tuple(pair) for pair in pairs], recipe)}"
print(folder.stat().st_ino, sum(float(w.double().sum()) for w in model.state_dict().values()), flush=True)
"""


@pytest.mark.process
@pytest.mark.slow  # the other process imports torch; one that comes second and waits is in core/models/test_cache.py
def test_two_processes_that_build_at_once_build_once(tmp_path: Path) -> None:
    recipe = {field.name: getattr(SMALL, field.name) for field in fields(Recipe)}
    arguments = [sys.executable, "-c", BUILDER, json.dumps(PAIRS), str(tmp_path), json.dumps(recipe)]
    builder = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert builder.stdout is not None
    assert builder.stdin is not None
    assert builder.stdout.readline() == "ready\n"
    builder.stdin.write("go\n")
    builder.stdin.flush()
    model, _ = builtin.load(PAIRS, SMALL, tmp_path)  # this process is the other one
    said, _ = builder.communicate(timeout=60)
    assert builder.returncode == 0
    # Both have the same folder (its inode) and the same weights: one of them waited.
    inode = folder_of(tmp_path).stat().st_ino
    assert said.split() == [str(inode), str(sum(float(w.double().sum()) for w in model.state_dict().values()))]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        folder_of(tmp_path).name,
        f"{folder_of(tmp_path).name}.lock",
    ]
    assert intact(folder_of(tmp_path), builtin.FILES)
