"""A package of somebody else's, found by its entry points: continuous actions through every command, core untouched.

The package is tests/added_package: a folder on the path with its metadata beside it, as pip would have installed it.
"""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from grpoctl.runs.run_dir import RunDir
from tests.end_to_end.cli import Cli, eventually, rows_of, step_of

pytestmark = pytest.mark.process

PACKAGE = Path(__file__).parents[1] / "added_package"
SPEC = """\
name: bandit
title: Reach a point
policy: {kind: gaussian-bandit, context: 3, actions: 2}
task: {name: reach, train_prompts: 64, eval_prompts: 32}
stages:
  warm: {kind: sft, max_steps: 4, prompts_per_step: 4, learning_rate: 0.01, loss_weights: {penalty: 0.01}}
  grpo:
    max_steps: 20
    num_generations: 8
    prompts_per_step: 4
    learning_rate: 0.03
    beta: 0.001
    entropy_coef: 0.001
    loss_weights: {consistency: {start: 0.0, end: 0.1, steps: 20}}
evaluation: {eval_steps: 4, slice_by: side}
checkpoints: {save_steps: 4}
profiles: {tiny: {title: the same}}
"""
SWEEP = """\
name: widths
title: K and the width that actions start with
experiment: bandit
axes: {policy.sigma: [0.1, 0.5]}
settings: {stages.grpo.entropy_coef: 0}
sampler: grid
seeds: [0, 1]
budget: {completions: 256}
"""


@pytest.fixture
def user(lone: Cli) -> Cli:
    """A user who has the package, one experiment and one sweep; MLflow is away."""
    for kind, name, text in (("experiments", "bandit", SPEC), ("sweeps", "widths", SWEEP)):
        folder = lone.folder / kind
        folder.mkdir(parents=True)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return lone.with_environment(PYTHONPATH=os.pathsep.join([str(PACKAGE), lone.environment["PYTHONPATH"]]))


def run_of(cli: Cli, *more: str) -> RunDir:
    done = cli.run("run", "bandit", "-p", "tiny", "--quiet", "--json", *more)
    assert done.returncode == 0, done.stderr
    return RunDir(path=Path(done.document["run_dir"]))


def test_a_policy_of_continuous_actions_learns_and_is_looked_at_by_every_command(user: Cli) -> None:
    assert user.run("validate", "bandit").returncode == 0
    checked = user.run("check", "bandit", "--json")
    assert checked.returncode == 0, checked.stderr
    assert "token" not in user.run("check", "bandit").stdout
    run = run_of(user)
    rows = rows_of(run.metrics)
    assert rows[-1]["eval/reward"] > rows[0]["eval/reward"] + 0.1
    assert rows[-1]["rollout/logprob_gap"] < 1e-5
    assert {"differential_entropy", "losses/consistency", "weight/consistency", "kl"} <= set(rows[-1])
    assert rows[1]["losses/penalty"] > 0
    # What only tokens have is not said of actions.
    assert not {"entropy", "completions/length", "completions/truncated", "eval/length"} & set().union(*rows)
    sample = rows_of(run.samples)[-1]
    assert len(sample["action"]) == 2
    assert "text" not in sample
    evaluated = user.run("eval", run.id, "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    best = json.loads(run.result.read_text())["best"]["eval/reward"]
    assert evaluated.document["reward"]["mean"] == pytest.approx(best, abs=1e-9)
    for words in (("show", run.id, "--samples"), ("show", run.id, "--step", "9"), ("ls",), ("export", run.id, "out")):
        done = user.run(*words)
        assert done.returncode == 0, done.stderr
    for words in (("show", run.id), ("diagnose", run.id), ("show", run.id, "--step", "9"), ("eval", run.id)):
        printed = user.run(*words).stdout
        assert printed
        assert not re.search(r"token|truncat|cut off|length", printed), printed
    found = user.run("diagnose", run.id, "--json").document["findings"]
    assert "policy-collapse" not in {finding["id"] for finding in found}
    sampled = user.run("sample", run.id, "eval-00001", "--temperature", "1", "--json")
    assert len(sampled.document["completions"][0]["output"]["action"]) == 2
    refused = user.run("sample", run.id, "hello")
    assert refused.returncode == 2
    assert "eval-00031" in refused.stderr


def test_killed_and_resumed_it_writes_the_bytes_of_an_undisturbed_run(user: Cli) -> None:
    rarely = ("evaluation.eval_steps=40", "checkpoints.save_steps=10")
    long = ("stages.grpo.max_steps=80", *rarely, "--seed", "3")
    started = user.start("run", "bandit", "-p", "tiny", "--quiet", *long)
    eventually(lambda: step_of(user.first_run) >= 9, "some steps are recorded")
    started.send(signal.SIGKILL)
    assert started.wait().returncode == -signal.SIGKILL
    broken = user.first_run
    assert step_of(broken) < 80
    done = user.run("run", "bandit", "-p", "tiny", "--quiet", *long, "--resume")
    assert done.returncode == 0, done.stderr
    whole = run_of(user, *long)
    assert whole.path != broken.path
    for file in ("metrics.jsonl", "samples.jsonl"):
        assert (broken.path / file).read_bytes() == (whole.path / file).read_bytes()


def test_a_sweep_ranks_it_and_two_settings_are_compared(user: Cli) -> None:
    refused = user.run("sweep", "widths", "-p", "tiny", "--executor", "one-by-two")
    assert refused.returncode == 2
    assert "one-by-one" in refused.stderr
    assert not list((user.home.path / "sweeps").glob("*"))  # nothing was made
    done = user.run("sweep", "widths", "-p", "tiny", "--executor", "one-by-one", "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    trials = done.document["trials"]
    assert [trial["status"] for trial in trials] == ["COMPLETED"] * 2
    assert trials[0]["params"] == {"policy.sigma": 0.1}
    few = ("stages.warm.max_steps=1", "stages.grpo.max_steps=4", "--seeds", "0,1")
    ran = [
        user.run("run", "bandit", "-p", "tiny", "--quiet", "--json", *few, f"policy.sigma={sigma}")
        for sigma in ("0.1", "0.5")
    ]
    assert [done.returncode for done in ran] == [0, 0], ran
    first, last = (done.document["runs"][0]["run_id"] for done in ran)
    compared = user.run("compare", first, last, "--json")
    assert compared.returncode == 0, compared.stderr
    assert "policy.sigma" in compared.stdout


def test_rules_and_readers_of_the_package_are_asked(user: Cli) -> None:
    run = run_of(user, "stages.grpo.entropy_coef=1.0", "stages.grpo.loss_weights.consistency=0")
    found = {finding["id"] for finding in user.run("diagnose", run.id, "--json").document["findings"]}
    assert "wide-actions" in found
    (user.folder / "old.bandit").write_text("1 0.2\n2 0.3\n", encoding="utf-8")
    assert "bandit-table" in user.run("diagnose", "old.bandit", "--json").stdout


def test_without_the_package_the_spec_is_refused_by_name(user: Cli, lone: Cli) -> None:
    alone = user.with_environment(PYTHONPATH=lone.environment["PYTHONPATH"])
    refused = alone.run("run", "bandit", "-p", "tiny")
    assert refused.returncode == 2
    assert "policy.kind" in refused.stderr
    assert "gaussian-bandit" in refused.stderr
