"""A study's `sweep.json` as it is true now: for those who only look.

What is here: reading, and the status of a study nobody drives any more. What is not: writing it (grpoctl.sweeps).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import StorageError
from grpoctl.analysis.sweeps.budget import account
from grpoctl.analysis.sweeps.wording import score_text
from grpoctl.files import read_json
from grpoctl.runs.liveness import study_status
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir, studies

SCHEMA = 2  # 2: a curve's points are (seed, share, value); 1: (seed's index + share, value)
READABLE = (1, SCHEMA)


def read_study(study: StudyDir) -> dict[str, Any]:
    """The document of a study; INTERRUPTED where it says RUNNING and nobody drives it, its running trials too.

    A study whose driver died before it wrote anything has no trials. Raises StorageError where the file is damaged or
    of another schema.
    """
    document = read_json(study.state)
    if document is None:
        empty = {"schema": SCHEMA, "study": study.id, "sweep": study.id.rsplit("-", 3)[0], "status": "RUNNING"}
        document = {**empty, "total": 0, "trials": [], "best": None, "importances": {}, "findings": []}
    if document.get("schema") not in READABLE:
        raise StorageError(f"{study.state}: schema {document.get('schema')!r}, this grpoctl reads schema {SCHEMA}")
    if not isinstance(document.get("trials"), list) or not isinstance(document.get("status"), str):
        raise StorageError(f"{study.state}: damaged (it has no list of trials, or no status)")
    document = _readable(study, document)
    if document.get("status") == "RUNNING" and not study.is_held():
        status, message = study_status(study)  # reads again: it may have come to its end just now
        if status != "RUNNING":
            stopped = [{**t, "status": status} if t.get("status") == "RUNNING" else t for t in document["trials"]]
            document = {**document, "status": status, "message": message, "trials": stopped}
    return document


def upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a study as schema 2 has it; one of schema 2 as it is.

    Schema 1 kept a report under the seed's index + the share of its run's budget, so that an evaluation before anything
    of a run's budget was spent (in a supervised stage) replaced the last value of the run before it. Such a curve is
    read, and its trial is marked: `curve_possibly_wrong`. Raises KeyError, TypeError, ValueError for damaged ones.
    """
    if document.get("schema") == SCHEMA:
        return dict(document)
    return {**document, "schema": SCHEMA, "trials": [_upgraded_trial(trial) for trial in document["trials"]]}


def _upgraded_trial(trial: Mapping[str, Any]) -> dict[str, Any]:
    points: list[Sequence[float]] = list(trial.get("curve") or ())
    if not any(len(point) == 2 for point in points):
        return dict(trial)
    seeds, curve = list(trial["seeds"]), []
    for units, value in points:
        index = max(0, math.ceil(units - 1e-6) - 1)  # the end of a run belonged to that run
        curve.append([seeds[index], round(units - index, 6), value])
    return {**trial, "curve": curve, "curve_possibly_wrong": True}


def _readable(study: StudyDir, document: dict[str, Any]) -> dict[str, Any]:
    try:
        return upgraded(document)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise StorageError(f"{study.state}: damaged ({type(error).__name__}: {error})") from error


def study_summaries(home: Home) -> list[dict[str, Any]]:
    """One entry per study, the one begun last first; a damaged one is listed as such."""
    return [study_summary(study) for study in studies(home)]


def study_summary(study: StudyDir) -> dict[str, Any]:
    """study, sweep, profile, status, message, ended and total (trials), metric, best (number, score, interval)."""
    entry: dict[str, Any] = {"study": study.id, "study_dir": str(study.path), "ended": None, "total": None}
    try:
        document = read_study(study)
    except StorageError as error:
        sweep = study.id.rsplit("-", 3)[0]
        return {**entry, "sweep": sweep, "status": "DAMAGED", "message": str(error), "metric": None, "best": None}
    stands = account(document)
    best = document.get("best") or None
    return {
        **entry,
        **{key: document.get(key) for key in ("sweep", "profile", "status", "message", "metric")},
        "ended": stands.ended,
        "total": stands.total,
        "best": {key: best.get(key) for key in ("number", "score", "interval")} if best else None,
    }


def study_row(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """(study, status, trials, best) of a summary, for a table."""
    trials = "-" if entry["total"] is None else f"{entry['ended']}/{entry['total']}"
    best = entry["best"]
    if not best:
        return entry["study"], entry["status"], trials, "-"
    score = score_text(str(entry["metric"]), best["score"], best["interval"])
    return entry["study"], entry["status"], trials, f"{entry['metric']} {score} (#{best['number']})"
