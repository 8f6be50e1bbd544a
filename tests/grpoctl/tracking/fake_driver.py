"""A stand-in for a sweep's driver: holds a study, starts its mirror, and does what stdin says, line by line.

trial NUMBER       a trial has ended: two runs of the rows 0 to 3, and sweep.json says so
start NUMBER       a trial begins: its first run has the rows 0 to 3, says RUNNING and is held by nobody
end STATUS         write the study's final status
wait SECONDS       wait for the mirror, print its state, its error and the seconds it took
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from grpoctl.files import RowWriter, read_json, replace_json
from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status, StatusRecord
from grpoctl.runs.study_dir import StudyDir
from grpoctl.tracking.mirror import start_mirror


def begin(study: StudyDir, number: int, seed: int) -> RunDir:
    """A run with rows that says RUNNING."""
    run = study.run(number, seed)
    run.path.mkdir(parents=True)
    run.spec.write_text("name: p31\nprofile: tiny\nseed: 0\n")
    replace_json(run.provenance, {"schema": 1, "study": study.id, "trial": number, "attempts": [{"started": 1.0}]})
    status.write(run.status, StatusRecord(status=Status.RUNNING, pid=1, started=1000.0))
    with RowWriter(run.metrics) as rows:
        rows.append(*({"step": step, "loss": step / 10} for step in range(4)))
    return run


def end(run: RunDir) -> None:
    """The run is over."""
    status.write(run.status, StatusRecord(status=Status.COMPLETED, pid=1, started=1000.0, ended=2000.0, step=3))


def say(study: StudyDir, **more: Any) -> None:
    """Change sweep.json."""
    replace_json(study.state, {**(read_json(study.state) or {}), **more})


def main() -> None:
    """Drive, so to speak."""
    study = StudyDir(path=Path(sys.argv[1]))
    with study.hold():
        say(study, status="RUNNING", ended=None)
        mirror = start_mirror(study)
        assert "mlflow" not in sys.modules
        print("started", mirror.pid, flush=True)
        for line in sys.stdin:
            word, argument = line.split()
            start = time.monotonic()
            if word in ("trial", "start"):
                number = int(argument)
                ended = word == "trial"
                trials = (read_json(study.state) or {})["trials"]
                for seed in (0, 1)[: 2 if ended else 1]:
                    run = begin(study, number, seed)
                    if ended:
                        end(run)
                found = {"number": number, "seeds": [0, 1], "status": "COMPLETED" if ended else "RUNNING"}
                say(study, trials=[*trials, {**found, "score": 0.5 if ended else None}])
                print("done", time.monotonic() - start, flush=True)
            elif word == "end":
                say(study, status=argument, ended=3000.0)
                print("ended", flush=True)
            elif word == "wait":
                state = mirror.wait(float(argument))
                print("waited", f"{time.monotonic() - start:.3f}", state.state, state.error, flush=True)


main()
