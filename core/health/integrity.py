"""Rollout integrity: do the log-probs recorded while sampling equal those of a clean forward?

A sound sampler differs from the trainer's forward only by rounding: some 4e-6 nats per token in fp32, 0.045 in bf16
(SmolLM2-135M, at temperatures 1 to 0.15). P30's fault gives 2.7 or more at each of them. docs/algorithms.md has the
table that the thresholds were chosen by; benchmarks/integrity.py measures it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from core.health.finding import Finding, Row, StepTable, steps_of

# Mean absolute gap in nats per token at temperature 1. Log-probs are of logits / temperature, so rounding can grow as
# 1 / T; measured it does not, since at a low temperature most drawn tokens are all but certain. The square root leaves
# room for the first, to T = 0.15 at least, and five times the distance to the fault.
MAX_GAP = {"float32": 1e-4, "bfloat16": 0.3}


def max_gap(dtype: str, temperature: float, override: float | None = None) -> float:
    """The largest mean gap that rounding explains for this dtype and temperature."""
    return override if override is not None else MAX_GAP[dtype] / math.sqrt(min(1.0, temperature))


def rollout_integrity(row: Row, *, dtype: str, override: float | None = None) -> Finding | None:
    """An error where this step's rollout has a gap that rounding does not explain, or none that is a number."""
    return _integrity(row, "rollout/logprob_gap", row.get("temperature"), max_gap_of(dtype, override), "")


def evaluation_integrity(row: Row, *, dtype: str, override: float | None = None) -> Finding | None:
    """The same of this step's evaluation: its rewards would tell of the sampler, not of the policy."""
    limit = max_gap_of(dtype, override)
    return _integrity(row, "eval/logprob_gap", row.get("eval/temperature"), limit, " (evaluation)")


def max_gap_of(dtype: str, override: float | None) -> Callable[[float], float]:
    """`max_gap` as a function of the temperature."""
    return lambda temperature: max_gap(dtype, temperature, override)


def worst_integrity(table: StepTable, *, dtype: str, override: float | None = None) -> Finding | None:
    """The first step's finding, with how many steps had one; an evaluation's where no rollout has one."""
    steps = steps_of(table)
    found = [f for row in steps if (f := rollout_integrity(row, dtype=dtype, override=override))]
    found = found or [f for row in table if (f := evaluation_integrity(row, dtype=dtype, override=override))]
    if not found:
        return None
    first = found[0]
    more = f" (and on {len(found) - 1} more of {len(steps)} steps)" if len(found) > 1 else ""
    return Finding(
        id=first.id,
        severity=first.severity,
        summary=first.summary + more,
        evidence={**first.evidence, "steps": len(found)},
    )


def _integrity(
    row: Row, metric: str, temperature: float | None, limit_at: Callable[[float], float], what: str
) -> Finding | None:
    value = row.get(metric)
    gap = value if value is not None and math.isfinite(value) else None  # None once recorded, NaN before
    limit = limit_at(temperature or 1.0)
    if metric not in row or (gap is not None and gap <= limit):
        return None
    if gap is None and "entropy" in row and not math.isfinite(math.nan if row["entropy"] is None else row["entropy"]):
        return None  # the clean forward is no number either: the weights are at fault, core.health.collapse says so
    step = int(row.get("step") or 0)
    return Finding(
        id="rollout-integrity",
        severity="error",
        summary=(
            f"step {step}{what}: the sampler did not draw from the policy the trainer scores (mean log-prob gap "
            f"{'NaN' if gap is None else f'{gap:.3g}'} nats, at most {limit:.3g} is rounding): a dropped KV cache, "
            "train mode or stale weights while sampling"
        ),
        evidence={"step": step, "logprob_gap": "NaN" if gap is None else gap, "limit": limit},
    )
