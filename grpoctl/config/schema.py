"""What keys a RunSpec has, and what each allows, in words: read off the pydantic models, never written down twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from core.config import ModelSpec, RunSpec, Schedule
from core.config.policy import LM, PolicyConfig, policy_config, policy_kinds
from core.config.stage import kind_of
from core.config.task import TaskConfig, task_config, task_names
from core.errors import SpecError
from grpoctl.config.layers import Keys

MISSING: Final = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One key: its type, the constraints on it, its default (MISSING where it must be set), the task it belongs to."""

    annotation: Any
    metadata: tuple[Any, ...] = ()
    default: Any = MISSING
    task: str | None = None


def fields(tree: Mapping[str, object], *, all_tasks: bool = False) -> dict[Keys, Field]:
    """Every key that a document like `tree` may have, by path: its stages' names, its task and its policy decide.

    Optional parts (`model.lora`, `early_stopping`) are included whether they are set or not.
    """
    task, policy, stages = (tree.get(key) for key in ("task", "policy", "stages"))
    name = task.get("name") if isinstance(task, Mapping) else None
    policy_kind = policy.get("kind") if isinstance(policy, Mapping) else None
    there = stages.items() if isinstance(stages, Mapping) else ()
    kinds = tuple((str(stage), _kind(below)) for stage, below in there if below is not None)  # null took it away
    known = name if isinstance(name, str) and not all_tasks else None
    return dict(_fields(known, policy_kind if isinstance(policy_kind, str) else LM, kinds or (("grpo", "grpo"),)))


def item_fields(tree: Mapping[str, object], keys: Keys) -> dict[Keys, Field]:
    """Every key of the list's item that `keys` lead into (`task.rewards[1].weight`); none where they lead into none."""
    at = next((place for place, key in enumerate(keys) if isinstance(key, int)), None)
    owner = fields(tree).get(keys[:at]) if at is not None else None
    known: dict[Keys, Field] = {}
    if owner is not None and at is not None and get_origin(owner.annotation) is tuple:
        for part in _models(get_args(owner.annotation)[0]):
            _walk(part, keys[: at + 1], {"task": None, "stages": {}}, known)
    return known


@lru_cache(maxsize=64)  # a sweep asks for the same ones at each of its points
def _fields(task: str | None, policy: str, stages: tuple[tuple[str, str], ...]) -> dict[Keys, Field]:
    known: dict[Keys, Field] = {}
    _walk(RunSpec, (), {"task": task, "stages": dict(stages)}, known)
    if policy == LM:  # which needs one, and no other policy has any
        known[("model",)] = Field(annotation=ModelSpec)
    else:
        known = {key: field for key, field in known.items() if key[:1] != ("model",) or len(key) == 1}
    for path, config in ((("policy",), _added(policy_config, policy)), (("task",), _added(task_config, task))):
        if config is not None:
            for key in [key for key in known if key[:1] == path and len(key) > 1]:
                del known[key]
            _walk(config, path, {"task": task, "stages": {}}, known)
    return known


def _added(config_of: Callable[[str], type[BaseModel] | None], name: str | None) -> type[BaseModel] | None:
    """The class of settings of this name; None where it has none, or cannot be imported: the spec's check says why."""
    with suppress(SpecError):
        return None if name is None else config_of(name)
    return None


def _walk(model: type[BaseModel], at: Keys, choice: Mapping[str, Any], known: dict[Keys, Field]) -> None:
    task = task_of(model)
    for name, info in model.model_fields.items():
        path = (*at, name)
        default = MISSING if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
        known.setdefault(
            path, Field(annotation=info.annotation, metadata=tuple(info.metadata), default=default, task=task)
        )
        variants = _models(info.annotation)
        if info.discriminator is not None and any(task_of(part) == choice["task"] for part in variants):
            variants = [part for part in variants if task_of(part) == choice["task"]]
        if get_origin(info.annotation) is dict and variants:
            if stage_kind(variants[0]) is None:
                continue  # its keys are the user's own
            for stage, kind in choice["stages"].items():
                part = next((part for part in variants if stage_kind(part) == kind), variants[0])
                known[(*path, stage)] = Field(annotation=part)
                _walk(part, (*path, stage), choice, known)
            continue
        for part in variants:
            _walk(part, path, choice, known)


def task_of(model: type[BaseModel]) -> str | None:
    """The value of `name` by which a task's model is told apart; None for a model that is no task."""
    return _tag(model, "name")


def stage_kind(model: type[BaseModel]) -> str | None:
    """The value of `kind` by which a stage's model is told apart; None for a model that is no stage."""
    return _tag(model, "kind")


def stage_kinds() -> list[str]:
    """The kinds of stage there are."""
    return [kind for model in _models(RunSpec.model_fields["stages"].annotation) if (kind := stage_kind(model))]


def _kind(stage: object) -> str:
    kind = kind_of(dict(stage)) if isinstance(stage, Mapping) else "grpo"
    return kind if kind in stage_kinds() else "grpo"


def _tag(model: type[BaseModel], key: str) -> str | None:
    info = model.model_fields.get(key)
    if info is not None and get_origin(info.annotation) is Literal:
        return str(get_args(info.annotation)[0])
    return None


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside an annotation: itself, the members of a union, or a mapping's values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, UnionType, Annotated, dict):
        return [model for part in get_args(annotation) for model in _models(part)]
    return []


def allowed(field: Field) -> str:
    """What a key may hold, in words: `a number > 0`, `one of cosine, constant`, `true or false`."""
    return _words(field.annotation, field.metadata)


def choices(field: Field) -> list[str]:
    """The texts that a key, or an item of its list, is chosen from; none where it is not such a key."""
    annotation = get_args(field.annotation)[0] if get_origin(field.annotation) is tuple else field.annotation
    return [str(part) for part in get_args(annotation)] if get_origin(annotation) is Literal else []


def item_of(field: Field) -> Field:
    """What an item of a list may be; of anything else the field itself."""
    return Field(annotation=get_args(field.annotation)[0]) if get_origin(field.annotation) is tuple else field


def keys_of(field: Field) -> Field:
    """What the free keys of a mapping may be."""
    return Field(annotation=get_args(field.annotation)[0])


def has_free_keys(field: Field) -> bool:
    """True where a key holds a mapping whose own keys are the user's (domains, recorded, loss_weights), not stages."""
    return get_origin(field.annotation) is dict and not any(stage_kind(model) for model in _models(field.annotation))


_SCALARS = {int: "an integer", float: "a number", str: "text", bool: "true or false", Any: "a value"}


def _words(annotation: Any, metadata: tuple[Any, ...]) -> str:
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = [item for extra in parts[1:] for item in (extra.metadata if isinstance(extra, FieldInfo) else [extra])]
        return _words(parts[0], (*inner, *metadata))
    if parts:
        return _compound_words(annotation, metadata)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _mapping_words(annotation, positive=any(isinstance(item, AfterValidator) for item in metadata))
    if any(hasattr(item, "pattern") for item in metadata):
        return "a name of lower-case letters, digits, - and _ (at most 64)"
    if annotation is str and any(getattr(item, "min_length", 0) for item in metadata):
        return "text that is not empty"
    return _SCALARS.get(annotation, str(annotation)) + _bounds(metadata)


def _compound_words(annotation: Any, metadata: tuple[Any, ...]) -> str:
    """The words for a union, a choice, a list or a mapping of values."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}" if len(parts) > 1 else str(parts[0])
    some = "non-empty " if any(getattr(item, "min_length", 0) for item in metadata) else ""
    if origin is tuple:
        return f"a {some}list of {_words(parts[0], ())}"
    if origin is dict:
        keys = _words(parts[0], ()).removeprefix("a ")
        stages = any(stage_kind(model) for model in _models(parts[1]))
        return "a mapping" if stages else f"a {some}mapping of {keys} to {_words(parts[1], ())}"
    words = [_words(part, metadata) for part in parts if part is not NoneType]
    return ", or ".join(dict.fromkeys([*words, *(["null"] if NoneType in parts else [])]))


def _mapping_words(model: type[BaseModel], *, positive: bool) -> str:
    if model is Schedule:
        return f"a number {'>' if positive else '>='} 0, or a mapping with start, end and steps"
    if issubclass(model, PolicyConfig):
        return f"a mapping that names its kind (kind: {' or '.join(policy_kinds())})"
    if issubclass(model, TaskConfig):
        return f"a mapping that names its task (name: {' or '.join(task_names())})"
    names = list(model.model_fields)
    return f"a mapping with {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"


def _bounds(metadata: tuple[Any, ...]) -> str:
    """` > 0 and <= 1`, ` >= 16 and a multiple of 8`, from annotated-types' constraints."""
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "multiple_of": "a multiple of"}
    limits = [
        f"{sign} {getattr(item, name)}" for item in metadata for name, sign in signs.items() if hasattr(item, name)
    ]
    return (" " + " and ".join(limits)) if limits else ""
