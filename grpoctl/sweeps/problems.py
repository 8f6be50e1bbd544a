"""A pydantic error about a sweep -> one SpecError: file, line, key, what was got, what is allowed, the nearest key."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from core.errors import SpecError
from grpoctl.specs.layers import Keys, Layer, dotted
from grpoctl.specs.problems import got
from grpoctl.specs.schema import MISSING, Field, allowed, choices
from grpoctl.sweeps.spec import PRUNERS, SweepSpec

ANY = "*"  # stands for a key that is free: an axis, a candidate; and for a place in a list
RESOLVED = ("profile", "bases")  # written by grpoctl, never by hand

_VALUES = "a mapping of keys of the experiment to values"
_NAME = "letters, digits, ., +, - and _ (at most 64)"
_WORDS = {  # where the models cannot say it
    "settings": _VALUES,
    "axes": "a mapping of keys of the experiment to lists or ranges",
    "axes.*": "a list of values, or a mapping with values, or with low and high",
    "axes.*.values": "a list of values",
    "axes.*.when": "a mapping of axes to the values at which this one takes part",
    "candidates": "a mapping of names to settings",
    "candidates.*": _VALUES,
    "ladder.*.name": _NAME,
    "ladder.*.settings": _VALUES,
    "pruner": f"one of {', '.join(PRUNERS)}, or a mapping with name and its options",
    "metric": "a metric that a run reaches",
    **dict.fromkeys(("axes.*.low", "axes.*.high", "axes.*.step"), "a number"),
}
# what other tools call our keys; named in messages, never accepted
_ELSEWHERE = {
    "axes": "parameters params search_space space grid hyperparameters",
    "trials": "n_trials num_trials num_samples run_cap max_trials count",
    "sampler": "method algorithm search_alg searcher",
    "metric": "objective monitor target",
    "direction": "goal mode",
    "max_hours": "timeout max_time time_budget",
    "pruner": "early_terminate scheduler",
    "experiment": "base extends program spec",
    "settings": "overrides fixed constants",
    "seeds": "n_seeds num_seeds repeats",
    "study_seed": "seed sampler_seed",
    "low": "min lower",
    "high": "max upper",
    "values": "choices categories",
    "when": "if condition conditions",
    "warmup": "n_warmup_steps warmup_steps grace_period",
    "min_trials": "n_startup_trials n_min_trials",
    "reduction": "eta reduction_factor",
    "generation_batch_size": "batch_size rollout_batch_size",
}
ALIASES = {theirs: ours for ours, names in _ELSEWHERE.items() for theirs in names.split()}


def fields() -> dict[Keys, Field]:
    """Every key that a sweep's file may have; `*` where the key is the user's. `profiles` is left out."""
    found: dict[Keys, Field] = {}
    _walk(SweepSpec, (), found)
    return {path: field for path, field in found.items() if path[0] not in RESOLVED}


def _walk(model: type[BaseModel], at: Keys, found: dict[Keys, Field]) -> None:
    for name, info in model.model_fields.items():
        default = MISSING if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
        found[(*at, name)] = Field(annotation=info.annotation, metadata=tuple(info.metadata), default=default)
        for part, many in _parts(info.annotation):
            _walk(part, (*at, name, ANY) if many else (*at, name), found)


def _parts(annotation: Any, many: bool = False) -> list[tuple[type[BaseModel], bool]]:
    """(model, whether there are several of it) for each model inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(annotation, many)]
    several = many or get_origin(annotation) in (dict, tuple)
    return [found for part in get_args(annotation) for found in _parts(part, several)]


def sweep_error(error: ValidationError, layer: Layer) -> SpecError:
    """The first problem, an unknown key before all others, and how many more there are."""
    first: dict[Keys, SpecError] = {}
    for item in sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden"):
        keys = _keys(item, layer.tree)
        first.setdefault(keys, refused(_what(item, keys, layer.tree), keys, layer))
    chosen, *others = first.values()
    if not others:
        return chosen
    more = f" (and {len(others)} more problem{'s' if len(others) > 1 else ''})"
    return SpecError(chosen.message + more, file=chosen.file, line=chosen.line, key=chosen.key)


def refused(message: str, keys: Keys, layer: Layer) -> SpecError:
    """The error about the value at `keys`, with its place."""
    place = layer.place(keys)
    said = f" ({place.said})" if place.said else ""
    return SpecError(message + said, file=place.file, line=place.line, key=dotted(keys) or None)


def _keys(item: Any, tree: Mapping[str, object]) -> Keys:
    """The key at fault: pydantic's location, cut where the document ends."""
    raw: list[str | int] = [key for key in item["loc"] if key != "[key]"]
    if item["type"] == "cross_field":
        raw.extend(_words(item["ctx"]["key"], raw, tree))
    node: object = tree
    for length, key in enumerate(raw):
        if isinstance(node, Mapping) and isinstance(key, str) and (key in node or length == len(raw) - 1):
            node = node.get(key)
        elif isinstance(node, (list, tuple)) and isinstance(key, int) and key < len(node):
            node = node[key]
        else:
            return tuple(raw[:length])
    return tuple(raw)


def _words(key: str, raw: list[str | int], tree: Mapping[str, object]) -> list[str]:
    """The words of a check's key. An axis' own key has dots in it and stays one word."""
    first, _, rest = key.partition(".")
    axes = tree.get("axes")
    for axis in axes if first == "axes" and not raw and isinstance(axes, Mapping) else ():
        if rest == axis or rest.startswith(f"{axis}."):
            return [first, str(axis), *rest[len(str(axis)) + 1 :].split(".")] if rest != axis else [first, str(axis)]
    return key.split(".")


def _what(item: Any, keys: Keys, tree: Mapping[str, object]) -> str:
    kind = item["type"]
    if kind == "extra_forbidden":
        return f"unknown key; {hint(keys)}"
    if kind in ("cross_field", "value_error"):
        return str(item["ctx"].get("problem") or item["ctx"]["error"])
    if "[key]" in item["loc"]:
        return f"got the name {keys[-1]!r}; allowed: {_NAME}"
    if kind == "missing":
        return f"is missing; allowed: {words(keys)}"
    value = _value(keys, tree)
    near = difflib.get_close_matches(value.lower(), choices(_field(keys)), n=1) if isinstance(value, str) else []
    return f"{got(value)}; allowed: {words(keys)}{f'; did you mean {near[0]}?' if near else ''}"


def words(keys: Keys) -> str:
    """What a key, or the nearest known one around it, may hold."""
    pattern, known = _pattern(keys), fields()
    while pattern:
        if (said := _WORDS.get(dotted(pattern))) is not None:
            return said
        if pattern in known:
            return allowed(known[pattern])
        pattern = pattern[:-1]
    return "a mapping"


def hint(keys: Keys) -> str:
    """What an unknown key was probably meant to be, else what is known at its place."""
    pattern, name = _pattern(keys[:-1]), str(keys[-1]).lower().replace("-", "_")
    beside = [str(path[-1]) for path in fields() if _pattern(path[:-1]) == pattern and path[-1] != ANY]
    beside += ["profiles"] if not pattern else []
    everywhere = [str(path[-1]) for path in fields()]
    name = ALIASES.get(name, name)
    for known in (beside, everywhere):
        near = [name] if name in known else difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        if near:
            path = next(path for path in [*((*pattern, key) for key in beside), *fields()] if path[-1] == near[0])
            shown = (*keys[:-1], near[0]) if known is beside else tuple("NAME" if k == ANY else k for k in path)
            return f"did you mean {dotted(shown)}?"
    return f"known here: {', '.join(beside)}"


def _pattern(keys: Keys) -> Keys:
    """The keys as `fields` has them."""
    return tuple(
        ANY if index == 1 and keys[0] in ("axes", "candidates", "ladder") else k for index, k in enumerate(keys)
    )


def _field(keys: Keys) -> Field:
    known, pattern = fields(), _pattern(keys)
    return next(known[pattern[:n]] for n in range(len(pattern), 0, -1) if pattern[:n] in known)


def _value(keys: Keys, tree: object) -> object:
    for key in keys:
        if isinstance(tree, Mapping):
            tree = tree.get(str(key))
        elif isinstance(tree, (list, tuple)) and isinstance(key, int):
            tree = tree[key]
    return tree
