"""`grpoctl check --data`, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bandit import BANDIT, PACKAGE
from tests.grpoctl.cli.conftest import Grpoctl


def gsm8k(folder: Path, *questions: str) -> str:
    """A folder of problems; all of them are answered with 2."""
    rows = [json.dumps({"question": question, "answer": "1 + 1 = 2\n#### 2"}) for question in questions]
    folder.mkdir()
    (folder / "train.jsonl").write_text("\n".join(rows))
    return f"task.path={folder}"


def test_problems_that_repeat_and_leak(grpoctl: Grpoctl, tmp_path: Path) -> None:
    words = "eggs are laid by the hens of a farmer called Ann on each of the days"
    path = gsm8k(tmp_path / "data", f"How many {words}?", f"how many {words}", f"How many brown {words}?", "Else?")
    argv = ("check", "g10", "-p", "tiny", path, "task.train_prompts=3", "task.eval_prompts=1", "--data", "--no-model")
    said = grpoctl(*argv, "stages.grpo.prompts_per_step=1", "stages.supervised.prompts_per_step=1", "--json")
    assert (said.code, said.err) == (0, "")
    data = said.document["data"]
    assert {name: one["problems"] for name, one in data["splits"].items()} == {"train": 3, "eval": 1, "test": 0}
    # Which of the four is held out is up to the seed.
    train = data["splits"]["train"]
    assert train["duplicates"] + train["near_duplicates"] + data["leakage"]["eval"]["near_duplicates"] >= 1
    assert "test.jsonl" in data["absent"]
    assert data["sampling"].keys() == {"skipped"}
    assert "--no-model" in data["sampling"]["skipped"]
    assert said.document["experiment"] == "g10"


def test_the_model_earns_something(grpoctl: Grpoctl) -> None:
    argv = ("check", "p31", "-p", "tiny", "task.train_prompts=32", "task.eval_prompts=8", "--data", "--probe", "4")
    data = grpoctl(*argv, "--json", "--model-samples").document["data"]
    seen = data["sampling"]
    assert (seen["prompts"], seen["num_generations"], len(seen["samples"])) == (4, 8, 32)
    assert data["unit"] == "tokens"
    assert data["splits"]["train"]["prompt"]["max"] < 100
    assert 0 < seen["reward"]["mean"] < 1  # it was taught mostly valid lines
    assert seen["pass_rate"]["low"] < seen["pass_rate"]["mean"] < seen["pass_rate"]["high"]
    assert [row["num_generations"] for row in seen["needs"]] == [2, 4, 8, 16, 32, 64, 128]
    said = grpoctl(*argv)
    assert (said.code, said.err.count("\n")) == (0, 1)
    assert "samples 4 problems x 8 completions of builtin:tiny" in said.err
    assert "Before training: 4 problems x 8 completions at temperature 1" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


def test_a_model_that_is_not_here_is_left_out(grpoctl: Grpoctl) -> None:
    said = grpoctl("check", "p31", "task.train_prompts=32", "model.source=no/such-model", "--data")
    assert said.code == 0
    assert "no/such-model is not on this machine" in " ".join(said.out.split())
    assert "lengths in characters" in said.out


def test_what_cannot_be_looked_at(grpoctl: Grpoctl, tmp_path: Path) -> None:
    nowhere = grpoctl("check", "g10", f"task.path={tmp_path / 'nowhere'}", "--data")
    assert (nowhere.code, nowhere.err.count("\n")) == (2, 1)
    refused = {
        ("advantage-study", "--data"): "'advantage-study' is a sweep",
        ("p31", "--no-model"): "they belong to --data",
        ("p31", "--data", "--no-model", "--probe", "4"): "leave one of them out",
        ("p31", "--data", "--probe", "0"): "--probe",
    }
    for argv, said in refused.items():
        found = grpoctl("check", *argv)
        assert (found.code, found.out) == (2, "")
        assert said in found.err


def test_stored_outputs_are_counted(grpoctl: Grpoctl) -> None:
    argv = ("check", "p49", "-p", "tiny", "task.world.likeness=0.5", "--data")
    data = grpoctl(*argv, "--json").document["data"]
    assert data["splits"]["train"]["problems"] == 64
    own = [row for row in data["live_groups"] if "grpo" in row["stages"]]
    assert {(row["choice"], row["keep"]) for row in own} == {("stratified", 3), ("stratified", 5)}
    said = grpoctl(*argv)
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) <= 80
    mixed = f"{data['right']['mixed']} of 64"
    assert mixed in said.out
    assert "stratified" in said.out
    for name, accuracy in data["baselines"].items():
        assert f"{name} {accuracy:.4f}" in " ".join(said.out.split())


def test_data_that_leaves_no_group_alive_makes_the_verdict_no(grpoctl: Grpoctl) -> None:
    argv = ("check", "p40", "-p", "tiny", "--data")
    document = grpoctl(*argv, "--json").document
    assert document["verdict"] == "no: 1 error about the data"
    assert [warning["id"] for warning in document["data"]["warnings"]] == ["dead-groups"]
    assert grpoctl(*argv).out.endswith("Verdict, the data counted\n  no: 1 error about the data.\n")
    assert grpoctl(*argv[:-1], "--json").document["verdict"].startswith("yes")  # the spec alone rules nothing out


def test_a_task_with_neither_texts_nor_stored_outputs_is_refused(
    grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE))
    (tmp_path / "bandit.yaml").write_text(BANDIT)
    said = grpoctl("check", "bandit.yaml", "--data")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "reach" in said.err
    said = grpoctl("check", "p40", "--data", "--probe", "4")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "--probe" in said.err
