"""A new experiment of the user's own: YAML with a comment beside a value, where the file will stand, and putting it
there whole or not at all.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.errors import UserError
from grpoctl.config.authored import NAME
from grpoctl.config.library import Library, sweep_library
from grpoctl.config.resolved import block_yaml
from grpoctl.files import create_text, storage_errors

COMMENT_WIDTH = 112  # characters of a comment line
_INDENT = "  "
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_LOOKS_OTHERWISE = ("null", "true", "false")


def nested(flat: Mapping[str, object]) -> dict[str, Any]:
    """Dotted keys -> the tree they name."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *parts, last = key.split(".")
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = value
    return tree


def commented(tree: Mapping[str, Any], at: str, comments: Mapping[str, str], depth: int) -> list[str]:
    """The lines of a mapping; a part that has a comment of its own (by dotted key) stands on one line."""
    lines = []
    for key, value in tree.items():
        here = f"{at}.{key}" if at else key
        comment = f"  # {one_line(comments[here])}" if here in comments else ""
        start = f"{_INDENT * depth}{key}:"
        if isinstance(value, Mapping) and value and not comment:
            lines += [start, *commented(value, here, comments, depth + 1)]
        else:
            lines.append(f"{start} {_flow(value)}{comment}")
    return lines


def _flow(value: object) -> str:
    """The value on one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(below)}" for key, below in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _LOOKS_OTHERWISE
        return value if plain else json.dumps(value)
    return block_yaml({"x": value}).removeprefix("x:").strip()


def one_line(text: str) -> str:
    """The text on one line, nothing in it that ends a comment or drives a terminal."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def fact_lines(facts: Mapping[str, str], column: int) -> list[str]:
    """The lines of a comment, without its `#`, that say `label  text` of each fact, texts wrapped below that column."""
    lines: list[str] = []
    for label, text in facts.items():
        labelled = f"{label:<{column - 1}} {one_line(text)}"
        lines += textwrap.wrap(
            labelled, COMMENT_WIDTH, subsequent_indent=" " * column, break_long_words=False, break_on_hyphens=False
        )
    return lines


def new_file(name: str, library: Library) -> Path:
    """Where the experiment of this name will stand. Raises UserError where that is no name, or taken."""
    known = library.files()
    if name.lower() in known:
        file, origin = known[name.lower()]
        whose = "shipped with grpoctl" if origin == "shipped" else f"yours, {file}"
        raise UserError(f"there is an experiment {name.lower()} already ({whose}); choose another name")
    if name.lower() in sweep_library(library.user.parent).files():
        raise UserError(f"{name.lower()} is the name of a sweep; choose another name")
    if not NAME.fullmatch(name):
        raise UserError(f"got the name {name!r}; allowed: lower-case letters, digits, - and _ (at most 64)")
    return library.user / f"{name}.yaml"


def create(file: Path, text: str) -> None:
    """Write a new file whole or not at all. Raises UserError where there is one already, StorageError."""
    new_folder = not file.parent.exists()
    with storage_errors("create", file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not create_text(file, text):
            raise UserError(f"{file} is there already; choose another name")
    finally:
        if new_folder and not file.exists():
            with suppress(OSError):
                file.parent.rmdir()
