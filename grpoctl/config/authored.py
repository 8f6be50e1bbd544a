"""A file and its parents -> the one authored document they make, profiles included.

Here: `extends`, the shape of `profiles`, and relative paths made absolute, so that a run means the same files wherever
it is resumed from. Not here: choosing a profile, overrides, whether the values are valid, and whether the files are any
good (core.tasks.custom).
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core.config.trl.values import FILES
from core.errors import NotFoundError, SpecError
from grpoctl.config.documents import read_document
from grpoctl.config.layers import Keys, Layer, leaves, merge
from grpoctl.config.library import Library

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
FULL = "full"  # the spec as it is written: always there, never redefined
RESERVED = (FULL, "auto")  # `--profile auto` asks the command line to choose
OF_THE_FILE = ("name", "revision", "source", "profile", "extends", "profiles")  # not for profiles and overrides
_NOT_INHERITED = ("revision", "recorded", "extends")  # they tell of one file: its version and its history
_NOT_SETTINGS = (*OF_THE_FILE, "title", "question", "expects", "recorded")
_EXPLICIT = ("./", "../", "~", "/")  # beginnings of a path


@dataclass(frozen=True, kw_only=True, slots=True)
class Authored:
    """What the files say before any profile or override; `chain` are the files, from the one asked for upwards."""

    layer: Layer
    file: Path
    chain: tuple[Path, ...]
    own: tuple[Layer, Layer] | None = None  # what the parents say, and what the file says on top; None without parents

    @property
    def restated(self) -> dict[str, object]:
        """What the file sets as its parents have it, by dotted key."""
        return {} if self.own is None else _restated(*self.own)

    @property
    def profiles(self) -> tuple[str, ...]:
        """The names that `profile=` takes, `full` first. A profile of null was taken away by a child."""
        written = self.layer.tree.get("profiles") or {}
        assert isinstance(written, Mapping)
        return (FULL, *(name for name, keys in written.items() if keys is not None))

    @property
    def base(self) -> Layer:
        """The document without its profiles."""
        return self.layer.without(["profiles"])

    def profile(self, name: str) -> Layer | None:
        """What a profile overrides, or None for `full`. Raises NotFoundError for a name that is not there."""
        if name == FULL:
            return None
        if name not in self.profiles:
            close = difflib.get_close_matches(name, self.profiles, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            have = ", ".join(self.profiles)
            raise SpecError(f"no profile {name!r}; {hint}There are: {have}", file=self.file, key="profiles")
        return self.layer.below(("profiles", name), f"in profile {name}")


def read_authored(file: Path, library: Library) -> Authored:
    """The document of a file and its parents. Raises SpecError or NotFoundError naming the file at fault."""
    documents: list[tuple[Path, Layer]] = []
    at: Path | None = file
    while at is not None:
        document = anchored(read_document(at))
        check_file(at, document)
        documents.append((at, document))
        at = _parent(documents, library)
    merged, own = documents[-1][1], None
    for _, child in reversed(documents[:-1]):
        own = merged, child
        merged = _extend(merged, child)
    chain = tuple(path for path, _ in documents)
    return Authored(layer=merged.without(["extends"]), file=file, chain=chain, own=own)


def _restated(parents: Layer, child: Layer) -> dict[str, object]:
    """What the child sets as its parents have it, by dotted key: left out, it would have the same value."""
    before, own = leaves(parents.without(_NOT_SETTINGS).tree), leaves(child.without(_NOT_SETTINGS).tree)
    same = [key for key, value in own.items() if key in before and before[key] == value]

    def value_without(key: str) -> object:  # not the parents' where the child starts the part anew
        shorter = Layer(tree=_less(child.tree, key.split(".")), places={})
        return leaves(_extend(parents, shorter).tree).get(key)

    return {key: own[key] for key in same if value_without(key) == own[key]}


def _less(tree: Mapping[str, object], path: Sequence[str]) -> dict[str, object]:
    """The tree without the value at this path."""
    first, *rest = path
    below = tree[first]
    if not rest:
        return {name: value for name, value in tree.items() if name != first}
    assert isinstance(below, Mapping)
    return {**tree, first: _less(below, rest)}


def check_file(file: Path, document: Layer) -> None:
    """Refuses a file whose name is not its own, or whose profiles are not mappings."""
    name = document.tree.get("name")
    line = document.place(("name",)).line
    if "name" not in document.tree:
        raise SpecError(f"'name' is missing; it is the file's own: 'name: {file.stem}'", file=file, line=line)
    if name != file.stem:
        raise SpecError(
            f"got {name!r}, but the file is called {file.name}; name and file must be the same",
            file=file, line=line, key="name",
        )  # fmt: skip
    if "profile" in document.tree:
        line = document.place(("profile",)).line
        raise SpecError("is chosen when a run starts (--profile), not in a file", file=file, line=line, key="profile")
    profiles = document.tree.get("profiles", {})
    if not isinstance(profiles, Mapping):
        line = document.place(("profiles",)).line
        raise SpecError("must be a mapping of profile names to overrides", file=file, line=line, key="profiles")
    for profile, keys in profiles.items():
        _check_profile(file, document, profile, keys)


def _check_profile(file: Path, document: Layer, profile: str, keys: object) -> None:
    """Refuses a profile that is reserved, badly named, no mapping, or that changes what belongs to the file."""
    key, line = f"profiles.{profile}", document.place(("profiles", profile)).line
    if profile in RESERVED:
        what = "is the spec as it is written" if profile == FULL else "lets the command line choose"
        raise SpecError(f"{profile!r} {what}; a profile needs another name", file=file, line=line, key=key)
    if not NAME.fullmatch(profile):
        allowed = "lower-case letters, digits, - and _"
        raise SpecError(f"got the name {profile!r}; allowed: {allowed}", file=file, line=line, key=key)
    if keys is not None and not isinstance(keys, Mapping):
        raise SpecError("must be a mapping of the keys it overrides", file=file, line=line, key=key)
    for name in OF_THE_FILE:
        if keys is not None and name in keys:
            line = document.place(("profiles", profile, name)).line
            raise SpecError("belongs to the file, not to a profile", file=file, line=line, key=f"{key}.{name}")


def _parent(documents: list[tuple[Path, Layer]], library: Library) -> Path | None:
    """The file that the last document extends, or None. Refuses cycles, naming the chain."""
    file, document = documents[-1]
    if "extends" not in document.tree:
        return None
    wanted, line = document.tree["extends"], document.place(("extends",)).line
    if not isinstance(wanted, str) or "/" in wanted or wanted.lower().endswith(".yaml"):
        raise SpecError(f"got {wanted!r}; allowed: the name of one experiment", file=file, line=line, key="extends")
    try:
        parent = library.find(wanted, beside=file.parent)
    except NotFoundError as error:
        raise SpecError(str(error), file=file, line=line, key="extends") from None
    if any(parent.resolve() == path.resolve() for path, _ in documents):
        chain = " -> ".join([*(path.stem for path, _ in documents), parent.stem])
        raise SpecError(f"a spec cannot extend itself: {chain}", file=file, line=line, key="extends")
    return parent


def _extend(parent: Layer, child: Layer) -> Layer:
    """The child on top of the parent, less what a child does not inherit."""
    inherited = parent.without(_NOT_INHERITED)
    if _task_name(child) not in (None, _task_name(inherited)):
        inherited = _without_tasks_of_profiles(inherited)  # they scale the parent's task, which is gone
    return merge(inherited, child)


def _task_name(layer: Layer) -> object:
    task = layer.tree.get("task")
    return task.get("name") if isinstance(task, Mapping) else None


def _without_tasks_of_profiles(layer: Layer) -> Layer:
    """The layer whose profiles say nothing of the task."""
    profiles = layer.tree.get("profiles", {})
    assert isinstance(profiles, Mapping)
    kept = {
        name: {key: value for key, value in keys.items() if key != "task"} if isinstance(keys, Mapping) else keys
        for name, keys in profiles.items()
    }
    gone = [path for path in layer.places if path[:1] == ("profiles",) and path[2:3] == ("task",)]
    places = {path: place for path, place in layer.places.items() if path not in gone}
    return replace(layer, tree={**layer.tree, "profiles": kept}, places=places) if profiles else layer


def anchored(layer: Layer) -> Layer:
    """The layer with the paths of its task, model and trainer (its profiles' too) absolute; `~` is the user's home.

    A path counts from the folder of the YAML file it stands in; where nothing is there and the current folder has it,
    from there. In an override it counts from the current folder.
    """

    def walk(node: object, at: Keys) -> object:
        if isinstance(node, Mapping):
            return {name: walk(below, (*at, name)) for name, below in node.items()}
        if isinstance(node, list):
            return [walk(below, (*at, index)) for index, below in enumerate(node)]
        if not isinstance(node, str) or not node:
            return node
        file = layer.place(at).file
        folder = Path.cwd() if file is None else file.absolute().parent
        return _absolute_value(at[2:] if at[:1] == ("profiles",) else at, node, folder)

    tree = walk({name: layer.tree[name] for name in ("task", "model", "trainer", "profiles") if name in layer.tree}, ())
    assert isinstance(tree, Mapping)
    return replace(layer, tree={name: tree.get(name, value) for name, value in layer.tree.items()})


def _absolute_value(keys: Keys, value: str, folder: Path) -> str:
    """The value at these keys, absolute where it is a path: a model's bare name may be one of the hub, and a function
    may be `package.module:length`.
    """
    match keys:
        case (
            ("task", "path" | "pictures")
            | ("task", "data" | "eval_data" | "test_data", "path")
            | ("task", "data", "query_embeddings" | "candidate_embeddings")
            | ("trainer", "accelerate_config")
        ):
            return _absolute(value, folder)
        case ("trainer", "args", name) if name in FILES and not value.startswith("{"):  # that is JSON itself
            return _absolute(value, folder)
        case (
            ("task", "rewards", int(), "function")
            | ("trainer", "args", "tools", int())
            | ("trainer", "args", "environment_factory" | "rollout_func")
        ):
            return _absolute_function(value, folder)
        case ("model", "source"):
            return _absolute(value, folder) if value.startswith(("./", "../", "~")) else value
    return value


def _absolute_function(reference: str, folder: Path) -> str:
    """A function's reference, its file absolute where it names one."""
    file, colon, name = reference.rpartition(":")
    return f"{_absolute(file, folder)}:{name}" if colon and is_file(file) else reference


def _absolute(path: str, folder: Path) -> str:
    """The path from `folder`, or from the current folder where only that has it."""
    there = os.path.normpath(folder / os.path.expanduser(path))
    here = os.path.abspath(os.path.expanduser(path))
    return here if not os.path.exists(there) and os.path.exists(here) else there


def is_file(place: str) -> bool:
    """Whether what stands before a function's colon is a file's path, and no module's name."""
    return place.startswith(_EXPLICIT) or place.endswith(".py") or "/" in place
