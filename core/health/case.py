"""What a rule looks at: one run as a step table, its samples, what libraries said, and what is known of its settings.

Ours or foreign: grpoctl.diagnose.readers makes a case of any log; a spec knows all settings, an old log some. A rule
sees nothing else, and never a spec's faults. Numbers beyond HUGE are no numbers: a float32 ends at 3e38, a log's text
can say 1e300, and sums of squares of that overflow in every rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from core.algorithms.names import BASELINES, SCALES, BaselineTraits, ScaleTraits
from core.config import GrpoStage, GuardSpec, RunSpec, Schedule
from core.health.finding import Row, StepTable, steps_of
from core.health.guard import watched_guards
from core.health.statistics import HUGE

Answer = TypeVar("Answer")

# Columns of a step table that only foreign logs have; all others are declared in core.metrics.
FOREIGN = {
    "advantage/std_all": "std over all advantages of a step, those of dead groups (0) included: what most logs call it",
    "advantage/max": "the largest advantage, signed",
    "groups/solved_none": "prompts of a step of which no completion is right: how many, or their share",
    "groups/solved_all": "prompts of which every completion is right, likewise",
    "groups/solved_some": "the other prompts, likewise",
    "groups/right": "share of groups whose completions all earned the best reward",
    "kl_loss": "the KL's contribution to the loss, weighted",
    "consistency/loss": "a consistency term's loss",
    "critic/loss": "loss of a value function, which is the baseline then",
    "critic/explained": "share of the returns' variance that a value function explains",
    "eval/loss": "loss on held-out data",
    "samples": "completions of the step that the log has",
    "reward/max": "the largest reward of a step's completions",
    "reward/min": "the smallest",
    "reward/true": "what the reward stands in for (a gold or oracle reward), which nothing is trained on",
    "reward/hacked": "share of the completions that a detector says gamed the reward",
    "reward/hacks": "how many did, on a step or in all so far",
    "reward/function_std/*": "std of one reward function (rewards/*) over a step's completions",
    "advantage/min": "the smallest advantage, signed",
    "completions/longest": "tokens of a step's longest completion",
    "completions/shortest": "tokens of a step's shortest completion",
    "completions/length_ended": "mean tokens of completions that ended by themselves",
    "policy/clip_share": "share of tokens that the surrogate clipped, on either side",
    "policy/kl_old": "mean log ratio between the policy that the ratio is over and the updated one, nats a token",
    "sampler/ratio_mean": "mean importance ratio of the trainer's probability to the sampler's, of tokens or sequences",
    "sampler/ratio_min": "the smallest",
    "sampler/ratio_max": "the largest",
    "sampler/prob_gap": "mean |probability by the sampler - by the trainer| of drawn tokens",
    "sampler/prob_gap_max": "the largest",
    "sampler/correlation": "correlation of the two probabilities over drawn tokens",
    "sampler/kl": "estimated KL between the sampler's distribution and the trainer's, nats a token",
    "tools/calls": "calls of a tool a completion, or the share of completions with one",
    "sampler/masked": "share of tokens or sequences left out because sampler and trainer disagree",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings that rules read; None where unknown. Names and meanings are the spec's (docs/specs.md).

    Of a run with several stages: those of its last GRPO stage. Schedules are given by where they start.
    """

    num_generations: int | None = None
    prompts_per_step: int | None = None
    max_steps: int | None = None
    max_completion_length: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    learning_rate: float | None = None
    optimizer: str | None = None  # adamw_torch, sgd, ...: as the trainer calls it
    lr_scheduler_type: str | None = None
    warmup_steps: int | None = None
    max_grad_norm: float | None = None
    gradient_accumulation_steps: int | None = None
    beta: float | None = None
    kl_estimator: str | None = None
    kl_in: str | None = None
    transform: str | None = None
    ranks_break_ties: bool | None = None  # equal rewards get different ranks (a double argsort), not their mean rank
    baseline: str | None = None
    scale_rewards: str | None = None
    ddof: int | None = None
    eps: float | None = None
    std_floor: float | None = None
    advantage_clip: float | None = None
    weighting: str | None = None
    reshaped: bool | None = None  # more than a normaliser is between rewards and advantages: some are left out or added
    surrogate: str | None = None
    epsilon: float | None = None
    updates_per_rollout: int | None = None
    dynamic_sampling: bool | None = None
    overlong: bool | None = None  # a price is taken off the reward of long completions
    mask_truncated_completions: bool | None = None
    supervised_weight: float | None = None
    consistency_weight: float | None = None
    skip_without_signal: bool | None = None
    lora_dropout: float | None = None
    gradient_checkpointing: bool | None = None
    dtype: str | None = None
    offline: bool | None = None  # completions were drawn and scored in advance
    old_is_reference: bool | None = None  # the "old" log-probs are the reference's, for the whole run
    eval_completions: int | None = None  # behind one evaluation
    eval_prompts: int | None = None  # that they answer, or clusters of them where those of one are not independent
    eval_clusters: bool | None = None
    old_policy: str | None = None  # whose log-probs the ratio is over
    update_dropout: float | None = None  # of an update's forward, which sampling and old log-probs do not have
    groups_per_row: int | None = None  # groups that one row of the log is a mean over, where that is no step's
    group_sizes: tuple[int, ...] | None = None  # completions of a group that take part, where they are chosen
    stage: int | None = None  # index of the stage that these settings are of; None where a log has no stages
    factor: str | None = None  # what a part of a completion with a log-prob of its own is called; null: token
    first_update_lr: float | None = None  # the rate of the first optimiser step, where the log or its code says it

    @classmethod
    def stated(cls, values: Mapping[str, Any]) -> Settings:
        """Of what a log or its code states: what is no field, or of another kind than its field, is left out."""
        kinds = {name: get_args(hint)[0] for name, hint in get_type_hints(cls).items()}
        return cls(**{name: value for name, value in values.items() if name in kinds and _fits(value, kinds[name])})

    @property
    def per_factor(self) -> str:
        """The unit of a KL or a log-prob gap."""
        return f"nats a {self.factor or 'token'}"

    @property
    def baseline_traits(self) -> BaselineTraits | None:
        """What is true of `baseline`; None where that is unknown."""
        return next((traits for name, traits in BASELINES.items() if name == self.baseline), None)

    @property
    def beyond_the_group(self) -> bool:
        """Whether the baseline is known to be no group's: a batch's, a value function's, or none."""
        return self.baseline_traits is not None and self.baseline_traits.scope != "group"

    @property
    def scale_traits(self) -> ScaleTraits | None:
        """What is true of `scale_rewards`; None where that is unknown."""
        return next((traits for name, traits in SCALES.items() if name == self.scale_rewards), None)


def _fits(value: object, kind: Any) -> bool:
    """Whether a field of this kind may have the value."""
    if value is None or isinstance(value, bool):
        return value is None or kind is bool
    if kind is int:
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if kind is float:
        return isinstance(value, (int, float))
    return isinstance(value, get_origin(kind) or kind)


NO_FILTER: Mapping[str, float] = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
UNFILTERED = tuple(f"{name}={off:g}" for name, off in NO_FILTER.items())  # overrides


def sampling_filters(settings: Settings | GrpoStage) -> dict[str, float]:
    """What acts on draws and not on the log-probs that are recorded and scored: by name, where it is known and on."""
    given = {name: getattr(settings, name) for name in NO_FILTER}
    return {name: value for name, value in given.items() if value is not None and value != NO_FILTER[name]}


OF_STAGE = {  # setting -> where a GRPO stage has it, where that is not a key of the same name
    "temperature": "temperature.start",
    "beta": "beta.start",
    "epsilon": "epsilon.start",
    "supervised_weight": "supervised_weight.start",
    "consistency_weight": "consistency_weight.start",
    "transform": "advantage.transform",
    "baseline": "advantage.baseline",
    "scale_rewards": "advantage.scale_rewards",
    "ddof": "advantage.ddof",
    "eps": "advantage.eps",
    "std_floor": "advantage.std_floor",
    "advantage_clip": "advantage.clip",
    "optimizer": "optim",
    "weighting": "advantage.weighting",
}


def settings_of(spec: RunSpec) -> Settings:
    """What a spec says. Only what does not depend on a GRPO stage is known where it has none."""
    stages = [(index, stage) for index, stage in enumerate(spec.stages.values()) if isinstance(stage, GrpoStage)]
    known: dict[str, Any] = {
        "lora_dropout": spec.model.lora.lora_dropout if spec.model is not None and spec.model.lora else 0.0,
        "gradient_checkpointing": spec.model is not None and spec.model.gradient_checkpointing,
        "dtype": spec.computes_in,
        "factor": spec.policy.factor,
        "update_dropout": spec.update_dropout,
        "optimizer": list(spec.stages.values())[-1].optim,
        "eval_prompts": spec.task.independent_eval_prompts,
        "eval_clusters": True if spec.task.clusters is not None else None,
        "eval_completions": spec.task.eval_prompts * spec.evaluation.num_generations_eval,
    }
    if not stages:
        return Settings(**known)
    index, stage = stages[-1]
    known |= {name: attrgetter(path)(stage) for name, path in OF_STAGE.items()}
    shared = [
        setting.name for setting in fields(Settings) if setting.name not in known and hasattr(stage, setting.name)
    ]
    known |= {name: getattr(stage, name) for name in shared}
    known |= {"dynamic_sampling": stage.dynamic_sampling is not None, "overlong": stage.overlong is not None}
    known |= {"offline": stage.groups == "offline", "old_is_reference": stage.old_policy == "reference"}
    by_order = stage.advantage.transform == "rank_by_order"
    known |= {"ranks_break_ties": by_order, "transform": "rank" if by_order else stage.advantage.transform}
    if stage.keep_candidates is not None:
        known["group_sizes"] = _sizes(stage.keep_candidates)
    return Settings(**known | {"reshaped": _reshaped(stage), "stage": index})


def _sizes(keep: Schedule) -> tuple[int, ...]:
    """The numbers of candidates that a schedule keeps, in order."""
    from core.algorithms.advantages import whole

    first, last = sorted((whole(keep.start), whole(keep.end)))
    return (first, last) if keep.shape == "step" and first < last else tuple(range(first, last + 1))


def _reshaped(stage: GrpoStage) -> bool:
    """Whether advantages are of other rewards than those of the step's completions, or of some of them only."""
    kept = (
        None if stage.groups == "offline" else stage.keep_candidates
    )  # stored groups have none but those that take part
    partial = (stage.advantage.virtual_best, kept, stage.positive_reward, stage.overlong)
    return any(setting is not None for setting in partial) or (stage.kl_in == "reward" and stage.beta.ever)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One completion. `group` names the prompt it answers; None where the log does not say."""

    step: int
    row: int | None = None
    group: str | None = None
    text: str | None = None
    valid: bool | None = None
    reward: float | None = None
    advantage: float | None = None
    domain: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A line that a library printed and that bears on a cause. `kind` is one of the readers' names for them."""

    kind: str
    text: str
    line: int | None = None  # of the file, from 1
    step: int | None = None  # printed while this step ran


FIRST_STEPS = 3  # a log whose first row is of these begins where the run does
MEAN_OF_MANY = 100  # steps: a lone row may be the mean of so many first ones


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One run, as much as is known of it. `rows` are ordered by step; columns are core.metrics' names or FOREIGN's."""

    rows: StepTable
    samples: tuple[Sample, ...] = ()
    notices: tuple[Notice, ...] = ()
    settings: Settings = field(default_factory=Settings)
    guards: GuardSpec = field(default_factory=GuardSpec)
    eval_groups: frozenset[str] = frozenset()  # the prompts of evaluation, named as Sample.group names them
    stages: Mapping[str, str] = field(default_factory=dict)  # name -> kind, in their order; empty where not known
    reward_range: tuple[float, float] | None = None  # the least and the most that the task's rewards can be
    averaged_over: int = 1  # steps that one row stands for (TRL's logging_steps)
    numbered: bool = True  # False: the log has no step numbers, so its first row need not be the run's
    excerpt: bool = False  # its first row is known not to be the run's, though it is numbered from 1: by its epoch
    _answers: dict[Callable[[Case], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, question: Callable[[Case], Answer]) -> Answer:
        """The answer of a pure function to this case, worked out when it is asked for the first time."""
        if question not in self._answers:
            self._answers[question] = question(self)
        return cast(Answer, self._answers[question])

    @property
    def steps(self) -> Sequence[Row]:
        """The rows of training steps."""
        return self.once(_steps)

    @property
    def begins_later(self) -> bool:
        """Whether the log begins after the run's first steps: what happened there is not in it."""
        rows = self.steps
        first = (rows[0]["step"] or 0) if rows else 0
        return self.excerpt or first > (FIRST_STEPS * self.averaged_over if len(rows) > 1 else MEAN_OF_MANY)

    @property
    def stage_rows(self) -> list[Row]:
        """The rows of training steps that `settings` are of: those of its stage, all where there are no stages."""
        return self.once(_stage_rows)


def _steps(case: Case) -> list[Row]:
    return steps_of(case.rows)


def _stage_rows(case: Case) -> list[Row]:
    stage = case.settings.stage
    return [row for row in case.steps if stage is None or row.get("stage") in (None, stage)]


def case_of(spec: RunSpec, rows: StepTable, samples: tuple[Sample, ...] = ()) -> Case:
    """A run of ours as a case. Nothing of the spec's `faults` passes."""
    return Case(
        rows=rows,
        samples=samples,
        settings=settings_of(spec),
        guards=watched_guards(spec),
        stages={name: stage.kind for name, stage in spec.stages.items()},
        reward_range=spec.task.reward_range,
    )


def bounded(case: Case) -> Case:
    """The case with every number of HUGE or more as None (recorded, and no number); the same case where none is."""
    if not case.once(huge):
        return case
    return replace(
        case, rows=[_row(row) for row in case.rows], samples=tuple(_sample(sample) for sample in case.samples)
    )


def huge(case: Case) -> int:
    """How many numbers of the case are of HUGE or more; steps are not asked."""
    cells = sum(
        value is not None and abs(value) >= HUGE and name != "step" for row in case.rows for name, value in row.items()
    )
    return cells + sum(_is_huge(value) for sample in case.samples for value in (sample.reward, sample.advantage))


def _is_huge(value: float | None) -> bool:
    return value is not None and abs(value) >= HUGE


def _row(row: Row) -> Row:
    return {name: None if name != "step" and _is_huge(value) else value for name, value in row.items()}


def _sample(sample: Sample) -> Sample:
    return replace(
        sample,
        reward=None if _is_huge(sample.reward) else sample.reward,
        advantage=None if _is_huge(sample.advantage) else sample.advantage,
    )
