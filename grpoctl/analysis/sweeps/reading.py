"""A study's `sweep.json` as it is true now: for those who only look.

What is here: reading, and the status of a study nobody drives any more. What is not: writing it (grpoctl.sweeps).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import StorageError
from grpoctl.analysis.sweeps.budget import account
from grpoctl.analysis.sweeps.wording import score_text
from grpoctl.runs.records import read_json
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir, studies
from grpoctl.runs.study_status import study_status

SCHEMA = 1


def read_study(study: StudyDir) -> dict[str, Any]:
    """The document of a study; INTERRUPTED where it says RUNNING and nobody drives it, its running trials too.

    A study whose driver died before it wrote anything has no trials. Raises StorageError where the file is damaged or
    of another schema.
    """
    document = read_json(study.state)
    if document is None:
        empty = {"schema": SCHEMA, "study": study.id, "sweep": study.id.rsplit("-", 3)[0], "status": "RUNNING"}
        document = {**empty, "total": 0, "trials": [], "best": None, "importances": {}, "findings": []}
    if document.get("schema") != SCHEMA:
        raise StorageError(f"{study.state}: schema {document.get('schema')!r}, this grpoctl reads schema {SCHEMA}")
    if not isinstance(document.get("trials"), list) or not isinstance(document.get("status"), str):
        raise StorageError(f"{study.state}: damaged (it has no list of trials, or no status)")
    if document.get("status") == "RUNNING" and not study.is_held():
        status, message = study_status(study)  # reads again: it may have come to its end just now
        if status != "RUNNING":
            stopped = [{**t, "status": status} if t.get("status") == "RUNNING" else t for t in document["trials"]]
            document = {**document, "status": status, "message": message, "trials": stopped}
    return document


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
