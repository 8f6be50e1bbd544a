"""A disk that is full or read-only: one line, exit 3, nothing lost, and `--resume` goes on once there is room again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.end_to_end.cli import Cli, Zygote, eventually, rows_of, step_of

pytestmark = pytest.mark.process

RUN = ("run", "p31", "--quiet", "--json", "task.eval_prompts=4", "stages.grpo.max_steps=8")
READ_ONLY = "/sys/kernel/grpoctl"  # nobody can make a folder there, root included
# No file can grow beyond this: a checkpoint has 200 kB; the first 16 samples of a step have 2 to 3 kB.
ROOM = {"checkpoints.save_steps=3": 30_000, "checkpoints.save_steps=100": 12_000}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> list[bytes]:
    """metrics.jsonl and samples.jsonl of a run with all the room it needs; how often it saves is the same to them."""
    cli = Cli(folder=tmp_path_factory.mktemp("roomy"), zygote=zygote)
    assert cli.run(*RUN).returncode == 0
    return [cli.only_run.metrics.read_bytes(), cli.only_run.samples.read_bytes()]


@pytest.mark.parametrize("saving", ROOM)
def test_a_full_disk_is_one_line_and_is_gone_on_with(cli: Cli, undisturbed: list[bytes], saving: str) -> None:
    full = cli.run(*RUN, saving, fsize=ROOM[saving])
    assert full.returncode == 3
    (error,) = [line for line in full.stderr.splitlines() if not line.startswith("note: MLflow is behind")]
    assert error.startswith("error: cannot write ")
    assert "File too large" in error
    assert "--resume" in error
    assert full.document["status"] == "FAILED"
    run = cli.only_run
    before = [rows_of(path) for path in (run.metrics, run.samples)]
    assert [b"".join([run.metrics.read_bytes()[-1:], run.samples.read_bytes()[-1:]])] == [b"\n\n"]  # whole rows only
    assert 1 <= step_of(run) < 8

    again = cli.run(*RUN, saving, "--resume")
    assert again.returncode == 0, again.stderr
    assert again.document["run_id"] == run.id
    assert [run.metrics.read_bytes(), run.samples.read_bytes()] == undisturbed
    assert rows_of(run.metrics)[: len(before[0])] == before[0]


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


def test_a_model_that_cannot_be_cached_is_one_line(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "cache"
    file.write_text("mine")
    done = cli.with_environment(XDG_CACHE_HOME=str(file)).run(*RUN)
    assert (done.returncode, done.document["status"], done.document["steps"]) == (3, "FAILED", 0)
    (error,) = done.errors
    assert "built-in model" in error
    assert str(file) in error


def test_garbage_inside_the_rows_is_named_and_left_alone(cli: Cli) -> None:
    process = cli.start(*RUN)
    run = eventually(lambda: next(iter(cli.home.runs()), None), "the run has a directory")
    eventually(lambda: step_of(run) >= 4, "the run has steps")
    process.send(signal.SIGKILL)
    process.wait()
    lines = run.metrics.read_bytes().splitlines(keepends=True)
    broken = b"".join([*lines[:2], b"garbage\n", *lines[3:]])
    run.metrics.write_bytes(broken)
    done = cli.run(*RUN, "--resume")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "metrics.jsonl: row 3 is damaged" in line
    assert run.metrics.read_bytes() == broken
    assert cli.run("ls").returncode == 0
