"""Relative paths in a spec -> absolute ones, so that a run means the same files wherever it is resumed from.

A path counts from the folder of the YAML file it stands in; where nothing is there and the current folder has it, from
there. In an override it counts from the current folder. Not here: whether the files are any good (core.tasks.custom).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from grpoctl.config.layers import Keys, Layer

_DATA = ("data", "eval_data", "test_data")
_EXPLICIT = ("./", "../", "~", "/")


def anchored(layer: Layer) -> Layer:
    """The layer with the paths of its task (its profiles' tasks too) absolute; `~` is the user's home."""

    def walk(node: object, at: Keys) -> object:
        if isinstance(node, Mapping):
            return {name: walk(below, (*at, name)) for name, below in node.items()}
        if isinstance(node, list):
            return [walk(below, (*at, index)) for index, below in enumerate(node)]
        change = _change(at[2:] if at[:1] == ("profiles",) else at)
        if change is None or not isinstance(node, str) or not node:
            return node
        file = layer.place(at).file
        return change(node, Path.cwd() if file is None else file.absolute().parent)

    tree = walk({name: layer.tree[name] for name in ("task", "model", "profiles") if name in layer.tree}, ())
    assert isinstance(tree, Mapping)
    return replace(layer, tree={name: tree.get(name, value) for name, value in layer.tree.items()})


def absolute(path: str, folder: Path) -> str:
    """The path from `folder`, or from the current folder where only that has it."""
    there = os.path.normpath(folder / os.path.expanduser(path))
    here = os.path.abspath(os.path.expanduser(path))
    return here if not os.path.exists(there) and os.path.exists(here) else there


def _change(keys: Keys) -> Callable[[str, Path], str] | None:
    """What to do with the value at these keys; None where it is no path."""
    match keys:
        case ("task", "path"):
            return absolute
        case ("task", data, "path") if data in _DATA:
            return absolute
        case ("task", "rewards", int(), "function"):
            return _function
        case ("model", "source"):
            return _source
    return None


def _function(function: str, folder: Path) -> str:
    """`./rewards.py:length` with the file absolute; `package.module:length` as it is."""
    file, colon, name = function.rpartition(":")
    return f"{absolute(file, folder)}:{name}" if colon and is_file(file) else function


def is_file(place: str) -> bool:
    """Whether what stands before the colon is a file's path, and no module's name."""
    return place.startswith(_EXPLICIT) or place.endswith(".py") or "/" in place


def _source(source: str, folder: Path) -> str:
    """A model's folder or file that is written as a path; a bare name may be one of the hub."""
    return absolute(source, folder) if source.startswith(("./", "../", "~")) else source
