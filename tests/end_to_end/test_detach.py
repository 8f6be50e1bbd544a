"""`run --detach`: a process that outlives its terminal, followed by `logs` and ended by `stop`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.end_to_end.cli import Cli, eventually, status_of, step_of

pytestmark = pytest.mark.process

SMALL = ("p31", "task.eval_prompts=2", "stages.grpo.max_steps=8", "checkpoints.save_steps=2")


def test_two_runs_in_the_background(lone: Cli) -> None:
    started = lone.run("run", *SMALL, "--seeds", "0,1", "--detach", "--json")
    assert (started.returncode, started.stderr) == (0, "")
    pid = started.document["pid"]
    first, second = (run for run in sorted(lone.home.runs(), key=lambda run: run.id))
    assert [(entry["run_id"], entry["log"]) for entry in started.document["runs"]] == [
        (run.id, str(run.log)) for run in (first, second)
    ]
    assert os.getsid(pid) == pid  # not the session of the command, which has ended
    os.kill(pid, signal.SIGHUP)
    assert lone.run("run", *SMALL, "--seed", "0", "--resume", "--detach").errors == [
        f"error: {first.id} is in use by process {pid}; wait until it ends, or start a new run without --resume"
    ]
    followed = lone.run("logs", "-f", first.id)
    assert followed.returncode == 0
    assert "step 8/8" in followed.stdout
    assert "Files     " in followed.stdout  # the verdict, which comes after the run's end
    assert followed.stdout.splitlines()[-1] == f"{first.id}: COMPLETED, all 8 steps done"
    listed = {entry["run_id"]: entry["status"] for entry in lone.run("ls", "--json").document["runs"]}
    assert listed == {first.id: "COMPLETED", second.id: "RUNNING"}
    eventually(lambda: step_of(second) >= 1, "the second one has a step")
    os.kill(pid, signal.SIGSTOP)  # or it might be done before the command has begun
    stopped = lone.run("stop", second.id, "--json")
    assert (stopped.returncode, stopped.document["pid"], stopped.document["status"]) == (0, pid, "INTERRUPTED")
    assert status_of(second) == "INTERRUPTED"
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the process has ended", seconds=30.0)
    assert "INTERRUPTED" in lone.run("logs", second.id).stdout
