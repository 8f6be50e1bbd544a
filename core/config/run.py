"""RunSpec: everything one run depends on, resolved. What is run is this record, never rebuilt flags."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from core.config.expectation import Expectation, parse
from core.config.grpo_stage import GrpoStage
from core.config.guards import GuardSpec
from core.config.model import Dtype, ModelSpec
from core.config.part import LATE, Count, Name, Part, Positive, PositiveInt, refusal
from core.config.policy import AnyPolicy, LmPolicyConfig
from core.config.stage import EarlyStoppingSpec, RceStage, SftStage, kind_of, steps_of_epochs
from core.config.task import TaskSpec
from core.errors import SpecError
from core.metrics import declared, unknown_metric

Fault = Literal[
    "rollout-in-train-mode",
    "stale-sampler-weights",
    "dropout-in-scoring",
    "missing-eos",
    "wrong-group-order",
    "reward-sign-flipped",
    "completion-mask-off-by-one",
    "constant-reward",
    "evaluation-in-training",
]
IN_THE_POLICY = ("rollout-in-train-mode", "stale-sampler-weights", "dropout-in-scoring", "missing-eos")  # one at a time
IN_A_LANGUAGE_MODEL = ("rollout-in-train-mode", "dropout-in-scoring", "missing-eos")  # of no other policy
IN_THE_TASK = ("constant-reward", "evaluation-in-training")  # of built-in tasks only


Stage = Annotated[
    Annotated[GrpoStage, Tag("grpo")] | Annotated[SftStage, Tag("sft")] | Annotated[RceStage, Tag("rce")],
    Discriminator(kind_of),
]


class EvaluationSpec(Part):
    """Every `eval_steps` steps: `num_generations_eval` completions for each held-out prompt, same draws every time."""

    eval_steps: PositiveInt = 10
    num_generations_eval: PositiveInt = 2
    temperature: Positive = 1.0
    slice_by: Annotated[str, Field(min_length=1)] | None = None  # a fact of the task's problems: eval/slices/<value>


class BudgetSpec(Part):
    """What a run may sample for training, counted in completions or in their tokens, discarded ones too.

    The last stage goes on until it is spent; its `max_steps` is then the scale of its clock.
    """

    completions: PositiveInt | None = None
    tokens: PositiveInt | None = None

    @property
    def unit(self) -> Literal["completions", "tokens"]:
        """What is counted."""
        return "tokens" if self.completions is None else "completions"

    @property
    def amount(self) -> int:
        """How many of them."""
        return self.completions or self.tokens or 0

    @model_validator(mode="after")
    def _one_of_two(self) -> BudgetSpec:
        if (self.completions is None) == (self.tokens is None):
            got = "neither" if self.tokens is None else "both"
            raise refusal("completions", f"got {got} of completions and tokens; allowed: one, null for the other")
        return self


class CheckpointSpec(Part):
    """A checkpoint every `save_steps` steps; the last `save_total_limit` and the best one are kept."""

    save_steps: PositiveInt = 10
    save_total_limit: Annotated[int, Field(ge=2)] = 2


class ExportSpec(Part):
    """What a finished run leaves besides its adapter."""

    merged: bool = False  # the adapter added into its base weights, as a model of its own


def _model_of_an_lm(model: ModelSpec | None, info: ValidationInfo) -> ModelSpec | None:
    """Refuses a language model's policy without a model, and a model beside another kind of policy."""
    policy = info.data.get("policy")
    if model is None and isinstance(policy, LmPolicyConfig):
        raise PydanticCustomError("missing", "the policy lm needs a model")
    if model is not None and policy is not None and not isinstance(policy, LmPolicyConfig):
        raise refusal("", f"belongs to the policy lm, and this one is {policy.kind}; allowed: null")
    return model


class RunSpec(Part):
    """One run, completely. `seed` is the only field that is not part of its hash."""

    name: Name
    revision: PositiveInt = 1
    title: str
    question: str = ""
    source: str = ""
    profile: Name = "full"
    seed: Count = 0
    policy: Annotated[AnyPolicy, LATE] = LmPolicyConfig()
    model: Annotated[ModelSpec | None, AfterValidator(_model_of_an_lm)] = None  # the policy lm needs it
    task: TaskSpec
    init_from: str | None = None  # a run: start from its best checkpoint
    stages: Annotated[dict[Name, Stage], Field(min_length=1)]
    budget: BudgetSpec | None = None  # the last stage goes on until it is spent
    evaluation: EvaluationSpec = EvaluationSpec()
    checkpoints: CheckpointSpec = CheckpointSpec()
    export: ExportSpec = ExportSpec()
    early_stopping: EarlyStoppingSpec | None = None
    guards: GuardSpec = GuardSpec()
    faults: Annotated[tuple[Fault, ...], Field(strict=False)] = ()
    expects: Annotated[tuple[Expectation, ...], Field(strict=False)] = ()
    recorded: dict[str, float] = Field(default_factory=dict)  # what a historical document says: metric -> value

    @property
    def language_model(self) -> ModelSpec:
        """The model of a policy `lm`. Raises SpecError for another kind of policy."""
        if self.model is None:
            raise SpecError(f"got the policy {self.policy.kind}; allowed: lm, which has a model", key="policy.kind")
        return self.model

    @property
    def starts_from(self) -> str:
        """What the weights start from: a language model's source, else the kind of policy."""
        return self.policy.kind if self.model is None else self.model.source

    @property
    def computes_in(self) -> Dtype:
        """The precision its policy's products are taken in."""
        return self.policy.computes_in if self.model is None else self.model.computes_in

    @property
    def max_steps(self) -> int:
        """Steps of all stages; with a budget, ticks of their clocks."""
        return sum(stage.max_steps for stage in self.stages.values())

    @property
    def max_completion_length(self) -> int:
        """The longest completion any stage allows: what evaluations allow."""
        return max(stage.max_completion_length for stage in self.stages.values())

    @model_validator(mode="before")
    @classmethod
    def _epochs_give_steps(cls, value: Any) -> Any:
        """`max_steps` of a stage that says `epochs`, where both numbers it needs are there."""
        stages, task = (value.get(key) for key in ("stages", "task")) if isinstance(value, dict) else (None, None)
        if not isinstance(stages, dict):
            return value
        prompts = task.get("train_prompts", 512) if isinstance(task, dict) else getattr(task, "train_prompts", None)
        kept = {name: stage for name, stage in stages.items() if stage is not None}  # null takes a parent's stage away
        if stages and not kept:
            raise refusal("stages", "every stage is null; at least one must be left")
        return {**value, "stages": {name: _with_steps(stage, prompts) for name, stage in kept.items()}}

    @model_validator(mode="after")
    def _parts_fit(self) -> RunSpec:
        for name, stage in self.stages.items():
            if stage.prompts_per_step > self.task.train_prompts:
                raise refusal(
                    f"stages.{name}.prompts_per_step",
                    f"got {stage.prompts_per_step}; allowed: at most task.train_prompts = {self.task.train_prompts}",
                )
            if stage.epochs is not None:
                steps = steps_of_epochs(stage.epochs, self.task.train_prompts, stage.prompts_per_step)
                if stage.max_steps != steps:
                    raise refusal(
                        f"stages.{name}.max_steps",
                        f"got {stage.max_steps}, epochs = {stage.epochs} gives {steps}; set one, null for the other",
                    )
        last, stage = list(self.stages.items())[-1]
        if self.budget is not None and not stage.rows_per_step:
            raise refusal("budget", f"got a budget, and the last stage, {last}, samples nothing; allowed: null")
        for text in self.expects:
            if (named := parse(text).stage) is not None and named not in self.stages:
                raise refusal(
                    "expects", f"got {text!r}; allowed: a stage of this experiment ({', '.join(self.stages)})"
                )
        for name in self.recorded:
            if declared(name) is None:
                raise refusal(f"recorded.{name}", f"unknown metric; {unknown_metric(name)}")
        return self

    @model_validator(mode="after")
    def _policy_fits(self) -> RunSpec:
        if self.task.scores != self.policy.output:
            problem = f"scores {self.task.scores}, and the policy {self.policy.kind} gives {self.policy.output}"
            raise refusal("task.name", f"got {self.task.name}, which {problem}; allowed: a task that scores that")
        return self

    @model_validator(mode="after")
    def _faults_fit(self) -> RunSpec:
        if len(set(self.faults)) < len(self.faults):
            raise refusal("faults", f"got {', '.join(self.faults)}; allowed: each fault once")
        if len(odd := [fault for fault in self.faults if fault in IN_THE_POLICY]) > 1:
            raise refusal("faults", f"got {', '.join(odd)}; allowed: one of them at a time")
        if self.task.name == "custom" and (odd := [fault for fault in self.faults if fault in IN_THE_TASK]):
            raise refusal("faults", f"got {odd[0]} with your own task; allowed: with a built-in task")
        return self


def _with_steps(stage: Any, prompts: Any) -> Any:
    if not isinstance(stage, dict) or stage.get("epochs") is None or stage.get("max_steps") is not None:
        return stage
    epochs, size = stage["epochs"], stage.get("prompts_per_step")
    counts = all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in (prompts, size))
    if not counts or not isinstance(epochs, (int, float)) or isinstance(epochs, bool) or not 0 < epochs < math.inf:
        return {key: item for key, item in stage.items() if key != "max_steps"}
    return {**stage, "max_steps": steps_of_epochs(epochs, int(prompts or 0), int(size or 0))}
