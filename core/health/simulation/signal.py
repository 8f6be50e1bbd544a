"""How well one step's gradient tells the direction in which rewards rise: signal, noise, and what a completion adds.

The model is a bandit. A completion is one answer; each level of reward has `ways` answers that are equally likely, and
a softmax policy over all of them is what is learned (levels 2 and ways 1: a bandit of two actions). Two prompts share
their policy so far that their gradients have cosine `sharing`. Scales are learning rates: only what does not change
with the scale of advantages is compared.

A group is known by how many of its completions earned each level: its advantages and its gradient follow. A step is
summed up exactly where no group's advantages depend on another group of the step, and a group can come out in few ways.
Else it is drawn, in blocks, so that whatever is made of it has a standard error (the jackknife's).
Shape suffix: L levels of reward. Lengths of gradients are squared throughout, until a Signal is made of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, lru_cache
from math import comb
from statistics import fmean
from typing import Any, TypeVar

from core.algorithms.names import scopes
from core.config import GrpoStage
from core.config.stage import constant
from core.health.before.advantages import kept
from core.health.simulation.rewards import RewardModel, of_pass_rates

Counts = tuple[int, ...]  # L: completions of a group that earned each level
_REMEMBERED = 4096  # steps


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupOutcome:
    """What a group comes to. Its gradient in the logits of the levels is (pull - sum(pull) * chances) / K."""

    pull: tuple[float, ...]  # L: the sum of the advantages of each level's completions
    squares: float  # the sum of all squared advantages
    live: bool  # its rewards differ; the virtual best counts
    useful: bool  # a step may learn from it

    @property
    def silent(self) -> bool:
        """Every advantage is 0."""
        return self.squares == 0.0

    def gradient(self, chances: Sequence[float]) -> list[float]:
        """Its gradient for a prompt with these chances of the levels, times K."""
        total = sum(self.pull)
        if abs(total) <= 1e-12 * sum(map(abs, self.pull)):
            return list(self.pull)
        return [pull - total * chance for pull, chance in zip(self.pull, chances, strict=True)]


def all_counts(size: int, levels: int) -> Iterator[Counts]:
    """Every way in which `size` completions can earn so many levels."""
    if levels == 1:
        yield (size,)
        return
    for first in range(size + 1):
        for rest in all_counts(size - first, levels - 1):
            yield (first, *rest)


def how_many(size: int, levels: int) -> int:
    """As many does `all_counts` give."""
    return comb(size + levels - 1, levels - 1)


class Groups:
    """The groups of one setting, each worked out once."""

    def __init__(self, stage: GrpoStage, rewards: RewardModel) -> None:
        self.stage, self.rewards = stage, rewards
        self.levels = rewards.levels
        self._outcomes: dict[Counts, GroupOutcome] = {}
        self._signal = cache(lambda counts: self._signals(self._kept([counts]))[0])
        self.together = lru_cache(_REMEMBERED)(self._together)

    def live(self, counts: Counts) -> bool:
        """Whether the rewards that take part differ; the virtual best counts."""
        return self._signal(counts)[0]

    def useful(self, counts: Counts) -> bool:
        """Whether a step may learn from it: dynamic sampling wants it live, positive_reward a good one."""
        return self._signal(counts)[1]

    def apart(self, groups: Sequence[Counts]) -> Mapping[Counts, GroupOutcome]:
        """Each group by itself, where no other group of the step has a part in its advantages."""
        new = [counts for counts in dict.fromkeys(groups) if counts not in self._outcomes]
        self._outcomes |= zip(new, self._together(tuple(new)) if new else [], strict=True)
        return self._outcomes

    def _together(self, groups: tuple[Counts, ...]) -> list[GroupOutcome]:
        """The groups of one step, by their common statistics."""
        from core.algorithms.advantages import Level, advantages

        stage, kept_PL = self.stage, self._kept(groups)
        advantages_PL: list[list[float]] = advantages(
            [self.levels] * len(groups),
            stage.advantage,
            counts_PC=kept_PL,
            lengths_PC=stage.max_completion_length,
            before=Level(mean=self.rewards.mean, std=self.rewards.std),
        ).tolist()
        return [
            GroupOutcome(
                pull=tuple(count * advantage for count, advantage in zip(kept, row, strict=True)),
                squares=sum(count * advantage**2 for count, advantage in zip(kept, row, strict=True)),
                live=live,
                useful=useful,
            )
            for kept, row, (live, useful) in zip(kept_PL, advantages_PL, self._signals(kept_PL), strict=True)
        ]

    def _kept(self, groups: Sequence[Counts]) -> list[list[float]]:
        """(P, L): of each level how many completions take part."""
        from core.algorithms.advantages import kept_counts

        counts_PL: list[list[float]] = kept_counts(
            [self.levels] * len(groups), kept(self.stage), counts_PC=groups
        ).tolist()
        return counts_PL

    def _signals(self, kept_PL: Sequence[Sequence[float]]) -> list[tuple[bool, bool]]:
        """Whether each group is live, and whether a step may learn from it."""
        from core.algorithms.advantages import dead_groups

        stage, wanted = self.stage, self.stage.positive_reward
        dead = dead_groups([self.levels] * len(kept_PL), stage.advantage.virtual_best, counts_PC=kept_PL).tolist()
        paid = [
            wanted is None or any(count and level >= wanted for level, count in zip(self.levels, kept, strict=True))
            for kept in kept_PL
        ]
        return [
            (not is_dead, good and (stage.dynamic_sampling is None or not is_dead))
            for is_dead, good in zip(dead, paid, strict=True)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMeans:
    """Over sampled groups; from `live` on those that no step may learn from count as 0.

    vector: the gradient in the logits of the levels. across: what lies among the answers that earn the same.
    """

    dead: float
    useful: float
    live: float
    silent: float  # every advantage is 0
    vector: tuple[float, ...]  # L
    squares: float  # of `vector`'s length
    across: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMeans:
    """Over steps. A step's gradient is the mean over the groups that it learns from; 0 where there are none.

    together: squared length of `vector` where all prompts share one policy; apart: where each has its own.
    """

    completions: float  # sampled, refills included
    dead: float  # of sampled groups
    live: float  # groups that are learned from and whose rewards differ
    silent: float  # every advantage of the step is 0
    vector: tuple[float, ...]  # L
    together: float
    apart: float
    across: float


Means = TypeVar("Means", GroupMeans, StepMeans)


def mean_of(records: Sequence[Means]) -> Means:
    """The mean of each field."""

    def mean(values: Sequence[Any]) -> Any:
        if isinstance(values[0], tuple):
            return tuple(sum(column) / len(values) for column in zip(*values, strict=True))
        return sum(values) / len(values)

    kind = type(records[0])
    return kind(**{field.name: mean([getattr(record, field.name) for record in records]) for field in fields(kind)})


def of_group(outcome: GroupOutcome, chances: Sequence[float], size: int) -> GroupMeans:
    """One group of `size` completions, of a prompt with these chances of the levels."""
    if not outcome.useful:
        return GroupMeans(
            dead=not outcome.live,
            useful=0.0,
            live=0.0,
            silent=0.0,
            vector=(0.0,) * len(chances),
            squares=0.0,
            across=0.0,
        )
    vector = tuple(part / size for part in outcome.gradient(chances))
    return GroupMeans(
        dead=not outcome.live,
        useful=1.0,
        live=outcome.live,
        silent=outcome.silent,
        vector=vector,
        squares=sum(part * part for part in vector),
        across=outcome.squares / size**2,
    )


class Population:
    """Draws groups of prompts that are all equally frequent."""

    def __init__(self, rewards: RewardModel, size: int, seed: int) -> None:
        self._random, self._prompts, self._size = random.Random(seed), rewards.prompts, size
        self._levels = range(len(rewards.levels))

    def draw(self) -> tuple[Sequence[float], Counts]:
        """A prompt's chances of the levels, and how many of its group's completions earned each."""
        chances = self._prompts[0] if len(self._prompts) == 1 else self._random.choice(self._prompts)
        earned = self._random.choices(self._levels, weights=chances, k=self._size)
        return chances, tuple(map(earned.count, self._levels))


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
    means = []
    for chances in rewards.prompts:
        logs = [math.log(chance) if chance > 0 else -math.inf for chance in chances]
        weighed = [
            (math.exp(way + sum(log * count for log, count in zip(logs, counts, strict=True) if count)), counts)
            for way, counts in zip(ways, every, strict=True)
        ]
        means.append(_weighed(groups, chances, weighed))
    return means


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
    chosen = [prompt for prompt in drawn if groups.useful(prompt[1])]
    for _ in range(attempts - 1):
        more = [population.draw() for _ in range(stage.prompts_per_step - len(chosen))]
        drawn, chosen = drawn + more, chosen + [prompt for prompt in more if groups.useful(prompt[1])]
    outcomes = groups.together(tuple(counts for _, counts in chosen)) if chosen else []
    size, n = stage.num_generations, max(len(chosen), 1)
    each = [of_group(outcome, chances, size) for outcome, (chances, _) in zip(outcomes, chosen, strict=True)]
    vectors = [group.vector for group in each] or [(0.0,) * len(groups.levels)]
    vector = tuple(sum(column) / n for column in zip(*vectors, strict=True))
    return StepMeans(
        completions=float(len(drawn) * size),
        dead=sum(not groups.live(counts) for _, counts in first) / len(first),  # of refills there are more in bad steps
        live=sum(group.live for group in each),
        silent=float(all(group.silent for group in each)),
        vector=vector,
        together=sum(part * part for part in vector),
        apart=sum(group.squares for group in each) / n**2,
        across=sum(group.across for group in each) / n**2,
    )


def _aim(rewards: RewardModel, prompts: Sequence[GroupMeans]) -> float | None:
    gradients = [rewards.gradient(chances) for chances in rewards.prompts]
    vectors = [prompt.vector for prompt in prompts]
    pairs = [
        pair for vector, gradient in zip(vectors, gradients, strict=True) for pair in zip(vector, gradient, strict=True)
    ]
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
    step = expected(stage, rewards, seed=seed)
    towards = _direction(rewards)
    signal = _signal(stage, step.step, towards, bandit)
    if not step.without:
        return replace(signal, aim=step.aim)
    others = [_signal(stage, step, towards, bandit) for step in step.without]
    return replace(
        signal,
        se=_jackknife([other.per_1000 for other in others]),
        answers_se=_jackknife([other.answers for other in others]),
        prompts_se=_jackknife([other.prompts for other in others]),
        groups=step.groups,
    )


def _direction(rewards: RewardModel) -> tuple[float, ...]:
    """(L,): the unit vector along the gradient of the expected reward over all prompts; 0 where there is none."""
    sums = [fmean(column) for column in zip(*map(rewards.gradient, rewards.prompts), strict=True)]
    length = math.sqrt(sum(part * part for part in sums))
    return tuple(part / length if length > 0 else 0.0 for part in sums)


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
