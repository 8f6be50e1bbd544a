"""How a run or a study stands now: what its file says, and whether the process that wrote it lives, here or elsewhere.

What is here: telling (`standing`, `study_status`), writing it down for runs (`reconcile`), and which of a study's runs
may be under way. What is not: the files themselves (status, study_dir); sweep.json is the driver's alone to write.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress

from core.errors import BusyError, StorageError
from grpoctl.files import read_json, read_rows
from grpoctl.runs.claims import BEAT, GONE, Claim, silence, silent_for, watch_unseen
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import UNDER_WAY, Status, StatusRecord, StudyStatus, TrialStatus, read, write
from grpoctl.runs.study_dir import StudyDir, studies

DIED = "its process died"


def reconcile(home: Home) -> list[RunDir]:
    """Every run, in a study or not, that said RUNNING though its process is gone, now INTERRUPTED.

    A damaged status and a home that cannot be written are left alone: `ls` must go on showing what there is. Of a
    process on another machine that is done only after a long silence, since it ends what that may still be at;
    `standing` is right before.
    """
    mended = []
    runs = (*home.runs(), *runs_in_flight(home))
    watch_unseen(_claims_elsewhere(home, runs))
    for run in runs:
        try:
            if reconcile_run(run):
                mended.append(run)
        except StorageError:
            continue
    return mended


def reconcile_run(run: RunDir) -> bool:
    """True when this run said RUNNING though nobody holds it; it then says INTERRUPTED."""
    record = read(run.status)
    if record is None or record.status.ended or run.is_held():
        return False
    try:
        with run.hold(patience=0, silent=GONE * silence()):
            # Read again: between the two looks the run may have ended, or been resumed and ended.
            record = read(run.status)
            if record is None or record.status.ended:
                return False
            write(run.status, _interrupted(run, record))
    except BusyError:
        return False
    return True


def standing(run: RunDir) -> StatusRecord | None:
    """How a run stands: what `status.json` says, but INTERRUPTED where it says RUNNING and nobody holds the run.

    None where no status was written yet. Writes nothing, so that it holds on a full or read-only disk too. Raises
    StorageError for a damaged file.
    """
    record = read(run.status)
    if record is None or record.status.ended:
        return record
    if run.is_held():
        where = holder_text(run)
        return dataclasses.replace(record, message=where) if where and not record.message else record
    again = read(run.status)  # between the two looks it may have ended, or been resumed
    return _interrupted(run, record) if again == record else again


def holder_text(of: RunDir | StudyDir) -> str:
    """Where the process on another machine is that has it, and for how long nothing was heard of it; else empty."""
    claim = of.holder_elsewhere()
    if claim is None:
        return ""
    silent = silent_for(claim)
    quiet = f", no heartbeat for {silent:.0f} s" if silent >= 2 * BEAT else ""
    return f"process {claim.pid} on {claim.host}{quiet}"


def _claims_elsewhere(home: Home, runs: Sequence[RunDir]) -> list[Claim]:
    """The claims of other machines on runs and studies that say they are under way."""
    claims: list[Claim] = []
    for run in runs:
        with suppress(StorageError):
            record = read(run.status)
            if (record is None or not record.status.ended) and (claim := run.holder_elsewhere()) is not None:
                claims.append(claim)
    for study in studies(home):
        with suppress(StorageError):
            if _recorded_status(study)[0] is StudyStatus.RUNNING and (claim := study.holder_elsewhere()) is not None:
                claims.append(claim)
    return claims


def _interrupted(run: RunDir, record: StatusRecord) -> StatusRecord:
    """The status of a run whose process died."""
    return dataclasses.replace(
        record,
        status=Status.INTERRUPTED,
        ended=max(record.started, _last_sign_of_life(run)),  # a file's time is coarser than the clock
        step=_last_step(run, record.step),
        message=_died(run, DIED),
    )


def _died(of: RunDir | StudyDir, here: str) -> str:
    """What is said of a process that is gone; of one on another machine only that it was not heard."""
    claim = of.holder_elsewhere()
    if claim is None:
        return here
    return (
        f"no heartbeat from process {claim.pid} on {claim.host} for {silent_for(claim):.0f} s; continue with --resume"
    )


def _last_step(run: RunDir, otherwise: int) -> int:
    try:
        rows = read_rows(run.metrics)
        return int(rows[-1]["step"]) if rows else otherwise
    except (StorageError, KeyError, TypeError):  # damaged rows are no reason to leave the status untrue
        return otherwise


def _last_sign_of_life(run: RunDir) -> float:
    """When the run last wrote something; its real end is unknown and may be days before the reconciliation."""
    return max(path.stat().st_mtime for path in (run.status, run.metrics) if path.exists())


_UNSURE = UNDER_WAY | {TrialStatus.FAILED}  # of a failed trial, a run whose worker was killed may still say RUNNING
DRIVER_DIED = "its driver's process died; continue with --resume"
NEVER_BEGAN = "its driver's process died before the first trial; continue with --resume"


def study_status(study: StudyDir) -> tuple[StudyStatus, str]:
    """(status, message) of a study: what sweep.json says, but INTERRUPTED where it says RUNNING and nobody drives it.

    The file is left alone. Raises StorageError where it is damaged.
    """
    status, message = _recorded_status(study)
    if status is not StudyStatus.RUNNING:
        return status, message
    if study.is_held():
        return status, message or holder_text(study)
    status, message = _recorded_status(study)  # again: between the two looks it may have come to its end
    if status is not StudyStatus.RUNNING:
        return status, message
    return StudyStatus.INTERRUPTED, _died(study, DRIVER_DIED if study.state.exists() else NEVER_BEGAN)


def study_ended(study: StudyDir) -> bool:
    """True when nothing more comes of a study, unless it is resumed; by its lock where sweep.json is damaged."""
    try:
        return study_status(study)[0] is not StudyStatus.RUNNING
    except StorageError:
        return not study.is_held()


def runs_in_flight(home: Home) -> list[RunDir]:
    """The runs of all studies that `unfinished_runs` gives."""
    return [run for study in studies(home) for run in unfinished_runs(study)]


def unfinished_runs(study: StudyDir) -> list[RunDir]:
    """The runs of a study whose status may be untrue: those of trials that by sweep.json had no end of their own.

    Where that file is missing or damaged these are all of them. Never raises.
    """
    try:
        trials = (read_json(study.state) or {})["trials"]
        unfinished = [trial for trial in trials if trial["status"] in _UNSURE]
        runs = [study.run(int(trial["number"]), int(seed)) for trial in unfinished for seed in trial["seeds"]]
        return [run for run in runs if run.spec.exists()]
    except (StorageError, KeyError, TypeError, ValueError):
        with suppress(StorageError):
            return study.runs()
        return []


def _recorded_status(study: StudyDir) -> tuple[StudyStatus, str]:
    """What sweep.json says; one that is not there yet says RUNNING. Raises StorageError where it is damaged."""
    document = read_json(study.state) or {}
    status = document.get("status") or StudyStatus.RUNNING
    try:
        return StudyStatus(status), str(document.get("message") or "")
    except ValueError:
        raise StorageError(f"{study.state}: damaged (got the status {status!r})") from None
