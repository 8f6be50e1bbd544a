"""`grpoctl eval` in this process, on the built-in model: nothing here trains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.files import RowWriter
from grpoctl.runs.run_dir import RunDir
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import FEW, MOVED, Grpoctl, keep

pytestmark = pytest.mark.usefixtures("one_thread")


def test_eval_of_a_model_on_an_experiments_task(grpoctl: Grpoctl, tmp_path: Path) -> None:
    said = grpoctl("eval", "builtin:tiny", "p31", *FEW, "--samples", "out.jsonl", "--json")
    document = said.document
    assert (document["schema"], document["model"], document["run_id"]) == (1, "builtin:tiny", None)
    assert (document["experiment"], document["profile"], document["split"]) == ("p31", "tiny", "eval")
    assert (document["prompts"], document["completions"]) == (6, 12)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    assert len({row["prompt_id"] for row in rows}) == 6
    assert document["reward"]["mean"] == pytest.approx(sum(row["expected"] for row in rows) / 12)
    assert document["valid"]["mean"] == pytest.approx(sum(row["valid"] for row in rows) / 12)
    low, high = document["reward"]["low"], document["reward"]["high"]
    assert low < document["reward"]["mean"] < high
    assert list(tmp_path.iterdir()) == [tmp_path / "out.jsonl"]  # it makes no home


def test_eval_says_the_same_of_the_same(grpoctl: Grpoctl) -> None:
    one, again, other = (
        grpoctl("eval", name, "p31", *FEW, "--seed", seed, "--json").document
        for name, seed in (("tiny", "0"), ("builtin:tiny", "0"), ("tiny", "1"))
    )
    for document in (one, again, other):
        del document["seconds"], document["seed"]
    assert one == again != other


def test_fewer_prompts_are_the_first_ones_and_draw_the_same(grpoctl: Grpoctl, tmp_path: Path) -> None:
    grpoctl("eval", "tiny", "p31", *FEW, "--samples", "all.jsonl")
    grpoctl("eval", "tiny", "p31", *FEW, "--prompts", "2", "--samples", "two.jsonl")
    every, two = ((tmp_path / name).read_text().splitlines() for name in ("all.jsonl", "two.jsonl"))
    assert two == every[:4]


def test_eval_of_a_run_is_of_its_own_weights_on_its_own_task(grpoctl: Grpoctl, weights: RunDir) -> None:
    by_id = grpoctl("eval", weights.id, "--json").document
    assert (by_id["run_id"], by_id["step"], by_id["prompts"]) == (weights.id, 2, 6)
    base = grpoctl("eval", "tiny", "p31", *FEW, "--json").document
    assert by_id["reward"] != base["reward"]
    for name in ("p31", str(weights.path), str(weights.adapter)):
        spec = ("p31", *FEW) if name.endswith("adapter") else ()
        assert grpoctl("eval", name, *spec, "--json").document["reward"] == by_id["reward"]
    assert grpoctl("eval", "p31", "task.eval_prompts=3", "--json").document["prompts"] == 3
    text = grpoctl("eval", "p31").out
    assert f"{weights.id}, weights of step 2, on p31 (workflow-dsl), profile tiny, split eval: 6 prompts x 2" in text


def test_eval_of_a_step_is_of_its_checkpoint(grpoctl: Grpoctl, weights: RunDir) -> None:
    keep(weights, 1, moved=0.0)
    keep(weights, 2, moved=MOVED)
    best, base = grpoctl("eval", "p31", "--json").document, grpoctl("eval", "tiny", "p31", *FEW, "--json").document
    first, second = (grpoctl("eval", "p31", "--step", str(step), "--json").document for step in (1, 2))
    assert (first["step"], first["run_id"], first["adapter"], second["step"]) == (1, weights.id, None, 2)
    assert first["reward"] == base["reward"] != best["reward"] == second["reward"]
    text = grpoctl("eval", weights.id, "p31", "--step", "1", *FEW, "--prompts", "1").out
    assert f"{weights.id}, weights of step 1, on p31" in text


def test_eval_of_a_step_that_was_not_kept_lists_those_that_were(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="INTERRUPTED")  # it has exported nothing, which is no matter here
    said = grpoctl("eval", run.id, "--step", "3")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert f"{run.id} has no checkpoint of step 3; it kept none" in said.err
    keep(run, 1, moved=0.0)
    keep(run, 2, moved=0.0)
    assert "it kept those of 1, 2 (checkpoints.save_total_limit" in grpoctl("eval", run.id, "--step", "3").err
    said = grpoctl("eval", "tiny", "p31", "--step", "3")
    assert (said.code, "tiny is no run" in said.err) == (2, True)


@pytest.mark.parametrize("words", [("--greedy",), ("--temperature", "0")])
def test_greedy_is_one_completion_whatever_the_seed(grpoctl: Grpoctl, words: tuple[str, ...]) -> None:
    documents = [grpoctl("eval", "tiny", "p31", *FEW, *words, "--seed", seed, "--json").document for seed in "01"]
    for document in documents:
        assert (document["num_generations"], document["temperature"]) == (1, 0)
        del document["seconds"], document["seed"]
    assert documents[0] == documents[1]


def test_slices_and_other_splits(grpoctl: Grpoctl) -> None:
    words = ("task.eval_prompts=12", "task.train_prompts=8", "evaluation.slice_by=domain")
    document = grpoctl("eval", "tiny", "p31", *words, "--json").document
    assert set(document["slices"]) == {"math", "qa"}
    assert sum(part["prompts"] for part in document["slices"].values()) == 12
    train = grpoctl("eval", "tiny", "p31", *FEW, "--split", "train", "--num-generations", "1", "--json").document
    assert (train["split"], train["prompts"], train["completions"]) == ("train", 8, 8)


def test_more_prompts_than_there_are_is_a_note(grpoctl: Grpoctl) -> None:
    said = grpoctl("eval", "tiny", "p31", *FEW, "--prompts", "99", "--json")
    assert said.document["prompts"] == 6
    assert said.err == "note: workflow-dsl has 6 eval problems, not 99\n"


def test_where_no_reward_could_be_had_nothing_was_measured(grpoctl: Grpoctl, tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text("def lost(prompts, completions, **columns):\n    raise ValueError('away')\n")
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"q": "{n}"}}\n' for n in range(6)))
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nextends: p31\ntitle: Mine\ntask:\n  name: custom\n  data: {path: rows.jsonl}\n"
        "  prompt: '{q}'\n  train_prompts: 2\n  eval_prompts: 2\n  rewards: [{function: ./lost.py:lost}]\n"
    )
    said = grpoctl("eval", "tiny", str(tmp_path / "mine.yaml"), "-p", "tiny", "task.train_prompts=2",
                   "task.eval_prompts=2", "--json")  # fmt: skip
    assert said.document["reward"]["mean"] is None
    assert said.code == 3


def test_a_samples_file_is_never_written_over(grpoctl: Grpoctl, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    said = grpoctl("eval", "tiny", "p31", *FEW, "--samples", "kept")
    assert (said.code, (tmp_path / "kept").read_text()) == (2, "mine")
    assert "is there already" in said.err


def test_a_samples_file_that_cannot_be_written_leaves_none_behind(
    grpoctl: Grpoctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = RowWriter.append

    def full(writer: RowWriter, *rows: Mapping[str, object]) -> None:
        raise StorageError("cannot write all: No space left on device")

    asked = ("eval", "tiny", "p31", *FEW, "--samples", "all")
    monkeypatch.setattr(RowWriter, "append", full)
    assert grpoctl(*asked).code == 3
    assert not (tmp_path / "all").exists()
    monkeypatch.setattr(RowWriter, "append", append)
    assert grpoctl(*asked).code == 0
    assert len((tmp_path / "all").read_text().splitlines()) == 12
