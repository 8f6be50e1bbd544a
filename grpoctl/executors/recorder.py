"""The rows of a run: written in an order that a kill cannot break, and cut back to where a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from core.health.finding import sampled
from grpoctl.files import RowWriter, read_rows, remove, replace_bytes, truncate_after
from grpoctl.runs.run_dir import RunDir

if TYPE_CHECKING:
    from core.training.requests import Evaluated

Watcher = Callable[[Mapping[str, float | None]], None]


class Recorder:
    """The observer of one run: samples first, then the metrics row, so that a metrics row means the step is complete.

    `watcher` sees each row after it was written. Raises StorageError on a full disk.
    """

    def __init__(self, run: RunDir, watcher: Watcher) -> None:
        self._run = run
        self._watcher = watcher
        self._samples = RowWriter(run.samples)
        self._metrics = RowWriter(run.metrics)
        self._timings = RowWriter(run.timings)
        # A run that an older version began lacks its first evaluations: part of them would look like all.
        whole = run.problem_rows.exists() or not read_rows(run.metrics)
        self._problems = RowWriter(run.problem_rows) if whole else None

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: Evaluated | None = None,
    ) -> None:
        """Record one step."""
        if evaluated is not None:
            if evaluated.picture is not None:
                replace_bytes(self._run.picture(int(row["step"] or 0)), evaluated.picture)
            if self._problems is not None:
                self._problems.append(*evaluated.problems)
        self._samples.append(*samples)
        self._timings.append({"step": row["step"], **timings})
        self._metrics.append(row)
        self._watcher(row)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in (self._samples, self._metrics, self._timings, self._problems):
            if writer is not None:
                writer.close()


def last_recorded(run: RunDir) -> int:
    """The last step that metrics have, with its samples and its evaluation's problems; -1 where there is none.

    A checkpoint waits for the disk and rows do not: after a power cut it may be of a step whose rows are lost.
    """
    rows, samples, problems = (read_rows(path) for path in (run.metrics, run.samples, run.problem_rows))
    drawn, asked = (int(written[-1]["step"]) if written else -1 for written in (samples, problems))
    lost = [
        int(row["step"])
        for row in rows
        if (sampled(row) and int(row["step"]) > drawn)
        or (problems and row.get("eval/reward") is not None and int(row["step"]) > asked)
    ]
    return lost[0] - 1 if lost else int(rows[-1]["step"]) if rows else -1


def rewind(run: RunDir, step: int) -> None:
    """Drop everything recorded after `step`: what is then written again equals what an undisturbed run writes.

    Each file is replaced by a new one: whoever wrote here before may have the old one open.
    """
    for path in (run.metrics, run.samples, run.timings, run.problem_rows):
        truncate_after(path, step)
    for picture in run.pictures.glob("step-*.png"):
        if picture > run.picture(step):
            remove(picture)
