"""What MLflow is told of a run and of a study, on paper."""

from __future__ import annotations

import math
from typing import Any

import pytest

from grpoctl.runs.status import Status, StatusRecord, StudyStatus
from grpoctl.tracking.payload import (
    Point,
    batches,
    identity_tags,
    mlflow_status,
    mlflow_study_status,
    params,
    points,
    standing_tags,
    status_tags,
    study_points,
    study_token,
    tags,
    token,
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"a": {"b": {"c": 2e-6}}}, {"a.b.c": "2e-06"}),
        ({"a": "tiny", "b": "", "c": None, "d": True}, {"a": "tiny", "b": "", "c": "null", "d": "true"}),
        ({"a": [0.9, "q"], "b": {}}, {"a": '[0.9, "q"]', "b": "{}"}),
        ({"a": "x" * 6000, "b": "y" * 6001}, {"a": "x" * 6000, "b": "y" * 5999 + "…"}),
    ],
)
def test_params_are_the_leaves_of_the_spec(spec: dict[str, object], expected: dict[str, str]) -> None:
    assert params(spec) == expected


def test_points_leave_out_what_is_missing_no_number_or_known() -> None:
    rows = [
        {"step": 1, "loss": 0.5, "kl": 0.1},
        {"step": 2, "loss": None, "kl": 1, "text": "x", "flag": True},
        {"step": 3, "loss": math.inf, "kl": math.nan},
        {"step": 4, "loss": 0.25},
    ]
    assert list(points(rows, {"loss": 1})) == [Point("kl", 0.1, 1), Point("kl", 1.0, 2), Point("loss", 0.25, 4)]


def test_step_zero_counts() -> None:
    assert list(points([{"step": 0, "eval/reward": 0.5}], {})) == [Point("eval/reward", 0.5, 0)]


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (3, [3]), (4, [3, 1]), (6, [3, 3])])
def test_batches(count: int, sizes: list[int]) -> None:
    cut = list(batches(range(count), 3))
    assert [len(batch) for batch in cut] == sizes
    assert [item for batch in cut for item in batch] == list(range(count))


# The mapping of DESIGN.md section 4.
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("RUNNING", "RUNNING"),
        ("COMPLETED", "FINISHED"),
        ("STOPPED_EARLY", "FINISHED"),
        ("PRUNED", "FINISHED"),
        ("COLLAPSED", "FAILED"),
        ("INVALID_ROLLOUT", "FAILED"),
        ("FAILED", "FAILED"),
        ("INTERRUPTED", "KILLED"),
    ],
)
def test_every_status_has_a_truthful_one_in_mlflow(ours: str, theirs: str) -> None:
    assert mlflow_status(Status(ours)) == theirs


def test_our_own_word_is_kept() -> None:
    record = StatusRecord(status=Status.COLLAPSED, pid=1, started=0.0, message="no valid completion for 5 steps")
    assert status_tags(record) == {
        "grpoctl.status": "COLLAPSED",
        "grpoctl.message": "no valid completion for 5 steps",
    }


def test_tags_tell_runs_apart() -> None:
    spec = {"name": "p31", "revision": 1, "profile": "tiny", "seed": 0}
    old, new = ({"git": {"commit": commit, "dirty": dirty}} for commit, dirty in (("aaa", True), ("bbb", False)))
    provenance = {"recorded_as": "p31@1+3fa2c1", "spec_sha": "3fa2c1", "attempts": [old, new]}
    assert tags("p31-tiny-s0-3fa2c1aa-1", spec, provenance) == {
        "grpoctl.experiment": "p31",
        "grpoctl.revision": "p31@1+3fa2c1",
        "grpoctl.spec_sha": "3fa2c1",
        "grpoctl.profile": "tiny",
        "grpoctl.seed": "0",
        "grpoctl.run_id": "p31-tiny-s0-3fa2c1aa-1",
        "grpoctl.attempt": "2",
        "grpoctl.git_dirty": "false",
        "mlflow.source.name": "grpoctl",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": "bbb",  # of the attempt that is running now
        "mlflow.source.git.dirty": "false",
    }


def test_tags_without_git_or_provenance() -> None:
    found = tags("r", {"name": "p31", "revision": 1}, {})
    assert found["grpoctl.revision"] == "1"
    assert not [key for key in found if "git" in key]


def test_a_token_stays_with_its_run() -> None:
    first = {"started": 1.5, "hostname": "h", "pid": 3}
    mine = token("r-1", {"attempts": [first]})
    assert mine == token("r-1", {"attempts": [first, {"started": 9.0}]})  # resumed
    others = [("r-2", first), ("r-1", {**first, "hostname": "i"}), ("r-1", {**first, "started": 1.6})]
    assert len({mine, *(token(run, {"attempts": [attempt]}) for run, attempt in others)}) == 4


C, F, P, R, X = "COMPLETED", "FAILED", "PRUNED", "RUNNING", "COLLAPSED"


def document(*trials: tuple[str, float | None], **more: Any) -> dict[str, Any]:
    """Trials 0, 1, ... by (status, score)."""
    listed = [{"number": number, "status": status, "score": score} for number, (status, score) in enumerate(trials)]
    return {"study": "demo-tiny-1a2b3c4d-1", "started": 1.5, "total": 9, "trials": listed, **more}


def points_of(key: str, found: dict[str, Any]) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in study_points(found) if point.key == key]


@pytest.mark.parametrize(
    ("trials", "scores", "best"),
    [
        ([], [], []),
        ([(R, None)], [], []),
        ([(C, 0.5), (C, 0.4), (C, 0.6)], [(0, 0.5), (1, 0.4), (2, 0.6)], [(0, 0.5), (1, 0.5), (2, 0.6)]),
        # trial 1 is still at work: what trial 2 is the best of is not known yet
        ([(C, 0.5), (R, None), (C, 0.6)], [(0, 0.5), (2, 0.6)], [(0, 0.5)]),
        # a pruned trial's score is of a part of its budget, a failed one has none; both count as ended
        ([(P, 0.9), (F, None), (C, 0.6)], [(0, 0.9), (2, 0.6)], [(2, 0.6)]),
        ([(X, 0.0), (C, -0.1)], [(0, 0.0), (1, -0.1)], [(0, 0.0), (1, 0.0)]),
    ],
)
def test_scores_and_the_best_so_far(trials: Any, scores: Any, best: Any) -> None:
    found = document(*trials)
    assert points_of("score", found) == scores
    assert points_of("best_score", found) == best


def test_the_best_is_the_smallest_where_less_is_better() -> None:
    found = document((C, 0.5), (C, 0.4), (C, 0.6), direction="minimize")
    assert points_of("best_score", found) == [(0, 0.5), (1, 0.4), (2, 0.4)]


def test_trials_in_any_order() -> None:
    found = document((C, 0.5), (C, 0.6))
    found["trials"].reverse()
    assert study_points(found)[0] == Point("score", 0.5, 0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("RUNNING", "RUNNING"),
        ("COMPLETED", "FINISHED"),
        ("STOPPED", "FINISHED"),
        ("FAILED", "FAILED"),
        ("INTERRUPTED", "KILLED"),
    ],
)
def test_every_status_of_a_study_has_a_truthful_one_in_mlflow(ours: str, theirs: str) -> None:
    assert mlflow_study_status(StudyStatus(ours)) == theirs


def test_tags() -> None:
    found = document((C, 0.5), (R, None), best={"number": 0}, sweep="demo", revision=3, profile="tiny")
    tags = identity_tags(found)
    assert (tags["grpoctl.study"], tags["grpoctl.sweep"], tags["grpoctl.revision"]) == (found["study"], "demo", "3")
    assert standing_tags(found, "RUNNING", "") == {
        "grpoctl.status": "RUNNING",
        "grpoctl.message": "",
        "grpoctl.trials": "1 of 9",
        "grpoctl.best_trial": "0",
    }
    assert "grpoctl.best_trial" not in standing_tags(document(), "RUNNING", "")


def test_a_token_is_the_studys_own_and_stays() -> None:
    mine = study_token(document())
    assert mine == study_token(document((C, 0.5), status="COMPLETED"))
    assert len({mine, study_token({**document(), "study": "x"}), study_token({**document(), "started": 1.6})}) == 3
