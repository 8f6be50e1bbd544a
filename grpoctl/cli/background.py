"""The process behind `grpoctl run --detach`: `python -P -m grpoctl.cli.background REQUEST`.

What is here: going through runs that are prepared, each with its own log. What is not: preparing them and starting this
process (detaching), executing one (grpoctl.executors.inline).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from core.errors import GrpoError
from grpoctl import console
from grpoctl.cli import exits, session
from grpoctl.cli.run_slots import take_first
from grpoctl.config import read_resolved
from grpoctl.executors.inline import execute
from grpoctl.executors.slots import Slot
from grpoctl.executors.terminal import ignore_hang_up, print_into
from grpoctl.runs.run_dir import RunDir


def go_through(runs: Sequence[RunDir], asked: session.Asked, why: str) -> list[str]:
    """The status of each run, in order; an interrupted one ends the list.

    Those that wait for their turn are held meanwhile: nobody else takes them, and they do not look dead.
    """
    statuses: list[str] = []
    with ExitStack() as stack:
        turns = {run: stack.enter_context(ExitStack()) for run in runs[1:]}
        for run, turn in turns.items():
            turn.enter_context(run.hold())
        for run in runs:
            print_into(run.log)
            if run in turns:
                turns[run].close()
            done = execute(run, session.Live(asked, why), argv=asked.argv, slots=asked.slots)
            session.say(done, read_resolved(run.spec), json=False)
            statuses.append(done.result["status"])
            if statuses[-1] == "INTERRUPTED":
                break
    return statuses


def main(argv: list[str]) -> int:
    """Go through the runs of the request (JSON: runs, why, quiet, argv, slots); gives the exit code."""
    ignore_hang_up()
    request = json.loads(argv[1])
    runs = [RunDir(path=Path(path)) for path in request["runs"]]
    slots = [Slot(**slot) for slot in request["slots"]]
    asked = session.Asked(name=runs[0].id, quiet=request["quiet"], argv=request["argv"], slots=slots)
    take_first(slots)
    print_into(runs[0].log)
    try:
        return exits.worst_exit_code(go_through(runs, asked, request["why"]))
    except GrpoError as error:
        console.print_error(str(error))
        return exits.exit_code_of_error(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
