"""What runs answered to each held-out problem, as the statistics of a comparison take it.

Read from problems.parquet: at the end of each run, or where it had drawn a given number of completions, between two
evaluations along a straight line, as curves are read. What older runs did not record is None.

Shape suffixes: S seeds, M problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpoctl.analysis.collect import RunRecord, number
from grpoctl.analysis.contrasts import Outcomes, pass_at
from grpoctl.runs.problems import read_problems
from grpoctl.runs.run_dir import RunDir

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Column of problems.parquet -> the metric that is its mean over problems.
COLUMNS = {"eval/reward": "reward", "eval/valid": "valid", "eval/length": "length", "eval/truncated": "truncated"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """One evaluation of one run: a row for each held-out problem, in their order; numbers are means over draws.

    `columns` are those of problems.parquet; `right` counts the draws that were right, None where nobody knows.
    """

    step: int
    problems: tuple[str, ...]
    prompt_ids: tuple[str, ...]
    prompts: tuple[str | None, ...]
    outputs: tuple[tuple[str, ...], ...]  # of each problem, its draws
    columns: Mapping[str, Floats]
    right: tuple[int, ...] | None
    draws: int
    clusters: tuple[str, ...] | None = None  # of each problem, where those of one are not independent

    def pass_at(self, k: int) -> Floats | None:
        """(M,) unbiased chances that one of k draws is right; None where nobody knows, or for more than the draws."""
        import numpy as np

        if self.right is None or k > self.draws:
            return None
        return np.array([pass_at(right, self.draws, k) for right in self.right])


class Answers:
    """The evaluations of one run, each read once and when asked for."""

    def __init__(self, run: RunRecord) -> None:
        """Those of a run; none where they were not recorded. Raises StorageError for a damaged file."""
        self.run = run
        self._rows: dict[int, Any] = {}  # step -> rows
        self._read: dict[int, Answered] = {}
        table = None if run.path is None else read_problems(RunDir(path=run.path))
        if table is not None and table.num_rows:
            self._rows = {int(step): rows for step, rows in table.to_pandas().groupby("step")}

    @property
    def steps(self) -> list[int]:
        """The steps after which there was an evaluation, in their order."""
        return sorted(self._rows)

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """The cluster of each problem, in their order; None where all are independent, or no evaluation is known."""
        return None if self.last is None else self.last.clusters

    @property
    def last(self) -> Answered | None:
        """The evaluation after the last step that had a sound one."""
        return self.of_step(max(self._rows)) if self._rows else None

    def of_step(self, step: int) -> Answered:
        """The evaluation after this step. Raises KeyError where it had none."""
        if step not in self._read:
            self._read[step] = _answered(step, self._rows[step])
        return self._read[step]

    def at(self, completions: float | None) -> tuple[tuple[str, ...], Mapping[str, Floats]] | None:
        """(problems, columns) where the run had drawn so many completions, at its end for None or for more than all.

        Between two evaluations a problem is read along a straight line, as curves are.
        """
        if not self._rows:
            return None
        drawn = {int(str(row["step"])): number(row.get("completions")) for row in self.run.rows}
        places = sorted((count, step) for step in self._rows if (count := drawn.get(step)) is not None)
        if not places:
            return None
        if completions is None or completions >= places[-1][0]:
            last = self.of_step(places[-1][1])
            return last.problems, last.columns
        after = next(at for at, (count, _) in enumerate(places) if count >= completions)
        second = self.of_step(places[after][1])
        if after == 0:
            return second.problems, second.columns
        before, first = places[after - 1][0], self.of_step(places[after - 1][1])
        part = (completions - before) / (places[after][0] - before)
        columns = {
            name: values + part * (second.columns[name] - values)
            for name, values in first.columns.items()
            if name in second.columns
        }
        return first.problems, columns


def _answered(step: int, rows: Any) -> Answered:
    """The rows of one evaluation, problem by problem."""
    import numpy as np

    rows = rows.sort_values(["place", "draw"])
    groups = rows.groupby("place", sort=True)
    first = groups.first()
    scores = [name for name in rows.columns if name.startswith(("rewards/", "measured/"))]
    columns = {
        name: groups[name].mean().to_numpy(dtype=np.float64, na_value=np.nan)
        for name in (*COLUMNS.values(), *scores)
        if rows[name].notna().any()
    }
    known = rows["right"].notna()
    return Answered(
        step=step,
        problems=tuple(first["problem"]),
        prompt_ids=tuple(first["prompt_id"]),
        prompts=tuple(None if prompt is None else str(prompt) for prompt in first["prompt"]),
        outputs=tuple(tuple(map(str, texts)) for texts in groups["output"].apply(list)),
        columns=columns,
        right=tuple(int(count) for count in (rows["right"] == True).groupby(rows["place"]).sum())  # noqa: E712
        if known.all()
        else None,
        draws=int(rows["draw"].max()) + 1,
        clusters=tuple(map(str, first["cluster"])) if "cluster" in first and first["cluster"].notna().all() else None,
    )


def outcomes(
    answers: Sequence[Answers], metric: str, values: Mapping[int, float], completions: float | None = None
) -> Outcomes:
    """A metric of one side; `values` are those of its seeds, answers are added where all of its runs recorded them."""
    import numpy as np

    column = COLUMNS.get(metric) or metric.removeprefix("eval/")
    rows, names, clusters = [], set(), set()
    for of_run in sorted(answers, key=lambda one: one.run.seed):
        if of_run.run.seed not in values:
            continue
        there = of_run.at(completions)
        if there is None or column not in there[1]:
            return Outcomes(values=values)
        names.add(there[0])
        clusters.add(of_run.clusters)
        rows.append(there[1][column])
    if len(names) != 1 or len(rows) != len(values):
        return Outcomes(values=values)
    return Outcomes(values=values, problems=names.pop(), answers_SM=np.stack(rows), clusters=_shared(clusters))


def _shared(clusters: set[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """The clusters of the runs of a side; those of older runs do not say theirs, and are asked the same problems."""
    known = clusters - {None}
    return known.pop() if known else None


def passes(answers: Sequence[Answers], k: int) -> Outcomes | None:
    """pass@k of one side at its end; None where not all of its runs know what is right, or drew fewer."""
    import numpy as np

    rows, names, values, clusters = [], set(), {}, set()
    for of_run in sorted(answers, key=lambda one: one.run.seed):
        last = of_run.last
        chances = None if last is None else last.pass_at(k)
        if last is None or chances is None:
            return None
        names.add(last.problems)
        clusters.add(last.clusters)
        rows.append(chances)
        values[of_run.run.seed] = float(chances.mean())
    if len(names) != 1:
        return None
    return Outcomes(values=values, problems=names.pop(), answers_SM=np.stack(rows), clusters=_shared(clusters))
