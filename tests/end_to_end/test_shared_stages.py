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
  task.world.likeness: 0.5
  evaluation.eval_steps: 8
axes:
  stages.grpo.learning_rate: [1.0e-4, 1.0e-1]
sampler: grid
seeds: [0, 1]
"""
SUPERVISED, IMITATED = 16, 80  # the last step of each


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
    assert ours.keys() == theirs.keys() == {f"t000{trial}-s{seed}" for trial in (0, 1) for seed in (0, 1)}
    for name, run in ours.items():
        for part in ("metrics.jsonl", "samples.jsonl", "greedy.jsonl", "adapter/model.safetensors"):
            assert (run.path / part).read_bytes() == (theirs[name].path / part).read_bytes(), (name, part)
        assert exported_step(run) == exported_step(theirs[name])
    assert any(exported_step(ours[name]) < IMITATED for name in ("t0001-s0", "t0001-s1"))  # from inside what was taken

    for key in ("values", "score", "curve", "statuses", "stages"):
        assert [t[key] for t in resumed.document["trials"]] == [t[key] for t in alone.document["trials"]]
    assert "shared" not in alone.document
    took = [json.loads(ours[name].result.read_text())["shared"] for name in ("t0001-s0", "t0001-s1")]
    assert [(one["step"], one["run"][-8:]) for one in took] == [(IMITATED, "t0000-s0"), (IMITATED, "t0000-s1")]
    assert resumed.document["shared"]["runs"] == 2
    # At least what the two stages took, by what the run that computed them wrote down.
    spent = [row["total"] for seed in (0, 1) for row in rows_of(ours[f"t0000-s{seed}"].timings)[: IMITATED + 1]]
    assert resumed.document["shared"]["seconds"] == pytest.approx(sum(spent), abs=0.01)
    assert not shared.prefixes.exists()  # the study has all it was asked for
