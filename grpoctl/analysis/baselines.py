"""The table of what a run reached beside what can be had without it: random outputs, the nearest, the best possible.

Where the task has baselines, result.json has them under `baselines`, beside the run's own evaluations by the same
metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.health.statistics import mean
from grpoctl.analysis.collect import RunRecord, number
from grpoctl.sections import Section
from grpoctl.wording import metric_text

TITLE = "Evaluation (eval/*) beside baselines"
OF_A_RUN = ("start", "supervised", "final", "best")

Reached = Mapping[str, Mapping[str, float]]  # name -> metric -> value


def beside_baselines(result: Mapping[str, Any]) -> list[Section]:
    """The table of one run; none where its task has no baselines."""
    reached = result.get("baselines") or {}
    return _table(TITLE, list(reached.items()))


def means_over_seeds(runs: Sequence[RunRecord]) -> dict[str, dict[str, float]]:
    """The same of a side's runs, each value as the mean over the runs that have it; {} where none has baselines."""
    of_runs: list[Any] = [run.result.get("baselines") or {} for run in runs]
    known = ((name, *entry) for of_run in of_runs for name, metrics in of_run.items() for entry in metrics.items())
    values: dict[str, dict[str, list[float]]] = {}
    for name, metric, value in known:
        if (finite := number(value)) is not None:
            values.setdefault(name, {}).setdefault(metric, []).append(finite)
    return {name: {metric: mean(of) for metric, of in metrics.items()} for name, metrics in values.items()}


def two_sides(a: Reached, b: Reached) -> list[Section]:
    """The table of two sides: what each reached, then the baselines, once where they are the same on both."""
    sides = (("A", a), ("B", b))
    rows = [(f"{letter} {name}", of[name]) for letter, of in sides for name in OF_A_RUN if name in of]
    baselines = [[(name, of[name]) for name in of if name not in OF_A_RUN] for _, of in sides]
    if baselines[0] == baselines[1]:
        rows += baselines[0]
    else:
        rows += [(f"{letter} {name}", of) for letter, side in zip("AB", baselines, strict=True) for name, of in side]
    return _table(f"{TITLE}, means over seeds", rows)


def _table(title: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> list[Section]:
    metrics = sorted({metric for _, of in rows for metric in of})
    if not metrics:
        return []
    columns = ("", *(metric.removeprefix("eval/").removeprefix("rewards/") for metric in metrics))
    cells = [
        (name.replace("_", " "), *(metric_text(metric, of.get(metric)) for metric in metrics)) for name, of in rows
    ]
    return [Section(title=title, columns=columns, rows=tuple(cells))]
