"""RunSpec: everything one run depends on, resolved. What is run is this record, never rebuilt flags.

Its validators check what its own parts say of each other; `check_fit` what a spec asks of its policy and its task,
which other packages may add.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from core.config.expectation import Expectation, parse
from core.config.grpo_stage import GrpoStage
from core.config.part import LATE, Count, Fraction, Name, NonNegative, Part, Positive, PositiveInt, refusal
from core.config.policy import (
    EXTERNAL,
    AnyPolicy,
    Dtype,
    LmPolicyConfig,
    ModelSpec,
    PolicyConfig,
    RestorationConfig,
    policy_kinds,
)
from core.config.stage import EarlyStoppingSpec, RceStage, SftStage, StageBase, constant, kind_of, steps_of_epochs
from core.config.task import AnyTask, CustomTaskSpec, task_names
from core.config.trainer import OF_THE_RUN, TrainerSpec, words
from core.config.trl.fields import KEYS, STAGE
from core.config.trl.fit import unfit
from core.errors import SpecError
from core.metrics import declared, unknown_metric

Action = Literal["stop", "warn", "off"]


class GuardSpec(Part):
    """`collapse` trips after `patience` steps in a row beyond a limit (null: not watched), and at once on a NaN."""

    rollout_integrity: Action = "stop"
    max_logprob_gap: Positive | None = None  # null: by dtype and temperature, core.health.rules.integrity
    noise_factor: Annotated[Positive | None, LATE] = 2.0  # times the run's own noise; null: not judged by it
    collapse: Action = "stop"
    patience: PositiveInt = 5
    min_valid: Fraction | None = 0.05
    min_entropy: NonNegative | None = 1e-3
    max_truncated: Fraction | None = 0.95
    min_length: NonNegative | None = 1.01  # tokens, the end token included: below this everything is empty
    max_kl: Positive | None = 10.0


Fault = Literal[
    "rollout-in-train-mode",
    "stale-sampler-weights",
    "stale-prefix",
    "wrong-adapter",
    "dropout-in-scoring",
    "missing-eos",
    "wrong-group-order",
    "reward-sign-flipped",
    "completion-mask-off-by-one",
    "constant-reward",
    "evaluation-in-training",
    "dead-masks",
    "leaking-samples",
    "unused-heads",
    "clip-before-backward",
    "frozen-log-probs",
]
# One of these at a time; all but old weights are faults of one kind of policy and of no other.
IN_A_LANGUAGE_MODEL = ("rollout-in-train-mode", "stale-prefix", "wrong-adapter", "dropout-in-scoring", "missing-eos")
IN_A_RESTORATION = ("dead-masks", "leaking-samples", "unused-heads")
IN_THE_POLICY = ("stale-sampler-weights", *IN_A_LANGUAGE_MODEL, *IN_A_RESTORATION)
IN_THE_TASK = ("constant-reward", "evaluation-in-training")  # of built-in tasks only


Stage = Annotated[
    Annotated[GrpoStage, Tag("grpo")] | Annotated[SftStage, Tag("sft")] | Annotated[RceStage, Tag("rce")],
    Discriminator(kind_of),
]


class EvaluationSpec(Part):
    """Every `eval_steps` steps: `num_generations_eval` completions for each held-out prompt, same draws every time."""

    eval_steps: PositiveInt = 10
    num_generations_eval: PositiveInt = 2
    temperature: NonNegative = 1.0  # 0: greedy
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
    task: AnyTask
    trainer: Annotated[TrainerSpec, LATE] = TrainerSpec()
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
    def update_dropout(self) -> float:
        """The dropout of an update: the adapter's of a language model, else the policy's own; 0 without one."""
        if self.model is None:
            return self.policy.update_dropout
        return 0.0 if self.model.lora is None else self.model.lora.lora_dropout

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

    @property
    def syncs_reference(self) -> bool:
        """Whether the reference follows the policy in any stage."""
        return any(isinstance(stage, GrpoStage) and stage.sync_ref_model for stage in self.stages.values())

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings of all stages: what completions end with in evaluations."""
        stages = (stage for stage in self.stages.values() if isinstance(stage, (GrpoStage, RceStage)))
        return tuple(dict.fromkeys(text for stage in stages for text in stage.stop_strings))

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_known_of_a_command(cls, value: Any) -> Any:
        """A command's policy and task are external where the spec does not say what they are."""
        trainer = value.get("trainer") if isinstance(value, dict) else None
        kind = trainer.get("kind") if isinstance(trainer, dict) else getattr(trainer, "kind", None)
        if kind != "command":
            return value
        unknown = {"task": {"name": EXTERNAL}} if value.get("task") is None else {}
        if value.get("policy") is None and value.get("model") is None:
            unknown["policy"] = {"kind": EXTERNAL}
        return {**value, **unknown}

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
        if self.trainer.kind == "command":
            return self  # they say what the program works on, as far as that is known
        for key, name in (("policy.kind", self.policy.kind), ("task.name", self.task.name)):
            if name == EXTERNAL:
                raise refusal(key, f"got {EXTERNAL}, which only trainer.kind: command can train; name another one")
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


def check_fit(spec: RunSpec) -> None:
    """Raises SpecError for the first setting that asks of the policy, or of the task, what it does not have.

    And where a package adds a policy or task under a name that another, or grpoctl itself, has.
    """
    policy_kinds()
    task_names()
    if spec.trainer.kind == "command":
        _check_command(spec)
        return
    if spec.trainer.kind == "trl":
        _check_trl(spec)
    _check_temperatures(spec)
    unanswered = isinstance(spec.task, CustomTaskSpec) and spec.task.answer is None
    for name, stage in spec.stages.items():
        imitates = isinstance(stage, SftStage) or (isinstance(stage, GrpoStage) and stage.supervised_weight.ever)
        if unanswered and imitates:
            raise SpecError(
                f"is null, and stage {name} imitates it; give a template, e.g. '{{answer}}'", key="task.answer"
            )
        for key, problem in _unfit(spec, stage):
            raise SpecError(problem, key=f"stages.{name}.{key}")
    _check_faults(spec)
    if isinstance(spec.policy, LmPolicyConfig):
        return
    kind = spec.policy.kind
    if spec.export.merged:
        raise SpecError(f"got true, and the policy {kind} has no adapter to merge; allowed: false", key="export.merged")
    if spec.budget is not None and spec.budget.tokens is not None and not spec.policy.tokens:
        raise SpecError(f"the policy {kind} draws no tokens; allowed: budget.completions", key="budget.tokens")


def _check_command(spec: RunSpec) -> None:
    """Placeholders that name nothing, and what a program of somebody else's cannot be asked."""
    known = spec.model_dump(mode="json")
    for key in ("command", "resume_command", "metrics"):
        if (template := getattr(spec.trainer, key)) is not None:
            words(template, known, OF_THE_RUN[0], key=f"trainer.{key}")
    for key, given in (("faults", bool(spec.faults)), ("init_from", spec.init_from is not None)):
        if given:
            raise SpecError("belongs to grpoctl's own trainer, and trainer.kind is command; leave it out", key=key)


def _check_trl(spec: RunSpec) -> None:
    """What TRL's trainer has no counterpart of, where it is set away from its default."""
    if spec.model is None:
        raise SpecError(f"got {spec.policy.kind}; TRL trains a causal language model: lm", key="policy.kind")
    for key, given in (("faults", bool(spec.faults)), ("init_from", spec.init_from is not None)):
        if given:
            raise SpecError(f"{KEYS[key].note}; leave it out, or take trainer.kind: grpoctl", key=key)
    last = list(spec.stages)[-1]
    for name, stage in spec.stages.items():
        if not isinstance(stage, GrpoStage) or name != last:
            raise SpecError(f"got a stage of kind {stage.kind}; {KEYS[f'{STAGE}.kind'].note}", key=f"stages.{name}")
        adapter = spec.model.lora is not None
        for key, problem in unfit(stage, spec.trainer.args, spec.trainer.processes, adapter=adapter):
            raise SpecError(f"{problem} (trainer.kind is trl)", key=f"stages.{name}.{key}")


def _check_faults(spec: RunSpec) -> None:
    """Those of one kind of policy."""
    kind = spec.policy.kind
    if isinstance(spec.policy, LmPolicyConfig):
        if "wrong-adapter" in spec.faults and spec.model is not None and spec.model.lora is None:
            raise SpecError("got wrong-adapter, and the model has none; allowed: with model.lora", key="faults")
    elif faults := [fault for fault in spec.faults if fault in IN_A_LANGUAGE_MODEL]:
        raise SpecError(f"got {faults[0]}, a fault of language models, and the policy is {kind}", key="faults")
    faults = [fault for fault in spec.faults if fault in IN_A_RESTORATION]
    if faults and not isinstance(spec.policy, RestorationConfig):
        raise SpecError(f"got {faults[0]}, a fault of the policy restoration, and this one is {kind}", key="faults")


def _check_temperatures(spec: RunSpec) -> None:
    """An evaluation's; those of stages are looked at with them."""
    evaluation = spec.evaluation
    if evaluation.temperature > 0:
        if not spec.policy.tempered and evaluation.temperature != 1:
            problem = f"got {evaluation.temperature:g}, and the draws of the policy {spec.policy.kind} have none"
            raise SpecError(f"{problem}; allowed: 1, or 0 for no draws", key="evaluation.temperature")
        return
    if not spec.policy.greedy:
        problem = f"got 0, which is greedy, and the policy {spec.policy.kind} can only draw; allowed: a number > 0"
        raise SpecError(problem, key="evaluation.temperature")
    if evaluation.num_generations_eval > 1:
        problem = f"got {evaluation.num_generations_eval} greedy completions, which are all the same; allowed: 1"
        raise SpecError(problem, key="evaluation.num_generations_eval")


def _unfit(spec: RunSpec, stage: StageBase) -> Iterator[tuple[str, str]]:
    """(key of the stage, problem) for every setting that needs what the policy does not have."""
    policy = spec.policy
    for loss in [loss for loss, weight in stage.loss_weights.items() if weight.ever and loss not in policy.losses]:
        have = f"one of {', '.join(sorted(policy.losses))}" if policy.losses else "none"
        yield f"loss_weights.{loss}", f"the policy {policy.kind} has no loss of this name; allowed: {have}"
    if isinstance(stage, (GrpoStage, RceStage)) and not policy.tempered and stage.temperature != constant(1.0):
        yield "temperature", f"the draws of the policy {policy.kind} have none; allowed: 1"
    if isinstance(stage, (GrpoStage, RceStage)) and stage.stop_strings and not policy.tokens:
        yield "stop_strings", f"the policy {policy.kind} draws no tokens; allowed: none"
    if isinstance(stage, (GrpoStage, RceStage)) and stage.groups == "offline" and not spec.task.stores_outputs:
        yield "groups", f"got offline, and the task {spec.task.name} has no stored outputs; allowed: online"
    if isinstance(stage, (GrpoStage, RceStage)) and stage.candidate_choice != "best":
        if stage.candidate_choice == "stratified" and not spec.task.knows_right:
            why = f"the task {spec.task.name} does not say which outputs are right"
            yield "candidate_choice", f"got stratified, and {why}; allowed: best or random"
        if stage.keep_candidates is None and stage.groups == "online":
            yield "candidate_choice", f"got {stage.candidate_choice}, and every candidate is kept; set keep_candidates"
    if isinstance(stage, GrpoStage):
        yield from _unfit_references(policy, stage)
        yield from _unfit_losses(policy, stage)
        yield from _unfit_entropies(policy, stage)
        yield from _unfit_lengths(policy, stage)


def _unfit_references(policy: PolicyConfig, stage: GrpoStage) -> Iterator[tuple[str, str]]:
    if stage.old_policy == "start_of_epoch" and not policy.keeps:
        allowed = "sampler or reference"
        yield "old_policy", f"the policy {policy.kind} keeps no weights of an epoch's start; allowed: {allowed}"
    if stage.sync_ref_model and not policy.syncs:
        yield "sync_ref_model", f"the reference of the policy {policy.kind} stays as it is; allowed: false"


def _unfit_losses(policy: PolicyConfig, stage: GrpoStage) -> Iterator[tuple[str, str]]:
    if stage.consistency_weight.ever and "consistency" not in policy.losses:
        whose = "a causal language model" if isinstance(policy, LmPolicyConfig) else f"the policy {policy.kind}"
        yield "consistency_weight", f"{whose} has no consistency loss; allowed: 0"
    if stage.consistency_weight.ever and "consistency" in stage.loss_weights:
        yield "loss_weights.consistency", "is set by consistency_weight too; allowed: one of the two"
    if stage.supervised_weight.ever and "supervised" in stage.loss_weights:
        yield "supervised_weight", f"the policy {policy.kind} has a loss of its own of that name; allowed: 0 beside it"
    if policy.density and stage.surrogate == "dppo":
        yield "surrogate", f"got dppo, which compares probabilities; the policy {policy.kind} has densities"


def _unfit_entropies(policy: PolicyConfig, stage: GrpoStage) -> Iterator[tuple[str, str]]:
    """What weighs by entropies, or aims at one, needs those of choices: a density's may be below 0."""
    if policy.entropies and not policy.density:
        return
    why = f"the entropies of the policy {policy.kind} " + ("may be below 0" if policy.entropies else "are not known")
    if stage.entropy_weighting != "none":
        yield "entropy_weighting", f"{why}; allowed: none"
    if stage.adaptive_entropy is not None:
        yield "adaptive_entropy", f"{why}; allowed: null"
    if stage.entropy_coef.ever and not policy.entropies:
        yield "entropy_coef", f"{why}; allowed: 0"


def _unfit_lengths(policy: PolicyConfig, stage: GrpoStage) -> Iterator[tuple[str, str]]:
    if policy.tokens:
        return
    drawn = (
        ("overlong", stage.overlong is not None, "null"),
        ("mask_truncated_completions", stage.mask_truncated_completions, "false"),
        ("top_p", stage.top_p < 1, "1"),
        ("top_k", stage.top_k > 0, "0"),
        ("min_p", stage.min_p > 0, "0"),
        ("repetition_penalty", stage.repetition_penalty != 1, "1"),
    )
    for key, used, allowed in drawn:
        if used:
            yield key, f"the policy {policy.kind} draws no tokens; allowed: {allowed}"
