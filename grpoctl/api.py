"""A run or a study as Python sees it: a run's spec, result and metrics; a study's spec, document, trials and runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.config import RunSpec
from core.errors import AmbiguousNameError, NotFoundError
from grpoctl.analysis.sweeps.document import read_study
from grpoctl.config import read_resolved
from grpoctl.files import read_json, read_rows
from grpoctl.runs.problems import read_problems
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir, find_study
from grpoctl.sweeps.loading import read_sweep
from grpoctl.sweeps.spec import SweepSpec

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

    @property
    def problems(self) -> pandas.DataFrame | None:
        """One row for each held-out completion of each evaluation (docs/recording.md); None: an older run has none."""
        table = read_problems(self.run)
        return None if table is None else table.to_pandas()


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedTrial:
    """One trial of a study, as its sweep.json had it when it was read."""

    number: int
    name: str | None  # of a named candidate
    status: str
    params: Mapping[str, Any]  # dotted key -> value
    score: float | None  # the mean over its seeds; None where it has none
    values: tuple[float | None, ...]  # of each seed
    runs: tuple[LoadedRun, ...]  # of each seed that has begun


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedStudy:
    """One study, read when asked: the files may change while it runs."""

    study: StudyDir

    @property
    def spec(self) -> SweepSpec:
        """The resolved sweep that was run."""
        return read_sweep(self.study.spec)

    @property
    def document(self) -> dict[str, Any]:
        """What sweep.json says, its status as it is true now (docs/cli.md). Raises StorageError where it is damaged."""
        return read_study(self.study)

    @property
    def trials(self) -> tuple[LoadedTrial, ...]:
        """The trials by number, those under way included. Raises StorageError where sweep.json is damaged."""
        return tuple(self._trial(trial) for trial in self.document["trials"])

    def _trial(self, trial: Mapping[str, Any]) -> LoadedTrial:
        runs = (self.study.run(int(trial["number"]), int(seed)) for seed in trial["seeds"])
        return LoadedTrial(
            number=int(trial["number"]),
            name=trial.get("name"),
            status=str(trial["status"]),
            params=dict(trial["params"]),
            score=trial.get("score"),
            values=tuple(trial.get("values") or ()),
            runs=tuple(LoadedRun(run=run) for run in runs if run.spec.is_file()),
        )


def load(name: str) -> LoadedRun | LoadedStudy:
    """The run, else the study, of that name in the home of the current directory. Raises NotFoundError."""
    home = Home.locate()
    try:
        return LoadedRun(run=home.find(name))
    except NotFoundError as no_run:
        try:
            return LoadedStudy(study=find_study(home, name))
        except NotFoundError as no_study:
            raise (no_study if isinstance(no_study, AmbiguousNameError) else no_run) from None
