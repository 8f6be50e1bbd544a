"""The selector of documents 001 and 004 as its user runs it: a run and a study, killed and resumed."""

from __future__ import annotations

import signal

import pytest

from grpoctl.runs.study_dir import studies
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
    for file in ("metrics.jsonl", "samples.jsonl", "problems.parquet", "greedy.jsonl"):
        assert (broken.path / file).read_bytes() == (whole.path / file).read_bytes(), file
    rows = rows_of(whole.metrics)
    assert rows[-1]["step"] == STEPS
    assert {row.get("beta") for row in rows if row.get("stage") == 2} != {None}
    assert all(row.get("rollout/logprob_gap") is None for row in rows)  # nothing was recorded while these were drawn


@pytest.mark.slow  # three studies' worth of runs
def test_a_study_that_was_killed_ends_with_the_bytes_of_an_undisturbed_one(lone: Cli) -> None:
    settings = [f"settings.{text}" for text in SHORT]
    sweep = ("sweep", "selector-frozen", "-p", "tiny", "--quiet", "--json", "--parallel", "1")
    command = (*sweep, "seeds=[0, 1]", *settings)
    started = lone.start(*command)
    eventually(lambda: len(steps_of_runs(lone)) >= 2 and max(steps_of_runs(lone)) >= 90, "the second run has begun")
    started.send(signal.SIGKILL)
    assert started.wait().returncode == -signal.SIGKILL
    (killed,) = studies(lone.home)
    eventually(lambda: not any(run.is_held() for run in killed.runs()), "the worker ended with its parent")
    resumed = lone.run(*command, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    whole = lone.run(*command)
    assert whole.returncode == 0, whole.stderr
    (undisturbed,) = (study for study in studies(lone.home) if study.path != killed.path)
    assert [trial["values"] for trial in resumed.document["trials"]] == [t["values"] for t in whole.document["trials"]]
    ours, theirs = ({run.path.name[-8:]: run for run in study.runs()} for study in (killed, undisturbed))  # t0001-s1
    assert ours.keys() == theirs.keys() == {f"t000{trial}-s{seed}" for trial in (0, 1) for seed in (0, 1)}
    for name, run in ours.items():
        assert run.metrics.read_bytes() == theirs[name].metrics.read_bytes(), name


def steps_of_runs(user: Cli) -> list[int]:
    """The last step of every run of the one study that there is."""
    return [step_of(run) for study in studies(user.home) for run in study.runs()]
