"""What a RunSpec and its parts accept and refuse, without any file; and what it asks of its task."""

from __future__ import annotations

from typing import Any

import pytest

from core.config import RunSpec
from core.config.run import check_fit
from core.errors import SpecError
from tests.core.config.valid_run import RUN, STAGE, refused

OWN = {"name": "custom", "data": {"path": "x.jsonl"}, "prompt": "{q}", "rewards": [{"function": "module:reward"}]}


def test_the_run_these_tests_change_is_valid() -> None:
    assert RunSpec.model_validate(RUN).stages["grpo"].max_steps == 10


def test_a_step_needs_no_more_prompts_than_there_are() -> None:
    assert RunSpec.model_validate({**RUN, "task": {"name": "workflow-dsl", "train_prompts": 3}})
    error = refused({"task": {"name": "workflow-dsl", "train_prompts": 2}})
    assert error["ctx"]["key"] == "stages.grpo.prompts_per_step"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"recorded": {"updates": 38, "updatez": 1}}, "recorded.updatez"),
        ({"faults": ["rollout-in-train-mode", "rollout-in-train-mode"]}, "faults"),
        ({"faults": ["rollout-in-train-mode", "missing-eos"]}, "faults"),  # both are the policy's
        ({"faults": ["constant-reward"], "task": OWN}, "faults"),
    ],
)
def test_recorded_metrics_are_declared_and_faults_named_once(change: dict[str, Any], key: str) -> None:
    assert refused(change)["ctx"]["key"] == key


@pytest.mark.parametrize(
    ("budget", "key", "problem"),
    [
        ({}, "completions", "got neither of completions and tokens; allowed: one, null for the other"),
        ({"completions": 8, "tokens": 9}, "completions", "got both of completions and tokens; allowed: one, null for "
         "the other"),
    ],
)  # fmt: skip
def test_a_budget_is_of_completions_or_of_tokens(budget: dict[str, int], key: str, problem: str) -> None:
    error = refused({"budget": budget})
    assert (error["loc"], error["ctx"]["key"], error["msg"]) == (("budget",), key, problem)
    spec = RunSpec.model_validate({**RUN, "budget": {"completions": None, "tokens": 9}})
    assert spec.budget is not None
    assert (spec.budget.unit, spec.budget.amount) == ("tokens", 9)


def test_a_budget_needs_a_last_stage_that_samples() -> None:
    own = {key: value for key, value in STAGE.items() if key != "num_generations"}
    stages = {"grpo": STAGE, "warm": {**own, "kind": "sft"}}
    error = refused({"budget": {"completions": 8}, "stages": stages})
    assert error["ctx"]["key"] == "budget"
    assert "warm" in error["msg"]
    first = {"warm": stages["warm"], "grpo": STAGE}
    assert RunSpec.model_validate({**RUN, "budget": {"completions": 8}, "stages": first})


STEPS = {"max_steps": 1, "prompts_per_step": 1, "learning_rate": 1e-4}
GRPO = {**STEPS, "num_generations": 2}


def spec(answer: str | None, **stages: object) -> RunSpec:
    rewards = [{"function": "rewards:right"}]
    task = {"name": "custom", "data": {"path": "x.jsonl"}, "prompt": "{q}", "rewards": rewards, "answer": answer}
    model = {"source": "builtin:tiny"}
    return RunSpec.model_validate({"name": "mine", "title": "", "model": model, "task": task, "stages": stages})


IMITATING = [
    {"warm": {**STEPS, "kind": "sft"}, "grpo": GRPO},
    {"grpo": {**GRPO, "supervised_weight": 0.1}},
    {"grpo": {**GRPO, "supervised_weight": {"start": 0.0, "end": 0.1, "steps": 5}}},
]


@pytest.mark.parametrize("stages", IMITATING)
def test_a_stage_that_imitates_needs_answers(stages: dict[str, object]) -> None:
    check_fit(spec("{a}", **stages))
    with pytest.raises(SpecError, match=r"task\.answer: .*\b(warm|grpo)\b"):
        check_fit(spec(None, **stages))


def test_sampling_alone_needs_none() -> None:
    check_fit(spec(None, grpo=GRPO))
