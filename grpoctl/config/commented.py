"""YAML with a comment beside a value: for specs that grpoctl writes and people read and change. Pure text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from grpoctl.config.resolved import block_yaml

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


def commented(tree: Mapping[str, Any], at: str, said: Mapping[str, str], depth: int) -> list[str]:
    """The lines of a mapping; a part that has a comment of its own (`said`, by dotted key) stands on one line."""
    lines = []
    for key, value in tree.items():
        here = f"{at}.{key}" if at else key
        comment = f"  # {one_line(said[here])}" if here in said else ""
        start = f"{_INDENT * depth}{key}:"
        if isinstance(value, Mapping) and value and not comment:
            lines += [start, *commented(value, here, said, depth + 1)]
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
