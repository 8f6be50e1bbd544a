"""A run as Python sees it: its spec, its result, its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import NotFoundError
from core.spec import RunSpec
from grpoctl.runs.records import read_json, read_rows
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.specs import read_resolved

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRun:
    """One run, read when asked: the files may grow while it runs."""

    run: RunDir

    @property
    def spec(self) -> RunSpec:
        """The resolved spec that was run."""
        return read_resolved(self.run.spec)

    @property
    def result(self) -> dict[str, Any]:
        """result.json. Raises NotFoundError while the run has not ended."""
        result = read_json(self.run.result)
        if result is None:
            raise NotFoundError(f"{self.run.id} has not ended: it has no result yet")
        return result

    @property
    def metrics(self) -> pandas.DataFrame:
        """One row per step, one column per metric, the step as the index; NaN where a step lacks a metric."""
        import pandas

        frame = pandas.DataFrame(read_rows(self.run.metrics))
        return frame.set_index("step") if "step" in frame else frame


def load_run(name: str) -> LoadedRun:
    """The run of that name in the home of the current directory. Raises NotFoundError."""
    return LoadedRun(run=Home.locate().find(name))
