"""The points of a sweep, and the ordinary runs they stand for.

What is here: which points there are, in which order and when two are the same; the settings of a point, with K x B and
the budget held equal. Not here: drawing points (samplers).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any

from core.config import RunSpec
from core.errors import SpecError
from grpoctl.config import Library, Loaded, Revisions, canonical, spec_sha
from grpoctl.config.authored import Authored
from grpoctl.config.loading import read_any, resolve
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.spec import Axis, SweepSpec

Params = dict[str, Any]

EXPERIMENT = "experiment"  # stands in the params of a ladder's rung: which experiment its settings are put on
MOST = 10_000  # points that are written out


def count(axis: Axis) -> int | None:
    """How many values an axis has; None for a range of real numbers."""
    if axis.values is not None:
        return len(axis.values)
    assert axis.low is not None
    assert axis.high is not None
    if axis.step is not None:
        return int((Decimal(str(axis.high)) - Decimal(str(axis.low))) / Decimal(str(axis.step))) + 1
    return int(axis.high) - int(axis.low) + 1 if axis.type == "int" else None


def values(axis: Axis) -> list[Any]:
    """The values of a finite axis in order, the top of a range included. Decimal steps: 0.1, 0.2, 0.3."""
    if axis.values is not None:
        return list(axis.values)
    number = count(axis)
    assert number is not None, "a range of real numbers has no list of values"
    low, step = Decimal(str(axis.low)), Decimal(str(axis.step if axis.step is not None else 1))
    exact = (low + step * index for index in range(number))
    return [int(value) if axis.type == "int" else float(value) for value in exact]


def size(sweep: SweepSpec) -> int | None:
    """How many points there are; None where they cannot be listed. Counts to MOST + 1 where axes are conditional."""
    if sweep.candidates or sweep.ladder:
        return len(sweep.candidates) or len(sweep.ladder)
    counts = [count(axis) for axis in sweep.axes.values()]
    product = 1
    for number in counts:
        if number is None:
            return None
        product *= number
    if any(axis.when for axis in sweep.axes.values()):
        return sum(1 for _ in islice(_product(sweep), MOST + 1))
    return product


def points(sweep: SweepSpec) -> list[Params]:
    """Every point, each once: candidates and rungs as they are written, else the product, the last axis fastest.

    Raises SpecError where they cannot be listed, or are more than MOST.
    """
    if sweep.candidates:
        return [dict(settings) for settings in sweep.candidates.values()]
    if sweep.ladder:
        return [{EXPERIMENT: rung.experiment, **rung.settings} for rung in sweep.ladder]
    number = size(sweep)
    if number is None:
        endless = ", ".join(key for key, axis in sweep.axes.items() if count(axis) is None)
        raise SpecError(f"{endless} is a range of real numbers; give it a step, or a list of values", key="axes")
    if number > MOST:
        raise SpecError(f"the axes have more than {MOST} points; take sampler tpe or random", key="axes")
    return list(_product(sweep))


def name_of(sweep: SweepSpec, params: Mapping[str, Any]) -> str | None:
    """The name of a candidate or rung; None for a point of axes."""
    names = [*sweep.candidates, *(rung.name for rung in sweep.ladder)]
    wanted = identity(params)
    known = points(sweep) if names else []
    return next((name for name, point in zip(names, known, strict=True) if identity(point) == wanted), None)


def identity(params: Mapping[str, Any]) -> str:
    """Canonical JSON of a point: equal for points that set the same, whatever the order and the way of writing."""
    return canonical(params)


def is_point(sweep: SweepSpec, params: Mapping[str, Any]) -> bool:
    """True where the axes have such a point; a clone may lie beside them."""
    chosen = {key for key in sweep.axes if active(sweep, params, key)}
    return set(params) == chosen and all(_has(sweep.axes[key], value) for key, value in params.items())


def _has(axis: Axis, value: Any) -> bool:
    """True for a value of the axis."""
    if axis.values is not None:
        return canonical(value) in {canonical(one) for one in axis.values}
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if count(axis) is not None:
        return value in values(axis)
    assert axis.low is not None
    assert axis.high is not None
    return axis.low <= value <= axis.high


def order(sweep: SweepSpec) -> list[str]:
    """The axes in the order in which they are chosen: as written, but each after those its `when` names."""
    chosen: list[str] = []
    left = list(sweep.axes)
    while left:
        key = next(key for key in left if all(other in chosen for other in sweep.axes[key].when))
        chosen.append(key)
        left.remove(key)
    return chosen


def active(sweep: SweepSpec, params_so_far: Mapping[str, Any], key: str) -> bool:
    """True when an axis takes part at a point, of which the axes named in its `when` are known."""
    for other, allowed in sweep.axes[key].when.items():
        if other not in params_so_far:  # itself not active
            return False
        if canonical(params_so_far[other]) not in {canonical(value) for value in allowed}:
            return False
    return True


def _product(sweep: SweepSpec) -> Iterator[Params]:
    """The points one by one, keys as the axes are written. Lists no range before it is reached."""
    keys = order(sweep)

    def below(index: int, chosen: Params) -> Iterator[Params]:
        if index == len(keys):
            yield {key: chosen[key] for key in sweep.axes if key in chosen}
            return
        key = keys[index]
        options = values(sweep.axes[key]) if active(sweep, chosen, key) else [None]
        for value in options:
            yield from below(index + 1, {**chosen, key: value} if active(sweep, chosen, key) else chosen)

    return below(0, {})


def bases_of(sweep: SweepSpec, authored: Mapping[str, Authored]) -> dict[str, str]:
    """experiment -> the hash of what it is under the sweep's profile."""
    return {name: spec_sha(resolve(document, profile=sweep.profile).spec) for name, document in authored.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The points of one sweep as runs; each base experiment has been read once."""

    sweep: SweepSpec
    authored: Mapping[str, Authored]
    known: dict[str, RunSpec] = field(default_factory=dict, compare=False, repr=False)  # references, by their settings
    tasks: set[str] = field(default_factory=set, compare=False, repr=False)  # those that can be built

    @classmethod
    def of(cls, sweep: SweepSpec, *, library: Library | None = None, revisions: Revisions | None = None) -> Candidates:
        """Raises SpecError where an experiment has changed since `sweep` was resolved."""
        if revisions is None and any("@" in name for name in sweep.experiments):
            revisions = revisions_of(Home.locate())
        documents = {
            name: read_any(name, library=library or Library(), revisions=revisions) for name in sweep.experiments
        }
        if sweep.bases and sweep.bases != (now := bases_of(sweep, documents)):
            changed = next(name for name in now if sweep.bases.get(name) != now[name])
            raise SpecError(
                "is not what it was when this study began; restore it, or start a new study",
                file=documents[changed].file,
            )
        return cls(sweep=sweep, authored=documents)

    def loaded(self, params: Mapping[str, Any], overrides: Sequence[str], *, seed: int | None = None) -> Loaded:
        """The run that the overrides of a point make. Raises SpecError."""
        document = self.authored[str(params.get(EXPERIMENT, self.sweep.experiment))]
        return resolve(document, profile=self.sweep.profile, overrides=overrides, seed=seed)

    def spec(self, params: Mapping[str, Any]) -> RunSpec:
        """The run of a point, whatever its seed. Raises SpecError."""
        return self.loaded(params, self.overrides(params)).spec

    def reference(self, params: Mapping[str, Any]) -> RunSpec:
        """What is the same for every point: the base with the sweep's settings (a rung: with its own). SpecError."""
        own = params if self.sweep.ladder else {EXPERIMENT: self.sweep.experiment}
        settings = {**self.sweep.settings, **own}
        key = canonical(settings)
        if key not in self.known:
            self.known[key] = self.loaded(own, texts(settings)).spec
        return self.known[key]

    def overrides(self, params: Mapping[str, Any]) -> list[str]:
        """The settings of a point: the sweep's, its own, and those that hold K x B and the budget equal."""
        own = {**self.sweep.settings, **params}
        reference = self.reference(params)
        own |= self._prompts(own, params, reference)
        return texts({**own, **self._budget(own, params, reference)})

    def _prompts(self, own: Mapping[str, Any], params: Mapping[str, Any], reference: RunSpec) -> dict[str, int]:
        """prompts_per_step of the stages whose K is varied, or whose K x B is stated."""
        stated = self.sweep.budget.generation_batch_size
        prompts = {}
        for name, stage in reference.stages.items():
            key, at = f"stages.{name}.prompts_per_step", f"stages.{name}.num_generations"
            varied = at in params and not self.sweep.ladder
            if key in own or not stage.rows_per_step or not (varied or stated):
                continue
            rows, each = stated or stage.rows_per_step, own.get(at, getattr(stage, "num_generations", None))
            if not isinstance(each, int) or isinstance(each, bool) or each < 1:
                continue  # no number of completions: the spec itself says so
            if rows % each:
                raise SpecError(f"got {each}, which does not divide the {rows} completions of a step", key=at)
            prompts[key] = rows // each
        return prompts

    def _budget(self, own: Mapping[str, Any], params: Mapping[str, Any], reference: RunSpec) -> dict[str, Any]:
        """The budget, and as many steps of the last stage as it pays for: the scale of the stage's clock."""
        budget = self.sweep.budget
        if budget.completions is None and budget.tokens is None:
            return {}
        planned = reference if len(reference.stages) == 1 else self.loaded(params, texts(own)).spec
        *before, last = planned.stages
        for key in ("max_steps", "epochs"):
            if f"stages.{last}.{key}" in own:
                raise SpecError("the budget says how long the last stage is", key=f"stages.{last}.{key}")
        unit, other = ("completions", "tokens") if budget.completions is not None else ("tokens", "completions")
        settings: dict[str, Any] = {f"budget.{unit}": getattr(budget, unit)}
        if planned.budget is not None and getattr(planned.budget, other) is not None:
            settings[f"budget.{other}"] = None
        if budget.completions is None:
            return settings  # what a completion costs is not known before: the base's steps are scale enough
        spent = sum(planned.stages[name].max_steps * planned.stages[name].rows_per_step for name in before)
        if spent >= budget.completions:
            raise SpecError(f"the stages before {last} take {spent} of {budget.completions} completions", key="budget")
        # one scale for all points, so that a larger step is annealed and evaluated at the same shares of the budget
        scale = reference.stages.get(last, planned.stages[last])
        rows = budget.generation_batch_size or scale.rows_per_step or planned.stages[last].rows_per_step
        if not rows:
            raise SpecError(f"the last stage, {last}, samples nothing: a budget never ends", key="budget")
        settings[f"stages.{last}.max_steps"] = math.ceil((budget.completions - spent) / rows)
        return settings if planned.stages[last].epochs is None else {**settings, f"stages.{last}.epochs": None}


def texts(settings: Mapping[str, Any]) -> list[str]:
    """`key=value` texts, the values as JSON, which is YAML too."""
    return [
        f"{key}={json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in settings.items()
        if key != EXPERIMENT
    ]
