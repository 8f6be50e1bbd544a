"""What is trained on. One class per task, told apart by `name`; the code of a task is in core.tasks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.spec.part import Count, NonNegative, Part, PositiveInt, refusal

Domain = Literal["math", "qa", "code"]


def _as_in_p30() -> dict[Domain, float]:
    return {"math": 2.0, "qa": 1.0}


class _SeededTask(Part):
    """Problems come from `data_seed`: `train_prompts` to learn from, `eval_prompts` held out."""

    data_seed: Count = 0
    train_prompts: PositiveInt = 512
    eval_prompts: PositiveInt = 64


class WorkflowDslTaskSpec(_SeededTask):
    """Write one line of workflow DSL for a problem (documents/000); see core.tasks.workflow_dsl."""

    name: Literal["workflow-dsl"]
    prompt: Literal["short", "instruct"] = "short"
    domains: Annotated[dict[Domain, NonNegative], Field(min_length=1)] = Field(default_factory=_as_in_p30)
    operator_cost: Annotated[float, Field(ge=0, le=0.05)] = 0.005

    @model_validator(mode="after")
    def _some_weight(self) -> WorkflowDslTaskSpec:
        if not any(self.domains.values()):
            raise refusal("domains", "every weight is 0; at least one domain needs a weight above 0")
        return self


class ArithmeticTaskSpec(_SeededTask):
    """Add two numbers of `digits` digits; the answer is checked."""

    name: Literal["arithmetic"]
    digits: Annotated[int, Field(ge=1, le=4)] = 2


TaskSpec = Annotated[WorkflowDslTaskSpec | ArithmeticTaskSpec, Field(discriminator="name")]
