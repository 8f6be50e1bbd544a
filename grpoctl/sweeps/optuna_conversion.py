"""A study's axes, values, trials and curves in the forms that Optuna has for them, and back.

What is here: what samplers, storage and importances share. What is not: drawing, writing and computing. Imports optuna
only where a function needs it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from grpoctl.config.identity import canonical
from grpoctl.runs.status import TrialStatus
from grpoctl.sweeps.spec import Axis
from grpoctl.sweeps.state import Curve, TrialRecord

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

State = Literal["COMPLETE", "PRUNED", "FAIL"]

# A collapsed or invalid run has the stated worst value, and the sampler learns from it; from a failed trial it learns
# nothing. An interrupted trial is gone on with, so that it still runs for Optuna.
_STATES: Mapping[TrialStatus, State] = {
    TrialStatus.COMPLETED: "COMPLETE",
    TrialStatus.COLLAPSED: "COMPLETE",
    TrialStatus.INVALID_ROLLOUT: "COMPLETE",
    TrialStatus.PRUNED: "PRUNED",
    TrialStatus.FAILED: "FAIL",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedTrial:
    """An ended trial as a sampler sees it. `value` is None for a failed one; `curve` is as the metric is."""

    number: int
    params: Mapping[str, Any]
    state: State
    value: float | None
    seeds: tuple[int, ...] = ()
    curve: Curve = ()


def optuna_state(trial: TrialRecord) -> State | None:
    """The state that Optuna knows the trial by; None while it runs or is interrupted."""
    state = _STATES.get(trial.status)
    return "FAIL" if state == "COMPLETE" and not _usable(trial.score) else state


def ended_trial(trial: TrialRecord) -> EndedTrial:
    """An ended trial as a sampler sees it. ValueError for one under way: nothing may be learned from it."""
    state = optuna_state(trial)
    if state is None:
        raise ValueError(f"trial {trial.number} is {trial.status}")
    return EndedTrial(
        number=trial.number, params=trial.params, state=state, value=trial.score, seeds=trial.seeds, curve=trial.curve
    )


def steps(curve: Curve, seeds: Sequence[int]) -> dict[int, float]:
    """The curve as Optuna's intermediate values: 1250 is a quarter of the budget of the second seed's run.

    In these steps the curves of all trials line up at equal budget. Optuna has one value for a step, so evaluations
    before anything of a run's budget is spent (in a supervised stage) are left out: 1000 is the end of the first run.
    """
    return {
        1000 * seeds.index(seed) + max(1, round(1000 * min(1.0, share))): float(value)
        for seed, share, value in curve
        if share > 0 and _usable(value)
    }


def names(keys: Iterable[str]) -> dict[str, str]:
    """Each dotted key as Optuna's dashboard shows it: without `stages.<name>.` where all keys are of one stage.

    The names stay different from each other: a key of another part that reads the same keeps them all as they are.
    """
    dotted = list(keys)
    stages = {key.split(".")[1] for key in dotted if key.startswith("stages.") and key.count(".") > 1}
    prefix = f"stages.{next(iter(stages))}." if len(stages) == 1 else ""
    short = {key: key.removeprefix(prefix) for key in dotted}
    return short if len(set(short.values())) == len(short) else {key: key for key in dotted}


def choices(values: Sequence[Any]) -> list[Any]:
    """What Optuna gets for the values of a list: themselves, or for all of them their canonical JSON.

    Optuna stores null, booleans, numbers and text, and takes 1, 1.0 and true for one value.
    """
    plain = all(value is None or isinstance(value, (bool, int, float, str)) for value in values)
    return list(values) if plain and len(set(values)) == len(values) else [canonical(value) for value in values]


def distribution(axis: Axis) -> BaseDistribution:
    """The axis as Optuna's distribution."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.values is not None:
        return CategoricalDistribution(choices(axis.values))
    assert axis.low is not None
    assert axis.high is not None
    if axis.type == "int":
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log, step=int(axis.step or 1))
    return FloatDistribution(float(axis.low), float(axis.high), log=axis.log, step=axis.step and float(axis.step))


def to_optuna(axis: Axis, value: Any) -> Any:
    """The value as the axis's distribution has it. Raises ValueError for one that is not on the axis."""
    if axis.values is None:
        return int(value) if axis.type == "int" else float(value)
    wanted = canonical(value)
    for own, choice in zip(axis.values, choices(axis.values), strict=True):
        if canonical(own) == wanted:
            return choice
    raise ValueError(f"{wanted} is not among the values {canonical(list(axis.values))}")


def from_optuna(axis: Axis, value: Any) -> Any:
    """The plain value of what Optuna drew; real numbers with six digits, on the steps and inside the range."""
    if axis.values is not None:
        known = choices(axis.values)
        return next(own for own, choice in zip(axis.values, known, strict=True) if _same(choice, value))
    if axis.type == "int":
        return int(value)
    assert axis.low is not None
    assert axis.high is not None
    low, high = float(axis.low), float(axis.high)
    if axis.step is not None:
        index = round((float(value) - low) / float(axis.step))
        return float(Decimal(str(axis.low)) + index * Decimal(str(axis.step)))
    coarse = high - low < 1e-3 * max(abs(low), abs(high))  # six digits would leave too few points
    return float(value) if coarse else min(high, max(low, float(f"{float(value):.6g}")))


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, Optuna says nothing of experimental or deprecated things; its log stays at errors afterwards, too."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _same(choice: Any, value: Any) -> bool:
    return choice is value or (type(choice) is type(value) and bool(choice == value))


def _usable(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
