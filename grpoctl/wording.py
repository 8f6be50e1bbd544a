"""Numbers and settings as people read them. Where they are printed is not here (grpoctl.console)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.metrics import declared

BEST = "best/"  # prefix of a metric's best value over the run; without it, the final one

_WHOLE = frozenset({"steps", "updates", "completions"})
_ROUNDING = 1e-12  # what is smaller is left over from subtracting equal numbers


def metric_text(name: str, value: float | None) -> str:
    """A metric's value in three decimals, counts whole, small ones in two digits; "-" where it is missing."""
    if value is None:
        return "-"
    value = 0.0 if abs(value) <= _ROUNDING else value  # and no -0
    metric = declared(name.removeprefix(BEST))
    if name in _WHOLE or (metric is not None and metric.unit == "count"):
        return f"{value:.0f}" if value == round(value) else f"{value:.1f}"
    if name == "seconds":
        return f"{value:.1f}"
    if 0 < abs(value) < 0.001 or abs(value) >= 1e5:
        return f"{value:.1e}"
    return f"{value:.3f}"


def estimate_text(name: str, value: float | None, interval: Sequence[float] | None, *, signed: bool = False) -> str:
    """`0.612 ± 0.020`; `0.990 [0.970, 1.000]` where the limits lie unevenly; the value alone without an interval.

    What is shown is a 95 % interval everywhere; whoever prints it says in one line of which kind.
    """
    text = metric_text(name, value)
    if value is None:
        return text
    sign = "+" if signed and value >= 0 else ""
    if not interval:
        return sign + text
    low, high = interval
    if abs((high - value) - (value - low)) <= 1e-6 * max(high - low, abs(value)):
        return f"{sign}{text} ± {metric_text(name, (high - low) / 2)}"
    ends = [("+" if signed and end >= 0 else "") + metric_text(name, end) for end in (low, high)]
    return f"{sign}{text} [{ends[0]}, {ends[1]}]"


def gain_text(entry: Mapping[str, Any], metric: str = "eval/reward", *, unsound: bool = False) -> str:
    """`eval/reward 0.400 -> 0.600, +0.200 ± 0.102` and what that means; `entry` is one of result.json's stages.

    Of an `unsound` run no verdict is given: its numbers are of its sampler, not of what it trained.
    """
    start, end = entry.get("start"), entry.get("end")
    if start is None or end is None:
        return f"no {metric} at the {'start' if start is None else 'end'}: nothing to compare"
    interval = entry.get("interval")
    text = f"{metric} {metric_text(metric, start)} -> {metric_text(metric, end)}"
    text += f", {estimate_text(metric, end - start, interval, signed=True)}"
    if unsound:
        return f"{text}, of its sampler: its rollouts are unsound"
    if not interval:
        return text
    if interval[0] <= 0 <= interval[1]:
        return f"{text}: not significant"
    return f"{text}: a significant {'gain' if interval[0] > 0 else 'loss'}"


def met_text(entry: Mapping[str, Any]) -> str:
    """`met`, `refuted`, `untested`, or `not shown` of a gain whose interval leaves both open; an entry of `expects`."""
    from core.config.expectation import parse  # loads the config

    interval, met = entry.get("interval"), entry.get("met")
    if met is False and interval and interval[0] <= parse(str(entry["expectation"])).value <= interval[1]:
        return "not shown"
    return "untested" if met is None else "met" if met else "refuted"


def setting_text(value: object) -> str:
    """A setting as YAML would have it, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(setting_text(entry) for entry in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {setting_text(entry)}' for key, entry in value.items())}}}"
    # repr keeps all digits: two settings that differ must not print alike.
    return repr(value) if isinstance(value, float) else str(value)


def plural(count: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def label(result: Mapping[str, Any]) -> str:
    """What a run is of: `p31@1`, or `p31@1 with learning_rate=0.0003` where settings were overridden."""
    overrides = result.get("overrides") or []
    return str(result["recorded_as"]) + (f" with {', '.join(overrides)}" if overrides else "")


def count_text(count: float) -> str:
    """A whole number with a comma between thousands."""
    return f"{count:,.0f}"


def clock_text(seconds: float | None) -> str:
    """1:02:03, or 2:03; "-:--" where it is not known."""
    if seconds is None:
        return "-:--"
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
