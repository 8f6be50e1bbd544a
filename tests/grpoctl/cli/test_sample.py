"""`grpoctl sample` in this process, on the built-in model."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from core.tasks import registry
from grpoctl.cli.sample import print_completions
from grpoctl.runs.run_dir import Home, RunDir
from tests.bandit import BANDIT, PACKAGE
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import MOVED, Grpoctl, keep, untrained

pytestmark = pytest.mark.usefixtures("one_thread")


def test_sample_is_repeated_by_its_seed(grpoctl: Grpoctl) -> None:
    def drawn(*words: str) -> list[str]:
        document = grpoctl("sample", "tiny", "12+7=", "-n", "6", "--json", *words).document
        return [one["text"] for one in document["completions"]]

    assert drawn() == drawn() != drawn("--seed", "1")
    assert len(set(drawn("--temperature", "0"))) == 1


def test_sample_of_a_run_and_its_document(grpoctl: Grpoctl, weights: RunDir) -> None:
    document = grpoctl("sample", "p31", "12+7=", "--max-tokens", "1", "--json").document
    assert document["run_id"] == weights.id
    assert (document["prompt"], document["max_tokens"], document["temperature"]) == ("12+7=", 1, 1.0)
    (one,) = document["completions"]
    assert (one["tokens"], one["truncated"]) == (1, True)
    assert one["logprob"] < 0
    assert grpoctl("sample", "p31", "12+7=", "--json").document["max_tokens"] == 48  # the run's own


def test_sample_of_one_that_is_running_is_of_its_newest_checkpoint(
    grpoctl: Grpoctl, weights: RunDir, recorded: Recorded
) -> None:
    running = recorded(ended="RUNNING", seed=7)
    drawn = ("12+7=", "-n", "6", "--json")
    base, best = (grpoctl("sample", name, *drawn).document["completions"] for name in ("tiny", weights.id))
    with running.hold():
        assert grpoctl("sample", "p31", *drawn).document["run_id"] == weights.id  # it has kept nothing yet
        keep(running, 1, moved=MOVED)
        keep(running, 2, moved=0.0)
        said = grpoctl("sample", "p31", *drawn)
    assert (said.document["run_id"], said.document["step"]) == (running.id, 2)
    assert running.id in said.err
    of_the_newest = said.document["completions"]
    # An adapter that adds 0 may still be multiplied otherwise than no adapter: the last bits depend on the CPU.
    assert [{**one, "logprob": pytest.approx(one["logprob"], abs=1e-5)} for one in base] == of_the_newest != best
    assert grpoctl("sample", "p31", *drawn).document["run_id"] == weights.id


def test_sample_reads_standard_input(grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    given(b"12+7=\n")
    assert grpoctl("sample", "tiny", "-", "--json").document["prompt"] == "12+7="
    given(b"12\xff")
    assert "no UTF-8 at byte 2" in grpoctl("sample", "tiny", "-").err
    given(b"")
    assert "empty" in grpoctl("sample", "tiny", "-").err


def test_several_completions_are_told_apart(grpoctl: Grpoctl) -> None:
    said = grpoctl("sample", "tiny", "12+7=", "-n", "2", "--max-tokens", "1")
    assert [line for line in said.out.splitlines() if line.startswith("---")] == ["--- 1 (cut off)", "--- 2 (cut off)"]
    assert "2 of 2 were cut off at 1 tokens" in said.err


def test_an_empty_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*texts: str) -> str:
        print_completions([{"text": text, "truncated": False} for text in texts], 8)
        return capsys.readouterr().err

    assert "2 of 3 are empty" in said("", "a", " ")
    assert "it is empty" in said("")
    assert said("a", "b") == ""


def test_a_selector_answers_the_queries_of_its_task(grpoctl: Grpoctl, home: Home) -> None:
    run, spec = untrained(home, "p40", profile="tiny")
    task = registry.build(spec.task)
    train, held_out = task.examples("train")[3], task.examples("eval")[-1]
    for query in (train, held_out):
        argv = ("sample", run.id, query.id, "-n", "5", "--temperature", "1", "--json")
        document = grpoctl(*argv).document
        assert (document["run_id"], document["prompt"], document["max_tokens"]) == (run.id, query.id, None)
        drawn = document["completions"]
        assert grpoctl(*argv).document["completions"] == drawn != grpoctl(*argv, "--seed", "1").document["completions"]
        outputs = [tuple(one["output"]["picks"]) for one in drawn]
        for one, outcome in zip(drawn, task.score([query] * 5, outputs), strict=True):
            assert len(one["output"]["picks"]) == 2
            assert one["logprob"] < 0
            assert (one["reward"], one["expected"], one["rewards"]) == (outcome.reward, outcome.expected, outcome.parts)
    (best,) = grpoctl("sample", run.id, train.id, "--json").document["completions"]  # the run evaluates greedily
    assert len(best["output"]["picks"]) == 4
    printed = grpoctl("sample", run.id, train.id).out
    assert f"picks {', '.join(map(str, best['output']['picks']))}" in printed
    assert task.shown(train) in " ".join(printed.split())


def test_a_problem_that_the_task_does_not_have(grpoctl: Grpoctl, home: Home) -> None:
    run, _ = untrained(home, "p40", profile="tiny")
    said = grpoctl("sample", run.id, "what is on the plate")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "query-00000" in said.err
    assert "query-00127" in said.err
    said = grpoctl("sample", run.id, "query-00000", "--max-tokens", "4")
    assert (said.code, said.err.count("\n")) == (2, 1)


def test_a_photo_of_ones_own_is_restored_without_the_training_pictures(
    grpoctl: Grpoctl, home: Home, tmp_path: Path
) -> None:
    folder, photo = tmp_path / "photos", tmp_path / "mine.png"
    folder.mkdir()
    for number in range(3):
        Image.new("RGB", (64, 64), (60 * number, 90, 120)).save(folder / f"{number}.png")
    Image.new("RGB", (24, 16), (200, 80, 40)).save(photo)
    run, _ = untrained(home, "p52", f"task.pictures={folder}", "task.held_out=1", profile="tiny")
    asked = ("sample", run.id, "mine.png", "--json")
    before = [grpoctl(*asked, *more).document["completions"] for more in ((), ("--degrade", "noise-25"))]
    shutil.rmtree(folder)
    after = [grpoctl(*asked, *more).document["completions"] for more in ((), ("--degrade", "noise-25"))]
    assert after == before
    assert (after[0][0]["reward"], after[1][0]["reward"] > 0) == (None, True)
    said = grpoctl("sample", run.id, "eval-noise-25-00000")  # a problem is of the pictures that are gone
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "task.pictures" in said.err


def test_a_policy_of_a_package_answers_too(
    grpoctl: Grpoctl, home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE))
    (tmp_path / "bandit.yaml").write_text(BANDIT)
    run, _ = untrained(home, str(tmp_path / "bandit.yaml"))
    drawn = grpoctl("sample", run.id, "eval-00003", "-n", "3", "--temperature", "1", "--json").document["completions"]
    assert [len(one["output"]["action"]) for one in drawn] == [2, 2, 2]
    assert all(0 < one["reward"] == one["expected"] <= 1 for one in drawn)
    said = grpoctl("sample", run.id, "eval-00003", "--temperature", "0")
    assert (said.code, said.err.count("\n")) == (2, 1)
