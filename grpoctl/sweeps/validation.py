"""Whether every setting a sweep makes arrives: each key is one of the base, each value and point makes a valid run.

Here too: what of a sweep follows from its base (budget, total, hashes). Not here: whether a setting that arrives does
anything (checks).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from core.config import RunSpec
from core.config.run import check_fit
from core.errors import SpecError
from core.tasks import registry
from grpoctl.config import canonical, plain
from grpoctl.config.authored import Authored
from grpoctl.config.layers import Keys, Layer
from grpoctl.config.problems import refused
from grpoctl.sweeps.axis import Axis
from grpoctl.sweeps.candidates import Candidates, bases_of
from grpoctl.sweeps.space import EXPERIMENT, Params, active, identity, order, points, size, values
from grpoctl.sweeps.spec import SweepSpec

ALL = 300  # points that are all tried; of more, as many drawn ones
OTHERS = {  # what no trial may set, and what does instead
    "seed": "seeds", "budget": "budget", "expects": "the base experiment", "recorded": "the base experiment",
    "title": "the base experiment", "question": "the base experiment",
}  # fmt: skip


def completed(sweep: SweepSpec, layer: Layer, authored: Mapping[str, Authored]) -> SweepSpec:
    """The sweep with its base's hashes, its budget and its total. Raises SpecError with file, line and key."""
    _check_keys(sweep, layer)
    tree = plain(sweep)
    made = Candidates(sweep=sweep, authored=authored)
    tree["bases"] = bases_of(sweep, authored)
    try:
        tree["budget"] |= _budget(sweep, made)
    except SpecError as error:
        raise _at_settings(error, sweep, layer) from None
    sweep = SweepSpec.model_validate(tree)
    number = size(sweep)
    if sweep.sampler == "grid" and sweep.axes:
        _named(lambda: points(sweep), ("axes",), layer)
    if sweep.trials is None and number is None:
        raise refused(
            "is missing; allowed: an integer >= 1, because the axes span a continuous space", ("trials",), layer
        )
    sweep = SweepSpec.model_validate({**tree, "trials": sweep.trials or number})
    _check_values(Candidates(sweep=sweep, authored=authored), layer)
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


def _budget(sweep: SweepSpec, made: Candidates) -> dict[str, int]:
    """The base's own completions where the sweep states no budget; nothing where its last stage samples none."""
    if sweep.budget.completions or sweep.budget.tokens:
        return {}
    base = made.reference({EXPERIMENT: sweep.experiment})
    if base.budget is not None:
        return {base.budget.unit: base.budget.amount}
    last = list(base.stages.values())[-1]
    planned = sum(stage.max_steps * stage.rows_per_step for stage in base.stages.values())
    return {"completions": planned} if last.rows_per_step else {}


def _check_values(made: Candidates, layer: Layer) -> None:
    """Refuses a value that makes no valid run, one axis at a time, then a point that makes none."""
    sweep = made.sweep
    for key, axis in sweep.axes.items():
        for value in ends(axis):
            _tried(made, _alone(sweep, key, value), f"with {canonical(value)}", ("axes", key), layer)
    seen: dict[str, str] = {}
    for index, point in enumerate(some_points(sweep)):
        name, at = _which(sweep, index)
        if identity(point) in seen:
            raise refused(f"sets the same as {seen[identity(point)]}", at, layer)
        seen[identity(point)] = name or identity(point)
        _tried(made, point, "" if name else f"at {identity(point)}", at, layer)


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
    """All points where they are few, else as many drawn ones: the same at every call."""
    number = size(sweep)
    if number is not None and number <= ALL:
        return points(sweep)
    found = {identity(point): point for point in drawn(sweep, ALL)}
    return list(found.values())


def drawn(sweep: SweepSpec, number: int) -> Iterator[Params]:
    """Points drawn evenly from a fixed seed; ranges at their ends and in between."""
    source = random.Random(0)
    for _ in range(number):
        point: Params = {}
        for key in order(sweep):
            if active(sweep, point, key):
                point[key] = _one_of(sweep.axes[key], source)
        yield {key: point[key] for key in sweep.axes if key in point}


def _one_of(axis: Axis, source: random.Random) -> Any:
    if axis.values is not None:
        return source.choice(axis.values)
    assert axis.low is not None
    assert axis.high is not None
    if axis.type == "int":
        return source.randrange(int(axis.low), int(axis.high) + 1, int(axis.step or 1))
    return source.choice(values(axis)) if axis.step is not None else source.choice([axis.low, axis.high])


def _tried(made: Candidates, point: Params, said: str, at: Keys, layer: Layer) -> RunSpec:
    """The run of a point. Raises SpecError that names the sweep's key and what the run's own check says."""
    try:
        spec = made.spec(point)
        check_fit(spec)
        if (task := repr(spec.task)) not in made.tasks:
            registry.build(spec.task)  # a task can refuse what a type cannot: more problems than there are
            made.tasks.add(task)
    except SpecError as error:
        what = error.message.partition(" (in the override ")[0]
        own = error.key is not None and error.key == (at[-1] if at[0] == "axes" else None)
        why = what if own or error.key is None else f"{error.key}: {what}"
        whole = f"no valid run{' ' if said else ''}{said}: {why} (profile {made.sweep.profile})"
        raise refused(whole, at, layer) from None
    return spec


def _named(action: Any, at: Keys, layer: Layer) -> None:
    try:
        action()
    except SpecError as error:
        raise refused(error.message, at, layer) from None


def _at_settings(error: SpecError, sweep: SweepSpec, layer: Layer) -> SpecError:
    """The error of a sound base with the sweep's settings on it, at the place of the setting where it is one."""
    what = f"{error.message.partition(' (in the override ')[0]} (profile {sweep.profile})"
    own = ("settings", error.key or "")
    if own in layer.places:
        return refused(what, own, layer)
    return refused(f"{error.key}: {what}" if error.key else what, ("settings",), layer)
