"""Writes a run's steps: samples first, then the metrics row, so that a metrics row means the step is complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from core.health.finding import sampled
from grpoctl.files import RowWriter, read_rows, truncate_after
from grpoctl.runs.run_dir import RunDir

Watcher = Callable[[Mapping[str, float | None]], None]


class Recorder:
    """The observer of one run; `watcher` sees each row after it was written. Raises StorageError on a full disk."""

    def __init__(self, run: RunDir, watcher: Watcher) -> None:
        self._watcher = watcher
        self._samples = RowWriter(run.samples)
        self._metrics = RowWriter(run.metrics)
        self._timings = RowWriter(run.timings)

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
    ) -> None:
        """Record one step."""
        self._samples.append(*samples)
        self._timings.append({"step": row["step"], **timings})
        self._metrics.append(row)
        self._watcher(row)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in (self._samples, self._metrics, self._timings):
            writer.close()


def last_recorded(run: RunDir) -> int:
    """The last step that metrics have, and samples where the step drew any; -1 where there is none.

    A checkpoint waits for the disk and rows do not: after a power cut it may be of a step whose rows are lost.
    """
    rows, samples = read_rows(run.metrics), read_rows(run.samples)
    written = int(samples[-1]["step"]) if samples else -1
    lost = [int(row["step"]) for row in rows if sampled(row) and int(row["step"]) > written]
    return lost[0] - 1 if lost else int(rows[-1]["step"]) if rows else -1


def rewind(run: RunDir, step: int) -> None:
    """Drop everything recorded after `step`: what is then written again equals what an undisturbed run writes."""
    for path in (run.metrics, run.samples, run.timings):
        truncate_after(path, step)
