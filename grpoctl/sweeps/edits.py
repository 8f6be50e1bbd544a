"""What somebody asks of a study while it runs: a trial ended, or a changed copy of one added.

What is here: the requests, in STUDY/edits.jsonl, and what makes one invalid. What is not: acting on them (driver,
adaptive), which the study's book records under `edits`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import SpecError, UserError
from grpoctl.config import canonical
from grpoctl.config.layers import dotted
from grpoctl.config.overrides import override_layer
from grpoctl.files import RowWriter, read_json, read_rows
from grpoctl.runs.status import UNDER_WAY
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.candidates import Candidates, identity
from grpoctl.sweeps.loading import read_sweep
from grpoctl.sweeps.validation import incomparable


def request_end(study: StudyDir, number: int) -> None:
    """Ask for the end of a trial. Raises UserError where there is no such trial, or it has ended."""
    trial = _trial(study, number)
    if trial["status"] not in UNDER_WAY:
        raise UserError(f"trial {number} of {study.id} has ended ({trial['status']}); there is nothing to stop")
    _append(study, {"stop_trial": number})


def request_clone(study: StudyDir, number: int, overrides: Sequence[str]) -> dict[str, Any]:
    """Ask for a copy of a trial with other settings; gives the copy's parameters.

    Raises UserError where there is no such trial, nothing is changed or the same point is there already; SpecError for
    a setting that makes no valid run, or whose results could not be compared.
    """
    trial, sweep = _trial(study, number), read_sweep(study.spec)
    if sweep.ladder:
        raise UserError(f"{study.id} is a ladder: its rungs are climbed as they are written")
    if not overrides:
        raise UserError(f"got --clone {number} without a setting; add one, e.g. learning_rate=1e-4")
    candidates = Candidates.of(sweep)
    changed = _changed(candidates, overrides)
    params = {**trial["params"], **changed}
    for key in changed:
        if (why := incomparable(sweep, key)) is not None:
            raise SpecError(why, key=key)
    candidates.spec(params)
    known = {identity(one["params"]): one["number"] for one in (read_json(study.state) or {}).get("trials", ())}
    if (same := known.get(identity(params))) is not None:
        raise UserError(f"trial {same} of {study.id} is that already")
    if any(identity(edit["params"]) == identity(params) for edit in requests(study) if "clone" in edit):
        raise UserError(f"that copy was asked of {study.id} already")
    _append(study, {"clone": number, "params": params, "changed": changed})
    return params


def requests(study: StudyDir) -> list[dict[str, Any]]:
    """Everything that was asked for, in its order. Raises StorageError where the file is damaged."""
    return [dict(row) for row in read_rows(study.edits)]


def _changed(candidates: Candidates, overrides: Sequence[str]) -> dict[str, Any]:
    """The settings by full key."""
    document = candidates.authored[candidates.sweep.experiment]
    base = document.base if (scaled := document.profile(candidates.sweep.profile)) is None else scaled
    layer = override_layer(overrides, {**document.base.tree, **base.tree})
    changed: dict[str, Any] = {}
    for keys in sorted(layer.places, key=len):
        value: Any = layer.tree
        for key in keys:
            value = value[key]
        if not isinstance(value, Mapping):
            changed[dotted(keys)] = json.loads(canonical(value))
    return changed


def _trial(study: StudyDir, number: int) -> dict[str, Any]:
    trials = (read_json(study.state) or {}).get("trials") or []
    trial = next((one for one in trials if one["number"] == number), None)
    if trial is None:
        have = f"it has {len(trials)}, from 0" if trials else "it has none yet"
        raise UserError(f"{study.id} has no trial {number}; {have}")
    return dict(trial)


def _append(study: StudyDir, request: Mapping[str, Any]) -> None:
    with RowWriter(study.edits) as writer:
        writer.append(request)
        writer.sync()
