"""What a metric's value cannot be: a share outside 0 to 1, a negative count or deviation. What is not here: files."""

from __future__ import annotations

from core.metrics import declared

_SHARES = ("groups/right",)  # of foreign logs
_SLACK = 1e-6  # of a mean of shares in float32
_NOT_NEGATIVE = ("entropy", "grad_norm", "learning_rate", "temperature", "eval/temperature", "samples")
_DEVIATIONS = ("/std", "_std", "/std_all", "_se", "logprob_gap", "logprob_gap_max")


def impossible(metric: str, value: float) -> str | None:
    """Why the metric cannot have that value, and what to write instead; None where it can."""
    known = declared(metric)
    unit = known.unit if known is not None else ""
    if unit in ("fraction", "0/1") or metric in _SHARES:
        if -_SLACK <= value <= 1 + _SLACK:
            return None
        hint = f": write {value:g}% or {value / 100:g}" if 1 < value <= 100 and unit != "0/1" else ""
        return f"a share is between 0 and 1{hint}"
    signless = unit in ("count", "tokens") or metric in _NOT_NEGATIVE or metric.endswith(_DEVIATIONS)
    return "it cannot be negative" if signless and value < 0 else None
