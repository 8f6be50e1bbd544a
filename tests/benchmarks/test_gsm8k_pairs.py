"""Scored pairs of worked problems: what a result is, what a kill leaves, and whether the task reads what is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.gsm8k_pairs import Score, Settings, WorkedProblem, make, worked_problem
from grpoctl.config import load

if TYPE_CHECKING:
    from benchmarks.gsm8k_pairs import Floats

SETTINGS = Settings(queries=18, candidates=3, pairs_per_query=2, seed=0)


class KilledError(Exception):
    """What stands for a SIGKILL."""


class FakeScorer:
    """Right on the last result where the lengths of the three texts add up to an even number; dies after `lives`."""

    def __init__(self, lives: int = 1000) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.lives = lives

    def embeddings(self, texts: Sequence[str]) -> Floats:
        return np.array([[len(text), len(set(text)), text.count("e")] for text in texts], dtype=np.float32)

    def score(self, examples: tuple[WorkedProblem, WorkedProblem], problem: WorkedProblem) -> Score:
        if len(self.calls) == self.lives:
            raise KilledError
        self.calls.append((examples[0].question, examples[1].question, problem.question))
        even = sum(map(len, self.calls[-1])) % 2 == 0
        return Score(logprob=-1.25, right=(True, even))


@pytest.fixture
def gsm8k(tmp_path: Path) -> Path:
    """28 problems of two steps, of which seven end in another number than their answer."""
    rows = []
    for n in range(1, 29):
        first, second = f"2*{n} = <<2*{n}={2 * n}>>{2 * n}", f"{2 * n}-1 = $<<{2 * n}-1={2 * n - 1}>>{2 * n - 1}"
        worked = f"Twice it is {first}.\nSo {second} it is."
        answer = 2 * n - 1 if n % 4 else 7777
        rows.append(
            {"question": f"What is {'ever ' * (n % 7)}twice {n}, less 1?", "answer": f"{worked}\n#### {answer}"}
        )
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return tmp_path


def test_results_are_where_the_marks_stand() -> None:
    problem = worked_problem(
        "How many?", "48/2 = <<48/2=24>>24 in May, 1,000+24 = $<<1000+24=1024>>1,024 in all.\n#### 1024"
    )
    assert problem is not None
    assert problem.solution == "48/2 = 24 in May, 1,000+24 = $1,024 in all."
    assert [problem.solution[slice(*place)] for place in problem.results] == ["24", "1,024"]
    assert worked_problem("How many?", "48/2 = <<48/2=24>>24\n#### 25") is None  # another step gave the answer
    assert worked_problem("How many?", "It is 24.\n#### 24") is None


def test_the_task_reads_what_is_written(gsm8k: Path, tmp_path: Path) -> None:
    scorer = FakeScorer()
    make(gsm8k, tmp_path / "out", SETTINGS, lambda: scorer)
    assert len(set(scorer.calls)) == len(scorer.calls) == 18 * 2
    spec = load(str(tmp_path / "out" / "gsm8k-pairs.yaml")).spec
    from core.tasks.registry import build

    task = build(spec.task)
    assert (len(task.examples("train")), len(task.examples("eval"))) == (12, 6)  # a third is held out
    for example in (*task.examples("train"), *task.examples("eval")):
        stored = task.stored(example)
        assert len({frozenset(picks) for picks in stored}) == 2
        for outcome in task.score([example] * 2, stored):
            assert outcome.parts["accuracy"] == (1.0 if outcome.right else 0.5)  # one of two results, or both


def test_gone_on_with_after_a_kill_nothing_is_scored_twice(gsm8k: Path, tmp_path: Path) -> None:
    whole = FakeScorer()
    make(gsm8k, tmp_path / "whole", SETTINGS, lambda: whole)
    before, after = FakeScorer(lives=10), FakeScorer()
    with pytest.raises(KilledError):
        make(gsm8k, tmp_path / "out", SETTINGS, lambda: before)
    rows = tmp_path / "out" / "rows.jsonl"
    assert len(rows.read_text(encoding="utf-8").splitlines()) == 10
    with rows.open("a", encoding="utf-8") as stream:
        stream.write('{"query": 5, "pair": [0,')  # torn
    make(gsm8k, tmp_path / "out", SETTINGS, lambda: after)
    assert before.calls + after.calls == whole.calls
    for name in ("rows.jsonl", "pairs.json", "query_embeddings.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_other_settings_need_another_folder(gsm8k: Path, tmp_path: Path) -> None:
    make(gsm8k, tmp_path / "out", SETTINGS, FakeScorer)
    other = Settings(queries=17, candidates=3, pairs_per_query=2, seed=0)
    with pytest.raises(SystemExit, match="queries"):
        make(gsm8k, tmp_path / "out", other, FakeScorer)
