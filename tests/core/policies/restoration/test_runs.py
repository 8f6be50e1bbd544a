"""Short runs of the restoration policy on its task: what they record, planted faults, and a resume to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.assemble import assemble, open_checkpoints
from core.config import RunSpec
from core.health.case import case_of
from core.health.examine import examine
from core.training.trainer import drive
from tests.fakes import Recorder


def spec_of(**top: Any) -> RunSpec:
    stage = {
        "max_steps": 6, "prompts_per_step": 1, "num_generations": 2, "num_iterations": 2, "learning_rate": 2e-3,
        "loss_weights": {"supervised": 0.5, "consistency": 0.1, "penalty": 0.01}, "loss_rows": "best",
    }  # fmt: skip
    return RunSpec.model_validate(
        {
            "name": "small",
            "title": "",
            "policy": {"kind": "restoration", "width": 8, "blocks": [1, 1, 1, 1], "refinement": 1},
            "task": {"name": "restoration", "patch": 16, "train_prompts": 8, "eval_prompts": 3},
            "stages": {"grpo": stage},
            "evaluation": {"eval_steps": 3, "num_generations_eval": 1, "temperature": 0.0},
            "checkpoints": {"save_steps": 2},
            **top,
        }
    )


def recorded(spec: RunSpec, folder: Path) -> Recorder:
    recorder = Recorder()
    drive(assemble(spec, open_checkpoints(spec, folder)).steps(), recorder)
    return recorder


def test_a_run_learns_by_all_its_losses_and_goes_on_to_the_byte_where_it_was_left(tmp_path: Path) -> None:
    spec = spec_of()
    whole = recorded(spec, tmp_path)
    start, *steps = whole.rows
    assert {"eval/psnr", "eval/ssim", "probe/rate_effect", "probe/score_z"} <= set(start)
    assert all(
        {"policy/loss", "losses/supervised", "losses/consistency", "losses/penalty"} <= set(row) for row in steps
    )
    assert all(abs(row["rollout/logprob_gap"] or 0.0) < 1e-5 for row in steps)
    assert {finding.id for finding in examine(case_of(spec, whole.rows)) if finding.severity == "error"} == set()
    checkpoints = open_checkpoints(spec, tmp_path)
    first = checkpoints.steps()[0]
    assert 0 < first < 6
    again = assemble(spec, checkpoints, restart=checkpoints.load(first), table=whole.rows[: first + 1])
    rest = Recorder()
    drive(again.steps(), rest)
    assert rest.rows == whole.rows[first + 1 :]


@pytest.mark.parametrize(
    "faults", [["dead-masks", "clip-before-backward"], ["leaking-samples", "frozen-log-probs"], ["unused-heads"]]
)
def test_planted_faults_are_named(faults: list[str], tmp_path: Path) -> None:
    spec = spec_of(faults=faults)
    findings = examine(case_of(spec, recorded(spec, tmp_path).rows))
    assert {finding.id for finding in findings if finding.severity == "error"} == set(faults)
