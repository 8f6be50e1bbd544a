"""Rollout integrity: do the log-probs recorded while sampling equal those of a clean forward?

A sound sampler differs from the trainer's forward only by rounding: some 4e-6 nats per token in fp32, 0.045 in bf16
(SmolLM2-135M, at temperatures 1 to 0.15). P30's fault gives 2.7 or more at each of them. docs/algorithms.md has the
table that the thresholds were chosen by; benchmarks/integrity.py measures it.

## rollout-integrity

Severity: error; warning (moderate) where the gaps are few or small, or the dtype is not known.

Means: sampler and trainer disagree on the log-probs of drawn tokens, and the pattern over steps does not say why
(`rollout-mode`, `scoring-noise` and `stale-sampler` are patterns). A sampler in a wrong mode has no gap before any
update, 2 to 6 nats a token after an update, and none after a skipped one.

Looks at: `rollout/logprob_gap` of every step and of the evaluation before step 1, against what rounding explains
(1e-4 in fp32, 0.3 in bf16, a larger limit at temperatures below 1). A sound run of ours has 1e-7 in fp32.

Confounder: rounding of another kind. A warning where fewer than three steps or a twentieth of them (and not half) are
over the limit, or where the median is below twice the limit and none is ten times the limit. The live guard looks at
one step and does not ask: it fires at the first gap above the limit.

Do: sample in eval mode, with gradient checkpointing off and the KV cache on. `guards.max_logprob_gap` sets another
limit for a model whose sound gap is larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from core.health.finding import Finding, Row, StepTable, steps_of

# Mean absolute gap in nats per token at temperature 1. Log-probs are of logits / temperature, so rounding can grow as
# 1 / T; measured it does not, since at a low temperature most drawn tokens are all but certain. The square root leaves
# room for the first, to T = 0.15 at least, and five times the distance to the fault.
MAX_GAP = {"float32": 1e-4, "bfloat16": 0.3}
COARSEST = max(MAX_GAP.values())  # where the dtype is not known: it accuses nobody of his rounding
# What an error of a whole run needs: a gap that is FAR above the limit, or SEVERAL, CLEAR of it at their median.
FAR, CLEAR = 10.0, 2.0  # times the limit
SEVERAL, SHARE = 3, 0.05  # steps, and of all


def max_gap(dtype: str | None, temperature: float, override: float | None = None) -> float:
    """The largest mean gap that rounding explains at this dtype and temperature; of an unknown dtype the coarsest's."""
    if override is not None:
        return override
    return MAX_GAP.get(dtype or "", COARSEST) / math.sqrt(min(1.0, temperature))


def rollout_integrity(row: Row, *, dtype: str | None, override: float | None = None) -> Finding | None:
    """An error where this step's rollout has a gap that rounding does not explain, or none that is a number."""
    return _integrity(row, "rollout/logprob_gap", row.get("temperature"), max_gap_of(dtype, override), "")


def evaluation_integrity(row: Row, *, dtype: str | None, override: float | None = None) -> Finding | None:
    """The same of this step's evaluation: its rewards would tell of the sampler, not of the policy."""
    limit = max_gap_of(dtype, override)
    return _integrity(row, "eval/logprob_gap", row.get("eval/temperature"), limit, " (evaluation)")


def max_gap_of(dtype: str | None, override: float | None) -> Callable[[float], float]:
    """`max_gap` as a function of the temperature."""
    return lambda temperature: max_gap(dtype, temperature, override)


def worst_integrity(table: StepTable, *, dtype: str | None, override: float | None = None) -> Finding | None:
    """The first step's finding, with how many steps had one; an evaluation's where no rollout has one.

    A warning where a few of many steps are above the limit, or many just above it; moderate then, and where the limit
    is a guess. A guard that looks at one step alone does not ask that.
    """
    steps = [row for row in steps_of(table) if "rollout/logprob_gap" in row]
    found = [f for row in steps if (f := rollout_integrity(row, dtype=dtype, override=override))]
    if not found:
        steps = [row for row in table if "eval/logprob_gap" in row]
        found = [f for row in steps if (f := evaluation_integrity(row, dtype=dtype, override=override))]
    if not found:
        return None
    first, near = found[0], _near(found, len(steps))
    more = f" (and on {len(found) - 1} more of {len(steps)} steps)" if len(found) > 1 else ""
    return replace(
        first,
        severity="warning" if near else "error",
        summary=first.summary + (f" (on {len(found)} of {len(steps)} steps, none far above it)" if near else more),
        evidence={**first.evidence, "steps": len(found)},
        confidence="moderate" if near or is_guess(dtype, override) else first.confidence,
    )


def is_guess(dtype: str | None, override: float | None) -> bool:
    """Whether the limit is that of another dtype, since the run's is not known."""
    return override is None and dtype not in MAX_GAP


def _near(found: Sequence[Finding], steps: int) -> bool:
    """Whether the gaps are so few or so small that rounding of another kind may have made them."""
    sizes = [(one.evidence["logprob_gap"], one.evidence["limit"]) for one in found]
    known = [(gap, limit) for gap, limit in sizes if isinstance(gap, int | float) and isinstance(limit, int | float)]
    if len(known) < len(found) or any(gap >= FAR * limit for gap, limit in known):
        return False
    few = len(found) < 0.5 * steps and len(found) < max(SEVERAL, SHARE * steps)
    return few or median(gap - CLEAR * limit for gap, limit in known) < 0


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
