"""Which point comes next: a function of the sweep, the trial's number and the results it may learn from.

What is here: grid, random and TPE, without repeats, and the candidates of adaptive allocation. What is not: which
results those are (driver), and the study in Optuna's database (storage), which no suggestion is ever read from.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, assert_never

from grpoctl.sweeps.candidates import MOST, Params, active, count, identity, order, points, size, values
from grpoctl.sweeps.optuna_conversion import EndedTrial, distribution, from_optuna, quiet, steps, to_optuna
from grpoctl.sweeps.spec import Axis, SweepSpec

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study

STARTUP = 10  # ended trials before TPE has anything to go by; until then it draws at random
DRAWS = 8  # how often a point that was tried before is drawn again


def startup(sampler: str, lag: int | None) -> int | None:
    """How many trials TPE draws at random before results guide it, `lag` at a time; None for the other samplers."""
    return STARTUP + (lag or 1) - 1 if sampler == "tpe" else None


def startup_of(sweep: SweepSpec, lag: int | None) -> int | None:
    """That of a sweep's sampler; None where it has no say, since adaptive allocation draws all candidates itself."""
    return None if sweep.allocation == "adaptive" else startup(sweep.sampler, lag)


def pool_of(sweep: SweepSpec, most: int) -> list[dict[str, Any]]:
    """The candidates of a search, at most so many: every point, or points drawn at random. More begin with the same."""
    number = size(sweep)
    dice = random.Random(f"pool {sweep.study_seed}")
    if number is not None and number <= MOST:
        listed = points(sweep)
        return listed if len(listed) <= most else dice.sample(listed, len(listed))[:most]
    drawn: dict[str, dict[str, Any]] = {}
    for _ in range(100 * most):
        chosen: dict[str, Any] = {}
        for key in order(sweep):
            if active(sweep, chosen, key):
                chosen[key] = _drawn(sweep.axes[key], dice)
        point = {key: chosen[key] for key in sweep.axes if key in chosen}
        drawn.setdefault(identity(point), point)
        if len(drawn) == most:
            break
    return list(drawn.values())


def _drawn(axis: Axis, dice: random.Random) -> Any:
    """A value of the axis, uniformly; of a range with `log` on that scale."""
    if count(axis) is not None:
        return dice.choice(values(axis))
    low, high = float(axis.low or 0.0), float(axis.high or 0.0)
    if not axis.log:
        return from_optuna(axis, dice.uniform(low, high))
    return from_optuna(axis, math.exp(dice.uniform(math.log(low), math.log(high))))


class Suggester:
    """Suggests for one sweep. It keeps what it made of `past` for the next call; the points do not depend on that."""

    def __init__(self, sweep: SweepSpec) -> None:
        self._sweep = sweep
        self._size = size(sweep)
        self._order = order(sweep)
        self._memory: Memory | None = None

    def suggest(self, number: int, past: Sequence[EndedTrial], taken: Set[str]) -> Params | None:
        """The params of trial `number`; None where every point has been tried.

        `past` are the ended trials it may learn from, `taken` the identities (candidates.identity) of all trials before
        it, ended or not. Nothing else has a say: the same arguments give the same point in any process, interrupted or
        not.
        """
        if self._size is not None and len(taken) >= self._size:
            return None
        seed = _seed(self._sweep.study_seed, number)
        match name := self._sweep.sampler:
            case "grid" | "ladder":
                return next((point for point in points(self._sweep) if identity(point) not in taken), None)
            case "random":
                return self._drawn(name, seed, (), taken) or self._one_left(seed, taken)
            case "tpe":
                return self._drawn(name, seed, past, taken) or self._one_left(seed, taken)
            case _:
                assert_never(name)

    def _drawn(
        self, name: Literal["random", "tpe"], seed: int, past: Sequence[EndedTrial], taken: Set[str]
    ) -> Params | None:
        """A point that was not tried before; None after so many that were."""
        if self._memory is None:
            self._memory = Memory(self._sweep)
        with quiet():
            study, sampler = self._memory.study(past), _sampler(name, seed)
            endless = self._size is None or self._size > MOST
            for _ in range(100 * DRAWS if endless else DRAWS):
                point = self._draw(sampler, study)
                if identity(point) not in taken:
                    return point
        return None

    def _draw(self, sampler: BaseSampler, study: Study) -> Params:
        """One point: the axes that are always there together, each conditional one by itself."""
        import optuna

        trial = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
        memory = self._memory
        assert memory is not None
        chosen: Params = {}
        drawn = sampler.sample_relative(study, trial, memory.always)
        for key in self._order:
            if not active(self._sweep, chosen, key):
                continue
            kind = memory.distributions[key]
            value = drawn[key] if key in drawn else sampler.sample_independent(study, trial, key, kind)
            chosen[key] = from_optuna(self._sweep.axes[key], value)
        return {key: chosen[key] for key in self._sweep.axes if key in chosen}

    def _one_left(self, seed: int, taken: Set[str]) -> Params | None:
        """Any of the points not tried yet, where they can be listed."""
        if self._size is None or self._size > MOST:
            return None
        left = [point for point in points(self._sweep) if identity(point) not in taken]
        return random.Random(seed).choice(left) if left else None


class Memory:
    """Ended trials as a study in memory: what TPE reads. Only trials that are new since the last call are added."""

    def __init__(self, sweep: SweepSpec) -> None:
        self._sweep = sweep
        self.distributions = {key: distribution(axis) for key, axis in sweep.axes.items()}
        self.always: dict[str, BaseDistribution] = {
            key: kind for key, kind in self.distributions.items() if not sweep.axes[key].when and not kind.single()
        }
        self._known: list[EndedTrial] = []
        self._study: Study | None = None

    def study(self, past: Sequence[EndedTrial]) -> Study:
        """A study that holds the completed and pruned ones of `past`, in the order of their numbers."""
        import optuna

        wanted = sorted((trial for trial in past if trial.state != "FAIL"), key=lambda trial: trial.number)
        if self._study is None or wanted[: len(self._known)] != self._known:
            self._study, self._known = optuna.create_study(direction=self._sweep.direction), []
        for trial in wanted[len(self._known) :]:
            self._study.add_trial(self._frozen(trial))
            self._known.append(trial)
        # A Study keeps the trials it first listed until it is asked for one by `ask`: another one sees them all.
        return optuna.load_study(study_name=self._study.study_name, storage=self._study._storage)

    def _frozen(self, trial: EndedTrial) -> Any:
        import optuna

        params = {key: to_optuna(self._sweep.axes[key], value) for key, value in trial.params.items()}
        return optuna.trial.create_trial(
            state=optuna.trial.TrialState[trial.state],
            value=trial.value if trial.state == "COMPLETE" else None,
            params=params,
            distributions={key: self.distributions[key] for key in params},
            intermediate_values=steps(trial.curve, trial.seeds),  # by the last of them TPE ranks a pruned trial
        )


def _sampler(name: Literal["random", "tpe"], seed: int) -> BaseSampler:
    """Optuna's sampler. Nothing needs to be assumed of running trials: `past` has none, and repeats are drawn again."""
    import optuna

    match name:
        case "random":
            return optuna.samplers.RandomSampler(seed=seed)
        case "tpe":
            return optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=False, n_startup_trials=STARTUP
            )
        case _:
            assert_never(name)


def _seed(study_seed: int, number: int) -> int:
    """32 bits that nothing but these two decide."""
    return int.from_bytes(hashlib.sha256(f"{study_seed}:{number}".encode()).digest()[:4], "big")
