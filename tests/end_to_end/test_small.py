"""The profile `small` on the real SmolLM2: P30's fault is seen at the first rollout after an update, whatever K is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.config import ModelSpec
from grpoctl.config import load
from grpoctl.executors.execution import execute
from grpoctl.executors.hooks import Hooks
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home

pytestmark = [pytest.mark.process, pytest.mark.slow]  # a real model: 15 s each

# One supervised update and two steps of GRPO, nothing evaluated but a prompt at the start and at the end.
SHORT = (
    "stages.supervised.max_steps=1", "stages.grpo.max_steps=2", "task.eval_prompts=1", "evaluation.eval_steps=50",
    "evaluation.num_generations_eval=1", "stages.grpo.max_completion_length=8",
)  # fmt: skip
K8 = ("num_generations=8", "stages.grpo.prompts_per_step=2")


def ran(folder: Path, name: str, *overrides: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(result, rows) of a run in this process."""
    loaded = load(name, profile="small", overrides=[*SHORT, *overrides])
    run = prepare(Launch(loaded=loaded), Home(path=folder / ".grpoctl")).run
    result = execute(run, Hooks(), mirror=False).result
    return result, [json.loads(line) for line in run.metrics.read_text().splitlines()]


def test_the_profile_is_what_the_fixture_had(small_model: tuple[Any, Any]) -> None:
    model, _ = small_model
    spec: ModelSpec = load("p31", profile="small").spec.model
    assert spec.source == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008


@pytest.mark.parametrize("size", [(), K8], ids=["K=2", "K=8"])
def test_with_the_fault_the_first_rollout_after_an_update_is_invalid(
    small_model: tuple[Any, Any], tmp_path: Path, size: tuple[str, ...]
) -> None:
    result, rows = ran(tmp_path, "p30", "guards.rollout_integrity=stop", *size)
    assert result["status"] == "INVALID_ROLLOUT"
    assert [row["update"] for row in rows[1:]] == [1]  # the supervised update; the evaluation after it, and no more
    assert rows[0]["eval/logprob_gap"] < 1e-5
    assert rows[1]["eval/logprob_gap"] > 1
    assert "eval/reward" not in rows[1]  # it would tell of the sampler
    assert result["findings"][0]["id"] == "rollout-integrity"


def test_without_it_every_rollout_is_sound(small_model: tuple[Any, Any], tmp_path: Path) -> None:
    result, rows = ran(tmp_path, "p30-sound")
    assert result["status"] == "COMPLETED"
    gaps = [row["rollout/logprob_gap"] for row in rows if "rollout/logprob_gap" in row]
    assert len(gaps) == 2
    assert max(gaps) < 1e-5
