"""Inert knobs: settings that cannot change what their run does, whatever a sweep makes of them.

`inert` lists those a spec sets; `inert_axis` and `inert_in_all` answer for one key, also where it is at its default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from core.config import METHODS, RunSpec
from core.health.foresight import advantage_knobs, other_knobs, ratio_knobs
from core.health.foresight.knob import Inert, Rule, Why
from core.health.foresight.view import StageView, views

RULES: Mapping[str, Rule] = {**ratio_knobs.RULES, **advantage_knobs.RULES, **other_knobs.RULES}
SWEPT = ("epsilon", "kl_estimator")  # people sweep these: named although they are at their default
QUIET = ("gradient_accumulation_steps",)  # no mistake to set: it is for memory


def inert(spec: RunSpec) -> list[Inert]:
    """The knobs that do nothing in this spec: those set away from their default or by a method, and those of SWEPT."""
    found = []
    for view in views(spec):
        for key in _settable(view):
            if (why := _why(view, key)) is not None:
                value = _value(view, key)
                found.append(
                    Inert(
                        key=f"stages.{view.name}.{key}", value=value, reason=why.reason, acts=why.acts, exact=why.exact
                    )
                )
    return found + _run_level(spec)


def inert_axis(spec: RunSpec, key: str) -> str | None:
    """Why a sweep over the dotted key (`stages.grpo.epsilon`) compares nothing, at every value; None where it may.

    What depends on the value itself (a clip above the largest advantage) is not said here: `inert_in_all` asks.
    """
    found = _of_axis(spec, key)
    return found.reason if found is not None and found.any_value else None


def inert_in_all(specs: Sequence[RunSpec], key: str) -> str | None:
    """Why the dotted key does nothing in any of these specs, a sweep's points; None where it acts in one.

    A point at which the knob is off (None) says nothing against it, unless all are.
    """
    on = [spec for spec in specs if _present(spec, key)] or specs
    found = [_of_axis(spec, key) for spec in on]
    return found[0].reason if found and found[0] is not None and None not in found else None


def _of_axis(spec: RunSpec, key: str) -> Why | None:
    place, _, rest = key.partition(".")
    if place == "early_stopping":
        return _run_stops(spec)
    name, _, rest = rest.partition(".")
    view = next((view for view in views(spec) if view.name == name), None)
    return None if place != "stages" or view is None else _why(view, rest)


def _why(view: StageView, key: str) -> Why | None:
    """The rule of the key, or of the part it belongs to (`epsilon.start` is `epsilon`)."""
    words = key.split(".")
    for count in range(1, len(words) + 1):
        part = ".".join(words[:count])
        if part in other_knobs.POLICY_KEYS and (why := other_knobs.policy_off(view)) is not None:
            return why
        if part in RULES and (why := RULES[part](view)) is not None:
            return why
    return None


def _settable(view: StageView) -> Iterator[str]:
    """The rules' keys that this stage sets away from their default or by its method, or that are in SWEPT."""
    method = METHODS[view.grpo.method].axes if view.grpo else {}
    for key in RULES:
        if key in QUIET or _value(view, key) is None:
            continue
        by_method = _inside(method, key)
        if by_method or (key in SWEPT and view.grpo) or _value(view, key) != _default(type(view.stage), key):
            yield key


def _inside(axes: Mapping[str, Any], key: str) -> bool:
    first, _, rest = key.partition(".")
    below = axes.get(first)
    return first in axes and (not rest or (isinstance(below, Mapping) and rest in below))


def _value(view: StageView, key: str) -> Any:
    """The setting as one writes it: a schedule that never moves as its number."""
    value = view.get(key)
    return value.model_dump() if isinstance(value, BaseModel) else value


def _default(part: type[BaseModel], key: str) -> Any:
    """The default of a key, through defaults of the parts above it; None where it has none."""
    first, _, rest = key.partition(".")
    default = part.model_fields[first].get_default() if first in part.model_fields else None
    for word in rest.split(".") if rest else ():
        default = getattr(default, word, None)
    return default.model_dump() if isinstance(default, BaseModel) else default


def _present(spec: RunSpec, key: str) -> bool:
    value: Any = spec
    for word in key.split("."):
        value = value.get(word) if isinstance(value, Mapping) else getattr(value, word, None)
    return value is not None


def _run_stops(spec: RunSpec) -> Why | None:
    """Early stopping of the whole run, by the evaluations of the whole run."""
    if spec.early_stopping is None:
        return None
    seen = (spec.max_steps - 1) // spec.evaluation.eval_steps + 1
    if seen > spec.early_stopping.patience:
        return None
    return Why(
        reason=f"fewer than patience + 1 evaluations before the run's last step (at most {seen})",
        acts="a smaller evaluation.eval_steps or patience",
        any_value=seen <= 1,
    )


def _run_level(spec: RunSpec) -> list[Inert]:
    why = _run_stops(spec)
    if why is None or spec.early_stopping is None:
        return []
    value = spec.early_stopping.model_dump()
    return [Inert(key="early_stopping", value=value, reason=why.reason, acts=why.acts, exact=True)]
