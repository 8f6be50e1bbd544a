"""Searches that can be replayed on a record: random, Optuna's, Ray Tune's ASHA rule, ours of before and ours now.

A strategy is a generator. It yields (candidate, seed, share): run that far; it is sent the values of the run's
evaluations that are new; and it yields the candidate it would choose now as the fourth entry, None before it has any.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grpoctl.sweeps.allocation import REPEATS, Problem, Search, Seen
from grpoctl.sweeps.pruning import decide
from grpoctl.sweeps.spec import PrunerSpec

Request = tuple[int, int, float, int | None, float]  # candidate, seed, share, choice, its probability of being right
Answer = Sequence[tuple[float, float, float]]  # (share, value, its error) of the evaluations that are new
Strategy = Generator[Request, Answer, None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """What a strategy is told of a record."""

    axes: Mapping[str, Sequence[Any]]
    points: Sequence[Mapping[str, Any]]
    shares: Sequence[float]  # of the evaluations of a run
    rungs: Sequence[float]  # where ours may pause a run
    seeds: int
    sweep: Any  # the SweepSpec


Make = Callable[[Space, int], Strategy]  # (space, number of the replay) -> strategy


def mean_of(values: Sequence[float]) -> float:
    """Their mean."""
    return math.fsum(values) / len(values)


def at_random(space: Space, number: int, *, seeds: int) -> Strategy:
    """Whole runs of candidates in a random order."""
    order = random.Random(number).sample(range(len(space.points)), len(space.points))
    scores: dict[int, float] = {}
    for candidate in order:
        values = []
        for seed in range(seeds):
            seen = yield candidate, seed, 1.0, best(scores), 0.0
            values.append(seen[-1][1])
        scores[candidate] = mean_of(values)
    yield -1, 0, 0.0, best(scores), 0.0


def best(scores: Mapping[int, float]) -> int | None:
    """The candidate with the highest score, the first of equal ones."""
    return max(scores, key=lambda candidate: scores[candidate]) if scores else None


def optuna_search(space: Space, number: int, *, seeds: int, sampler: str, pruner: Callable[[Any], Any]) -> Strategy:
    """Optuna by ask and tell. The seeds of a trial run side by side, and it reports their mean at each evaluation.

    A point that was tried before is not run again: its trial is told what the first one was.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    samplers: dict[str, Callable[[], Any]] = {
        "random": lambda: optuna.samplers.RandomSampler(seed=number),
        "tpe": lambda: optuna.samplers.TPESampler(seed=number),
        "tpe-multivariate": lambda: optuna.samplers.TPESampler(seed=number, multivariate=True),
    }
    study = optuna.create_study(
        study_name=str(number), direction="maximize", sampler=samplers[sampler](), pruner=pruner(optuna.pruners)
    )
    kinds = {key: optuna.distributions.CategoricalDistribution(list(values)) for key, values in space.axes.items()}
    index = {tuple(point.items()): at for at, point in enumerate(space.points)}
    scores: dict[int, float] = {}
    ended: dict[int, tuple[list[float], bool]] = {}
    for _ in range(8 * len(space.points)):
        trial = study.ask(kinds)
        candidate = index[tuple((key, trial.params[key]) for key in space.axes)]
        if candidate in ended:
            curve, whole = ended[candidate]
            for step, value in enumerate(curve, start=1):
                trial.report(value, step)
            study.tell(trial, curve[-1] if whole else None, state=_state(whole))
            continue
        curve, whole = [], True
        for step, share in enumerate(space.shares, start=1):
            values = []
            for seed in range(seeds):
                seen = yield candidate, seed, share, best(scores), 0.0
                values.append(seen[-1][1])
            curve.append(mean_of(values))
            trial.report(curve[-1], step)
            if step < len(space.shares) and trial.should_prune():
                whole = False
                break
        ended[candidate] = curve, whole
        study.tell(trial, curve[-1] if whole else None, state=_state(whole))
        if whole:
            scores[candidate] = curve[-1]
        if len(ended) == len(space.points):
            break
    yield -1, 0, 0.0, best(scores), 0.0


def _state(whole: bool) -> Any:
    from optuna.trial import TrialState

    return TrialState.COMPLETE if whole else TrialState.PRUNED


def asha(space: Space, number: int, *, seeds: int, reduction: int) -> Strategy:
    """Ray Tune's AsyncHyperBandScheduler: one bracket from the first evaluation on, candidates in a random order.

    At a rung a trial goes on where its value is not below the (1 - 1/reduction) quantile of those that got there.
    """
    order = random.Random(number).sample(range(len(space.points)), len(space.points))
    rungs = [reduction**power for power in range(9) if reduction**power < len(space.shares)]
    recorded: dict[int, list[float]] = {rung: [] for rung in rungs}
    scores: dict[int, float] = {}
    for candidate in order:
        for step, share in enumerate(space.shares, start=1):
            values = []
            for seed in range(seeds):
                seen = yield candidate, seed, share, best(scores), 0.0
                values.append(seen[-1][1])
            value = mean_of(values)
            if step == len(space.shares):
                scores[candidate] = value
            elif step in recorded:
                others = recorded[step]
                cutoff = float(np.nanpercentile(others, (1 - 1 / reduction) * 100)) if others else -math.inf
                others.append(value)
                if value < cutoff:
                    break
    yield -1, 0, 0.0, best(scores), 0.0


def before(space: Space, number: int) -> Strategy:
    """Ours with `allocation: fixed`: TPE without repeats, three seeds one after another, patient median."""
    from grpoctl.sweeps.candidates import identity
    from grpoctl.sweeps.optuna_conversion import EndedTrial
    from grpoctl.sweeps.samplers import Suggester

    sweep = space.sweep.model_copy(update={"sampler": "tpe", "study_seed": number, "seeds": (0, 1, 2)})
    suggester, rule = Suggester(sweep), PrunerSpec(name="patient-median")
    index = {identity(point): at for at, point in enumerate(space.points)}
    past: list[EndedTrial] = []
    scores: dict[int, float] = {}
    for trial in range(len(space.points)):
        params = suggester.suggest(trial, past, {identity(one.params) for one in past})
        if params is None:
            break
        candidate = index[identity(params)]
        curve: list[tuple[int, float, float]] = []
        others = [one.curve for one in past]
        pruned = False
        for seed in range(3):
            for share in space.shares:
                seen = yield candidate, seed, share, best(scores), 0.0
                curve.append((seed, *seen[-1][:2]))
                if pruned := decide(rule, curve, others, (0, 1, 2)) is not None:
                    break
            if pruned:
                break
        value = None if pruned else mean_of([curve[(seed + 1) * len(space.shares) - 1][2] for seed in range(3)])
        if value is not None:
            scores[candidate] = value
        past.append(
            EndedTrial(
                number=trial, params=params, state="PRUNED" if pruned else "COMPLETE", value=value,
                seeds=(0, 1, 2), curve=tuple(curve),  # type: ignore[arg-type]
            )
        )  # fmt: skip
    yield -1, 0, 0.0, best(scores), 0.0


def oracle(space: Space, number: int, *, truth: Sequence[float]) -> Strategy:
    """Told which ten candidates are the best, and nothing else: whole runs of them in turn, in a random order."""
    ten = sorted(range(len(space.points)), key=lambda candidate: -truth[candidate])[:10]
    order = random.Random(number).sample(ten, len(ten))
    values: dict[int, list[float]] = {}
    for seed in range(space.seeds):
        for candidate in order:
            scores = {one: mean_of(seen) for one, seen in values.items() if len(seen) > seed or seed == 0}
            known = {one: mean_of(seen) for one, seen in values.items()}
            seen = yield candidate, seed, 1.0, best(known or scores), 0.0
            values.setdefault(candidate, []).append(seen[-1][1])
    yield -1, 0, 0.0, best({one: mean_of(seen) for one, seen in values.items()}), 0.0


def now(space: Space, number: int, *, tolerance: float = 0.01) -> Strategy:
    """Ours with `allocation: adaptive`: screening on one seed, then races on more. In an order of its own."""
    shares = tuple(min(space.shares, key=lambda one: abs(one - rung)) for rung in space.rungs)
    order = random.Random(number).sample(range(len(space.points)), len(space.points))
    problem = Problem(
        candidates=len(order), seeds=tuple(range(space.seeds)), shares=tuple(dict.fromkeys(shares)), tolerance=tolerance
    )
    search, seen = Search(problem, number), list[Seen]()
    while True:
        standing = search.standing(seen)
        choice = None if standing.choice is None else order[standing.choice]
        decided = standing.sure if standing.seeds >= REPEATS else 0.0
        job, _ = search.job(seen, [])
        if job is None:
            yield -1, 0, 0.0, choice, decided
            return
        values = yield order[job.candidate], job.seed, job.share, choice, decided
        seen += [
            Seen(candidate=job.candidate, seed=job.seed, share=share, value=value, error=error)
            for share, value, error in values
            if share in problem.shares
        ]
