"""SweepSpec and its parts: what a sweep compares, at what cost, and by which metric. Typed, frozen, validated.

What is here: the shape of a sweep, and what its keys say of each other. What is not: reading files (loading), the
points that axes make (candidates), and what the keys of the base experiment allow (validation).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from core.config import Expectation, Part
from core.config.part import LATE, Count, Fraction, Name, Positive, PositiveInt, refusal
from core.metrics import declared, unknown_metric
from grpoctl.config.identity import canonical
from grpoctl.sweeps.pruning import Direction, PrunerName

Number = int | float


class Axis(Part):
    """One setting that is varied: a list of values, or a range of numbers. `when` says at which values of others."""

    values: Annotated[tuple[Any, ...], Field(strict=False)] | None = None
    low: Number | None = None
    high: Number | None = None
    log: bool = False
    step: Number | None = None
    type: Literal["int", "float"] | None = None  # of a range; int where all its numbers are
    when: dict[str, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _list_is_values(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return {"values": value}
        if not isinstance(value, dict):
            return value
        axis = dict(value)
        if isinstance(when := axis.get("when"), dict):
            axis["when"] = {key: below if isinstance(below, (list, tuple)) else [below] for key, below in when.items()}
        ends = [axis.get("low"), axis.get("high")]
        if None not in ends and axis.get("type") is None:
            numbers = [*ends, *([axis["step"]] if axis.get("step") is not None else [])]
            axis["type"] = "int" if all(isinstance(number, int) for number in numbers) else "float"
        return axis

    @model_validator(mode="after")
    def _list_or_range(self) -> Axis:
        if self.values is not None:
            self._check_values(self.values)
        elif self.low is None or self.high is None:
            key = "high" if self.low is not None else "low" if self.high is not None else "values"
            raise refusal(key, "is missing; allowed: a list of values, or a range with low and high")
        else:
            self._check_range(self.low, self.high)
        return self

    def _check_values(self, values: tuple[Any, ...]) -> None:
        for key in ("low", "high", "step", "type"):
            if getattr(self, key) is not None:
                raise refusal(key, "stands beside values; allowed: a list of values, or a range")
        if self.log:
            raise refusal("log", "stands beside values; allowed: a list of values, or a range")
        if not values:
            raise refusal("values", "got an empty list; allowed: at least one value")
        seen: set[str] = set()
        for value in values:
            text = canonical(value)
            if text in seen:
                raise refusal("values", f"got {text} twice; allowed: each value once")
            seen.add(text)

    def _check_range(self, low: Number, high: Number) -> None:
        if low >= high:
            raise refusal("low", f"got {low}; allowed: below high = {high}")
        if self.log and low <= 0:
            raise refusal("low", f"got {low}; allowed with log: a number > 0")
        if self.type == "int" and not all(isinstance(number, int) for number in (low, high, self.step or 1)):
            raise refusal("type", "got int for a range that is not of integers; allowed: float")
        if self.step is None:
            return
        if self.log:
            raise refusal("step", "stands beside log; allowed: one of them, or a list of values")
        if self.step <= 0:
            raise refusal("step", f"got {self.step}; allowed: a number > 0")
        if (Decimal(str(high)) - Decimal(str(low))) % Decimal(str(self.step)):
            raise refusal(
                "step", f"got {self.step}, which does not lead from {low} to {high}: the top value is tried too"
            )


Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=64)]
Sampler = Literal["grid", "random", "tpe", "ladder"]

# What a pruner reads, and what it takes where nothing is said: measured on noisy crossing curves, benchmarks/pruning.py
PRUNERS: Mapping[str, Mapping[str, Number]] = {
    "none": {},
    "patient-median": {"patience": 3, "warmup": 0.5, "min_trials": 4},
    "successive-halving": {"warmup": 0.5, "reduction": 2},
}


def _metric(name: str) -> str:
    """The metric's name; ValueError where no run has such a value."""
    if (known := declared(name)) is None:
        raise ValueError(f"got {name!r}, an unknown metric; {unknown_metric(name)}")
    if known.kind == "start":
        raise ValueError(f"got {name!r}, which is known before the first step; allowed: what a run reaches")
    return name


class Rung(Part):
    """One rung of a ladder: an experiment, what is set on it, and what it must meet to end the climb."""

    name: Label
    experiment: str
    settings: dict[str, Any] = Field(default_factory=dict)
    expects: Annotated[tuple[Expectation, ...], Field(strict=False)] | None = None  # null: the experiment's own


class PrunerSpec(Part):
    """When a trial is given up. Options are in reports (evaluations), shares of a run's budget, and trials."""

    name: PrunerName = "patient-median"
    patience: PositiveInt | None = None  # reports in a row that must be below the others' median
    warmup: Fraction | None = None  # nothing is pruned before this share of a run's budget
    min_trials: PositiveInt | None = None  # others that must have come as far
    reduction: Annotated[int, Field(ge=2)] | None = None  # successive halving keeps one in so many

    @model_validator(mode="before")
    @classmethod
    def _name_has_its_options(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict):
            return value
        own = PRUNERS.get(str(value.get("name", "patient-median")), {})
        return {**value, **{key: number for key, number in own.items() if value.get(key) is None}}

    @model_validator(mode="after")
    def _reads_its_options(self) -> PrunerSpec:
        for key in ("patience", "warmup", "min_trials", "reduction"):
            if getattr(self, key) is not None and key not in PRUNERS[self.name]:
                raise refusal(key, f"the pruner {self.name} has no use for it")
        return self


class SweepBudget(Part):
    """What each run may sample, for every trial alike; left out: the base experiment's own completions."""

    completions: PositiveInt | None = None
    tokens: PositiveInt | None = None
    generation_batch_size: PositiveInt | None = None  # completions of a step: prompts_per_step is this / K

    @model_validator(mode="after")
    def _one_unit(self) -> SweepBudget:
        if self.completions is not None and self.tokens is not None:
            raise refusal("tokens", "stands beside completions; set one, null for the other")
        return self


class SweepSpec(Part):
    """One sweep, completely: axes, named candidates or a ladder, and how they are compared."""

    name: Name
    revision: PositiveInt = 1
    title: str
    question: str = ""
    source: str = ""
    profile: Name = "full"
    experiment: str
    bases: dict[str, str] = Field(default_factory=dict)  # experiment -> hash: a study goes on with what it began with
    settings: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, Axis] = Field(default_factory=dict)
    candidates: dict[Label, dict[str, Any]] = Field(default_factory=dict)
    ladder: Annotated[tuple[Rung, ...], Field(strict=False)] = ()
    sampler: Sampler
    study_seed: Count = 0
    pruner: PrunerSpec
    metric: Annotated[str, AfterValidator(_metric)] = "eval/reward"
    direction: Direction
    worst: float
    take: Literal["final", "best"] = "final"
    seeds: Annotated[tuple[Count, ...], Field(strict=False, min_length=1)] = (0, 1, 2)
    budget: SweepBudget = SweepBudget()
    trials: PositiveInt | None = None  # the total; null: every point there is
    allocation: Annotated[Literal["fixed", "adaptive"], LATE] = "fixed"
    stop: Annotated[Literal["budget", "decided"], LATE] = "budget"  # of an adaptive one
    confidence: Annotated[Fraction, LATE] = 0.9  # a study is decided where the choice is right with this probability
    tolerance: Annotated[Positive, LATE] = 0.01  # right: within this of the best candidate, in the metric's unit
    max_hours: Positive | None = None
    share_stages: Annotated[bool, LATE] = True  # runs that agree up to a stage's end compute it once

    @model_validator(mode="before")
    @classmethod
    def _what_follows(cls, value: Any) -> Any:
        """The keys that follow from others where they are left out."""
        if not isinstance(value, dict):
            return value
        sweep = _with_experiments({key: below for key, below in value.items() if below is not None or key in _NULLABLE})
        adaptive = sweep.get("allocation") == "adaptive"
        if adaptive and sweep.get("axes"):  # among points drawn at random, where they cannot be listed
            sweep.setdefault("sampler", "random")
        for key, kind in (("candidates", "grid"), ("ladder", "ladder"), ("axes", "tpe")):
            if sweep.get(key):
                sweep.setdefault("sampler", kind)
                break
        sweep.setdefault("sampler", "tpe")
        metric = declared(str(sweep.get("metric", "eval/reward")))
        if metric is None:  # one problem is enough
            sweep = {"direction": "maximize", "worst": 0.0, **sweep}
        if metric is not None and metric.better != "neither":
            sweep.setdefault("direction", "maximize" if metric.better == "higher" else "minimize")
        if metric is not None and (metric.name == "eval/reward" or metric.unit == "fraction"):
            sweep.setdefault("worst", 1.0 if sweep.get("direction") == "minimize" else 0.0)
        prunes = (
            not adaptive and sweep.get("sampler") in ("tpe", "random") and metric is not None and metric.kind != "run"
        )
        sweep.setdefault("pruner", "patient-median" if prunes else "none")
        return sweep

    @model_validator(mode="after")
    def _one_kind_of_space(self) -> SweepSpec:
        spaces = [key for key in ("axes", "candidates", "ladder") if getattr(self, key)]
        if len(spaces) != 1:
            got = " and ".join(spaces) or "none of them"
            raise refusal(spaces[1] if spaces else "axes", f"got {got}; allowed: one of axes, candidates and ladder")
        fitting = {"axes": ("grid", "random", "tpe"), "candidates": ("grid",), "ladder": ("ladder",)}[spaces[0]]
        if self.sampler not in fitting:
            raise refusal("sampler", f"got {self.sampler}; allowed with {spaces[0]}: {', '.join(fitting)}")
        names = [rung.name for rung in self.ladder]
        if len(set(names)) < len(names):
            raise refusal("ladder", f"got {', '.join(names)}; allowed: each name once")
        if len(set(self.seeds)) < len(self.seeds):
            raise refusal("seeds", f"got {', '.join(map(str, self.seeds))}; allowed: each seed once")
        return self

    @model_validator(mode="after")
    def _allocation_fits(self) -> SweepSpec:
        if self.allocation == "adaptive" and self.ladder:
            raise refusal("allocation", "got adaptive; allowed with a ladder: fixed, each rung is climbed to its end")
        if self.allocation == "fixed" and self.stop == "decided":
            raise refusal("stop", "got decided; allowed with allocation fixed: budget")
        return self

    @model_validator(mode="after")
    def _metric_can_be_taken(self) -> SweepSpec:
        metric = declared(self.metric)
        assert metric is not None  # its type has seen to that
        if self.take == "best" and metric.kind != "eval":
            raise refusal("take", f"got best, but {metric.name} is no metric of an evaluation; allowed: final")
        if self.pruner.name != "none" and metric.kind == "run":
            raise refusal(
                "pruner", f"got {self.pruner.name}, but {metric.name} is known at the end only; allowed: none"
            )
        if self.pruner.name != "none" and self.ladder:
            raise refusal(
                "pruner", f"got {self.pruner.name}; allowed with a ladder: none, each rung is climbed to its end"
            )
        return self

    @model_validator(mode="after")
    def _conditions_hold_together(self) -> SweepSpec:
        for key, axis in self.axes.items():
            for other, values in axis.when.items():
                _check_condition(self.axes, f"axes.{key}.when", other, values)
        _refuse_cycles(self.axes)
        return self

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments whose settings are varied, the base first."""
        return tuple(dict.fromkeys([self.experiment, *(rung.experiment for rung in self.ladder)]))


_NULLABLE = ("trials", "max_hours")


def _with_experiments(sweep: dict[str, Any]) -> dict[str, Any]:
    """The sweep whose rungs all name an experiment: their own or the sweep's, which may be the first rung's."""
    rungs = sweep.get("ladder")
    if not isinstance(rungs, (list, tuple)) or not all(isinstance(rung, Mapping) for rung in rungs):
        return sweep
    first = next((rung["experiment"] for rung in rungs if rung.get("experiment")), None)
    base = sweep.get("experiment", first)
    if base is None:
        return sweep
    return {
        **sweep,
        "experiment": base,
        "ladder": [{**rung, "experiment": rung.get("experiment") or base} for rung in rungs],
    }


def _check_condition(axes: Mapping[str, Axis], at: str, other: str, values: Sequence[Any]) -> None:
    """Raises where a condition names no axis with a list, or what is no value of it."""
    axis = axes.get(other)
    if axis is None:
        near = difflib.get_close_matches(other, axes, n=1)
        raise refusal(at, f"{other} is no axis{f'; did you mean {near[0]}?' if near else ''}")
    if axis.values is None:
        raise refusal(at, f"{other} is a range; allowed: an axis with a list of values")
    known = [canonical(value) for value in axis.values]
    for value in values:
        if canonical(value) not in known:
            raise refusal(at, f"got {canonical(value)}; allowed: values of {other}: {', '.join(known)}")


def _refuse_cycles(axes: Mapping[str, Axis]) -> None:
    """Raises where axes wait for each other."""
    left = dict(axes)
    while left:
        ready = [key for key, axis in left.items() if not any(other in left for other in axis.when)]
        if not ready:
            raise refusal(f"axes.{next(iter(left))}.when", f"conditions in a circle: {', '.join(left)}")
        for key in ready:
            del left[key]
