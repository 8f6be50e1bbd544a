"""What MLflow is told about a run: params, tags and metric points, from the run's files.

What is here: pure functions; imports no mlflow. What is not: sending any of it (writer).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from grpoctl.runs.status import Status, StatusRecord

METRICS_PER_BATCH = 1000  # limits of MLflow's log_batch
PARAMS_PER_BATCH = 100
PARAM_LENGTH = 6000
TAG_LENGTH = 8000
KEY_LENGTH = 250

TOKEN_TAG = "grpoctl.mirror"
PARENT_TAG = "mlflow.parentRunId"  # MLflow's own: its pages nest a run under the run named here
# A guard's stop is a failure in MLflow, which has no word for it; `grpoctl.status` keeps ours.
MLFLOW_STATUS = {
    Status.RUNNING: "RUNNING",
    Status.COMPLETED: "FINISHED",
    Status.STOPPED_EARLY: "FINISHED",
    Status.PRUNED: "FINISHED",
    Status.COLLAPSED: "FAILED",
    Status.INVALID_ROLLOUT: "FAILED",
    Status.FAILED: "FAILED",
    Status.INTERRUPTED: "KILLED",
}

Item = TypeVar("Item")


class Point(NamedTuple):
    """One value of one metric at one step."""

    key: str
    value: float
    step: int


def params(spec: Mapping[str, Any]) -> dict[str, str]:
    """Dotted key -> text of every leaf of the spec: strings as they are, everything else as JSON.

    Lists and empty mappings are leaves. Text above MLflow's limit is cut; the whole spec is there as an artifact.
    """
    return {key[:KEY_LENGTH]: _cut(_text(value), PARAM_LENGTH) for key, value in _leaves(spec, "")}


def tags(run_id: str, spec: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, str]:
    """The tags a run is found and told apart by; names in MLflow are not unique. Unknown ones are left out."""
    attempts = provenance.get("attempts") or [{}]
    git = attempts[-1].get("git") or {}
    dirty = git.get("dirty")
    found = {
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
    return tag_texts(found)


def tag_texts(found: Mapping[str, Any]) -> dict[str, str]:
    """The tags that have a value, as text within MLflow's limit."""
    return {key: _cut(_text(value), TAG_LENGTH) for key, value in found.items() if value is not None}


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
    return {"grpoctl.status": record.status.value, "grpoctl.message": _cut(record.message, TAG_LENGTH)}


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


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in runs of `size`, the last one shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if isinstance(part, Mapping) and part:
            yield from _leaves(part, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", part


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
