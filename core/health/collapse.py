"""Has the policy collapsed? A limit that is broken for `patience` steps in a row, or a number that is not one."""

from __future__ import annotations

from collections.abc import Callable

from core.health.finding import Finding, Row, StepTable, steps_of
from core.spec import GuardSpec

LOOK_BACK = 40  # times patience: how far back a metric that not every step has is looked for
_WATCHED_FOR_NAN = ("loss", "grad_norm", "kl", "entropy", "rollout/logprob_gap")


def policy_collapse(table: StepTable, guards: GuardSpec) -> Finding | None:
    """An error where the table's last steps say the policy collapsed; one metric is enough."""
    rows = steps_of(table[-LOOK_BACK * guards.patience :])  # asked at every step: the whole table would be quadratic
    return _not_a_number(rows[-1:]) or next(
        (
            finding
            for metric, limit, broken, word in _limits(guards)
            if limit is not None and (finding := _streak(rows, metric, broken, word, guards.patience))
        ),
        None,
    )


def first_collapse(table: StepTable, guards: GuardSpec) -> Finding | None:
    """What `policy_collapse` would have said at the first step it had said anything, had it been asked at each.

    One pass: each step is asked about the newest `patience` values of each metric, no older than the look back.
    """
    rows, limits = steps_of(table), [limit for limit in _limits(guards) if limit[1] is not None]
    seen: dict[str, list[int]] = {metric: [] for metric, *_ in limits}
    for end, row in enumerate(rows):
        if (found := _not_a_number([row])) is not None:
            return found
        for metric, _, broken, word in limits:
            if row.get(metric) is None:
                continue
            seen[metric] = [*seen[metric][-guards.patience + 1 :], end] if guards.patience > 1 else [end]
            near = [rows[index] for index in seen[metric] if index > end - LOOK_BACK * guards.patience]
            if (found := _streak(near, metric, broken, word, guards.patience)) is not None:
                return found
    return None


def _limits(guards: GuardSpec) -> list[tuple[str, float | None, Callable[[float], bool], str]]:
    low, high = "below", "above"
    valid, entropy, cut, kl = guards.min_valid, guards.min_entropy, guards.max_truncated, guards.max_kl
    length = guards.min_length
    return [
        ("completions/valid", valid, lambda v: v < (valid or 0.0), f"{low} {valid}"),
        ("entropy", entropy, lambda v: v < (entropy or 0.0), f"{low} {entropy}"),
        ("completions/truncated", cut, lambda v: v > (cut or 0.0), f"{high} {cut}"),
        ("completions/length", length, lambda v: v < (length or 0.0), f"{low} {length}"),
        ("kl", kl, lambda v: v > (kl or 0.0), f"{high} {kl}"),
    ]


def _not_a_number(rows: StepTable) -> Finding | None:
    for row in rows:
        for metric in _WATCHED_FOR_NAN:
            if metric in row and row[metric] is None:
                step = int(row.get("step") or 0)
                kept = "" if row.get("update") else "; the update was not applied"
                return Finding(
                    id="numerical",
                    severity="error",
                    summary=f"step {step}: {metric} is not a finite number{kept}",
                    evidence={"step": step, "metric": metric},
                )
    return None


def _streak(rows: list[Row], metric: str, broken: Callable[[float], bool], word: str, patience: int) -> Finding | None:
    """A finding where the last `patience` rows that have the metric all break its limit."""
    seen = [row for row in rows if row.get(metric) is not None][-patience:]
    values = [float(row[metric] or 0.0) for row in seen]
    if len(values) < patience or not all(broken(value) for value in values):
        return None
    first, last = int(seen[0].get("step") or 0), int(seen[-1].get("step") or 0)
    return Finding(
        id="policy-collapse",
        severity="error",
        summary=f"{metric} stayed {word} for {patience} steps in a row (to step {last}, last value {values[-1]:.3g})",
        evidence={"metric": metric, "first_step": first, "last_step": last, "value": values[-1]},
    )
