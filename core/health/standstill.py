"""A rollout that changed while the weights stood still: sound, an update at a learning rate of 0, collapsed ever since.

A run that skips no step shows no healing (core.health.rollout_mode); a warm-up that begins at 0 shows as much. And
whether sampler and trainer were measured to agree, which is what decides in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from core.health.case import Case
from core.health.finding import Row, steps_of
from core.health.integrity import max_gap_of
from core.health.onset import acted, number

NEARLY = 0.1  # share of valid completions: below it a few were rescued
LASTING = 5  # collapsed steps, at least
MOST = 0.95  # of the steps since
Sees = Callable[[float], bool]

COLUMNS: tuple[tuple[str, Sees, Sees], ...] = (  # column, whether a step is sound by it, whether it is collapsed
    ("completions/valid", lambda share: share >= 0.5, lambda share: share < NEARLY),
    ("completions/truncated", lambda share: share <= 0.5, lambda share: share >= MOST),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standstill:
    """The step whose update moved nothing, and a column up to it (mean) and since (median)."""

    metric: str
    lr_0_step: int
    before: float
    since: float
    collapsed: int  # of the steps since
    steps_since: int


def standstill(case: Case) -> Standstill | None:
    """Where nothing but an update at a learning rate of 0 lies between sound steps and a lasting collapse.

    None where sampler and trainer were measured to agree on the collapsed steps.
    """
    rows = steps_of(case.rows)
    at = next((i for i, row in enumerate(rows) if _updated(row)), len(rows))
    if case.averaged_over > 1 or at + 1 >= len(rows) or not _moved_nothing(case, rows, at):
        return None
    for metric, sound, collapsed in COLUMNS:
        before = [value for row in rows[: at + 1] if (value := number(row, metric)) is not None]
        since = [(row, value) for row in rows[at + 1 :] if (value := number(row, metric)) is not None]
        broken = [row for row, value in since if collapsed(value)]
        if not before or not all(map(sound, before)) or len(broken) < max(LASTING, MOST * len(since)):
            continue
        if any(sound(value) for _, value in since):
            continue  # now one and then the other: prompts that differ
        if broken[0] is rows[at + 1] and not agrees(case, broken):
            return Standstill(
                metric=metric,
                lr_0_step=int(rows[at]["step"] or 0),
                before=fmean(before),
                since=median(value for _, value in since),
                collapsed=len(broken),
                steps_since=len(since),
            )
    return None


def agrees(case: Case, rows: Iterable[Row]) -> bool | None:
    """Whether sampler and trainer agreed on most of these steps; None where that was not measured."""
    limit_at = max_gap_of(case.settings.dtype or "bfloat16", case.guards.max_logprob_gap)  # unknown: accuse no sampler
    known = [row for row in rows if "rollout/logprob_gap" in row]
    sound = [
        (gap := number(row, "rollout/logprob_gap")) is not None and gap <= limit_at(row.get("temperature") or 1.0)
        for row in known
    ]
    return sum(sound) > len(known) / 2 if known else None


def _updated(row: Row) -> bool:
    """Whether the step made an update; in a log without such marks every step with a learning rate did."""
    return row["update"] == 1 if "update" in row else "learning_rate" in row


def _moved_nothing(case: Case, rows: Sequence[Row], at: int) -> bool:
    """Whether the first update's rate was exactly 0, and the step right after it shows that rates are not rounded."""
    if (rows[at + 1]["step"] or 0) - (rows[at]["step"] or 0) != 1:
        return False
    rate = rows[at].get("learning_rate")
    if rate is None and rows[0].get("step") == 1:
        return case.settings.first_update_lr == 0.0
    return rate == 0.0 and acted(rows[at + 1])
