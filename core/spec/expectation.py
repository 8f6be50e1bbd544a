"""What an experiment expects to see: `metric op value`, e.g. `collapse_rate < 0.05`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator

from core.metrics import declared, unknown_metric

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"^\s*(?P<metric>[\w/.-]+)\s*(?P<op>>=|<=|>|<)\s*(?P<value>\S+)\s*$")


def _check(text: str) -> str:
    """The expectation in canonical spacing; ValueError says what is wrong with it."""
    name, op, value = parse(text)
    return f"{name} {op} {repr(value).removesuffix('.0')}"  # not :g, which rounds to six digits


Expectation = Annotated[str, AfterValidator(_check)]


def parse(text: str) -> tuple[str, str, float]:
    """(metric, operator, value) of an expectation. Raises ValueError naming the nearest known metric."""
    match = _FORM.match(text)
    if match is None:
        raise ValueError(f"got {text!r}, expected 'metric op value' with op one of > >= < <=, e.g. 'eval/reward > 0.5'")
    name, op = match["metric"], match["op"]
    if declared(name) is None:
        raise ValueError(f"unknown metric {name!r}; {unknown_metric(name)}")
    try:
        value = float(match["value"])
    except ValueError:
        raise ValueError(f"got {match['value']!r} where a number belongs in {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"got {match['value']!r}, a finite number belongs in {text!r}")
    return name, op, value


def holds(text: str, observed: float) -> bool:
    """Whether the observed value meets the expectation."""
    _, op, value = parse(text)
    return _OPERATORS[op](observed, value)
