"""benchmarks/faults.py in small: each planted fault once, in as few steps as it takes, and two sound runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import HEALTHY, PLANTED, Planted
from core.assemble import assemble, open_checkpoints
from core.health.case import Case, Sample, case_of
from core.health.examine import examine
from core.health.finding import Finding
from core.training.trainer import drive
from grpoctl.config import load
from tests.fakes import Recorder

SEED = 101  # a seed that thresholds were chosen on: the benchmark's own are others
STEPS = {
    "rollout-in-train-mode": 8,
    "stale-sampler-weights": 12,
    "learning rate x100": 14,
    "beta x100": 30,
    "plain k3 at beta 0.5": 12,
    "constant-reward": 10,
    "evaluation-in-training": 4,
    "healthy p31": 12,
    "healthy p33": 12,
}  # of the others 3
# A fault of the rollout, one of the settings and a sound run stand for the others, whose rules are all tested on paper.
QUICK = ("rollout-in-train-mode", "learning rate x100", "healthy p31")
SMALL = {"task.eval_prompts=": "task.eval_prompts=8", "evaluation.eval_steps=": "evaluation.eval_steps=4"}


def runs(planted: Iterable[Planted]) -> list[Any]:
    """Each as a parameter, with its name; slow where it is not one of the few that stand for the others."""
    return [
        pytest.param(one, id=one.name, marks=() if one.name in QUICK else pytest.mark.slow)
        for one in planted
        if one in PLANTED or one.name in STEPS
    ]


def case(planted: Planted, folder: Path) -> Case:
    """The run as a case, made in this process."""
    changed = {"max_steps=": f"max_steps={STEPS.get(planted.name, 3)}", **SMALL}
    kept = [one for one in planted.overrides if not one.startswith(tuple(changed))]
    spec = load(planted.experiment, profile="tiny", overrides=[*kept, *changed.values()], seed=SEED).spec
    recorder = Recorder()
    drive(assemble(spec, open_checkpoints(spec, folder)).steps(), recorder)
    return case_of(spec, recorder.rows, tuple(map(sample, recorder.samples)))


def sample(line: dict[str, object]) -> Sample:
    """A line of samples.jsonl as the reader of run directories takes it."""
    names = {"prompt_id": "group"}
    fields = ("step", "row", "prompt_id", "text", "valid", "reward", "advantage")
    return Sample(**{names.get(name, name): line[name] for name in fields})  # type: ignore[arg-type]


def said(planted: Planted, folder: Path) -> list[Finding]:
    """What the rules say of it."""
    return examine(case(planted, folder))


@pytest.mark.parametrize("planted", runs(PLANTED))
def test_a_fault_is_found_as_itself(planted: Planted, tmp_path: Path) -> None:
    assert {finding.id for finding in said(planted, tmp_path)} & planted.ids


@pytest.mark.parametrize("planted", runs(HEALTHY))
def test_a_sound_run_has_no_error(planted: Planted, tmp_path: Path) -> None:
    assert [finding.summary for finding in said(planted, tmp_path) if finding.severity == "error"] == []
