"""RunSpec: everything one run depends on, resolved. What is run is this record, never rebuilt flags."""

from __future__ import annotations

import difflib
from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.metrics import METRICS
from core.spec.expectation import Expectation
from core.spec.guards import GuardSpec
from core.spec.model import ModelSpec
from core.spec.part import Count, Part, Positive, PositiveInt, refusal
from core.spec.stage import GrpoStage
from core.spec.task import TaskSpec

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
Fault = Literal["rollout-in-train-mode"]


class EvaluationSpec(Part):
    """Every `eval_steps` steps: `num_generations_eval` completions for each held-out prompt, same draws every time."""

    eval_steps: PositiveInt = 10
    num_generations_eval: PositiveInt = 2
    temperature: Positive = 1.0


class CheckpointSpec(Part):
    """A checkpoint every `save_steps` steps; the last `save_total_limit` and the best one are kept."""

    save_steps: PositiveInt = 10
    save_total_limit: Annotated[int, Field(ge=2)] = 2


class EarlyStoppingSpec(Part):
    """Stop after `patience` evaluations without `metric` getting better by more than `min_delta`."""

    metric: Literal["eval/reward", "eval/valid"] = "eval/reward"
    patience: PositiveInt
    min_delta: Annotated[float, Field(ge=0)] = 0.0


class RunSpec(Part):
    """One run, completely. `seed` is the only field that is not part of its hash."""

    name: Name
    revision: PositiveInt = 1
    title: str
    question: str = ""
    source: str = ""
    profile: Name = "full"
    seed: Count = 0
    model: ModelSpec
    task: TaskSpec
    stages: Annotated[dict[Name, GrpoStage], Field(min_length=1, max_length=1)]
    evaluation: EvaluationSpec = EvaluationSpec()
    checkpoints: CheckpointSpec = CheckpointSpec()
    early_stopping: EarlyStoppingSpec | None = None
    guards: GuardSpec = GuardSpec()
    faults: Annotated[tuple[Fault, ...], Field(strict=False)] = ()
    expects: Annotated[tuple[Expectation, ...], Field(strict=False)] = ()
    recorded: dict[str, float] = Field(default_factory=dict)  # what a historical document says: metric -> value

    @model_validator(mode="after")
    def _parts_fit(self) -> RunSpec:
        for name, stage in self.stages.items():
            if stage.prompts_per_step > self.task.train_prompts:
                raise refusal(
                    f"stages.{name}.prompts_per_step",
                    f"got {stage.prompts_per_step}; allowed: at most task.train_prompts = {self.task.train_prompts}",
                )
        if len(set(self.faults)) < len(self.faults):
            raise refusal("faults", f"got {', '.join(self.faults)}; allowed: each fault once")
        for name in self.recorded:
            if name not in METRICS:
                near = difflib.get_close_matches(name, METRICS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"{len(METRICS)} are declared, e.g. eval/reward"
                raise refusal(f"recorded.{name}", f"unknown metric; {hint}")
        return self
