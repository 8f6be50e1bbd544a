"""What is known of stored outputs before a run: queries on paper, and the generator's against counting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from core.config.task import RewardMode
from core.tasks import registry
from grpoctl.config import load
from grpoctl.stored_outputs import findings as findings_of
from grpoctl.stored_outputs import look

ACCURACIES = {
    "a": (1.0, 1.0, 0.0),
    "b": (1.0, 0.6, 1.0),
    "c": (0.0, 0.0, 0.0),
    "d": (1.0, 0.0, 0.0),
    "e": (0.0, 1.0, 1.0),
}
POOL = ((0, 1), (1, 2), (0, 2))
EMBEDDINGS = np.eye(3)[[0, 1, 2, 0, 0]]  # d and e are asked as a is


def stored(picks: tuple[int, int], accuracy: float, method: str) -> dict[str, Any]:
    scores = {"vqa_correct": int(accuracy > 0), "vqa_acc_score": accuracy, "vqa_gt_prob": 0.0, "vqa_rel_score": 0.5}
    return {"pointer": list(picks), "gen_method": method, "beam_score": -1.0, **scores}


def paper(folder: Path) -> list[str]:
    """Overrides for five queries of three candidates each, four to learn from; each has one row twice."""
    queries = {}
    for name, accuracies in ACCURACIES.items():
        rows = [
            stored(picks, *row)
            for picks, row in zip(POOL, zip(accuracies, ("beam", "beam", "random"), strict=True), strict=True)
        ]
        queries[name] = {"question": name, "pointer_candidates": [*rows, stored((1, 0), accuracies[0], "random")]}
    (folder / "data.json").write_text(json.dumps(queries))
    np.save(folder / "queries.npy", EMBEDDINGS)
    np.save(folder / "bank.npy", np.eye(3))
    return [
        "task.world=null", f"task.data.path={folder / 'data.json'}",
        f"task.data.query_embeddings={folder / 'queries.npy'}",
        f"task.data.candidate_embeddings={folder / 'bank.npy'}", "task.train_prompts=4", "task.eval_prompts=1",
        "policy.width=3", "policy.shots=2", "stages.sft.prompts_per_step=1", "stages.grpo.keep_candidates=2",
    ]  # fmt: skip


def looked(*overrides: str) -> dict[str, Any]:
    spec = load("p40", profile="tiny", overrides=overrides).spec
    return look(spec, registry.build(spec.task))


def findings(data: dict[str, Any], *overrides: str, name: str = "p40") -> list[tuple[str, str]]:
    spec = load(name, profile="tiny", overrides=overrides).spec
    return [(finding.id, finding.severity) for finding in findings_of(spec, data)]


def live(document: dict[str, Any], mode: str, choice: str | None, keep: int | None) -> Any:
    named = {(row["reward_mode"], row["choice"], row["keep"]): row for row in document["live_groups"]}
    return named[mode, choice, keep]


def test_queries_on_paper(tmp_path: Path) -> None:
    data = looked(*paper(tmp_path))
    assert {name: split["problems"] for name, split in data["splits"].items()} == {"train": 4, "eval": 1, "test": 0}
    assert data["splits"]["train"]["same_inputs"] == 1  # d is a
    assert data["splits"]["train"]["examples"] == [{"id": "d", "other": "a"}]
    assert (data["leakage"]["eval"]["same_inputs"], data["leakage"]["eval"]["same_id"]) == (1, 0)
    assert findings(data) == [("leakage", "warning")]
    candidates = data["candidates"]
    assert (candidates["total"], candidates["min"], candidates["max"]) == (12, 3, 3)
    assert (candidates["proposed"], candidates["duplicates"], candidates["filtered"]) == (16, 4, 0)
    assert candidates["sources"] == {"beam": 8, "random": 4}
    assert data["right"] == {
        "share": 6 / 12, "queries_with_right": 3 / 4, "all_right": 1, "all_wrong": 1, "mixed": 2, "mixed_share": 0.5,
    }  # fmt: skip
    shares = {row["value"]: row["share"] for row in data["scores"]["accuracy"]["values"]}
    assert shares == pytest.approx({0.0: 6 / 12, 0.6: 1 / 12, 1.0: 5 / 12})
    assert data["scores"]["beam_score"]["values"] == [{"value": -1.0, "share": 1.0}]
    assert data["baselines"]["best"] == 1.0


def test_live_groups_on_paper(tmp_path: Path) -> None:
    data = looked(*paper(tmp_path))
    assert live(data, "hard_plus_soft", None, None)["live"] == 3  # a, b, d
    assert live(data, "hard_only", None, None)["live"] == 2  # in b all are right
    own = live(data, "hard_plus_soft", "best", 2)
    assert (own["live"], own["stages"]) == (1, ("grpo",))  # of a and b the best two are equal, of d not
    assert own["advantage_std"] == pytest.approx(1 / 4, rel=1e-3)  # the z-score of one group of four
    assert live(data, "hard_only", "stratified", 2)["live"] == 2
    # Two of three at random: one of three pairs is equal.
    assert 0 < live(data, "hard_only", "random", 2)["live"] < 2
    assert live(data, "alpha_beta", None, None)["live"] == 2  # beam scores are equal here
    assert any("2 of 4" in sentence for sentence in data["conclusions"])


def test_a_stage_without_a_live_group_cannot_learn(tmp_path: Path) -> None:
    data = looked(*paper(tmp_path))
    (own,) = (row for row in data["live_groups"] if "grpo" in row["stages"])
    own["live"] = 0
    assert findings(data) == [("dead-groups", "error"), ("leakage", "warning")]
    assert findings(data, name="p40-ranks") == [("leakage", "warning")]  # ranks teach an order of equal rewards, too
    own["live"] = 0.1  # of 4, the mean of draws
    assert findings(data)[0] == ("dead-groups", "warning")


def test_a_score_that_is_missing_is_not_counted_as_equal(tmp_path: Path) -> None:
    overrides = paper(tmp_path)
    queries = json.loads((tmp_path / "data.json").read_text())
    for query in queries.values():
        for row in query["pointer_candidates"]:
            del row["vqa_rel_score"]
    (tmp_path / "data.json").write_text(json.dumps(queries))
    data = looked(*overrides)
    row = live(data, "hard_plus_gtprob_plus_rel", None, None)
    assert row["missing"] == 1.0
    assert live(data, "hard_plus_soft", None, None)["missing"] == 0.0


def test_every_mode_and_choice_of_the_generated_queries() -> None:
    data = looked("task.world.likeness=0.5")
    modes = list(dict.fromkeys(row["reward_mode"] for row in data["live_groups"]))
    assert modes[0] == "hard_plus_soft"
    assert set(modes) == set(get_args(RewardMode))
    right = data["right"]
    assert right["mixed"] + right["all_right"] + right["all_wrong"] == 64
    assert live(data, "hard_only", None, None)["live"] == right["mixed"]
    for keep in (3, 5):
        counts = [live(data, "hard_only", choice, keep)["live"] for choice in ("random", "stratified")]
        assert counts[0] < counts[1] == right["mixed"]
        assert live(data, "separated", "best", keep)["live"] == live(data, "hard_plus_soft_v2", "best", keep)["live"]
        assert live(data, "hard_plus_soft", "best", keep)["stages"] == ("grpo",)
    assert looked("task.world.likeness=0.5") == data
    assert data["baselines"]["random"] < data["baselines"]["best"]


def test_the_filter_and_the_choice_that_a_stage_has() -> None:
    data = looked("task.drop_wrong_below=-4", "stages.grpo.candidate_choice=stratified", "task.reward_mode=hard_only")
    assert data["candidates"]["filtered"] > 0
    used = {(row["choice"], row["keep"]): row["stages"] for row in data["live_groups"] if row["stages"]}
    assert used == {(None, None): ("rce",), ("stratified", 3): ("grpo",), ("stratified", 5): ("grpo",)}
