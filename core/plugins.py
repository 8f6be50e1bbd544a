"""What other packages add to grpoctl: objects that they name as Python entry points, one group for each kind of thing.

    [project.entry-points."grpoctl.policies"]
    gaussian-bandit = "my_package.bandit:PLUGIN"

A package is imported only when a spec, or a command, names what it adds.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeVar

from core.errors import SpecError

C = TypeVar("C")
MAY_LACK = "; if a package adds it, that package is not installed here"  # behind what is said of an unknown name

Group = Literal["grpoctl.policies", "grpoctl.tasks", "grpoctl.rules", "grpoctl.readers", "grpoctl.executors"]


def added(group: Group, builtin: Collection[str]) -> Mapping[str, EntryPoint]:
    """Name -> entry point of everything that installed packages add to a group, sorted by name.

    `builtin` are the names that grpoctl itself has in the group. Raises SpecError where two packages add the same name,
    or one adds a built-in name: which of them is meant would depend on the order of installation.
    """
    points: dict[str, EntryPoint] = {}
    for point in _installed(group, tuple(sys.path)):
        other = points.get(point.name)
        if point.name in builtin:
            raise SpecError(f"{_origin(point)} adds {point.name!r} to {group}, which is grpoctl's own; uninstall it")
        if other is not None and other.value != point.value:
            raise SpecError(f"{_origin(other)} and {_origin(point)} both add {point.name!r} to {group}; uninstall one")
        points[point.name] = point
    return points


def names(group: Group, builtin: Collection[str]) -> list[str]:
    """All names of a group that a user can write, the built-in ones first. Raises SpecError for a clash."""
    return [*builtin, *added(group, builtin)]


@lru_cache
def _installed(group: Group, _path: tuple[str, ...]) -> Sequence[EntryPoint]:
    """The group's entry points on this `sys.path`, by name. To look through all its packages takes some 10 ms."""
    return sorted(entry_points(group=group), key=lambda point: (point.name, point.value))


def load(group: Group, name: str, builtin: Collection[str]) -> Any:
    """The object that a package adds under this name, imported; None where none does.

    Raises SpecError for a clash of names, and where the package cannot be imported.
    """
    point = added(group, builtin).get(name)
    if point is None:
        return None
    try:
        return point.load()
    except (ImportError, AttributeError, SyntaxError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        problem = f"{_origin(point)} adds {name!r} to {group}, but {point.value} cannot be imported: {why}"
        raise SpecError(problem) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """An object that a package adds. `called` is what messages call it: `wide-actions of package gaussian-bandit`."""

    called: str
    plugin: Any


def load_all(group: Group, builtin: Collection[str]) -> list[Added]:
    """All objects that packages add to a group, imported, in the order of their names. Raises SpecError as `load`."""
    points = added(group, builtin)
    return [
        Added(called=f"{name} of {_origin(point)}", plugin=load(group, name, builtin)) for name, point in points.items()
    ]


def config_class(group: Group, name: str, builtin: Collection[str], base: type[C], word: str) -> type[C] | None:
    """The `config` of what a package adds under this name: the class of its settings; None where none adds it.

    `word` is the class attribute that says which policies and tasks fit each other. Raises SpecError as `load`, where
    it is not a `base`, and where it has no such word.
    """
    plugin = load(group, name, builtin)
    if plugin is None:
        return None
    config = getattr(plugin, "config", None)
    if not (isinstance(config, type) and issubclass(config, base)) or not callable(getattr(plugin, "build", None)):
        wanted = f"an object with `config`, a subclass of {base.__module__}.{base.__name__}, and `build`"
        raise SpecError(f"{name!r} of {group} is {type(plugin).__name__}; allowed: {wanted}")
    if not isinstance(said := getattr(config, word, None), str):
        lack = f"has no class attribute {word!r}" if said is None else f"has {word} = {said!r}"
        fits = "one word, what its outputs are: a policy's `output` and a task's `scores` are the same where they fit"
        raise SpecError(f"{name!r} of {group}: {config.__name__} {lack}; allowed: {fits}")
    return config


def _origin(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist is not None else point.value
