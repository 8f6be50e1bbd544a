"""What MLflow is told about a study itself: tags and metric points, from sweep.json.

What is here: pure functions; imports no mlflow. What is not: its runs, which are runs like others (payload), and
sending (sweep_writer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpoctl.tracking.payload import Point, digest, tag_texts

SCORE, BEST = "score", "best_score"
MLFLOW_STATUS = {
    "RUNNING": "RUNNING",
    "COMPLETED": "FINISHED",
    "STOPPED": "FINISHED",
    "FAILED": "FAILED",
    "INTERRUPTED": "KILLED",
}
_ENDED = ("COMPLETED", "PRUNED", "COLLAPSED", "INVALID_ROLLOUT", "FAILED")
_COMPARED = ("COMPLETED", "COLLAPSED", "INVALID_ROLLOUT")  # a pruned trial's score is of a part of its budget


def study_token(document: Mapping[str, Any]) -> str:
    """What marks the study in every store: the same over all its resumes, another for another user's of that name."""
    return digest([document.get("study"), document.get("started")])


def identity_tags(document: Mapping[str, Any]) -> dict[str, str]:
    """The tags a study is found by."""
    names = ("study", "sweep", "revision", "sweep_sha", "profile", "experiment", "sampler", "metric", "direction")
    found = {f"grpoctl.{name}": document.get(name) for name in names}
    return tag_texts({**found, "mlflow.source.name": "grpoctl", "mlflow.source.type": "LOCAL"})


def standing_tags(document: Mapping[str, Any], status: str, message: str) -> dict[str, str]:
    """The tags that say how the study stands: our own word, why, the trials that ended of how many, and the best."""
    ended = sum(trial.get("status") in _ENDED for trial in document.get("trials", []))
    best = document.get("best") or {}
    found = {"status": status, "message": message, "trials": f"{ended} of {document.get('total')}"}
    return tag_texts({f"grpoctl.{name}": value for name, value in {**found, "best_trial": best.get("number")}.items()})


def study_points(document: Mapping[str, Any]) -> list[Point]:
    """`score` of each trial that has one, at its number; `best_score` up to each trial before which all have ended.

    A best score waits for the trials before its own: at a step MLflow shows what it was told first.
    """
    trials = sorted(document.get("trials", []), key=lambda trial: int(trial["number"]))
    scores = [Point(SCORE, float(t["score"]), int(t["number"])) for t in trials if _has_score(t)]
    return [*scores, *_best_points(trials, largest=document.get("direction") != "minimize")]


def _best_points(trials: Sequence[Mapping[str, Any]], *, largest: bool) -> list[Point]:
    points: list[Point] = []
    best: float | None = None
    for trial in trials:
        if trial.get("status") not in _ENDED:
            break
        if _has_score(trial) and trial["status"] in _COMPARED:
            score = float(trial["score"])
            best = score if best is None else (max if largest else min)(best, score)
        if best is not None:
            points.append(Point(BEST, best, int(trial["number"])))
    return points


def _has_score(trial: Mapping[str, Any]) -> bool:
    return trial.get("status") in _ENDED and trial.get("score") is not None
