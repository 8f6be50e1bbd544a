"""`grpoctl run --detach`: everything is checked and prepared here, then a process of its own goes through the runs."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from typing import Any

from core.errors import RunError
from grpoctl import console
from grpoctl.children import spawn
from grpoctl.cli import session
from grpoctl.executors.terminal import wait_until_held
from grpoctl.runs import liveness
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home, RunDir


def detach(asked: session.Asked) -> dict[str, Any]:
    """Start a process that executes the runs one after another, and say so: schema, pid, runs.

    Returns once that process holds the first of them. Raises SpecError, NotFoundError, UserError and BusyError before
    anything is started, RunError where the process does not come up.
    """
    home = Home.locate()
    liveness.reconcile(home)
    loaded, why = session.resolve(asked, home)
    runs: list[RunDir] = []
    finished: list[RunDir] = []
    for one in loaded:
        prepared = prepare(Launch(loaded=one, overrides=asked.overrides, resume=asked.resume), home)
        for note in prepared.notes:
            console.print_note(note)
        if not prepared.finished:
            with prepared.run.hold():  # or it says who does
                prepared.run.log.touch()
        (finished if prepared.finished else runs).append(prepared.run)
    pid = _start(runs, asked, why) if runs else None
    document = [{"run_id": run.id, "run_dir": str(run.path), "log": str(run.log)} for run in (*runs, *finished)]
    if not asked.json and runs:
        _say(runs, pid)
    return {"schema": 1, "pid": pid, "runs": document}


def _start(runs: list[RunDir], asked: session.Asked, why: str) -> int:
    first = runs[0]
    request = {"runs": [str(run.path) for run in runs], "why": why, "quiet": asked.quiet, "argv": list(asked.argv)}
    request["slots"] = [asdict(slot) for slot in asked.slots]
    process = spawn(["grpoctl.cli.background", jsonlib.dumps(request)], first.log)
    try:
        wait_until_held(first.lock, process, first.log)
    except RunError as error:
        raise RunError(f"{first.id} was not started in the background: {error}") from error
    return process.pid


def _say(runs: list[RunDir], pid: int | None) -> None:
    first = runs[0]
    console.print_text(f"{first.id} runs in the background (process {pid})")
    for run in runs[1:]:
        console.print_text(f"{run.id} is next")
    console.print_text(f"follow it: grpoctl logs -f {first.id}\nstop it:   grpoctl stop {first.id}")
