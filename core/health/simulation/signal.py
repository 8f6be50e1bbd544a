"""How well one step's gradient tells the direction in which rewards rise: signal, noise, and what a completion adds.

The model is a bandit. A completion is one answer; each level of reward has `ways` answers that are equally likely, and
a softmax policy over all of them is what is learned (levels 2 and ways 1: a bandit of two actions). Two prompts share
their policy so far that their gradients have cosine `sharing`. Scales are learning rates: only what does not change
with the scale of advantages is compared.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from core.config import GrpoStage
from core.config.schedule import constant
from core.health.simulation.averages import StepMeans
from core.health.simulation.expected import expected
from core.health.simulation.rewards import RewardModel, of_pass_rates

THOUSAND = 1000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Bandit:
    """The defaults are what builtin:tiny was measured to be like on p31 (benchmarks/direction_noise.py)."""

    ways: int = 70
    sharing: float = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """One setting. Lengths of gradients (`signal`, `noise`) are in the units of its own advantages.

    cosine: with the gradient of the expected reward, as signal / root of the expected squared length.
    per_1000: signal to noise of a thousand completions at the same weights; it grows with their root.
    answers, prompts: its square at either end of the model: all noise from answers that earn the same (ways without
    end), none of it (ways 1, sharing near 0). Only ratios of them mean something.
    se: standard error of per_1000; 0 where nothing was drawn (groups 0).
    """

    num_generations: int
    prompts_per_step: int
    completions: float  # sampled on a step, refills included
    dead: float  # share of sampled groups whose rewards are all equal
    live: float  # completions of a step in groups whose rewards differ and that are learned from
    silent: float  # chance of a step whose advantages are all 0
    signal: float  # the expected gradient along the gradient of the expected reward
    noise: float  # root of the gradient's total variance
    snr: float
    cosine: float
    per_1000: float
    answers: float
    prompts: float
    aim: float | None  # what is left of the cosine after endless sampling, each prompt a direction of its own
    se: float = 0.0
    answers_se: float = 0.0
    prompts_se: float = 0.0
    groups: int = 0

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)


def signal(num_generations: int, prompts_per_step: int, pass_rate: float, bandit: Bandit | None = None) -> Signal:
    """Rewards 1 and 0 with one pass rate, group z-scores (divisor K), no filter. Raises ValueError for a bad number."""
    stage = GrpoStage(
        max_steps=1, learning_rate=1.0, num_generations=num_generations, prompts_per_step=prompts_per_step,
        max_completion_length=1, temperature=constant(1.0),
    )  # fmt: skip
    stage = stage.model_copy(update={"advantage": stage.advantage.model_copy(update={"ddof": 0, "eps": 1e-12})})
    return signal_of(stage, of_pass_rates([pass_rate]), bandit or Bandit())


def signal_of(stage: GrpoStage, rewards: RewardModel, bandit: Bandit, *, seed: int = 0) -> Signal:
    """What a step of the stage is worth where completions earn so."""
    found = expected(stage, rewards, seed=seed)
    towards = _direction(rewards)
    one = _signal(stage, found.step, towards, bandit)
    if not found.without:
        return replace(one, aim=found.aim)
    others = [_signal(stage, step, towards, bandit) for step in found.without]
    return replace(
        one,
        se=_jackknife([other.per_1000 for other in others]),
        answers_se=_jackknife([other.answers for other in others]),
        prompts_se=_jackknife([other.prompts for other in others]),
        groups=found.groups,
    )


def _direction(rewards: RewardModel) -> tuple[float, ...]:
    """(L,): the unit vector along the gradient of the expected reward over all prompts; 0 where there is none."""
    sums = [fmean(column) for column in zip(*map(rewards.gradient, rewards.prompts), strict=True)]
    length = math.sqrt(sum(one * one for one in sums))
    return tuple(one / length if length > 0 else 0.0 for one in sums)


def _signal(stage: GrpoStage, step: StepMeans, towards: tuple[float, ...], bandit: Bandit) -> Signal:
    """In units in which a level with one answer has the gradient of a plain softmax."""
    along = sum(a * b for a, b in zip(step.vector, towards, strict=True))
    aimed, straight = math.sqrt(bandit.sharing) * along, sum(part * part for part in step.vector)
    second = bandit.sharing * step.together + (1 - bandit.sharing) * step.apart + (bandit.ways - 1) * step.across
    noise = math.sqrt(max(second - bandit.sharing * straight, 0.0))
    steps = THOUSAND / step.completions
    snr = aimed / noise if noise > 0 else 0.0
    return Signal(
        num_generations=stage.num_generations,
        prompts_per_step=stage.prompts_per_step,
        completions=step.completions,
        dead=step.dead,
        live=step.live * stage.num_generations,
        silent=step.silent,
        signal=aimed,
        noise=noise,
        snr=snr,
        cosine=aimed / math.sqrt(second) if second > 0 else 0.0,
        per_1000=snr * math.sqrt(steps),
        answers=_squared(along, step.across) * steps,
        prompts=_squared(along, step.apart) * steps,
        aim=None,
    )


def _squared(along: float, variance: float) -> float:
    return along * abs(along) / variance if variance > 0 else 0.0


def _jackknife(values: list[float]) -> float:
    """The standard error of an estimate from what it is without each of n blocks."""
    n, mean = len(values), fmean(values)
    return math.sqrt((n - 1) / n * sum((value - mean) ** 2 for value in values))
