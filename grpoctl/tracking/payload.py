"""What MLflow is told about runs and studies: params, tags, statuses and metric points, from their files.

What is here: pure functions; imports no mlflow. What is not: sending any of it (writer, sweep_writer).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, assert_never

from grpoctl.runs.status import RANKED, UNDER_WAY, Status, StatusRecord, StudyStatus

METRICS_PER_BATCH = 1000  # limits of MLflow's log_batch
PARAMS_PER_BATCH = 100
PARAM_LENGTH = 6000
TAG_LENGTH = 8000
KEY_LENGTH = 250

TOKEN_TAG = "grpoctl.mirror"
USER_TAG = "mlflow.user"  # MLflow's own: its pages show it as the run's user
PARENT_TAG = "mlflow.parentRunId"  # MLflow's own: its pages nest a run under the run named here
SCORE, BEST = "score", "best_score"  # metrics of a study: a point per trial

MlflowStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
Item = TypeVar("Item")


class Point(NamedTuple):
    """One value of one metric at one step."""

    key: str
    value: float
    step: int


def mlflow_status(status: Status) -> MlflowStatus:
    """MLflow's word for how a run stands. It has none for a guard's stop, which is a failure there."""
    match status:
        case Status.RUNNING:
            return "RUNNING"
        case Status.COMPLETED | Status.STOPPED_EARLY | Status.PRUNED:
            return "FINISHED"
        case Status.COLLAPSED | Status.INVALID_ROLLOUT | Status.FAILED:
            return "FAILED"
        case Status.INTERRUPTED:
            return "KILLED"
        case _:
            assert_never(status)


def mlflow_study_status(status: StudyStatus) -> MlflowStatus:
    """MLflow's word for how a study stands."""
    match status:
        case StudyStatus.RUNNING:
            return "RUNNING"
        case StudyStatus.COMPLETED | StudyStatus.STOPPED:
            return "FINISHED"
        case StudyStatus.FAILED:
            return "FAILED"
        case StudyStatus.INTERRUPTED:
            return "KILLED"
        case _:
            assert_never(status)


def params(spec: Mapping[str, Any]) -> dict[str, str]:
    """Dotted key -> text of every leaf of the spec: strings as they are, everything else as JSON.

    Lists and empty mappings are leaves. Text above MLflow's limit is cut; the whole spec is there as an artifact.
    """
    return {key[:KEY_LENGTH]: cut(_text(value), PARAM_LENGTH) for key, value in _leaves(spec, "")}


def tags(run_id: str, spec: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, str]:
    """The tags a run is found and told apart by; names in MLflow are not unique. Unknown ones are left out."""
    attempts = provenance.get("attempts") or [{}]
    git = attempts[-1].get("git") or {}
    dirty = git.get("dirty")
    values = {
        "grpoctl.experiment": spec.get("name"),
        "grpoctl.revision": provenance.get("recorded_as") or spec.get("revision"),
        "grpoctl.overrides": " ".join(provenance.get("overrides") or []) or None,
        "grpoctl.spec_sha": provenance.get("spec_sha"),
        "grpoctl.profile": spec.get("profile"),
        "grpoctl.seed": spec.get("seed"),
        "grpoctl.run_id": run_id,
        "grpoctl.study": provenance.get("study"),
        "grpoctl.trial": provenance.get("trial"),
        "grpoctl.attempt": len(attempts),
        "grpoctl.git_dirty": dirty,
        "mlflow.source.name": "grpoctl",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": git.get("commit"),
        "mlflow.source.git.dirty": dirty,
        "mlflow.source.git.repoURL": git.get("remote"),
    }
    return tag_texts(values)


def tag_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """The tags that have a value, as text within MLflow's limit."""
    return {key: cut(_text(value), TAG_LENGTH) for key, value in values.items() if value is not None}


def token(run_id: str, provenance: Mapping[str, Any]) -> str:
    """What marks this run directory in every store, so that it never becomes two MLflow runs.

    The same for ever, since it comes from the first attempt; another one for another user's run of the same id.
    """
    first = (provenance.get("attempts") or [{}])[0]
    return digest([run_id, *(first.get(key) for key in ("started", "hostname", "pid"))])


def child_token(run_id: str, study: str) -> str:
    """The same for a run of the study with that token; it stays when a damaged directory is made anew."""
    return digest([run_id, study])


def digest(value: object) -> str:
    """32 hexadecimal digits that stand for a value of plain JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def status_tags(record: StatusRecord) -> dict[str, str]:
    """Our own word for how the run stands, and why it ended."""
    return {"grpoctl.status": record.status.value, "grpoctl.message": cut(record.message, TAG_LENGTH)}


def points(rows: Iterable[Mapping[str, Any]], newest: Mapping[str, int]) -> Iterator[Point]:
    """The values of the rows that MLflow does not have yet, in the order of the rows.

    `newest` is the last step MLflow has of each metric: a resumed run writes steps again, and MLflow would keep both.
    Missing values (null) are left out: MLflow stores an infinity as 1.8e308.
    """
    for row in rows:
        step = row["step"]
        for key, value in row.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if key != "step" and number and math.isfinite(value) and step > newest.get(key, -1):
                yield Point(key, float(value), step)


def cut(text: str, length: int) -> str:
    """The text, at most so many characters of it."""
    return text if len(text) <= length else text[: length - 1] + "…"


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in runs of `size`, the last one shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def study_token(document: Mapping[str, Any]) -> str:
    """What marks the study in every store: the same over all its resumes, another for another user's of that name."""
    return digest([document.get("study"), document.get("started")])


def identity_tags(document: Mapping[str, Any]) -> dict[str, str]:
    """The tags a study is found by."""
    names = ("study", "sweep", "revision", "sweep_sha", "profile", "experiment", "sampler", "metric", "direction")
    values = {f"grpoctl.{name}": document.get(name) for name in names}
    return tag_texts({**values, "mlflow.source.name": "grpoctl", "mlflow.source.type": "LOCAL"})


def standing_tags(document: Mapping[str, Any], status: str, message: str) -> dict[str, str]:
    """The tags that say how the study stands: our own word, why, the trials that ended of how many, and the best."""
    ended = sum(_has_ended(trial) for trial in document.get("trials", []))
    best = document.get("best") or {}
    values = {"status": status, "message": message, "trials": f"{ended} of {document.get('total')}"}
    return tag_texts({f"grpoctl.{name}": value for name, value in {**values, "best_trial": best.get("number")}.items()})


def study_points(document: Mapping[str, Any]) -> list[Point]:
    """`score` of each trial that has one, at its number; `best_score` up to each trial before which all have ended.

    A best score waits for the trials before its own: at a step MLflow shows what it was told first.
    """
    trials = sorted(document.get("trials", []), key=lambda trial: int(trial["number"]))
    scores = [Point(SCORE, float(t["score"]), int(t["number"])) for t in trials if _has_score(t)]
    return [*scores, *_best_points(trials, largest=document.get("direction") != "minimize")]


def child_scores(document: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """(run, trial, score) of each seed's run of the trials that have ended and whose seeds have values."""
    for trial in document.get("trials", []):
        if not _has_ended(trial):
            continue
        number = int(trial["number"])
        for seed, value in zip(trial.get("seeds") or (), trial.get("values") or (), strict=False):  # fewer: pruned
            if value is not None:
                yield f"{document.get('study')}-t{number:04d}-s{seed}", number, float(value)


def _best_points(trials: Sequence[Mapping[str, Any]], *, largest: bool) -> list[Point]:
    points: list[Point] = []
    best: float | None = None
    for trial in trials:
        if not _has_ended(trial):
            break
        if _has_score(trial) and trial["status"] in RANKED:
            score = float(trial["score"])
            best = score if best is None else (max if largest else min)(best, score)
        if best is not None:
            points.append(Point(BEST, best, int(trial["number"])))
    return points


def _has_ended(trial: Mapping[str, Any]) -> bool:
    return trial.get("status") not in UNDER_WAY


def _has_score(trial: Mapping[str, Any]) -> bool:
    return _has_ended(trial) and trial.get("score") is not None


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if isinstance(part, Mapping) and part:
            yield from _leaves(part, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", part


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
