"""What a spec asks of its task: answers to imitate, where a stage imitates."""

from __future__ import annotations

import pytest

from core.config.run import RunSpec, check_fit
from core.errors import SpecError

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
    with pytest.raises(SpecError, match=r"task.answer: is null, and stage (warm|grpo) imitates it; give a template"):
        check_fit(spec(None, **stages))


def test_sampling_alone_needs_none() -> None:
    check_fit(spec(None, grpo=GRPO))
