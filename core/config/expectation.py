"""What an experiment expects to see.

`metric op value`, e.g. `collapse_rate < 0.05`, of the value at the end; `metric gain op value` of the change over the
whole run, and `metric gain of stage op value` over one stage. `metric trend op value` (`of stage` too) is the change of
the straight line through all steps of it. A gain and a trend are met where their 95 % interval lies on that side.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from core.metrics import declared, unknown_metric

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(
    r"^\s*(?P<metric>[\w/.-]+)(?P<change>\s+(?:gain|trend)(?:\s+of\s+(?P<stage>[a-z0-9][a-z0-9_-]*))?)?"
    r"\s*(?P<op>>=|<=|>|<)\s*(?P<value>\S+)\s*$"
)
OF_A_GAIN = "eval/reward"  # the metric whose noise is recorded with it


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """An expectation taken apart. `stage` is None for the whole run, and where neither gain nor trend is meant."""

    metric: str
    op: str
    value: float
    gain: bool = False
    trend: bool = False
    stage: str | None = None

    def __str__(self) -> str:
        """In canonical spacing."""
        change = " gain" if self.gain else " trend" if self.trend else ""
        of = "" if self.stage is None else f" of {self.stage}"
        return f"{self.metric}{change}{of} {self.op} {repr(self.value).removesuffix('.0')}"  # not :g, which rounds

    def holds(self, observed: float) -> bool:
        """True where the observed value is on the right side."""
        return _OPERATORS[self.op](observed, self.value)

    def holds_for(self, interval: tuple[float, float]) -> bool:
        """True where the whole interval is on the right side, its ends not counted in."""
        low, high = interval
        return low > self.value if self.op in (">", ">=") else high < self.value


Expectation = Annotated[str, AfterValidator(lambda text: str(parse(text)))]


def parse(text: str) -> Parsed:
    """The expectation taken apart. Raises ValueError naming the nearest known metric."""
    match = _FORM.match(text)
    if match is None:
        raise ValueError(
            f"got {text!r}, expected 'metric op value' with op one of > >= < <=, e.g. 'collapse_rate < 0.05', or "
            f"'{OF_A_GAIN} gain > 0', or '{OF_A_GAIN} gain of STAGE > 0', or 'loss trend of STAGE < 0'"
        )
    name = match["metric"]
    if declared(name) is None:
        raise ValueError(f"unknown metric {name!r}; {unknown_metric(name)}")
    words = (match["change"] or "").split()
    gain, trend = words[:1] == ["gain"], words[:1] == ["trend"]
    if gain and name != OF_A_GAIN:
        raise ValueError(f"got a gain of {name}; allowed: of {OF_A_GAIN}, whose noise is known")
    try:
        value = float(match["value"])
    except ValueError:
        raise ValueError(f"got {match['value']!r} where a number belongs in {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"got {match['value']!r}, a finite number belongs in {text!r}")
    return Parsed(metric=name, op=match["op"], value=value, gain=gain, trend=trend, stage=match["stage"])
