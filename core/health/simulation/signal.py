"""How well one step's gradient tells the direction in which rewards rise: signal, noise, and what a completion adds.

The model is a bandit. A completion is one answer; each level of reward has `ways` answers that are equally likely, and
a softmax policy over all of them is what is learned (levels 2 and ways 1: a bandit of two actions). Two prompts share
their policy so far that their gradients have cosine `sharing`. Scales are learning rates: only what does not change
with the scale of advantages is compared.

A step is summed up exactly where no group's advantages depend on another group of the step, and a group can come out in
few ways. Else it is drawn, in blocks, so that whatever is made of it has a standard error (the jackknife's).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from core.algorithms.normalisers import scopes
from core.config import GrpoStage
from core.config.schedule import constant
from core.health.simulation.outcomes import (
    Counts,
    GroupMeans,
    Groups,
    Means,
    Population,
    StepMeans,
    all_counts,
    how_many,
    mean_of,
    of_group,
)
from core.health.simulation.rewards import RewardModel, of_pass_rates

EXACT = 10_000  # ways to come out, over all prompts, that are summed up
BLOCKS = 20  # of draws
_COMPLETIONS = 40_000  # that are drawn, within the next two
_FEWEST, _MOST = 1_000, 3_000  # groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """A step. without: the same with one block of draws left out, for each of them; none where it is exact.

    aim: the cosine, each prompt a direction of its own, between the expected gradient and that of the expected reward;
    None where it was drawn, or where there is no gradient.
    """

    step: StepMeans
    without: tuple[StepMeans, ...] = ()
    aim: float | None = None
    groups: int = 0  # drawn


def expected(stage: GrpoStage, rewards: RewardModel, *, seed: int = 0) -> Expected:
    """What a step of the stage comes to."""
    groups, size = Groups(stage, rewards), stage.num_generations
    population = Population(rewards, size, seed)
    drawn = min(max(_COMPLETIONS // size, _FEWEST), _MOST)
    if "batch" in scopes(stage.advantage):
        return by_steps(groups, population, -(-drawn // stage.prompts_per_step))
    if how_many(size, len(rewards.levels)) * len(rewards.prompts) > EXACT:
        return by_groups(groups, population, drawn)
    prompts = summed(groups, rewards)
    return Expected(step=_step(stage, mean_of(prompts)), aim=_aim(rewards, prompts))


def by_groups(groups: Groups, population: Population, count: int) -> Expected:
    """From about so many groups, each by itself: what they make of a step is arithmetic."""
    parts = []
    for many in _blocks(count):
        drawn = [population.draw() for _ in range(many)]
        outcomes = groups.apart([counts for _, counts in drawn])
        parts.append(mean_of([of_group(outcomes[c], chances, sum(c)) for chances, c in drawn]))
    return Expected(
        step=_step(groups.stage, mean_of(parts)),
        without=tuple(_step(groups.stage, mean_of(others)) for others in _left_out(parts)),
        groups=len(parts) * next(_blocks(count)),
    )


def by_steps(groups: Groups, population: Population, steps: int) -> Expected:
    """From about so many whole steps, whatever their advantages depend on."""
    parts = [mean_of([_sampled(groups, population) for _ in range(many)]) for many in _blocks(steps)]
    return Expected(
        step=mean_of(parts),
        without=tuple(mean_of(others) for others in _left_out(parts)),
        groups=len(parts) * next(_blocks(steps)) * groups.stage.prompts_per_step,
    )


def summed(groups: Groups, rewards: RewardModel) -> list[GroupMeans]:
    """For each prompt its groups, each way to come out by its multinomial chance."""
    size = groups.stage.num_generations
    every = list(all_counts(size, len(rewards.levels)))
    ways = [math.lgamma(size + 1) - sum(math.lgamma(count + 1) for count in counts) for counts in every]
    found = []
    for chances in rewards.prompts:
        logs = [math.log(chance) if chance > 0 else -math.inf for chance in chances]
        weighed = [
            (math.exp(way + sum(log * count for log, count in zip(logs, counts, strict=True) if count)), counts)
            for way, counts in zip(ways, every, strict=True)
        ]
        found.append(_weighed(groups, chances, weighed))
    return found


def _weighed(groups: Groups, chances: Sequence[float], weighed: Sequence[tuple[float, Counts]]) -> GroupMeans:
    """The sum of a prompt's groups under their chances."""
    size, levels = groups.stage.num_generations, range(len(chances))
    outcomes = groups.apart([counts for _, counts in weighed])
    dead = useful = live = silent = squares = across = 0.0
    vector = [0.0] * len(chances)
    for chance, counts in weighed:
        outcome = outcomes[counts]
        dead += chance * (not outcome.live)
        if not outcome.useful:
            continue
        useful += chance
        live += chance * outcome.live
        silent += chance * outcome.silent
        if outcome.silent:
            continue
        gradient = outcome.gradient(chances)
        for level in levels:
            vector[level] += chance * gradient[level] / size
        squares += chance * sum(part * part for part in gradient) / size**2
        across += chance * outcome.squares / size**2
    return GroupMeans(
        dead=dead, useful=useful, live=live, silent=silent, vector=tuple(vector), squares=squares, across=across
    )


def _step(stage: GrpoStage, means: GroupMeans) -> StepMeans:
    """A step of independent groups. Each place of the batch is refilled by itself, until its attempts are used up.

    At the end a step goes on with the n places that are filled: what its gradient is a mean of.
    """
    places, attempts = stage.prompts_per_step, stage.dynamic_sampling.max_attempts if stage.dynamic_sampling else 1
    rest = min(max(1.0 - means.useful, 0.0), 1.0)
    filled = 1.0 - rest**attempts
    many = _binomial(places, filled)
    useful = means.useful if means.useful > 0 else 1.0
    vector = tuple(part / useful for part in means.vector)
    squared, any_ = sum(part * part for part in vector), 1.0 - many[0]
    share = sum(chance / n for n, chance in enumerate(many) if n)  # E[1/n], 0 where there is none
    return StepMeans(
        completions=places * stage.num_generations * sum(rest**attempt for attempt in range(attempts)),
        dead=means.dead,
        live=places * filled * means.live / useful,
        silent=sum(chance * (means.silent / useful) ** n for n, chance in enumerate(many)),
        vector=tuple(part * any_ for part in vector),
        together=share * (means.squares / useful - squared) + any_ * squared,
        apart=share * means.squares / useful,
        across=share * means.across / useful,
    )


def _binomial(n: int, chance: float) -> list[float]:
    """The chances of 0 to n hits of n."""
    if chance in (0.0, 1.0):
        return [1.0 if hits == n * chance else 0.0 for hits in range(n + 1)]
    hit, miss, ways = math.log(chance), math.log1p(-chance), math.lgamma(n + 1)
    return [
        math.exp(ways - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * hit + (n - k) * miss) for k in range(n + 1)
    ]


def _sampled(groups: Groups, population: Population) -> StepMeans:
    """One step as the trainer makes it: groups that it may not learn from are replaced until attempts are used up."""
    stage = groups.stage
    attempts = stage.dynamic_sampling.max_attempts if stage.dynamic_sampling else 1
    first = [population.draw() for _ in range(stage.prompts_per_step)]
    drawn = first
    chosen = [one for one in drawn if groups.useful(one[1])]
    for _ in range(attempts - 1):
        more = [population.draw() for _ in range(stage.prompts_per_step - len(chosen))]
        drawn, chosen = drawn + more, chosen + [one for one in more if groups.useful(one[1])]
    found = groups.together(tuple(counts for _, counts in chosen)) if chosen else []
    size, n = stage.num_generations, max(len(chosen), 1)
    each = [of_group(outcome, chances, size) for outcome, (chances, _) in zip(found, chosen, strict=True)]
    vectors = [one.vector for one in each] or [(0.0,) * len(groups.levels)]
    vector = tuple(sum(column) / n for column in zip(*vectors, strict=True))
    return StepMeans(
        completions=float(len(drawn) * size),
        dead=sum(not groups.live(counts) for _, counts in first) / len(first),  # of refills there are more in bad steps
        live=sum(one.live for one in each),
        silent=float(all(one.silent for one in each)),
        vector=vector,
        together=sum(part * part for part in vector),
        apart=sum(one.squares for one in each) / n**2,
        across=sum(one.across for one in each) / n**2,
    )


def _aim(rewards: RewardModel, prompts: Sequence[GroupMeans]) -> float | None:
    wanted = [rewards.gradient(chances) for chances in rewards.prompts]
    pairs = [(a, b) for one, other in zip(prompts, wanted, strict=True) for a, b in zip(one.vector, other, strict=True)]
    lengths = math.sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs))
    return sum(a * b for a, b in pairs) / lengths if lengths > 0 else None


def _blocks(total: int) -> Iterator[int]:
    """The sizes of equal blocks, together `total` or a little more."""
    yield from [-(-total // BLOCKS)] * BLOCKS


def _left_out(parts: Sequence[Means]) -> list[list[Means]]:
    """For each part all others."""
    return [[other for other in parts if other is not part] for part in parts]


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
