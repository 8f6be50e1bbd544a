"""A stand-in for the training process: holds a run, starts its mirror, and does what stdin says, line by line.

rows FIRST LAST    append these rows, print the seconds it took
end STATUS         write the final status
wait SECONDS       wait for the mirror, print its state, its error and the seconds it took
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from grpoctl.files import RowWriter
from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status, StatusRecord
from grpoctl.tracking.mirror import start_mirror


def main() -> None:
    """Train, so to speak."""
    run = RunDir(path=Path(sys.argv[1]))
    with run.hold(), RowWriter(run.metrics) as rows:
        status.write(run.status, StatusRecord(status=Status.RUNNING, pid=os.getpid(), started=1000.0))
        mirror = start_mirror(run)
        assert "mlflow" not in sys.modules
        print("started", mirror.pid, flush=True)
        for line in sys.stdin:  # Ctrl-C ends it here, with the status still RUNNING
            word, *rest = line.split()
            start = time.monotonic()
            if word == "rows":
                for step in range(int(rest[0]), int(rest[1]) + 1):
                    rows.append({"step": step, "loss": step / 10})
                print("rows", time.monotonic() - start, flush=True)
            elif word == "end":
                ended = StatusRecord(status=Status(rest[0]), pid=os.getpid(), started=1000.0, ended=2000.0)
                status.write(run.status, ended)
                print("ended", flush=True)
            elif word == "wait":
                state = mirror.wait(float(rest[0]))
                print("waited", f"{time.monotonic() - start:.3f}", state.state, state.error, flush=True)


main()
