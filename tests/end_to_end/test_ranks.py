"""`grpoctl run --processes 2`: one run of two processes. Whatever ends it, both end, and another number goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from grpoctl.runs.run_dir import RunDir
from tests.end_to_end.cli import Cli, Started, eventually, rows_of, status_of, step_of
from tests.end_to_end.scenarios import RESUMED

pytestmark = pytest.mark.process

TOGETHER = (*RESUMED, "--processes", "2")


def ranks_of(cli: Cli) -> list[int]:
    """The processes beside rank 0 that work on this user's runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:  # it has just ended
            continue
        if "grpoctl.executors.ranks" in words and any(word.startswith(str(cli.home.path)) for word in words):
            found.append(int(path.parent.name))
    return found


def at_step(cli: Cli, step: int, *more: str) -> tuple[Started, RunDir]:
    """A run of two processes that has recorded this step."""
    started = cli.start(*TOGETHER, *more)
    eventually(lambda: step_of(cli.first_run) >= step, f"step {step}")
    return started, cli.first_run


@pytest.mark.slow
def test_a_run_goes_on_after_whatever_happened_to_its_processes(lone: Cli) -> None:
    started, run = at_step(lone, 1)
    (rank,) = ranks_of(lone)
    os.kill(rank, signal.SIGKILL)
    done = started.wait()
    assert done.returncode == 3
    assert done.document["status"] == "FAILED"
    assert done.document["message"].startswith("rank 1 of 2 was ended by SIGKILL")
    assert not ranks_of(lone)

    started, run = at_step(lone, 5, "--resume")  # the checkpoint of step 4 is there
    started.send(signal.SIGINT)
    assert started.wait().returncode == 130
    assert status_of(run) == "INTERRUPTED"
    assert not ranks_of(lone)

    started, run = at_step(lone, 9, "--resume")
    started.send(signal.SIGKILL)
    started.wait()
    eventually(lambda: not ranks_of(lone), "a rank ends with rank 0")

    done = lone.run(*RESUMED, "--resume")  # alone
    assert done.returncode == 0, done.stderr
    assert done.document["status"] == "COMPLETED"
    assert [row["step"] for row in rows_of(run.metrics)] == list(range(13))
    assert lone.only_run == run


@pytest.mark.slow  # both import torch; that two compute what one does is in core/training/test_parallel_ranks.py
def test_two_processes_write_what_one_writes(lone: Cli) -> None:
    short = ("run", "p31", "--json", "stages.grpo.max_steps=2", "task.eval_prompts=8", "--seed", "3")
    for more in ((), ("--processes", "2")):
        done = lone.run(*short, *more)
        assert done.returncode == 0, done.stderr
    together, alone = lone.home.runs()
    assert {path.name for path in together.path.iterdir()} - {path.name for path in alone.path.iterdir()} == {
        "rank-1.log"
    }
    assert together.spec.read_bytes() == alone.spec.read_bytes()
    texts = [[sample["text"] for sample in rows_of(run.samples)] for run in (together, alone)]
    assert texts[0] == texts[1]
    for row, expected in zip(rows_of(together.metrics), rows_of(alone.metrics), strict=True):
        assert set(row) == set(expected)
        for metric, value in expected.items():  # fp32: beside other padding the last digits round differently
            assert row[metric] == pytest.approx(value, rel=1e-3, abs=1e-4), metric


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gpus", "0,1"), "sees no CUDA device here; --processes N shares the cores"),
        (("--gpus", "0"), "sees no CUDA device"),
        (("--gpus", "0,0"), "expected numbers from 0, each once"),
        (("--gpus", "a"), "expected numbers from 0, each once"),
        (("--gpus", "0", "--processes", "2"), "got --gpus and --processes"),
        (("--processes", "0"), "--processes"),
        (("--processes", "9999"), "got --processes 9999 on "),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(cli: Cli, options: tuple[str, ...], said: str) -> None:
    done = cli.run("run", "p31", *options)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line
    assert not cli.home.path.exists()
