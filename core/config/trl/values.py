"""Which values `trainer.args` may have: each field that is passed on to TRL says what it takes, in words of this file.

TRL's configuration is a dataclass, which looks at no type: `vllm_server_port: many` ends the run minutes later, or
never. No TRL is imported here; tests compare the words with its annotations. What depends on two fields is here too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from core.config.trl.fields import FIELDS

# What GRPOTrainer itself is given by reference: `./tools.py:search`, `package.module:search`.
REFERENCES = {"tools": "references", "environment_factory": "reference", "rollout_func": "reference"}
_PLAIN = {
    "null": "null", "bool": "true or false", "text": "text", "texts": "a list of texts", "mapping": "a mapping",
    "file": "the path of a JSON file", "int": "a whole number", "number": "a number",
    "reference": "FILE.py:NAME or package.module:NAME", "references": "a list of FILE.py:NAME or package.module:NAME",
}  # fmt: skip

_TYPES = {"null": type(None), "bool": bool, "text": str, "file": str, "mapping": Mapping}

FILES = [field.name for field in FIELDS.values() if "file" in [kind.strip() for kind in field.takes.split(",")]]


def value_problem(name: str, value: Any) -> str | None:
    """What is wrong with the value of a field that is passed on: what was got and what is allowed; None if nothing."""
    takes = kinds(name)
    if any(_fits(kind, value) for kind in takes):
        return None
    return f"got {_shown(value)}; allowed: {' or '.join(words(name))}"


def kinds(name: str) -> list[str]:
    """The kinds of value that a field takes: `bool`, `int>=1`, `number 0..1`, `null`, or a word that is the value."""
    takes = REFERENCES.get(name) or FIELDS[name].takes
    return [kind.strip() for kind in takes.split(",")]


def words(name: str) -> list[str]:
    """The same for people, words that are values together: `server, colocate`, `a whole number >= 1`, `null`."""
    said, values = [], []
    for kind in kinds(name):
        plain, low, high = _bounded(kind)
        if plain not in _PLAIN:
            values.append(kind)
            continue
        bounds = f" {low:g} to {high:g}" if high < math.inf else f" >= {low:g}" if low > -math.inf else ""
        said.append(f"{_PLAIN[plain]}{bounds}")
    return [*([", ".join(values)] if values else []), *said]


def _bounded(kind: str) -> tuple[str, float, float]:
    """(kind, least, most) of `int>=1` and `number 0..1`."""
    plain, _, least = kind.partition(">=")
    if least:
        return plain, float(least), math.inf
    plain, _, bounds = kind.partition(" ")
    low, _, high = bounds.partition("..")
    return (plain, float(low), float(high)) if high else (kind, -math.inf, math.inf)


def _fits(kind: str, value: Any) -> bool:
    plain, low, high = _bounded(kind)
    match plain:
        case "int" | "number":
            allowed = isinstance(value, int if plain == "int" else (int, float)) and not isinstance(value, bool)
            return allowed and low <= value <= high
        case "texts" | "references":
            return isinstance(value, list) and all(_fits(plain.removesuffix("s"), one) for one in value)
        case "reference":
            return isinstance(value, str) and all(value.rpartition(":")[::2])
        case _:
            return isinstance(value, _TYPES[plain]) if plain in _TYPES else bool(value == kind)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."


def combination_problems(args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, problem) of each value that TRL, or torch, refuses beside the others."""
    workers = args.get("dataloader_num_workers", 0)
    for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
        if args.get(name) and not workers:
            yield name, f"got {_shown(args[name])} and no workers; set dataloader_num_workers, or leave it out"
    low, high = (
        args.get(f"vllm_importance_sampling_clip_{end}", default) for end, default in (("min", None), ("max", 3.0))
    )
    if low is not None and high is not None and low >= high:
        yield "vllm_importance_sampling_clip_min", f"got {low:g}; allowed: less than clip_max, {high:g}"
    truncates = str(args.get("vllm_importance_sampling_mode")).endswith("_truncate")
    if truncates and low is None and high is None:
        yield "vllm_importance_sampling_clip_max", "got null, and the mode truncates; give a number"
