"""`grpoctl sample` in this process, on the built-in model."""

from __future__ import annotations

import io
import sys

import pytest

from grpoctl.runs.run_dir import RunDir
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl, keep

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
        keep(running, 1, moved=0.05)
        keep(running, 2, moved=0.0)
        said = grpoctl("sample", "p31", *drawn)
    assert (said.document["run_id"], said.document["step"]) == (running.id, 2)
    assert running.id in said.err
    assert said.document["completions"] == base != best
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
