"""A disk that is full or read-only: one line, exit 3, nothing lost, and `--resume` goes on once there is room again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.end_to_end.cli import Cli, eventually, step_of
from tests.end_to_end.scenarios import FullRun

pytestmark = pytest.mark.process

RUN = ("run", "p31", "--quiet", "--json", "stages.grpo.max_steps=12")
READ_ONLY = "/sys/kernel/grpoctl"  # nobody can make a folder there, root included
# No file can grow beyond the number of bytes. An evaluation of p31 writes 30 to 50 kB of problems, at steps 0 and 10;
# one of two problems 400 bytes. A checkpoint has 200 kB, a step's 16 samples 2 to 3 kB.
FULL_AT = {
    "a checkpoint": (60_000, "checkpoints.save_steps=3"),
    "an evaluation": (60_000, "checkpoints.save_steps=100"),
    "samples": (12_000, "checkpoints.save_steps=100", "task.eval_prompts=2"),
}


@pytest.mark.parametrize("writing", FULL_AT)
def test_a_full_disk_is_one_line_and_is_gone_on_with(lone: Cli, p31: FullRun, writing: str) -> None:
    room, *settings = FULL_AT[writing]
    full = lone.run(*RUN, *settings, fsize=room)
    assert full.returncode == 3
    (error,) = [line for line in full.stderr.splitlines() if not line.startswith("note: MLflow is behind")]
    assert error.startswith("error: cannot write ")
    assert "File too large" in error
    assert "--resume" in error
    assert full.document["status"] == "FAILED"
    run = lone.only_run
    reached = step_of(run)
    assert 1 <= reached < 12
    rows = (run.metrics, run.samples, run.problem_rows)
    assert [path.read_bytes()[-1:] for path in rows] == [b"\n"] * 3  # whole rows only

    again = lone.run(*RUN, *settings, "--resume")
    assert again.returncode == 0, again.stderr
    assert again.document["run_id"] == run.id
    # p31 saves at other steps and goes on after 12; up to there it is the same run. Two problems are other problems.
    if "task.eval_prompts=2" not in settings:
        assert run.metrics.read_bytes().splitlines()[:12] == p31.dir.metrics.read_bytes().splitlines()[:12]
    assert run.samples.read_bytes().splitlines() == p31.dir.samples.read_bytes().splitlines()[: 12 * 16]


@pytest.mark.parametrize("place", ["a folder nobody can make", "a file", "below a file"])
@pytest.mark.parametrize("command", [RUN, ("ls",), ("sync",), ("show", "p31", "--samples")], ids=lambda argv: argv[0])
def test_a_home_that_cannot_be_is_one_line(cli: Cli, tmp_path: Path, place: str, command: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    home = {"a folder nobody can make": READ_ONLY, "a file": str(file), "below a file": str(file / "home")}[place]
    done = cli.with_environment(GRPOCTL_HOME=home).run(*command)
    assert "Traceback" not in done.stderr
    assert done.returncode in ((3,) if command[0] in ("run", "sync") else (0, 2, 3))  # looking needs no home
    if done.returncode:
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
    assert file.read_text() == "mine"


def test_a_model_that_cannot_be_cached_is_one_line(lone: Cli, tmp_path: Path) -> None:
    file = tmp_path / "cache"
    file.write_text("mine")
    done = lone.with_environment(XDG_CACHE_HOME=str(file)).run(*RUN)
    assert (done.returncode, done.document["status"], done.document["steps"]) == (3, "FAILED", 0)
    (error,) = [line for line in done.errors if line.startswith("error:")]
    assert "built-in model" in error
    assert str(file) in error


def test_garbage_inside_the_rows_is_named_and_left_alone(lone: Cli) -> None:
    process = lone.start(*RUN)
    eventually(lambda: step_of(lone.first_run) >= 4, "the run has steps")
    process.send(signal.SIGKILL)
    process.wait()
    run = lone.only_run
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    broken = b"".join([*lines[:2], b"garbage\n", *lines[3:]])
    run.metrics.write_bytes(broken)
    done = lone.run(*RUN, "--resume")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "metrics.jsonl: row 3 is damaged" in line
    assert run.metrics.read_bytes() == broken
    assert lone.run("ls").returncode == 0
