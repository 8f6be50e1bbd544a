"""The limits a run may not break while it trains (`guards` of a spec), and the finding that stops it.

A guard must decide at once and knows only the steps so far. Whether a break lasted, did harm, and why is asked of the
whole table afterwards (core.health.rules.breaks and policy_collapse). A new limit is a field of GuardSpec, a line of
`limits`, and, where its column has a word for leaving that way, a Kind of policy_collapse.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.config import GuardSpec, RunSpec
from core.health.finding import Finding, Row, StepTable, steps_of

LOOK_BACK = 40  # times patience: how far back a metric is looked for that not every step has
_WATCHED_FOR_NAN = ("loss", "grad_norm", "kl", "entropy", "rollout/logprob_gap")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """What a guard does not allow of a column: values `below` the limit, or else above it."""

    metric: str
    value: float
    below: bool

    def broken(self, value: float) -> bool:
        """Whether a value is beyond it; the limit itself is allowed."""
        return value < self.value if self.below else value > self.value

    def __str__(self) -> str:
        return f"{'below' if self.below else 'above'} {self.value}"


def watched_guards(spec: RunSpec) -> GuardSpec:
    """The spec's guards, without `max_kl` where the policy's own dropout acts in the log-probs of an update alone.

    `kl` is estimated from those, by the exponential of their distance to the reference's, and dropout alone makes that
    large: a pointer 0.8 nats a pick from its reference (temperature .5, dropout .5) had a median `kl` of 6, and 9,000
    at most.
    """
    if spec.model is None and spec.update_dropout > 0:
        return spec.guards.model_copy(update={"max_kl": None})
    return spec.guards


def collapse_finding(table: StepTable, guards: GuardSpec) -> Finding | None:
    """The error of a policy that collapsed by the last steps of a run; one limit is enough. None while it goes on."""
    rows = steps_of(table[-LOOK_BACK * guards.patience :])  # asked at every step: the whole table would be quadratic
    return _not_a_number(rows[-1:]) or next(
        (finding for limit in limits(guards) if (finding := _streak(rows, limit, guards.patience)) is not None),
        None,
    )


def limits(guards: GuardSpec) -> list[Limit]:
    """The limits that are watched, in the order they are asked."""
    candidates: tuple[tuple[str, float | None, bool], ...] = (
        ("completions/valid", guards.min_valid, True),
        ("entropy", guards.min_entropy, True),
        ("completions/truncated", guards.max_truncated, False),
        ("completions/length", guards.min_length, True),
        ("kl", guards.max_kl, False),
    )
    return [Limit(metric=metric, value=value, below=below) for metric, value, below in candidates if value is not None]


def _not_a_number(rows: StepTable) -> Finding | None:
    for row in rows:
        for metric in _WATCHED_FOR_NAN:
            if metric in row and row[metric] is None:
                step = int(row.get("step") or 0)
                kept = "; the update was not applied" if row.get("update") == 0 else ""
                return Finding(
                    id="numerical",
                    severity="error",
                    summary=f"step {step}: {metric} is not a finite number{kept}",
                    evidence={"step": step, "metric": metric},
                )
    return None


def _streak(rows: list[Row], limit: Limit, patience: int) -> Finding | None:
    """A finding where the last `patience` rows that have the metric all break its limit."""
    metric = limit.metric
    recent = [row for row in rows if row.get(metric) is not None][-patience:]
    values = [float(row[metric] or 0.0) for row in recent]
    if len(values) < patience or not all(map(limit.broken, values)):
        return None
    first, last = int(recent[0].get("step") or 0), int(recent[-1].get("step") or 0)
    return Finding(
        id="policy-collapse",
        severity="error",
        summary=f"{metric} stayed {limit} for {patience} steps in a row (to step {last}, last value {values[-1]:.3g})",
        evidence={"metric": metric, "first_step": first, "last_step": last, "value": values[-1]},
    )
