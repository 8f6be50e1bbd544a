"""`grpoctl stop`: stop a running run or study."""

from __future__ import annotations

from typing import Annotated

import typer

from core.errors import RunError, UserError
from grpoctl import console
from grpoctl.cli.logs import current_status
from grpoctl.cli.lookup import print_choice, run_or_study
from grpoctl.cli.options import Json
from grpoctl.runs import liveness
from grpoctl.runs.claims import ask_to_stop, silence, silent_for
from grpoctl.runs.locks import end_holder
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir

PATIENCE = 60.0  # seconds: a step of a large model, or the workers of a sweep


def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Run or study: id, its beginning, name or directory.")],
    json: Json = False,
) -> None:
    home = Home.locate()
    liveness.reconcile(home)
    entry = run_or_study(home, name, running_first=True)
    print_choice(home, name, entry)
    study = StudyDir(path=entry.path.parent.parent)
    if isinstance(entry, RunDir) and study.spec.exists() and study.is_held():
        raise UserError(f"{entry.id} belongs to a sweep that would start it again; stop that: grpoctl stop {study.id}")
    pid = _end(entry)
    liveness.reconcile(home)
    status, message = current_status(entry)
    if pid is None:
        raise UserError(f"{entry.id} is not running ({status}{f': {message}' if message else ''}); nothing to stop")
    if json:
        console.print_json({"schema": 1, "name": entry.id, "pid": pid, "status": status, "message": message})
    else:
        console.print_text(f"{entry.id}: {status}{f', {message}' if message else ''}")


def _end(entry: RunDir | StudyDir) -> int | None:
    """The process that had it, here or on another machine, now ended; None where nobody has it. Raises RunError."""
    claim = entry.holder_elsewhere()
    if claim is None:
        return end_holder(entry.lock, PATIENCE)
    if silent_for(claim) >= silence():
        return None
    if not ask_to_stop(claim, PATIENCE):
        raise RunError(f"process {claim.pid} on {claim.host} was asked to end and did not within {PATIENCE:g} s")
    return claim.pid
