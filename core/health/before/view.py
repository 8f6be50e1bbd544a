"""What the rules look at: one stage in its run, and the rewards its task can pay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from core.config import (
    ArithmeticTaskSpec,
    GrpoStage,
    Gsm8kTaskSpec,
    RceStage,
    RunSpec,
    StageBase,
    TaskConfig,
    WorkflowDslTaskSpec,
)

BFLOAT16_NATS = 0.04  # mean rounding of a token's log-prob; its worst token is off by 0.26 (rules.integrity)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewards:
    """The rewards a stage learns from: their bounds (None: unbounded) and levels (None: any number in between)."""

    low: float | None
    high: float | None
    levels: tuple[float, ...] | None

    @property
    def span(self) -> float | None:
        """high - low; None where unbounded."""
        return None if self.low is None or self.high is None else self.high - self.low

    @property
    def smallest_gap(self) -> float:
        """The least difference of two different rewards; 0 where they are a continuum."""
        levels = sorted(self.levels or ())
        return min((after - before for before, after in pairwise(levels)), default=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageView:
    """A stage, its name, its run, and the steps of the stages before it."""

    name: str
    stage: StageBase
    spec: RunSpec
    steps_before: int = 0

    @property
    def grpo(self) -> GrpoStage | None:
        """The stage where it is a GRPO stage."""
        return self.stage if isinstance(self.stage, GrpoStage) else None

    @property
    def clocked(self) -> bool:
        """Whether its clock is the run's budget: `max_steps` is then a number of ticks, and no end."""
        return self.spec.budget is not None and self.name == [*self.spec.stages][-1]

    @property
    def tick(self) -> str:
        """What its `max_steps` and schedules count."""
        return "tick" if self.clocked else "step"

    @property
    def attempts(self) -> int:
        """Samplings of a step at most."""
        return self.grpo.dynamic_sampling.max_attempts if self.grpo and self.grpo.dynamic_sampling else 1

    @property
    def updates_per_step(self) -> int:
        """Optimiser steps of one step."""
        return self.grpo.updates_per_rollout if self.grpo else 1

    @property
    def num_generations(self) -> int:
        """Completions of one prompt; 0 where the stage samples none."""
        return self.stage.num_generations if isinstance(self.stage, (GrpoStage, RceStage)) else 0

    @property
    def dropout(self) -> float:
        """The dropout of an update; 0 without one."""
        return self.spec.update_dropout

    @property
    def dropout_name(self) -> str:
        """What that dropout is called."""
        return "dropout" if self.spec.model is None else "lora_dropout"

    @property
    def rewards(self) -> Rewards:
        """What a completion can earn after the stage's shaping."""
        return rewards_of(self)

    def get(self, key: str) -> Any:
        """The setting at a key of the stage (`advantage.clip`); None also where its part is not there."""
        value: Any = self.stage
        for word in key.split("."):
            value = value.get(word) if isinstance(value, Mapping) else getattr(value, word, None)
        return value


def views(spec: RunSpec) -> Iterator[StageView]:
    """The stages of a run, in order."""
    before = 0
    for name, stage in spec.stages.items():
        yield StageView(name=name, stage=stage, spec=spec, steps_before=before)
        before += stage.max_steps


def rewards_of(view: StageView) -> Rewards:
    """The task's rewards, widened by what the stage takes off: the overlong penalty, and a KL in the reward."""
    task, stage = view.spec.task, view.grpo
    if task.reward_range is None:
        return Rewards(low=None, high=None, levels=None)  # the user's functions may pay anything
    low, high = task.reward_range
    if stage is not None and stage.kl_in == "reward" and stage.beta.ever:
        return Rewards(low=None, high=None, levels=None)  # a KL's estimate has either sign and no bound
    if stage is not None and stage.overlong is not None:
        return Rewards(low=low - stage.overlong.weight, high=high, levels=None)
    return Rewards(low=low, high=high, levels=_levels(task))


def _levels(task: TaskConfig) -> tuple[float, ...] | None:
    """What a completion can earn before shaping; None for any number between the least and the best."""
    match task:
        case WorkflowDslTaskSpec():
            return None if task.operator_cost else (0.0, 0.2, 0.4, 0.7, 1.0)
        case ArithmeticTaskSpec():
            return (0.0, 0.2, 1.0)
        case Gsm8kTaskSpec():
            return tuple(sorted({0.0, task.format_reward, 1.0}))
        case _:  # a task of a package, or one without levels
            return None
