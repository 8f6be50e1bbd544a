"""The table of what a run reached beside what can be had without it: random outputs, the nearest, the best possible.

Where the task has baselines, result.json has them under `baselines`, beside the run's own evaluations by the same
metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.health.statistics import mean
from grpoctl.analysis.collect import number
from grpoctl.sections import Section
from grpoctl.wording import metric_text

TITLE = "Evaluation (eval/*) beside baselines"
OF_A_RUN = ("start", "supervised", "final", "best")

Reached = Mapping[str, Mapping[str, float]]  # name -> metric -> value


def beside_baselines(result: Mapping[str, Any]) -> list[Section]:
    """The table of one run; none where its task has no baselines."""
    reached = result.get("baselines") or {}
    return _table(TITLE, list(reached.items()))


def means_over_seeds(results: Sequence[Mapping[str, object]]) -> dict[str, dict[str, float]]:
    """The same of several runs' results: each value is the mean over those that have it; {} without baselines."""
    of_runs: list[Any] = [result.get("baselines") or {} for result in results]
    known = ((name, *entry) for of_run in of_runs for name, metrics in of_run.items() for entry in metrics.items())
    values: dict[str, dict[str, list[float]]] = {}
    for name, metric, value in known:
        if (finite := number(value)) is not None:
            values.setdefault(name, {}).setdefault(metric, []).append(finite)
    return {name: {metric: mean(of) for metric, of in metrics.items()} for name, metrics in values.items()}


def side_by_side(sides: Mapping[str, Reached], of_a_run: Sequence[str] = OF_A_RUN) -> list[Section]:
    """The table of several sides, by label: what each reached, then the baselines, once where all have the same.

    `of_a_run` are the evaluations of a run that are shown. No table where no side has baselines.
    """
    rows = [(f"{label} {name}", of[name]) for label, of in sides.items() for name in of_a_run if name in of]
    baselines = {label: [(name, of[name]) for name in of if name not in OF_A_RUN] for label, of in sides.items()}
    first, *others = baselines.values()
    if all(other == first for other in others):
        rows += first
    else:
        rows += [(f"{label} {name}", reached) for label, of in baselines.items() for name, reached in of]
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
