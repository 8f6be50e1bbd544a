"""`grpoctl eval`, `sample` and `export` of a real run: what training reached is what is measured of its weights."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.scenarios import FullRun

pytestmark = pytest.mark.process


def test_the_runs_best_evaluation_comes_out_again(p31: FullRun) -> None:
    best = p31.done.document["best"]
    said = p31.cli.run("eval", p31.dir.id, "--json")
    assert said.returncode == 0, said.stderr
    document = said.document
    assert (document["run_id"], document["step"]) == (p31.dir.id, best["step"])
    assert document["reward"]["mean"] == pytest.approx(best["eval/reward"], abs=1e-9)
    assert document["reward"]["se"] == pytest.approx(best["eval/reward_se"], abs=1e-9)
    assert document["valid"]["mean"] == pytest.approx(best["eval/valid"], abs=1e-9)
    # and training was worth it: its interval lies above what the model did before, on the same problems
    before = p31.cli.run("eval", "builtin:tiny", "p31", "--profile", "tiny", "--json").document
    assert before["reward"]["mean"] == pytest.approx(p31.done.document["start"]["eval/reward"], abs=1e-9)
    assert document["reward"]["low"] > before["reward"]["high"]


def test_its_card_tells_what_its_result_tells(p31: FullRun) -> None:
    card, result = (p31.dir.adapter / "README.md").read_text(), p31.done.document
    assert f"of step {result['best']['step']}, the best evaluation" in card
    assert f"| {result['start']['eval/reward']:.3f} ±" in card
    assert result["spec_sha"] in card
    for told in (str(p31.cli.folder), json.loads(p31.dir.provenance.read_text())["attempts"][0]["hostname"]):
        assert told not in card


def test_merged_weights_say_what_the_adapter_says(p31: FullRun) -> None:
    folder = p31.cli.folder / "mine"
    said = p31.cli.run("export", "p31", str(folder), "--merged", "--json")
    assert said.returncode == 0, said.stderr
    assert set(said.document["files"]) >= {"model.safetensors", "tokenizer.json", "README.md"}
    greedy = ("12+7=", "--temperature", "0", "--json")
    answers = [p31.cli.run("sample", name, *greedy).document["completions"] for name in ("p31", str(folder))]
    assert answers[0][0]["text"] == answers[1][0]["text"]
