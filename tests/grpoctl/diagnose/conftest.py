"""Diagnoses made by hand: a run like P30's in eight steps, and findings of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.health.case import Case, Settings
from core.health.finding import Decider, Finding, RuledOut
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.readers.base import Reading

Diagnosed = Callable[..., Diagnosis]

# Updates on steps 2, 4 and 6, each followed by a step without a valid completion; an evaluation before and at the end.
ROWS = (
    {"step": 0, "eval/reward": 0.5, "eval/reward_se": 0.02},
    *(
        {
            "step": step, "update": float(step in (2, 4, 6)), "reward/mean": 0.5 + step / 100,
            "completions/valid": 0.0 if step in (3, 5, 7) else 1.0, "kl": None if step == 1 else 1e-4 * step,
        }
        for step in range(1, 9)
    ),
    {"step": 9, "update": 0.0, "eval/reward": 0.6, "eval/reward_se": 0.02},
)  # fmt: skip
GRAVE = Finding(
    id="rollout-mode",
    severity="error",
    summary="3 of 3 steps after an update were all-invalid",
    evidence={
        "after_update": 3,
        "p": 1.25e-9,
        "metric": "completions/valid",
        "warnings": ["line 7: `use_cache=True`", "b"],
    },
    rules_out=(RuledOut(id="policy-collapse", why="it healed: without an update"),),
    suggest=("guards.rollout_integrity=stop",),
    advice="sample in eval mode",
    decider=Decider(
        question="Is it the sampler?",
        overrides=("num_generations=4", "guards.rollout_integrity=stop"),
        expects=("collapse_rate < 0.05",),
    ),
)
MILD = Finding(id="dead-groups", severity="warning", summary="half were dead", confidence="moderate")


@pytest.fixture
def diagnosed() -> Diagnosed:
    """A diagnosis with these findings; further words go to `Reading`. A foreign log unless `spec` is given."""

    def make(*findings: Finding, settings: Settings | None = None, rows: Any = ROWS, **read: Any) -> Diagnosis:
        case = Case(rows=rows, settings=settings or Settings())
        known: dict[str, Any] = {"kind": "console", "source": "old.log", **read}
        return Diagnosis(
            name=known["source"],
            reading=Reading(case=case, **known),
            facts={"steps": 9, "updates": 3},
            findings=findings,
        )

    return make
