"""A study whose runs share stages, as its user runs it: to the byte what it writes without, also when it was killed."""

from __future__ import annotations

import json
import signal

import pytest

from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.study_dir import StudyDir, studies
from tests.end_to_end.cli import Cli, eventually, rows_of, step_of

pytestmark = pytest.mark.process

SWEEP = """\
name: mine
title: Rates of a stage that comes after two others
experiment: p40
settings:
  stages.sft.epochs: 4
  stages.rce.epochs: 1
  stages.grpo.epochs: 1
  stages.rce.tau.steps: 64
  stages.rce.learning_rate: 1.0e-1  # too large: the best evaluation is of the first stage
  task.world.likeness: 0.5
  evaluation.eval_steps: 8
axes:
  stages.grpo.learning_rate: [1.0e-6, 1.0e-5]
sampler: grid
seeds: [0]
"""
IMITATED = 80  # the last step of the second stage


def by_name(study: StudyDir) -> dict[str, RunDir]:
    """t0000-s0 -> its run."""
    return {run.id[-8:]: run for run in study.runs()}


def exported_step(run: RunDir) -> int:
    return int(json.loads((run.adapter / "grpoctl.json").read_text())["step"])


def test_shared_stages_are_the_bytes_of_their_own_also_after_a_kill(lone: Cli) -> None:
    file = lone.folder / "sweeps" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(SWEEP)
    command = ("sweep", "mine", "-p", "tiny", "--quiet", "--json", "--inline")
    started = lone.start(*command)

    def second_trial_has_begun() -> bool:
        return any(step_of(run) > IMITATED + 8 for s in studies(lone.home) for run in s.runs() if "-t0001-" in run.id)

    eventually(second_trial_has_begun, "a run goes on from another one's stage")
    started.send(signal.SIGKILL)
    assert started.wait().returncode == -signal.SIGKILL
    (shared,) = studies(lone.home)
    assert not [path for path in shared.prefixes.iterdir() if path.name.startswith("writing-")]
    resumed = lone.run(*command, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    alone = lone.run(*command, "share_stages=false")
    assert alone.returncode == 0, alone.stderr

    (plain,) = (study for study in studies(lone.home) if study.path != shared.path)
    ours, theirs = by_name(shared), by_name(plain)
    assert ours.keys() == theirs.keys() == {"t0000-s0", "t0001-s0"}
    for name, run in ours.items():
        weights = [path.name for path in run.adapter.glob("*.safetensors")]
        assert weights
        for part in (
            "metrics.jsonl",
            "samples.jsonl",
            "problems.parquet",
            "greedy.jsonl",
            *(f"adapter/{file}" for file in weights),
        ):
            assert (run.path / part).read_bytes() == (theirs[name].path / part).read_bytes(), (name, part)
        assert exported_step(run) == exported_step(theirs[name])
    assert exported_step(ours["t0001-s0"]) < IMITATED  # from inside what was taken

    for key in ("values", "score", "curve", "statuses", "stages"):
        assert [t[key] for t in resumed.document["trials"]] == [t[key] for t in alone.document["trials"]]
    assert "shared" not in alone.document
    took = json.loads(ours["t0001-s0"].result.read_text())["shared"]
    assert (took["step"], took["run"]) == (IMITATED, ours["t0000-s0"].id)
    assert resumed.document["shared"]["runs"] == 1
    # At least what the two stages took, by what the run that computed them wrote down.
    spent = sum(row["total"] for row in rows_of(ours["t0000-s0"].timings)[: IMITATED + 1])
    assert resumed.document["shared"]["seconds"] == pytest.approx(spent, abs=0.01)
    assert not shared.prefixes.exists()  # the study has all it was asked for
