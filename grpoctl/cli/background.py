"""`grpoctl run --detach`: the runs are prepared, then a process of its own executes them one after another.

That process is `python -P -m grpoctl.cli.background REQUEST`; REQUEST is JSON with runs, why, quiet, argv and slots.
"""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.errors import GrpoError, RunError
from grpoctl import console
from grpoctl.children import spawn
from grpoctl.cli import exits, notify, run_session
from grpoctl.cli.run_session import Live, RunRequest, print_outcome, take_first
from grpoctl.config import read_resolved
from grpoctl.executors.execution import execute
from grpoctl.executors.slots import Slot
from grpoctl.executors.terminal import ignore_hang_up, print_into, wait_until_held
from grpoctl.runs import liveness
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.listing import result_of
from grpoctl.runs.run_dir import Home, RunDir


def detach(request: RunRequest, notify_command: Sequence[str] | None = None) -> dict[str, Any]:
    """Start a process that executes the runs, and give the JSON document: schema, pid, runs.

    Returns once that process holds the first of them. Raises SpecError, NotFoundError, UserError and BusyError before
    anything is started, RunError where the process does not come up.
    """
    home = Home.locate()
    liveness.reconcile(home)
    resolved, why = run_session.resolve(request, home)
    runs: list[RunDir] = []
    finished: list[RunDir] = []
    for loaded in resolved:
        prepared = prepare(Launch(loaded=loaded, overrides=request.overrides, resume=request.resume), home)
        for note in prepared.notes:
            console.print_note(note)
        if not prepared.finished:
            with prepared.run.hold():  # or it says who does
                prepared.run.log.touch()
        (finished if prepared.finished else runs).append(prepared.run)
    pid = None
    if runs:
        pid = _start(runs, request, why, notify_command)
        if not request.json:
            first, *later = runs
            console.print_text(f"{first.id} runs in the background (process {pid})")
            for run in later:
                console.print_text(f"{run.id} is next")
            console.print_text(f"follow it: grpoctl logs -f {first.id}\nstop it:   grpoctl stop {first.id}")
    entries = [{"run_id": run.id, "run_dir": str(run.path), "log": str(run.log)} for run in (*runs, *finished)]
    return {"schema": 1, "pid": pid, "runs": entries}


def _start(runs: Sequence[RunDir], request: RunRequest, why: str, notify_command: Sequence[str] | None) -> int:
    """The id of the process, which holds the first run by now. Raises RunError where it ended before."""
    document = {"runs": [str(run.path) for run in runs], "why": why, "quiet": request.quiet}
    document |= {"argv": list(request.argv), "slots": [asdict(slot) for slot in request.slots]}
    document["notify"] = notify_command
    first = runs[0]
    process = spawn(["grpoctl.cli.background", jsonlib.dumps(document)], first.log)
    try:
        wait_until_held(first.lock, process, first.log)
    except RunError as error:
        raise RunError(f"{first.id} was not started in the background: {error}") from error
    return process.pid


def main(argv: Sequence[str]) -> int:
    """The exit code of the process, after it has executed the runs of REQUEST."""
    ignore_hang_up()
    document = jsonlib.loads(argv[1])
    runs = [RunDir(path=Path(path)) for path in document["runs"]]
    slots = [Slot(**slot) for slot in document["slots"]]
    request = RunRequest(name=runs[0].id, quiet=document["quiet"], argv=document["argv"], slots=slots)
    take_first(slots)
    print_into(runs[0].log)
    try:
        return notify.telling(document["notify"], "run_ended", lambda: _told(runs, request, document["why"]))
    except GrpoError as error:
        console.print_error(str(error))
        return exits.exit_code_of_error(error)


def _told(runs: Sequence[RunDir], request: RunRequest, why: str) -> tuple[int, dict[str, Any]]:
    """The exit code of the runs, and what is told of their end."""
    code = exits.worst_exit_code(_execute_all(runs, request, why))
    return code, run_session.told([result for run in runs if (result := result_of(run)) is not None])


def _execute_all(runs: Sequence[RunDir], request: RunRequest, why: str) -> list[str]:
    """The status of each run, in order; an interrupted one ends the list.

    Those that wait for their turn are held meanwhile: nobody else takes them, and they do not look dead.
    """
    statuses: list[str] = []
    with ExitStack() as stack:
        waiting = {run: stack.enter_context(ExitStack()) for run in runs[1:]}
        for run, held in waiting.items():
            held.enter_context(run.hold())
        for run in runs:
            print_into(run.log)
            if run in waiting:
                waiting[run].close()
            executed = execute(run, Live(request, why), argv=request.argv, slots=request.slots)
            print_outcome(executed, read_resolved(run.spec), json=False)
            statuses.append(executed.result["status"])
            if statuses[-1] == "INTERRUPTED":
                break
    return statuses


if __name__ == "__main__":
    sys.exit(main(sys.argv))
