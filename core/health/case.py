"""What a rule looks at: one run as a step table, its samples, what libraries said, and what is known of its settings.

Ours or foreign: grpoctl.diagnose.readers makes a case of any log. A rule sees nothing else, and never a spec's faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from core.config import GuardSpec, RunSpec
from core.health.finding import Row, StepTable, steps_of
from core.health.settings import Settings, settings_of

Answer = TypeVar("Answer")

# Columns of a step table that only foreign logs have; all others are declared in core.metrics.
FOREIGN = {
    "advantage/std_all": "std over all advantages of a step, those of dead groups (0) included: what most logs call it",
    "advantage/max": "the largest advantage, signed",
    "groups/right": "share of groups whose completions all earned the best reward",
    "kl_loss": "the KL's contribution to the loss, weighted",
    "consistency/loss": "a consistency term's loss",
    "eval/loss": "loss on held-out data",
    "samples": "completions of the step that the log has",
}


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
    _answers: dict[Callable[[Case], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, question: Callable[[Case], Answer]) -> Answer:
        """The answer of a pure function to this case, worked out when it is asked for the first time."""
        if question not in self._answers:
            self._answers[question] = question(self)
        return cast(Answer, self._answers[question])

    @property
    def stage_rows(self) -> list[Row]:
        """The rows of training steps that `settings` are of: those of its stage, all where there are no stages."""
        stage = self.settings.stage
        return [row for row in steps_of(self.rows) if stage is None or row.get("stage") in (None, stage)]


def case_of(spec: RunSpec, rows: StepTable, samples: tuple[Sample, ...] = ()) -> Case:
    """A run of ours as a case. Nothing of the spec's `faults` passes."""
    return Case(
        rows=rows,
        samples=samples,
        settings=settings_of(spec),
        guards=spec.guards,
        stages={name: stage.kind for name, stage in spec.stages.items()},
        reward_range=spec.task.reward_range,
    )
