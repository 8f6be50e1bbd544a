"""A failed run as somebody who looks at it sees it: what rose, fell and stands, in courses of columns.

What is not here: which causes that looks like (looks), and what a rule measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from statistics import fmean, pstdev

from core.health.case import Case
from core.health.rules.reward_parts import is_answer, parts_of
from core.health.statistics import HUGE

_LIMITS = (*(2.0**power for power in range(6, 16)), 300.0, 400.0, 600.0, 1000.0, 1500.0, 2000.0, 3000.0)  # tokens
_SMOOTHED = 25  # rows of a window at most
_SKIPPED = 0.05  # of the steps: so few gradients that are no number are a loss scaler's
_AFTER_MANY = 20  # steps of a row: it stands for a stretch of training and not for one batch


def _smoothed(values: Sequence[float], window: int) -> list[float]:
    """The means of so many values in a row."""
    if window == 1:
        return list(values)
    sums = [0.0, *accumulate(values)]
    return [(sums[at + window] - sums[at]) / window for at in range(len(values) - window + 1)]


class Course:
    """A column's course: its ends (means of a sixth of the rows), its smoothed peak, its scatter from row to row."""

    def __init__(self, values: Sequence[float | None]) -> None:
        self.missed = sum(value is None for value in values) / len(values) if values else 0.0  # share that is no number
        self.values = known = [value for value in values if value is not None]
        self.count = count = len(known)
        part, window = max(1, count // 6), max(1, min(count // 8, _SMOOTHED))
        smooth = _smoothed(known, window) or [0.0]
        self.early, self.late = (fmean(known[:part]), fmean(known[-part:])) if known else (0.0, 0.0)
        self.peak = max(smooth)
        self.peak_at = smooth.index(self.peak) / max(1, len(smooth) - 1)  # of the course
        self.mean, self.most, self.least = (fmean(known), max(known), min(known)) if known else (0.0, 0.0, 0.0)
        moves = sorted(abs(after - before) for before, after in pairwise(known))
        self.scatter = moves[len(moves) // 2] if count > 4 else 0.0
        self.error = self.scatter / math.sqrt(part)  # of one end
        self.size = max(abs(self.most), abs(self.least), 1e-12)

    @property
    def gain(self) -> float:
        """From one end to the other."""
        return self.late - self.early

    @property
    def stands(self) -> bool:
        """Whether all values are one."""
        return self.count > 1 and self.most - self.least <= 1e-9

    @property
    def median(self) -> float:
        """0 of no values."""
        return sorted(self.values)[self.count // 2] if self.values else 0.0

    def share(self, holds: Callable[[float], bool]) -> float:
        """Of the values of which that holds; 0 of none."""
        return sum(map(holds, self.values)) / self.count if self.values else 0.0

    @cached_property
    def line(self) -> float:
        """The correlation with the place in the log; 0 for fewer than three values."""
        places = [at - (self.count - 1) / 2 for at in range(self.count)]
        spread = pstdev(self.values) * pstdev(places) if self.count > 2 else 0.0
        return fmean(at * value for at, value in zip(places, self.values, strict=True)) / spread if spread else 0.0


_NOTHING = Course([])


class Look:
    """A run's columns and settings, with what clues ask of several of them, each worked out once."""

    def __init__(self, case: Case) -> None:
        self.rows = case.rows
        self.settings = case.settings
        self.span = case.averaged_over  # steps of a row

    @cached_property
    def columns(self) -> Mapping[str, Course]:
        """Name -> course of every column; beyond HUGE is no number."""
        values: dict[str, list[float | None]] = {}
        for row in self.rows:
            for name, value in row.items():
                values.setdefault(name, []).append(_bounded(value))
        return {name: Course(told) for name, told in values.items()}

    def __getitem__(self, name: str) -> Course:
        return self.columns.get(name, _NOTHING)

    # the reward

    @cached_property
    def parts(self) -> Mapping[str, Course]:
        """The parts of the reward."""
        return {name: self[name] for name in parts_of(self.rows)}

    @cached_property
    def right(self) -> list[Course]:
        """Parts that judge the answer."""
        return [course for name, course in self.parts.items() if is_answer(name)]

    @cached_property
    def form(self) -> list[Course]:
        """Parts that judge the form."""
        return [course for name, course in self.parts.items() if is_answer(name) is False]

    @cached_property
    def reward(self) -> Course:
        """The mean reward; where none is told the mean of the parts."""
        if self["reward/mean"].count or not self.parts:
            return self["reward/mean"]
        told = [[value for name in self.parts if (value := _bounded(row.get(name))) is not None] for row in self.rows]
        return Course([fmean(values) for values in told if values])

    @cached_property
    def scale(self) -> float:
        """What the reward's moves are measured by: its peak where it is a share, else its size."""
        reward = self.reward
        return max(reward.peak, 0.04) if reward.least >= 0 and reward.most <= 1.0001 else reward.size

    @cached_property
    def rise(self) -> float:
        """Of the reward from one end to the other, in its scale; negative for a fall."""
        return self.reward.gain / self.scale if self.reward.count > 1 else 0.0

    @cached_property
    def drop(self) -> float:
        """Of the reward from its peak to its end, in its scale."""
        return (self.reward.peak - self.reward.late) / self.scale if self.reward.count > 2 else 0.0

    @cached_property
    def unrest(self) -> float:
        """The reward's scatter, in its scale."""
        return self.reward.scatter / self.scale

    @cached_property
    def is_clear(self) -> bool:
        """Whether the reward's ends differ by more than its scatter explains."""
        return self.reward.count <= 4 or abs(self.reward.gain) > 2 * self.reward.error

    @cached_property
    def rises(self) -> bool:
        """Whether the reward plainly rises: not within one batch's spread, nor to next to nothing."""
        reward, batch = self.reward, self["reward/std"]
        within_a_batch = batch.count > 0 and batch.early > 0 and reward.gain < batch.early / 2
        next_to_nothing = reward.least >= 0 and reward.most <= 0.1
        return reward.count >= 3 and self.rise > 0.2 and self.is_clear and not within_a_batch and not next_to_nothing

    @cached_property
    def stands(self) -> bool:
        """Whether the reward is one number throughout."""
        return self.reward.stands

    @cached_property
    def at_floor(self) -> bool:
        """Whether the reward stays at 0, or stands at a penalty."""
        reward = self.reward
        next_to_0 = reward.most <= 0.02 and reward.least >= 0
        return reward.count > 0 and (next_to_0 or (self.stands and reward.most <= 0))

    @cached_property
    def at_top(self) -> bool:
        """Whether a reward that is a share ends at 1."""
        reward = self.reward
        return reward.count > 0 and reward.least >= 0 and reward.most <= 1.001 and reward.late >= 0.97

    @cached_property
    def mostly_one(self) -> bool:
        """Whether a reward that moves is at its median on most rows."""
        middle = self.reward.median
        return self.reward.count >= 5 and self.reward.share(lambda value: abs(value - middle) < 1e-6) > 0.7

    # evaluations

    @cached_property
    def held_out(self) -> Course:
        """The reward of evaluations, or one of their sets."""
        slices = [course for name, course in self.columns.items() if name.startswith(("eval/slices/", "eval/rewards/"))]
        return next((course for course in (self["eval/reward"], *slices) if course.count), _NOTHING)

    @cached_property
    def learned(self) -> float:
        """What evaluations gained, as a share of their peak."""
        return self.held_out.gain / max(self.held_out.peak, 0.05) if self.held_out.count > 1 else 0.0

    @cached_property
    def forgot(self) -> float:
        """What evaluations lost of their peak."""
        held_out = self.held_out
        of_several = (held_out.peak - held_out.late) / max(held_out.peak, 0.05)
        return of_several if held_out.count > 2 else max(0.0, -self.learned)

    @cached_property
    def forgot_clearly(self) -> bool:
        """Whether that is beyond their scatter."""
        held_out = self.held_out
        return held_out.count < 6 or held_out.peak - held_out.late > 2 * held_out.error

    @cached_property
    def evaluations_fell(self) -> bool:
        """Whether evaluations lost a third of their peak, or end a fifth of it below their start."""
        return self.held_out.count > 1 and self.forgot_clearly and (self.forgot > 0.3 or self.learned < -0.2)

    # groups, gradients, lengths

    @cached_property
    def dead(self) -> float | None:
        """The share of dead groups, over the log or at its end; of a log without it the rows without a spread."""
        spread = self["reward/group_std"] if self["reward/group_std"].count else self["reward/std"]
        dead = self["groups/dead"]
        if not dead.count and spread.count:
            dead = Course([float(abs(value) < 1e-6) for value in spread.values])
        if all(self[name].count and self[name].size < 1e-9 for name in ("advantage/max", "advantage/min")):
            return 1.0
        return max(dead.mean, 0.85 * dead.late) if dead.count else None

    def dies(self, least: float, below: float = 2.0) -> bool:
        """Whether the share of dead groups is known and between those."""
        return self.dead is not None and least <= self.dead < below

    @cached_property
    def no_gradient(self) -> float:
        """The share of rows whose gradient is 0; -1 where none is told."""
        return self["grad_norm"].share(lambda norm: abs(norm) < 1e-9) if self["grad_norm"].count else -1.0

    @cached_property
    def no_loss(self) -> float:
        """The share of rows whose loss is 0; -1 where none is told."""
        return self["loss"].share(lambda loss: abs(loss) < 1e-9) if self["loss"].count else -1.0

    @property
    def limits(self) -> Sequence[float]:
        """Lengths in tokens at which completions may be cut off: the run's own limit, and usual ones."""
        own = self.settings.max_completion_length
        return _LIMITS if not own else (float(own), *_LIMITS)

    @cached_property
    def cut(self) -> float | None:
        """The share of completions that are cut off, as told or because their mean length is a limit; None: unknown."""
        if self["completions/truncated"].count:
            return self["completions/truncated"].mean
        lengths = self["completions/length"].values
        at_one = max(sum(abs(length - limit) <= 0.004 * limit for length in lengths) for limit in self.limits)
        return 0.95 if lengths and at_one >= 0.6 * len(lengths) else None

    def is_cut(self, least: float, below: float = 2.0) -> bool:
        """Whether the share that is cut off is known and between those."""
        return self.cut is not None and least <= self.cut < below

    @cached_property
    def broken(self) -> Sequence[str]:
        """Columns of the update with a value that is no number; gradients that a loss scaler skips are none."""
        core = ("loss", "grad_norm", "kl", "entropy", "policy/loss", "policy/kl_old", "reward/mean")
        return [name for name in core if self[name].missed > (_SKIPPED if name == "grad_norm" else 0)]

    @cached_property
    def hurt(self) -> float:
        """How much the policy broke, from 0 to 3: the gravest of what says so."""
        return max((points for points, holds in _HURT if holds(self)), default=0.0)

    @cached_property
    def rising(self) -> list[str]:
        """Parts of the reward that rise beyond their scatter."""
        return [name for name, part in self.parts.items() if part.count > 2 and part.gain > _felt(part, 0.15, 0.02)]

    @cached_property
    def sinking(self) -> list[str]:
        """Parts of the reward that fall beyond their scatter."""
        return [name for name, part in self.parts.items() if part.count > 2 and -part.gain > _felt(part, 0.2, 0.01)]

    @cached_property
    def never_right(self) -> bool:
        """Whether no part that judges the answer pays anything."""
        return bool(self.right) and all(map(is_never_paid, self.right))


def _bounded(value: float | None) -> float | None:
    return value if value is not None and abs(value) < HUGE else None


def is_never_paid(part: Course) -> bool:
    return part.count > 0 and part.least >= 0 and part.most <= 0.05


def _felt(part: Course, share: float, least: float) -> float:
    return max(share * part.size, 2 * part.error, least)


def _lost(part: Course, share: float) -> bool:
    """Whether so much of the peak is lost, beyond scatter."""
    lost = part.peak - part.late
    return part.peak > 0.05 and lost > share * part.peak and lost > 1.5 * part.error


def grew(course: Course, times: float, least: float) -> bool:
    return course.count >= 3 and course.late > times * max(course.early, 1e-9) and course.late > least


Holds = Callable[[Look], bool]  # of a clue


def fell_back(it: Look) -> bool:
    """Whether the reward rose and lost a third of it or more."""
    reward = it.reward
    lost = reward.count > 3 and it.drop > max(0.35, it.unrest) and reward.peak - reward.late > 2 * reward.error
    return lost and (reward.peak - reward.early) / it.scale > 0.1 and reward.peak_at < 0.85


def fell_at_once(it: Look) -> bool:
    reward = it.reward
    return reward.count > 1 and it.rise < -0.25 and (reward.count < 5 or -reward.gain > 1.5 * reward.error)


def evaluations_sink(it: Look) -> bool:
    """Whether evaluations end a little lower, and not by chance."""
    held_out = it.held_out
    slowly = held_out.count > 5 and it.learned < -0.02 and held_out.line < -0.6
    return held_out.count > 1 and ((it.learned < -0.05 and it.forgot_clearly) or slowly)


def validity_fell(it: Look) -> bool:
    """Whether four in ten of the valid completions there were at best are lost, and the end is below the start."""
    valid = it["completions/valid"]
    return valid.count > 1 and valid.late < min(0.6 * valid.peak, valid.early)


def falls_below(course: Course, share: float) -> bool:
    return course.count > 1 and course.late < share * course.early


_HURT: Sequence[tuple[float, Holds]] = (
    (2.2, lambda it: fell_back(it) and it.drop > 0.6),
    (1.5, fell_back),
    (1.7, lambda it: fell_at_once(it) and it.reward.count > 2 and it.rise < -0.5),
    (1.2, lambda it: fell_at_once(it) and it.reward.count > 2),
    (0.5, fell_at_once),
    (1.3, lambda it: any(part.count > 2 and part.most < 15 * max(part.median, 0.02) and _lost(part, 0.4)
                         for part in it.right[:1])),
    (1.5, lambda it: any(part.count > 7 and part.least >= 0 and _lost(part, 0.45) and part.early > 1.5 * part.late
                         for part in it.parts.values())),
    (1.3, lambda it: it.span >= _AFTER_MANY and any(
        2 < part.count < 13 and part.least >= 0 and part.peak_at < 0.9 and _lost(part, 0.17)
        for name, part in it.parts.items() if is_answer(name) is not False)),
    (1.2, lambda it: it.span >= _AFTER_MANY and 3 < it.reward.count < 13 and it.reward.least >= 0 and it.drop > 0.22
                     and it.reward.peak_at < 0.7),
    (2.6, lambda it: it.evaluations_fell and max(it.forgot, -it.learned) > 0.6),
    (1.8, lambda it: it.evaluations_fell and max(it.forgot, -it.learned) > 0.3),
    (1.1, lambda it: it.evaluations_fell),
    (0.9, evaluations_sink),
    (1.7, lambda it: evaluations_sink(it) and (grew(it["kl"], 0, 1.0) or grew(it["entropy"], 1.6, 1.0))),
    (0.5, lambda it: it.held_out.count > 2 and it.forgot > 0.08 and 0 < it.held_out.peak_at < 0.7),
    (2.2, validity_fell),
    (1.6, lambda it: it["completions/valid"].count > 1 and it["completions/valid"].late < 0.3),
    (2.2, lambda it: it["entropy"].peak < 20 and grew(it["entropy"], 3, 4.0)),
    (1.0, lambda it: grew(it["entropy"], 2.5, 1.0)),
    (0.8, lambda it: it["completions/length"].early > 30 and falls_below(it["completions/length"], 0.25)),
)  # fmt: skip
