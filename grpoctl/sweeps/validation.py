"""What makes a sweep invalid: a key that is no trial's to set, a value or point without a valid run, an inert axis.

Here too: what of a sweep follows from its base (budget, total, hashes). Not here: what the user should know of a valid
sweep before it starts (preview).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.config import RunSpec
from core.config.run import check_fit
from core.errors import MissingPackageError, SpecError
from core.health.before.inert import inert_in_all
from core.metrics import declared
from core.tasks import registry
from grpoctl.analysis.caveats import is_yardstick
from grpoctl.config import canonical, plain
from grpoctl.config.authored import Authored
from grpoctl.config.layers import Keys, Layer
from grpoctl.config.problems import refused
from grpoctl.executors.needs import check_trainer
from grpoctl.sweeps.candidates import (
    EXPERIMENT,
    Candidates,
    Params,
    active,
    bases_of,
    identity,
    order,
    points,
    size,
    values,
)
from grpoctl.sweeps.spec import Axis, SweepSpec

ALL = 300  # points that are all tried; of more, as many drawn ones
OTHERS = {  # what no trial may set, and what does instead
    "seed": "seeds", "budget": "budget", "expects": "the base experiment", "recorded": "the base experiment",
    "title": "the base experiment", "question": "the base experiment",
}  # fmt: skip
LOOKING = "evaluation.eval_steps"  # how often is measured, which alone changes no run


def validated(sweep: SweepSpec, layer: Layer, authored: Mapping[str, Authored]) -> SweepSpec:
    """The sweep with its base's hashes, its budget and its total. Raises SpecError with file, line and key."""
    _check_keys(sweep, layer)
    tree = plain(sweep)
    tree["bases"] = bases_of(sweep, authored)
    try:
        tree["budget"] |= _budget(Candidates(sweep=sweep, authored=authored))
    except SpecError as error:
        raise _at_settings(error, sweep, layer) from None
    sweep = SweepSpec.model_validate(tree)
    number = size(sweep)
    if sweep.sampler == "grid" and sweep.axes:
        try:
            points(sweep)
        except SpecError as error:
            raise refused(error.message, ("axes",), layer) from None
    if sweep.trials is None and number is None:
        raise refused(
            "is missing; allowed: an integer >= 1, because the axes span a continuous space", ("trials",), layer
        )
    sweep = SweepSpec.model_validate({**tree, "trials": sweep.trials or number})
    candidates = Candidates(sweep=sweep, authored=authored)
    _check_values(candidates, layer)
    _check_effects(candidates, layer)
    return sweep


def _check_keys(sweep: SweepSpec, layer: Layer) -> None:
    """Refuses keys that are not a trial's to set, and two that set the same."""
    places: list[tuple[str, Keys]] = [(key, ("settings", key)) for key in sweep.settings]
    places += [(key, ("axes", key)) for key in sweep.axes]
    taken: dict[str, Keys] = {}
    for key, at in places:
        for other, before in taken.items():
            if key == other or key.startswith(f"{other}.") or other.startswith(f"{key}."):
                what = "settings" if before[0] == "settings" else f"the axis {other}"
                raise refused(f"is set by {what} too; allowed: one of them", at, layer)
        taken[key] = at
    for name, settings in sweep.candidates.items():
        places += [(key, ("candidates", name, key)) for key in settings]
    for index, rung in enumerate(sweep.ladder):
        places += [(key, ("ladder", index, "settings", key)) for key in rung.settings]
    for key, at in places:
        if (instead := OTHERS.get(key.split(".")[0])) is not None:
            raise refused(f"is not set by a trial; {instead} says it", at, layer)


def _budget(candidates: Candidates) -> dict[str, int]:
    """The base's own completions where the sweep states no budget; nothing where its last stage samples none."""
    sweep = candidates.sweep
    if sweep.budget.completions or sweep.budget.tokens:
        return {}
    base = candidates.reference({EXPERIMENT: sweep.experiment})
    if base.budget is not None:
        return {base.budget.unit: base.budget.amount}
    last = list(base.stages.values())[-1]
    planned = sum(stage.max_steps * stage.rows_per_step for stage in base.stages.values())
    return {"completions": planned} if last.rows_per_step else {}


def _check_values(candidates: Candidates, layer: Layer) -> None:
    """Refuses a value that makes no valid run, one axis at a time, then a point that makes none."""
    sweep = candidates.sweep
    for key, axis in sweep.axes.items():
        for value in ends(axis):
            _check_point(candidates, _alone(sweep, key, value), f"with {canonical(value)}", ("axes", key), layer)
    seen: dict[str, str] = {}
    for index, point in enumerate(some_points(sweep)):
        name, at = _which(sweep, index)
        if identity(point) in seen:
            raise refused(f"sets the same as {seen[identity(point)]}", at, layer)
        seen[identity(point)] = name or identity(point)
        _check_point(candidates, point, "" if name else f"at {identity(point)}", at, layer)


def _alone(sweep: SweepSpec, key: str, value: Any) -> Params:
    """The base with this value, and with what its conditions need."""
    wanted = {key: value}
    for child in reversed(order(sweep)):
        if child in wanted:
            wanted |= {other: allowed[0] for other, allowed in sweep.axes[child].when.items() if other not in wanted}
    return wanted


def _which(sweep: SweepSpec, index: int) -> tuple[str, Keys]:
    """(name, keys) of a candidate or rung; of a point of axes neither."""
    if sweep.candidates:
        candidate = list(sweep.candidates)[index]
        return candidate, ("candidates", candidate)
    if sweep.ladder:
        return sweep.ladder[index].name, ("ladder", index)
    return "", ("axes",)


def ends(axis: Axis) -> list[Any]:
    """The values of a list, the two ends of a range."""
    return list(axis.values) if axis.values is not None else [axis.low, axis.high]


def some_points(sweep: SweepSpec) -> list[Params]:
    """All points where they are few, else ALL evenly drawn ones, ranges at their ends and in between.

    The seed is fixed: the points are the same at every call.
    """
    number = size(sweep)
    if number is not None and number <= ALL:
        return points(sweep)
    source, drawn = random.Random(0), dict[str, Params]()
    for _ in range(ALL):
        chosen: Params = {}
        for key in order(sweep):
            if active(sweep, chosen, key):
                chosen[key] = _draw(sweep.axes[key], source)
        point = {key: chosen[key] for key in sweep.axes if key in chosen}
        drawn[identity(point)] = point
    return list(drawn.values())


def _draw(axis: Axis, source: random.Random) -> Any:
    if axis.values is not None:
        return source.choice(axis.values)
    assert axis.low is not None
    assert axis.high is not None
    if axis.type == "int":
        return source.randrange(int(axis.low), int(axis.high) + 1, int(axis.step or 1))
    return source.choice(values(axis)) if axis.step is not None else source.choice([axis.low, axis.high])


def _check_point(candidates: Candidates, point: Params, where: str, at: Keys, layer: Layer) -> None:
    """Raises SpecError for a point without a valid run, with the sweep's key and what the run's own check says."""
    try:
        spec = candidates.spec(point)
        check_fit(spec)
        if (task := repr(spec.task)) not in candidates.tasks:
            candidates.tasks.add(task)
            with suppress(MissingPackageError):  # which another machine may have
                registry.build(spec.task)  # a task can refuse what a type cannot: more problems than there are
    except SpecError as error:
        fault = error if _is_of_settings(error, candidates.sweep, at) else _fault_of_settings(candidates)
        if fault is not None and fault.message == error.message:
            raise _at_settings(fault, candidates.sweep, layer) from None
        what = error.message.partition(" (in the override ")[0]
        own = error.key is not None and error.key == (at[-1] if at[0] == "axes" else None)
        why = what if own or error.key is None else f"{error.key}: {what}"
        whole = f"no valid run{' ' if where else ''}{where}: {why} (profile {candidates.sweep.profile})"
        raise refused(whole, at, layer) from None


def _is_of_settings(error: SpecError, sweep: SweepSpec, at: Keys) -> bool:
    """Whether a rung's error is about what the sweep's settings say, and the rung does not."""
    own = sweep.ladder[int(at[1])].settings if at[0] == "ladder" else None
    return own is not None and error.key in sweep.settings and error.key not in own


def _fault_of_settings(candidates: Candidates) -> SpecError | None:
    """Why the base makes no valid run with the sweep's settings alone; None where it does, or rungs have their own."""
    if candidates.sweep.ladder:
        return None
    try:
        check_fit(candidates.reference({}))
    except SpecError as error:
        return error
    try:
        candidates.overrides({})
    except SpecError as error:  # what is held equal over the points: a setting of the sweep's may not rule it
        return error if error.key in candidates.sweep.settings else None
    return None


def _at_settings(error: SpecError, sweep: SweepSpec, layer: Layer) -> SpecError:
    """The error of a sound base with the sweep's settings on it, at the place of the setting where it is one."""
    what = f"{error.message.partition(' (in the override ')[0]} (profile {sweep.profile})"
    own = ("settings", error.key or "")
    if own in layer.places:
        return refused(what, own, layer)
    return refused(f"{error.key}: {what}" if error.key else what, ("settings",), layer)


@dataclass(frozen=True, kw_only=True, slots=True)
class PointRun:
    """A point and the run it stands for."""

    params: Params
    spec: RunSpec


def point_runs(candidates: Candidates) -> list[PointRun]:
    """The runs of `some_points`. Raises SpecError for a point that makes none."""
    return [PointRun(params=params, spec=candidates.spec(params)) for params in some_points(candidates.sweep)]


def check_trainers(candidates: Candidates) -> None:
    """Raises SpecError for the first thing that a trainer of the runs lacks on this machine, a reward file included.

    One of each trainer is asked: other keys change nothing that a machine could lack, but for a ladder's bases.
    """
    sweep, asked = candidates.sweep, set[str]()
    keys = [*sweep.axes, *(key for settings in sweep.candidates.values() for key in settings)]
    specs = [] if sweep.ladder else [candidates.reference({})]
    if sweep.ladder or any(key.startswith("trainer.") for key in keys):
        specs += [run.spec for run in point_runs(candidates)]
    for spec in specs:
        if (trainer := repr((spec.trainer, spec.task))) not in asked:
            asked.add(trainer)
            registry.check_task(spec)
            check_trainer(spec)


def incomparable(sweep: SweepSpec, key: str) -> str | None:
    """Why values of the metric could not be compared over this key; None where they can."""
    metric = declared(sweep.metric)
    if metric is None or metric.kind != "eval":
        return None
    if is_yardstick(key):
        return f"changes what {sweep.metric} measures: its values could not be compared"
    return f"changes how often {sweep.metric} is measured, not the run" if key == LOOKING else None


def _check_effects(candidates: Candidates, layer: Layer) -> None:
    """Refuses an axis that acts at no point, or that changes what the metric measures."""
    sweep, runs = candidates.sweep, point_runs(candidates)
    for key in sweep.axes:
        if (why := incomparable(sweep, key)) is not None:
            raise refused(why, ("axes", key), layer)
        if (reason := inert_in_all([run.spec for run in runs if key in run.params], key)) is not None:
            raise refused(f"does nothing at any point: {reason}", ("axes", key), layer)
