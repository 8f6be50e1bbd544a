"""What `ls` and `show` say of the runs and sweeps there are, from small files only."""

from __future__ import annotations

from typing import Any

from core.errors import StorageError
from grpoctl.config import sweep_library
from grpoctl.files import read_json, read_rows
from grpoctl.runs import liveness, status
from grpoctl.runs.run_dir import Home, RunDir


def summaries(home: Home) -> list[dict[str, Any]]:
    """One entry per run, newest first; a run whose files are damaged is listed as such."""
    return [summary(run) for run in home.runs()]


def summary(run: RunDir) -> dict[str, Any]:
    """run_id, experiment, recorded_as, profile, seed, status, step, message, eval/reward (final) of one run; the host
    of one that runs on another machine.
    """
    entry: dict[str, Any] = {"run_id": run.id, "run_dir": str(run.path), "eval/reward": None}
    try:
        identity = read_json(run.provenance) or {}
        entry |= {key: identity.get(key) for key in ("experiment", "recorded_as", "profile", "seed", "overrides")}
        record = liveness.standing(run)
        entry |= _standing(run, record)
        if (claim := run.holder_elsewhere()) is not None and entry["status"] == "RUNNING":
            entry["host"] = claim.host
        if entry["status"] == "RUNNING":  # its status is written when it starts and when it ends
            entry["step"] = _step_so_far(run)
        result = read_json(run.result) or {}
        entry["eval/reward"] = result.get("final", {}).get("eval/reward")
    except StorageError as error:
        entry |= {"status": "DAMAGED", "step": None, "message": str(error)}
    return entry


def result_of(run: RunDir) -> dict[str, Any] | None:
    """result.json, its `run_dir` where the run is now (its home may have been moved); None where there is no result.

    Raises StorageError where it is damaged.
    """
    result = read_json(run.result)
    return result if result is None or "run_dir" not in result else {**result, "run_dir": str(run.path.absolute())}


def _standing(run: RunDir, record: status.StatusRecord | None) -> dict[str, Any]:
    """status, step and message; of a run whose status was never written, by whether a process holds it."""
    if record is not None:
        return {"status": str(record.status), "step": record.step, "message": record.message}
    if run.is_held():
        where = liveness.holder_text(run)
        return {"status": "RUNNING", "step": 0, "message": f"waits for its turn{f' ({where})' if where else ''}"}
    return {"status": "INTERRUPTED", "step": 0, "message": "its process died before the first step"}


def _step_so_far(run: RunDir) -> int:
    """The last step that a run which is going on has recorded."""
    rows = read_rows(run.metrics)
    return int(rows[-1]["step"]) if rows else 0


def sweeps() -> list[dict[str, str]]:
    """The sweep specs there are, by name; the user's in place of shipped ones."""
    return [
        {"name": name, "file": str(file), "origin": origin} for name, (file, origin) in sweep_library().files().items()
    ]
