"""The keys of a sweep's document, what each may hold, and what an unknown one was meant to be: for its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from core.errors import SpecError
from grpoctl.config.layers import Keys, Layer, dotted
from grpoctl.config.problems import Tree, explain, nearest
from grpoctl.config.schema import MISSING, Field, allowed, choices
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
    return {path: field for path, field in _fields_of(SweepSpec, ()) if path[0] not in RESOLVED}


def _fields_of(model: type[BaseModel], at: Keys) -> Iterator[tuple[Keys, Field]]:
    """(keys, field) of a model and of the models inside it."""
    for name, info in model.model_fields.items():
        default = MISSING if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
        yield (*at, name), Field(annotation=info.annotation, metadata=tuple(info.metadata), default=default)
        for part, many in _parts(info.annotation):
            yield from _fields_of(part, (*at, name, ANY) if many else (*at, name))


def _parts(annotation: Any, many: bool = False) -> list[tuple[type[BaseModel], bool]]:
    """(model, True where there are several of it) for each model inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(annotation, many)]
    several = many or get_origin(annotation) in (dict, tuple)
    return [model for part in get_args(annotation) for model in _parts(part, several)]


class SweepGrammar:
    """The keys of a sweep's document; what the models cannot say of them is in `_WORDS`."""

    def location(self, item: Any, tree: Tree) -> list[str | int]:
        """Pydantic's location; the key that a check of several names."""
        raw: list[str | int] = [key for key in item["loc"] if key != "[key]"]
        if item["type"] == "cross_field":
            raw.extend(_check_key(item["ctx"]["key"], raw, tree))
        return raw

    def knows(self, keys: Keys, tree: Tree) -> bool:
        """True for a key that the models have."""
        return _pattern(keys) in fields()

    def hint(self, keys: Keys, tree: Tree) -> str:
        """By its place, its spelling, or its name elsewhere."""
        return _hint(keys)

    def allowed(self, keys: Keys, tree: Tree) -> str:
        """As `words` has it."""
        return words(keys)

    def allowed_name(self, keys: Keys, tree: Tree) -> str:
        """A candidate's name."""
        return _NAME

    def choices(self, keys: Keys, tree: Tree) -> Sequence[str]:
        """The values of its Literal."""
        known, pattern = fields(), _pattern(keys)
        return choices(next(known[pattern[:n]] for n in range(len(pattern), 0, -1) if pattern[:n] in known))


def sweep_error(error: ValidationError, layer: Layer) -> SpecError:
    """What is wrong with a sweep's document."""
    return explain(error, layer, SweepGrammar())


def _check_key(key: str, raw: list[str | int], tree: Mapping[str, object]) -> list[str]:
    """The words of a check's key. An axis' own key has dots in it and stays one word."""
    first, _, rest = key.partition(".")
    axes = tree.get("axes")
    for axis in axes if first == "axes" and not raw and isinstance(axes, Mapping) else ():
        if rest == axis or rest.startswith(f"{axis}."):
            return [first, str(axis), *rest[len(str(axis)) + 1 :].split(".")] if rest != axis else [first, str(axis)]
    return key.split(".")


def words(keys: Keys) -> str:
    """What a key, or the nearest known one around it, may hold."""
    pattern, known = _pattern(keys), fields()
    while pattern:
        if (meaning := _WORDS.get(dotted(pattern))) is not None:
            return meaning
        if pattern in known:
            return allowed(known[pattern])
        pattern = pattern[:-1]
    return "a mapping"


def _hint(keys: Keys) -> str:
    """What an unknown key was probably meant to be, else what is known at its place."""
    pattern = _pattern(keys[:-1])
    known = {**fields(), ("profiles",): Field(annotation=dict)}
    path = nearest((*pattern, keys[-1]), known, ALIASES)
    if path is None:
        return f"known here: {', '.join(str(path[-1]) for path in known if path[:-1] == pattern)}"
    beside = path[:-1] == pattern
    shown = (*keys[:-1], path[-1]) if beside else tuple("NAME" if key == ANY else key for key in path)
    return f"did you mean {dotted(shown)}?"


def with_near_key(message: str, keys: Keys) -> str:
    """What an experiment says of an unknown key, and the sweep's key that is like it: an override can mean either."""
    own = nearest(keys, {path: field for path, field in fields().items() if ANY not in path}, ALIASES)
    if own is None or not message.startswith("unknown key"):
        return message
    first, mark, _ = message.partition("?")
    if not mark or first.endswith(f" {dotted(own)}"):
        return f"unknown key; did you mean {dotted(own)}?"
    return f"{first}, or {dotted(own)} of the sweep?"


def _pattern(keys: Keys) -> Keys:
    """The keys as `fields` has them."""
    return tuple(
        ANY if index == 1 and keys[0] in ("axes", "candidates", "ladder") else k for index, k in enumerate(keys)
    )
