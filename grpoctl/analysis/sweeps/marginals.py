"""What the values of one axis are worth, over all trials that have them; and two axes against each other.

What is here: means. What is not: a model of the space; the importances are Optuna's (grpoctl.sweeps).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.health.statistics import Estimate, mean
from grpoctl.analysis.sweeps.axes import Axis
from grpoctl.analysis.sweeps.ranking import Noise, Ranking, pooled


@dataclass(frozen=True, kw_only=True, slots=True)
class Marginal:
    """One level of an axis: the mean score of its ranked trials, `estimate` None where it has none.

    Its 95 % t interval has the spread between trials of one level, pooled over the axis's levels, so that what the
    other axes do is in it; None where no level has two ranked trials.
    """

    label: str
    estimate: Estimate | None
    best: float | None
    trials: int
    pruned: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell of a two-way table: the mean score of its ranked trials, None where there is none."""

    mean: float | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoWay:
    """Rows: levels of the first axis; columns: of the second."""

    rows: Axis
    columns: Axis
    cells: tuple[tuple[Cell, ...], ...]


def marginals(axis: Axis, ranking: Ranking, trials: Iterable[Mapping[str, Any]], *, sign: float) -> list[Marginal]:
    """One entry per level; `sign` is 1 where more is better, else -1."""
    pruned = {int(trial["number"]) for trial in trials if trial["status"] == "PRUNED"}
    scores = [[ranking.scores[index] for index in level.numbers if index in ranking.scores] for level in axis.levels]
    spread = pooled(scores)
    return [
        Marginal(
            label=level.label,
            estimate=_estimate(here, spread) if here else None,
            best=max(here, key=lambda score: sign * score) if here else None,
            trials=len(level.numbers),
            pruned=len(pruned & set(level.numbers)),
        )
        for level, here in zip(axis.levels, scores, strict=True)
    ]


def two_way(rows: Axis, columns: Axis, ranking: Ranking) -> TwoWay:
    """The mean score for each pair of levels."""
    return TwoWay(
        rows=rows,
        columns=columns,
        cells=tuple(
            tuple(_cell([*(set(row.numbers) & set(column.numbers))], ranking) for column in columns.levels)
            for row in rows.levels
        ),
    )


def _estimate(scores: Sequence[float], spread: Noise | None) -> Estimate:
    centre, n = mean(scores), len(scores)
    return Estimate(mean=centre, interval=None if spread is None else spread.interval(centre, n), n=n)


def _cell(numbers: Iterable[int], ranking: Ranking) -> Cell:
    scores = [ranking.scores[index] for index in sorted(numbers) if index in ranking.scores]
    return Cell(mean=mean(scores) if scores else None, n=len(scores))
