"""Which run decides most: candidates are screened on one seed, and those that are left raced on more, as pairs.

What is here: pure functions of the runs so far. What is not: running them (adaptive), and which candidates there are.
No torch, no optuna.

A search goes in rounds:

1. all candidates: the first seed, up to the first share of a run's budget;
2. the best quarter, and ten at least: on to the next share; the best eighth, and seven at least: on to the end;
3. those that may be right, with one seed more; or, where it is likelier that somebody who was screened out beats the
   choice than that somebody who is raced does, a look at the likeliest of those: one seed more up to the first share,
   or a run on to its end, whichever says more for what it costs. And again, until the budget is spent or the choice is
   decided. Whoever has as many whole runs as those that are raced is one of them.

The candidates that are raced have the same seeds: the same prompts and draws. So what a seed does to all of them
cancels (common random numbers), and a round is no longer than it must be (sequential halving: Karnin, Koren and Somekh
2013; seeds as fidelity). A candidate is *right* where its worth is within `tolerance` of the best one's, whoever that
is: all candidates are in what is believed (belief).

Shapes: C candidates, S seeds, K shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from grpoctl.sweeps.belief import Belief, Counts, believed

ONE_IN = 4, 8  # candidates go on to the second share of a run, and to its end
FEWEST = 10, 7  # candidates do so at least
REPEATS = 5  # seeds of a choice that is decided on
HELD = 3  # rounds in which it is, one after another
DOUBT = 0.02  # a candidate that is right with less than this gets no more
LOOK_AT = 2.0  # those that are not raced, where so many times as likely one of them beats the choice as one that is
LOOKS = 8  # of those that are not raced, so many are looked at in a round
SLACK = 1e-9  # of a share


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A run to begin, or to go on with, up to a share of its budget."""

    candidate: int
    seed: int
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What a run showed at a share of its budget; `error` is the standard error over prompts of that evaluation."""

    candidate: int
    seed: int
    share: float
    value: float
    error: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What is searched: so many candidates, the seeds each may have, and where a run may pause.

    `tolerance` is in the metric's unit; values are such that more is better.
    """

    candidates: int
    seeds: tuple[int, ...]
    shares: tuple[float, ...]  # of a run's budget, rising; the last one is 1
    tolerance: float
    confidence: float = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a search may still do: runs' budgets left, and candidates it has to leave."""

    runs: float = math.inf
    excluded: frozenset[int] = frozenset()


NO_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What is believed: the candidate to choose, how likely it is to be right among all, and who is left in the race.

    `worth` has for each candidate with whole runs of the first `seeds` seeds its mean over them, the standard deviation
    of what is believed about its worth, and its probability of being right.
    """

    choice: int | None
    right: float
    worth: dict[int, tuple[float, float, float]]
    left: tuple[int, ...]
    seeds: int
    sure: float = 0.0  # the least that `right` was of the same choice in the last HELD rounds


@dataclass(kw_only=True, slots=True)
class _Known:
    """The rounds so far: what was seen, the shares that they took, what is believed, and what the next one wants."""

    excluded: frozenset[int]
    there: tuple[int, ...]
    table: _Table
    steps: Counts
    standing: Standing
    wanted: list[tuple[int, int, int]] = field(default_factory=list)  # (candidate, place of the seed, shares)
    seen: list[Seen] = field(default_factory=list)
    rights: list[tuple[int, float]] = field(default_factory=list)  # (choice, right) after each round


class Search:
    """Decides on jobs: a pure function of what was seen. `key` decides on the draws."""

    def __init__(self, problem: Problem, key: int = 0) -> None:
        self.problem, self._key = problem, key
        self._known: _Known | None = None  # it is asked again and again

    def standing(self, seen: Sequence[Seen], limits: Limits = NO_LIMITS) -> Standing:
        """What is believed with all rounds that are over: one under way says nothing before its last job."""
        return self._rounds(seen, limits)[1]

    def is_decided(self, standing: Standing) -> bool:
        """Whether the choice is right with the confidence that is asked for, and that can be known.

        With fewer than REPEATS seeds the noise is hardly known; and who looks after every round whether the probability
        is high enough stops where it is too high by chance, so that it has to be so in HELD rounds, one after another.
        """
        return standing.sure >= self.problem.confidence and standing.seeds >= REPEATS

    def job(self, seen: Sequence[Seen], given: Sequence[Job], limits: Limits = NO_LIMITS) -> tuple[Job | None, bool]:
        """The next job, and whether there is one to wait for: `given` are jobs under way.

        No job while a round is not over, and none where the budget has too little left for one.
        """
        table, _, wanted = self._rounds(seen, limits)
        out = {(job.candidate, job.seed) for job in given}
        open_ones = [job for job in wanted if (job.candidate, job.seed) not in out]
        affordable = [job for job in open_ones if job.share - table.share_of(job) <= limits.runs + SLACK]
        if affordable:
            return affordable[0], False
        return None, bool(out)

    def _rounds(self, seen: Sequence[Seen], limits: Limits) -> tuple[_Table, Standing, list[Job]]:
        """(what was seen, what is believed with the rounds that are over, the jobs that the one under way still wants).

        Each round is what followed from those before it, whatever was seen since: those are kept, for as long as
        nothing but more was seen.
        """
        problem, known = self.problem, self._known
        if known is None or known.excluded != limits.excluded or list(seen[: len(known.seen)]) != known.seen:
            there = tuple(one for one in range(problem.candidates) if one not in limits.excluded)
            known = self._known = _Known(
                excluded=limits.excluded,
                there=there,
                table=_Table(problem),
                steps=np.zeros((problem.candidates, len(problem.seeds)), dtype=np.int64),
                standing=Standing(choice=None, right=0.0, worth={}, left=there, seeds=0),
            )
            known.wanted = self._screening(known)
        known.table.add(seen[len(known.seen) :])
        known.seen = list(seen)
        while True:
            missing = [
                Job(candidate=one, seed=problem.seeds[seed], share=problem.shares[to - 1])
                for one, seed, to in known.wanted
                if known.table.reached[one, seed] < to
            ]
            if missing or not known.wanted:
                standing = known.standing
                if standing.choice is None:
                    standing = replace(standing, choice=known.table.best_whole(known.there))
                return known.table, standing, missing
            for one, seed, to in known.wanted:
                known.steps[one, seed] = to
            if (known.steps[:, 0] == len(problem.shares)).any():
                known.standing, known.wanted = self._race(known)
            else:
                known.wanted = self._screening(known)

    def _screening(self, known: _Known) -> list[tuple[int, int, int]]:
        """(candidate, place of the seed, shares) of the next round on the first seed."""
        left, shares, steps = list(known.there), self.problem.shares, known.steps
        sizes = [max(least, math.ceil(len(left) / part)) for least, part in zip(FEWEST, ONE_IN, strict=True)]
        for place in range(len(shares)):
            if any(steps[one, 0] <= place for one in left):
                return [(one, 0, place + 1) for one in left]
            shown = known.table.values[:, 0, place]
            left.sort(key=lambda one, shown=shown: (-shown[one], one))  # type: ignore[misc]
            if place + 1 < len(shares):  # of a run with one pause the best eighth goes on at once
                left = left[: sizes[max(place, 3 - len(shares))]]
        return []

    def _race(self, known: _Known) -> tuple[Standing, list[tuple[int, int, int]]]:
        """(what is believed, the next round): one seed more for those ahead, or a look at those that are not.

        Whichever of the two may beat the choice with the higher probability.
        """
        whole, tolerance, there = len(self.problem.shares), self.problem.tolerance, known.there
        steps_CS = known.steps[list(there)]
        belief = self._believed(known, steps_CS)
        right_C, sd_C = belief.right(tolerance), belief.sd
        depth_C = np.cumprod(steps_CS == whole, axis=1).sum(axis=1)
        depth = int(depth_C.max())
        mean_C = known.table.values[list(there), :depth, -1].mean(axis=1)  # NaN where a seed is missing
        ahead = sorted(np.flatnonzero(depth_C == depth).tolist(), key=lambda place: (-mean_C[place], place))
        likeliest = sorted(range(len(there)), key=lambda place: (-right_C[place], place))
        raced = [place for place in likeliest if depth_C[place] == depth]
        raced = [place for rank, place in enumerate(raced) if rank < 2 or right_C[place] >= DOUBT]
        behind = [place for place in likeliest if depth_C[place] < depth and right_C[place] >= DOUBT]
        choice = ahead[0]
        known.rights.append((there[choice], float(right_C[choice])))
        last = known.rights[-HELD:]
        held = len(last) == HELD and {chosen for chosen, _ in last} == {there[choice]}
        standing = Standing(
            choice=there[choice],
            right=float(right_C[choice]),
            worth={there[place]: (float(mean_C[place]), float(sd_C[place]), float(right_C[place])) for place in ahead},
            left=tuple(there[place] for place in raced),
            seeds=depth,
            sure=min(right for _, right in last) if held else 0.0,
        )
        race = [(there[place], depth, whole) for place in raced] if depth < len(self.problem.seeds) else []
        within, beyond = (belief.beaten(choice, others, tolerance) for others in (ahead[1:], behind))
        if race and beyond <= LOOK_AT * within:
            return standing, race
        looks = [(place, *belief.look(place, steps_CS[place], self.problem.shares)) for place in behind[:LOOKS]]
        return standing, [(there[place], seed, to) for place, seed, to in looks] or race

    def _believed(self, known: _Known, steps_CS: Counts) -> Belief:
        """What is believed with so many shares of the runs."""
        seeds = int((steps_CS > 0).any(axis=0).sum())
        whole, steps_CS = len(self.problem.shares), steps_CS[:, :seeds]
        there = list(known.there)
        seen_CSK = np.arange(whole) < steps_CS[:, :, None]
        values_CSK = np.where(seen_CSK, known.table.values[there, :seeds], math.nan)
        errors = known.table.errors[there, :seeds][steps_CS == whole]
        return believed(values_CSK, math.sqrt(float(np.square(errors).mean())), [self._key, seeds])


class _Table:
    """What was seen, by candidate, place of the seed, and share."""

    def __init__(self, problem: Problem) -> None:
        runs = problem.candidates, len(problem.seeds)
        self.values = np.full((*runs, len(problem.shares)), math.nan)
        self.errors = np.zeros(runs)  # of the last evaluation
        self.reached = np.zeros(runs, dtype=np.int64)  # so many shares
        self._seeds = {seed: place for place, seed in enumerate(problem.seeds)}
        self._shares = np.asarray(problem.shares)

    def add(self, seen: Sequence[Seen]) -> None:
        """Note what was seen besides; a share that a run has no value of has that of the one before."""
        for one in seen:
            run = one.candidate, self._seeds[one.seed]
            to = int((self._shares <= one.share + SLACK).sum())
            self.values[run][self.reached[run] : to] = one.value
            self.errors[run], self.reached[run] = one.error, to

    def best_whole(self, there: Sequence[int]) -> int | None:
        """Of those with a whole run of the first seed, the one that showed most; None where there is none."""
        whole = [one for one in there if self.reached[one, 0] == len(self._shares)]
        return max(whole, key=lambda one: (self.values[one, 0, -1], -one), default=None)

    def share_of(self, job: Job) -> float:
        """The share of its budget that the job's run has come to."""
        to = int(self.reached[job.candidate, self._seeds[job.seed]])
        return float(self._shares[to - 1]) if to else 0.0
