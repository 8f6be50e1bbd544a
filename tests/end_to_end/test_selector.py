"""The selector of documents 001 and 004 as its user runs it: killed and resumed, and a study that repeats itself."""

from __future__ import annotations

import signal

import pytest

from tests.end_to_end.cli import Cli, eventually, rows_of, step_of

pytestmark = pytest.mark.process

SHORT = (
    "stages.sft.epochs=4", "stages.rce.epochs=1", "stages.grpo.epochs=2", "stages.rce.tau.steps=64",
    "task.world.likeness=0.5", "checkpoints.save_steps=20",
)  # fmt: skip
STEPS = 16 + 64 + 128


def test_killed_and_resumed_it_writes_the_bytes_of_an_undisturbed_run(lone: Cli) -> None:
    started = lone.start("run", "p40", "-p", "tiny", "--quiet", *SHORT)
    eventually(lambda: step_of(lone.first_run) >= 90, "GRPO has begun, from another reference than the start")
    started.send(signal.SIGKILL)
    assert started.wait().returncode == -signal.SIGKILL
    broken = lone.first_run
    assert step_of(broken) < STEPS
    assert lone.run("run", "p40", "-p", "tiny", "--quiet", *SHORT, "--resume").returncode == 0
    assert lone.run("run", "p40", "-p", "tiny", "--quiet", *SHORT).returncode == 0
    whole = next(run for run in lone.home.runs() if run.path != broken.path)
    for file in ("metrics.jsonl", "samples.jsonl", "greedy.jsonl"):
        assert (broken.path / file).read_bytes() == (whole.path / file).read_bytes(), file
    rows = rows_of(whole.metrics)
    assert rows[-1]["step"] == STEPS
    assert {row.get("beta") for row in rows if row.get("stage") == 2} != {None}
    assert all(row.get("rollout/logprob_gap") is None for row in rows)  # nothing was recorded while these were drawn
