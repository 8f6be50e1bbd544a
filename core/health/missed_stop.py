"""The early stop that was missed: what the steps after the best evaluation cost, and which patience saves them.

## missed-stop

Severity: info (certain).

Means: an early stop would have kept the best evaluation and saved a fifth of the steps or more.

Looks at: the evaluations of the run. Evidence: `best_step`, `stop_step`, `steps_saved`, `completions_saved`.

Confounder: hindsight. The patience is known afterwards: it says what the steps cost, and is no law.

Do: the suggested `early_stopping.patience` is the shortest, and at least 3, with which the stop comes after the best
evaluation; none is suggested where the best evaluation is the one before training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from core.health.case import Case
from core.health.finding import Finding, StepTable
from core.health.trend import series

LEAST: Final = 3  # evaluations without a better one: a shorter patience is luck, known afterwards
WORTH = 0.2  # of the steps: less saved is not worth a word


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyStop:
    """Where a patience would have ended a run that kept its best evaluation."""

    patience: int
    best_step: int
    best: float
    stop_step: int
    last_step: int


def shortest_patience(rewards: Sequence[float]) -> int:
    """The least patience, at least LEAST, with which early stopping reaches the best of these evaluations."""
    best_index = rewards.index(max(rewards))
    waited, best = 0, rewards[0]
    longest = 0
    for reward in rewards[1 : best_index + 1]:
        waited, best = (0, reward) if reward > best else (waited + 1, best)
        longest = max(longest, waited)
    return max(LEAST, longest + 1)


def early_stop(table: StepTable) -> EarlyStop | None:
    """The stop that keeps the best evaluation of a table; None where it comes after the last one, or all are equal."""
    points = series(table, "eval/reward")
    rewards = [reward for _, reward in points]
    if not rewards or max(rewards) == min(rewards):
        return None
    best_index, patience = rewards.index(max(rewards)), shortest_patience(rewards)
    if best_index + patience >= len(points):
        return None
    return EarlyStop(
        patience=patience,
        best_step=int(points[best_index][0]),
        best=rewards[best_index],
        stop_step=int(points[best_index + patience][0]),
        last_step=max(int(row.get("step") or 0) for row in table),
    )


def missed_stop(case: Case) -> Sequence[Finding]:
    """An info where at least a fifth of the steps came after an early stop that loses nothing on eval/reward."""
    found = early_stop(case.rows)
    if found is None or (saved := found.last_step - found.stop_step) < WORTH * found.last_step:
        return ()
    evidence: dict[str, float | str] = {
        "best_step": found.best_step, "best": found.best, "patience": found.patience, "stop_step": found.stop_step,
        "last_step": found.last_step, "steps_saved": saved, "share_saved": saved / found.last_step,
    }  # fmt: skip
    completions = _completions(case.rows, found.stop_step)
    if completions is not None:
        evidence["completions_saved"] = completions
    return (
        Finding(
            id="missed-stop",
            severity="info",
            summary=(
                f"no evaluation after step {found.best_step} was better than {found.best:.3g}: a patience of "
                f"{found.patience} would have stopped at step {found.stop_step} of {found.last_step} and saved "
                f"{saved / found.last_step:.0%} of the steps"
                + ("" if completions is None else f", {completions:,} completions")
            ),
            evidence=evidence,
            suggest=(f"early_stopping.patience={found.patience}",) if found.best_step > 0 else (),
            advice=""
            if found.best_step > 0
            else "the best is the untrained model: there is nothing to stop at and keep",
            confidence="certain",
        ),
    )


def _completions(table: StepTable, stop_step: int) -> int | None:
    """Completions sampled after the step, where the table counts them."""
    counted = [(row.get("step") or 0, count) for row in table if (count := row.get("completions")) is not None]
    before = [count for step, count in counted if step <= stop_step]
    return int(max(count for _, count in counted) - max(before)) if before else None
