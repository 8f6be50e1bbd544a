"""A builder of finished runs, without any file."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from grpoctl.analysis.collect import RunRecord


class Build(Protocol):
    """Builds a finished run of four steps with K=2, B=3; `spec` overrides leaves, `result` keys of the result."""

    def __call__(
        self, reward: float, seed: int = 0, *, spec: dict[str, Any] | None = None, **result: Any
    ) -> RunRecord: ...


@pytest.fixture
def build() -> Build:
    def _build(reward: float, seed: int = 0, *, spec: dict[str, Any] | None = None, **result: Any) -> RunRecord:
        leaves = {
            "name": "p30",
            "seed": seed,
            "profile": "tiny",
            "task.name": "workflow-dsl",
            "model.lora": None,
            "stages.grpo.num_generations": 2,
            "stages.grpo.prompts_per_step": 3,
            "stages.grpo.max_steps": 4,
            "stages.grpo.learning_rate": 2e-6,
            "faults": [],
            "guards.collapse": "stop",
        } | (spec or {})
        per_step = leaves["stages.grpo.num_generations"] * leaves["stages.grpo.prompts_per_step"]
        steps = leaves["stages.grpo.max_steps"]
        rows = tuple({"step": step, "completions": step * per_step} for step in range(steps + 1))
        document: dict[str, Any] = {
            "experiment": "p30",
            "recorded_as": "p30@1",
            "spec_sha": "aaaa",
            "profile": "tiny",
            "seed": seed,
            "run_id": f"p30-tiny-s{seed}-aaaa-1",
            "status": "COMPLETED",
            "steps": steps,
            "updates": steps,
            "seconds": 1.0,
            "final": {"eval/reward": reward, "eval/reward_se": 0.01},
            "best": {"eval/reward": reward + 0.1},
        }
        return RunRecord(result=document | result, spec=leaves, rows=rows)

    return _build
