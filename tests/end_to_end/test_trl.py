"""Runs and sweeps that TRL trains: recorded, evaluated, stopped, killed and continued as any other."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.end_to_end.cli import Cli, eventually, rows_of, step_of
from tests.end_to_end.test_command import gone

pytestmark = [pytest.mark.process, pytest.mark.slow]
FEW = ("trainer.kind=trl", "task.eval_prompts=8", "task.train_prompts=16", "evaluation.eval_steps=2")
SMALL = """
name: small
extends: p31
title: By TRL
trainer: {kind: trl}
profiles:
  tiny:
    task: {eval_prompts: 8, train_prompts: 16}
    evaluation: {eval_steps: 32}
"""
SWEEP = """
name: trl-rates
revision: 1
title: Rates of TRL
experiment: small
axes:
  stages.grpo.learning_rate: [1.0e-4, 5.0e-4, 1.0e-3, 2.0e-3]
sampler: grid
seeds: [0]
metric: eval/reward
budget: {completions: 64}
"""


@pytest.fixture
def user(lone: Cli) -> Cli:
    """With MLflow installed, which TRL imports; its server is away all the same."""
    return replace(lone, environment={"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"})


def test_a_run_has_the_files_and_the_metrics_of_any_other(user: Cli) -> None:
    done = user.run("run", "p31", "-p", "tiny", "--json", *FEW, "max_steps=4", "checkpoints.save_steps=2")
    assert done.returncode == 0, done.stderr
    assert any(line.startswith("evaluating before step 1") for line in done.stderr.splitlines())
    own = user.run("run", "p31", "-p", "tiny", "--json", *FEW[1:], "max_steps=4")
    run, ours = (user.home.find(document["run_id"]) for document in (done.document, own.document))
    rows, other = rows_of(run.metrics), rows_of(ours.metrics)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["completions"] for row in rows] == [0, 16, 32, 48, 64]
    assert rows[0]["eval/reward"] == other[0]["eval/reward"]  # the same weights, problems and draws
    assert [row.get("eval/reward") is not None for row in rows] == [True, False, True, False, True]
    missing = set(other[4]) - set(rows[4])
    assert missing <= {
        "canary/logit_gap", "canary/detectable_gap", "rollout/detectable_gap", "policy/loss", "policy/tokens",
        "policy/tokens_drawn", "grad_share/policy", "grad_share/kl",
    }  # fmt: skip
    assert max(float(row["rollout/logprob_gap"]) for row in rows[1:]) < 1e-5  # nats, float32: two forwards' rounding
    samples = [json.loads(line) for line in run.samples.read_text().splitlines()]
    theirs = [json.loads(line) for line in ours.samples.read_text().splitlines()]
    asked = [[sample["prompt_id"] for sample in of_run] for of_run in (samples, theirs)]
    assert asked[0] == asked[1]  # the same problems in the same order
    assert (done.document["trainer"], done.document["status"]) == ("trl", "COMPLETED")
    assert user.run("eval", run.id, "--json").document["reward"] is not None  # its weights can be measured
    assert (run.path / "adapter" / "adapter_model.safetensors").is_file()
    assert user.run("sample", run.id, "math: add 1 to 2", "--json").returncode == 0
    for command in (("show", run.id), ("diagnose", run.id), ("compare", run.id, ours.id), ("ls",)):
        said = user.run(*command)
        assert said.returncode == 0, (command, said.stderr)
        assert "Traceback" not in said.stdout + said.stderr


def test_a_killed_run_goes_on_from_trls_checkpoint_and_gives_the_same(user: Cli) -> None:
    settings = (*FEW, "max_steps=8", "checkpoints.save_steps=2")
    whole = user.run("run", "p31", "-p", "tiny", "--json", *settings)
    first = user.home.find(whole.document["run_id"])
    started = user.start("run", "p31", "-p", "tiny", "--quiet", *settings)
    found = eventually(
        lambda: [run for run in user.home.runs() if run.path != first.path and step_of(run) >= 5], "its steps are there"
    )
    started.send(signal.SIGKILL)
    started.wait()
    run = found[0]
    again = user.run("run", "p31", "-p", "tiny", "--json", "--resume", *settings)
    assert again.returncode == 0, again.stderr
    assert again.document["run_id"] == run.id
    assert rows_of(run.metrics) == rows_of(first.metrics)


def test_a_run_that_collapses_is_stopped_by_our_guard(user: Cli) -> None:
    # Every completion is cut off: after `patience` steps of it a run is of no use.
    settings = ("max_steps=30", "max_completion_length=2", "guards.patience=2", "guards.max_truncated=0.5")
    done = user.run("run", "p31", "-p", "tiny", "--json", *FEW, *settings)
    assert (done.returncode, done.document["status"]) == (4, "COLLAPSED")
    run = user.only_run
    assert 2 <= step_of(run) < 10


def test_a_hanging_or_killed_run_leaves_no_process(user: Cli) -> None:
    started = user.start("run", "p31", "-p", "tiny", "--quiet", *FEW, "max_steps=400")
    (run,) = eventually(lambda: [run for run in user.home.runs() if step_of(run) >= 1], "a step is there")
    pids = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if (folder / "cmdline").is_file() and str(run.path).encode() in (folder / "cmdline").read_bytes()
    ]
    assert pids
    started.send(signal.SIGKILL)
    started.wait()
    eventually(lambda: gone(pids), "TRL's processes are gone")


def test_two_processes_with_gloo(user: Cli) -> None:
    done = user.run("run", "p31", "-p", "tiny", "--json", *FEW, "max_steps=2", "trainer.processes=2")
    assert done.returncode == 0, done.stderr
    run = user.only_run
    rows = rows_of(run.metrics)
    assert [row["completions"] for row in rows] == [0, 16, 32]  # both processes' rows are counted once
    samples = [json.loads(line) for line in run.samples.read_text().splitlines()]
    assert len(samples) == 32
    assert json.loads((run.path / "trl" / "said.jsonl").read_text().splitlines()[0])["processes"] == 2


def test_a_sweep_with_a_kill_resumes(user: Cli) -> None:
    for folder, name, text in (("experiments", "small", SMALL), ("sweeps", "trl-rates", SWEEP)):
        (user.folder / folder).mkdir(parents=True, exist_ok=True)
        (user.folder / folder / f"{name}.yaml").write_text(text)
    started = user.start("sweep", "trl-rates", "-p", "tiny", "--quiet")

    def told() -> list[Path]:
        return sorted((user.home.path / "sweeps").glob("*/runs/*/result.json")) if user.home.path.exists() else []

    eventually(lambda: told()[1:], "two trials have ended")
    started.send(signal.SIGKILL)
    started.wait()
    done = user.run("sweep", "trl-rates", "-p", "tiny", "--json", "--resume")
    assert done.returncode == 0, done.stderr
    assert [trial["status"] for trial in done.document["trials"]] == ["COMPLETED"] * 4
    assert len(told()) == 4
