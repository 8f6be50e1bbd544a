"""Scored picks and embeddings out of files: three queries on paper, and everything that can be wrong with them."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from core.config.task import ExampleSelectionTaskSpec
from core.errors import SpecError
from core.tasks.base import Outcome
from core.tasks.registry import build
from core.tasks.selection.task import ExampleSelectionTask

QUERIES = np.array([[1.0, 0], [0, 1], [1, 1]])  # of c, a, b: the order of the file
CANDIDATES = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1], [1, 1]])


def row(picks: list[int], method: str, beam: float | None, accuracy: float, **more: Any) -> dict[str, Any]:
    scores = {"vqa_correct": int(accuracy > 0), "vqa_acc_score": accuracy, "vqa_gt_prob": 1e-6, "vqa_rel_score": 0.5}
    return {"pointer": picks, "gen_method": method, "beam_score": beam, "logprob_score": None, **scores, **more}


def document() -> dict[str, Any]:
    return {
        "_meta": {"model": "any"},
        "c": {
            "question": "what is on the plate",
            "gt_answers_norm": ["fish"],
            "candidate_pool_ids": [4, 0, 1, 2],
            "pointer_candidates": [
                {**row([0, 0], "random", None, 1.0), "pointer": None, "pointer_pos": [1, 2]},  # 0 and 1
                row([1, 0], "beam", -1.0, 0.6),  # the same set: the beam stays
                row([4, 2], "beam", -0.5, 0.0),
                row([0, 4], "sample_t1.0", None, 1.0, logprob_score=-2.0),
            ],
        },
        "a": {
            "question": "a",
            "pointer_candidates": [row([0, 1], "beam", -1.0, 0.0), row([2, 3], "sample", -2.0, 0.0)],
        },
        "b": {
            "question": "b",
            "candidate_pool_ids": [3, 1],
            "pointer_candidates": [
                row([1, 3], "beam", -1.0, 1.0),
                row([3, 1], "random", -1.0, 1.0, eval_failed=True),
                row([3, 1], "random", -1.0, 1.0, vqa_eval_mode="fallback"),
                row([3, 1], "random", -1.0, 1.0, vqa_eval_mode="error"),
                row([3], "beam", -1.0, 0.6),
            ],
        },
    }


def save(folder: Path, content: object = None, queries: Any = QUERIES, candidates: Any = CANDIDATES) -> dict[str, str]:
    (folder / "scored.json").write_text(
        content if isinstance(content, str) else json.dumps(document() if content is None else content)
    )
    np.save(folder / "q.npy", queries, allow_pickle=True)
    np.save(folder / "c.npy", candidates)
    return {
        "path": str(folder / "scored.json"),
        "query_embeddings": str(folder / "q.npy"),
        "candidate_embeddings": str(folder / "c.npy"),
    }


def task_of(data: dict[str, str], **changes: Any) -> ExampleSelectionTask:
    spec = {"name": "example-selection", "train_prompts": 2, "eval_prompts": 1, "data": data, **changes}
    task = build(ExampleSelectionTaskSpec.model_validate(spec))
    assert isinstance(task, ExampleSelectionTask)
    return task


def scored(task: ExampleSelectionTask, split: Any, number: int, picks: tuple[int, ...]) -> Outcome:
    return task.score([task.examples(split)[number]], [picks])[0]


def test_queries_are_split_by_sorted_id_and_keep_their_own_embedding(tmp_path: Path) -> None:
    task = task_of(save(tmp_path))
    assert [example.id for example in (*task.examples("train"), *task.examples("eval"))] == ["a", "b", "c"]
    assert [example.facts["has_positive"] for example in task.examples("train")] == [False, True]
    (held_out,) = task.examples("eval")
    assert held_out.inputs["ids"] == (4, 0, 1, 2)
    assert np.array_equal(np.asarray(held_out.inputs["query"]), [1, 0])  # the file's first row
    assert np.array_equal(np.asarray(held_out.inputs["candidates"]), CANDIDATES[[4, 0, 1, 2]])
    assert task.shown(held_out) == "what is on the plate"
    assert list(task.examples("test")) == []
    assert "choices" not in task.examples("train")[0].inputs


def test_equal_sets_are_one_and_the_beam_stays(tmp_path: Path) -> None:
    task = task_of(save(tmp_path))
    (held_out,) = task.examples("eval")
    # Positions in 4, 0, 1, 2: the beam (1, 0) is (2, 1), (4, 2) is (0, 3), the sample (0, 4) is (1, 0).
    assert list(task.stored(held_out)) == [(2, 1), (0, 3), (1, 0)]
    assert held_out.inputs["choices"] == ((2, 1), (0, 3), (1, 0))
    assert scored(task, "eval", 0, (1, 2)).parts == {"accuracy": 0.6, "correct": 1.0}  # in any order, the beam's score
    assert scored(task, "eval", 0, (1, 2)).reward == 1.6
    assert task.target(held_out) == (0, 3)  # the highest beam score among beams; the stored order does not matter
    assert [task.data.queries[2].proposed, len(task.stored(held_out))] == [4, 3]


def test_rows_that_failed_are_left_out_and_a_query_without_a_pool_has_all(tmp_path: Path) -> None:
    task = task_of(save(tmp_path))
    a, b = task.examples("train")
    assert list(task.stored(b)) == [(1, 0)]
    assert a.inputs["ids"] == (0, 1, 2, 3, 4)
    everything = task_of(save(tmp_path), pool="all")
    assert everything.examples("train")[1].inputs["ids"] == (0, 1, 2, 3, 4)
    assert list(everything.stored(everything.examples("train")[1])) == [(1, 3)]


def test_what_nobody_scored_is_missing_and_never_0(tmp_path: Path) -> None:
    task = task_of(save(tmp_path))
    unknown = scored(task, "eval", 0, (2, 3))
    assert math.isnan(unknown.reward)
    assert math.isnan(unknown.expected)


def test_accuracies_of_the_first_picks_are_there_where_they_are_known(tmp_path: Path) -> None:
    content = document()
    for name in ("a", "c"):
        content[name]["pointer_candidates"].append(row([1], "beam", -1.0, 0.0))
    task = task_of(save(tmp_path, content), shots=1)
    outcome = scored(task, "train", 1, (0, 1))  # of b: 3 (.6), then 1: both 1.0
    assert outcome.parts == {"accuracy_1": 0.6, "accuracy_2": 1.0}
    assert (outcome.reward, outcome.expected) == (1.6, 0.6)
    assert math.isnan(scored(task, "train", 1, (1, 0)).parts["accuracy_1"])


def test_baselines_are_over_stored_picks(tmp_path: Path) -> None:
    # c = (1, 0): {0, 1} has cosines 1 + 0, {4, 2} .71 - 1, {0, 4} 1 + .71: the nearest; accuracies .6, 0 and 1.
    task = task_of(save(tmp_path))
    assert task.baselines_at(2) == pytest.approx({"random": 1.6 / 3, "nearest": 1.0, "best": 1.0})
    assert task.baselines_at(1) == {}


def test_wrong_rows_below_a_beam_score_are_dropped_but_for_the_best(tmp_path: Path) -> None:
    data = save(tmp_path, {name: query for name, query in document().items() if name != "c"}, queries=QUERIES[:2])
    task = task_of(data, train_prompts=1, drop_wrong_below=-0.5)
    assert list(task.stored(task.examples("train")[0])) == [(0, 1)]  # -1 and -2 are wrong, the best of them stays
    assert list(task.stored(task.examples("eval")[0])) == [(1, 0)]  # right


def test_z_scores_are_those_of_the_training_queries_with_ddof_1(tmp_path: Path) -> None:
    # a: 0 and 0; b: 2. Mean 2/3, squares 4/9 + 4/9 + 16/9 = 24/9, over 2: std sqrt(4/3).
    task = task_of(save(tmp_path), reward_zscore=True)
    assert scored(task, "train", 1, (1, 0)).reward == pytest.approx((2 - 2 / 3) / math.sqrt(4 / 3))
    assert scored(task, "train", 1, (1, 0)).expected == 1.0
    assert scored(task, "eval", 0, (1, 2)).reward == pytest.approx((1.6 - 2 / 3) / math.sqrt(4 / 3))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_embeddings_may_be_safetensors(tmp_path: Path, dtype: Any) -> None:
    data = save(tmp_path)
    save_file({"embeddings": QUERIES.astype(dtype), "other": CANDIDATES}, tmp_path / "q.safetensors")
    save_file({"any": CANDIDATES.astype(dtype)}, tmp_path / "c.safetensors")
    names = {f"{name}_embeddings": str(tmp_path / f"{name[0]}.safetensors") for name in ("query", "candidate")}
    query = np.asarray(task_of(data | names).examples("eval")[0].inputs["query"])
    assert query.dtype == np.float32
    assert query.tolist() == [1, 0]


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    content = document()
    change(content)
    return content


def without(field: str) -> dict[str, Any]:
    return changed(lambda content: content["a"]["pointer_candidates"][1].pop(field))


def with_row(**fields: Any) -> dict[str, Any]:
    return changed(lambda content: content["b"]["pointer_candidates"][0].update(fields))


POSITIONS_WITHOUT_A_POOL = changed(
    lambda content: content["a"]["pointer_candidates"][0].update(pointer=None, pointer_pos=[0, 1])
)
TWICE = json.dumps(document())[:-1] + ', "b": {}}'
TWICE_INSIDE = json.dumps(document()).replace('"question": "b"', '"question": "b", "question": "d"')


def test_a_row_may_say_its_picks_twice(tmp_path: Path) -> None:
    """1 and 0 are the places of 1 and 3 in the pool [3, 1]; a query without a pool counts in none."""
    twice = with_row(pointer_pos=[1, 0])
    twice["a"]["pointer_candidates"][0]["pointer_pos"] = [5, 6]
    once = [query.stored for query in task_of(save(tmp_path, document())).data.queries]
    assert [query.stored for query in task_of(save(tmp_path, twice)).data.queries] == once


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        *((without(field), ["query a", "[1]", field]) for field in ("pointer", "gen_method")),
        *((without(field), ["query a", "[1]", field]) for field in ("vqa_correct", "vqa_acc_score")),
        (changed(lambda content: content["c"].pop("question")), ["query c", "question"]),
        (changed(lambda content: content["c"].pop("pointer_candidates")), ["query c", "pointer_candidates"]),
        (changed(lambda content: content["c"].update(candidate_pool_ids=[0, 9])), ["query c", "pool_ids", "9"]),
        (changed(lambda content: content["c"].update(candidate_pool_ids=[0, 0])), ["query c", "candidate_pool_ids"]),
        (changed(lambda content: content.update(b=[])), ["query b", "object"]),
        (with_row(pointer=[0, 1]), ["query b", "pointer", "got 0", "pool"]),
        (with_row(pointer=[1, 5]), ["query b", "pointer", "got 5", "bank"]),
        (with_row(pointer=[-1, 1]), ["query b", "pointer", "got -1"]),
        (with_row(pointer=[1, 1]), ["query b", "pointer", "different"]),
        (with_row(pointer=[True, 1]), ["query b", "pointer"]),
        (with_row(pointer=None, pointer_pos=[0, 2]), ["query b", "pointer_pos", "got 2"]),
        (with_row(pointer_pos=[0, 1]), ["query b", "pointer_pos", "means the picks [3, 1], and pointer says [1, 3]"]),
        (with_row(pointer_pos=[1, 2]), ["query b", "pointer_pos", "got 2"]),
        (POSITIONS_WITHOUT_A_POOL, ["query a", "pointer_pos"]),
        (with_row(vqa_correct=2), ["query b", "vqa_correct", "2"]),
        (with_row(vqa_acc_score=math.nan), ["query b", "vqa_acc_score", "nan"]),
        (with_row(beam_score="high"), ["query b", "beam_score", "high"]),
        (with_row(eval_failed=True), ["query b", "pointer_candidates"]),  # nothing of 2 picks is left
        (changed(lambda content: content["a"].update(pointer_candidates=[])), ["query a", "pointer_candidates"]),
        (TWICE, ["query b", "twice"]),
        (TWICE_INSIDE, ["query b", "question", "twice"]),
        ("{", ["JSON"]),
        ("[]", ["no query"]),
        ({"_meta": {}}, ["no query"]),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_with_file_query_and_field(tmp_path: Path, content: object, facts: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        task_of(save(tmp_path, content))
    message = str(caught.value)
    assert [fact for fact in ["scored.json", *facts] if fact not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reward_mode": "alpha_beta"}, "beam_score"),
        ({"drop_wrong_below": -3.0}, "beam_score"),
        ({"reward_mode": "hard_plus_gtprob_plus_rel"}, "vqa_rel_score"),
    ],
)
def test_a_score_is_needed_where_the_reward_asks_for_it(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    data = save(tmp_path, with_row(beam_score=None, vqa_rel_score=None))
    assert task_of(data)
    with pytest.raises(SpecError, match=f"query .*{field}"):
        task_of(data, **changes)


@pytest.mark.parametrize(
    ("queries", "candidates", "facts"),
    [
        (np.where(QUERIES == 1, np.nan, QUERIES)[::-1], CANDIDATES, ["q.npy", "query c", "NaN"]),
        (QUERIES, np.where(CANDIDATES == -1, np.inf, CANDIDATES), ["c.npy", "row 2"]),
        (QUERIES[:2], CANDIDATES, ["q.npy", "2 rows", "3"]),
        (QUERIES[:, :1], CANDIDATES, ["q.npy", "1 wide", "2"]),
        (QUERIES[0], CANDIDATES, ["q.npy", "(2,)"]),
        (QUERIES.astype(np.int64), CANDIDATES, ["q.npy", "int64"]),
        (np.array([{"a": 1}, None, "b"], dtype=object), CANDIDATES, ["q.npy", "embeddings"]),
    ],
)
def test_bad_embeddings_are_one_line(tmp_path: Path, queries: Any, candidates: Any, facts: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        task_of(save(tmp_path, queries=queries, candidates=candidates))
    assert [fact for fact in facts if fact not in str(caught.value)] == []
    assert "\n" not in str(caught.value)


class _Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm"),)


@pytest.mark.parametrize("name", ["q.npy", "q.safetensors", "q.pt", "none.npy"])
def test_no_pickle_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    data = save(tmp_path)
    if name != "none.npy":
        (tmp_path / name).write_bytes(pickle.dumps(_Harm()))
    with pytest.raises(SpecError) as caught:
        task_of(data | {"query_embeddings": str(tmp_path / name)})
    assert name in str(caught.value)
    assert not Path("harm").exists()


def test_more_queries_than_there_are_and_a_world_beside_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"3 queries.*fewer"):
        task_of(save(tmp_path), train_prompts=3)
    with pytest.raises(ValueError, match="beside data"):
        task_of(save(tmp_path), world={})
