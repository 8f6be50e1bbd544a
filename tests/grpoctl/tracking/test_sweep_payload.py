"""What MLflow is told of a study, on paper."""

from __future__ import annotations

from typing import Any

import pytest

from grpoctl.runs.status import StudyStatus
from grpoctl.tracking.payload import Point, identity_tags, mlflow_study_status, standing_tags, study_points, study_token

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
