"""Runs, experiments and studies as Python sees them: read when asked, for the files may grow meanwhile."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from core.config import RunSpec
from core.errors import AmbiguousNameError, NotFoundError, UserError
from core.health.finding import Decider, Finding, RuledOut
from grpoctl.analysis.collect import RunRecord, side
from grpoctl.analysis.sweeps.document import read_study
from grpoctl.config import Library, read_resolved, sweep_library
from grpoctl.config import load as load_spec
from grpoctl.files import read_rows
from grpoctl.runs import dtype, liveness
from grpoctl.runs import profile as profiles
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.listing import result_of, summary
from grpoctl.runs.problems import read_problems
from grpoctl.runs.run_dir import Home, RunDir, path_of
from grpoctl.runs.study_dir import StudyDir, find_study, studies
from grpoctl.sweeps.loading import read_sweep
from grpoctl.sweeps.spec import SweepSpec

if TYPE_CHECKING:
    import pandas

Kind = Literal["run", "experiment", "study"]
Place = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRun:
    """One run."""

    run: RunDir

    @property
    def id(self) -> str:
        """Its id."""
        return self.run.id

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.run.path

    @property
    def status(self) -> str:
        """How it stands: RUNNING, COMPLETED, ... (docs/recording.md)."""
        return str(summary(self.run)["status"])

    @property
    def spec(self) -> RunSpec:
        """The resolved spec that was run."""
        return read_resolved(self.run.spec)

    @property
    def result(self) -> dict[str, Any]:
        """result.json. Raises NotFoundError while the run has not ended."""
        result = result_of(self.run)
        if result is None:
            raise NotFoundError(f"{self.run.id} has not ended: it has no result yet")
        return result

    @property
    def metrics(self) -> pandas.DataFrame:
        """One row per step, one column per metric, the step as the index; NaN where a step lacks a metric."""
        return _by_step(read_rows(self.run.metrics))

    @property
    def samples(self) -> pandas.DataFrame:
        """One row per completion that was trained on, the step as the index (docs/recording.md)."""
        return _by_step(read_rows(self.run.samples))

    @property
    def problems(self) -> pandas.DataFrame | None:
        """One row for each held-out completion of each evaluation (docs/recording.md).

        None where they were not recorded: by an older version, or by a program of another's (`trainer.kind: command`).
        """
        table = read_problems(self.run)
        if table is None or (table.num_rows == 0 and self.spec.trainer.kind == "command"):
            return None
        return table.to_pandas()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules of health found at its end, errors first. Raises NotFoundError while it has not ended."""
        return tuple(_finding(entry) for entry in self.result["findings"])


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedExperiment:
    """An experiment: its spec, and the finished runs that stand for it, as `compare` chooses them."""

    name: str
    spec: RunSpec  # that of its runs; where none has finished, what `grpoctl run` would run
    runs: tuple[LoadedRun, ...]  # one per seed, by seed

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its runs."""
        return tuple(run.spec.seed for run in self.runs)

    @property
    def result(self) -> dict[str, Any]:
        """The result of the run that ended last (of every seed: `[run.result for run in experiment.runs]`).

        Raises NotFoundError where none has ended.
        """
        return self._last.result

    @property
    def metrics(self) -> pandas.DataFrame:
        """The metrics of every run, the step as the index and the seed as a column."""
        return _joined([({"seed": seed}, run.metrics) for seed, run in zip(self.seeds, self.runs, strict=True)])

    @property
    def samples(self) -> pandas.DataFrame:
        """The samples of every run, the step as the index and the seed as a column."""
        return _joined([({"seed": seed}, run.samples) for seed, run in zip(self.seeds, self.runs, strict=True)])

    @property
    def problems(self) -> pandas.DataFrame | None:
        """The problems of every run, with the seed as a column; None where a run has none."""
        return _joined_problems([({"seed": seed}, run) for seed, run in zip(self.seeds, self.runs, strict=True)])

    @property
    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """Run id -> what the rules of health found at its end."""
        return {run.id: run.findings for run in self.runs}

    @property
    def _last(self) -> LoadedRun:
        if not self.runs:
            raise NotFoundError(f"no run of {self.name} has ended: it has no result yet")
        return max(self.runs, key=lambda run: run.run.result.stat().st_mtime)


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
    """One study: the sweep that was run, its trials and their runs."""

    study: StudyDir

    @property
    def id(self) -> str:
        """Its id."""
        return self.study.id

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.study.path

    @property
    def status(self) -> str:
        """How it stands: RUNNING, COMPLETED, STOPPED, FAILED or INTERRUPTED."""
        return str(self.document["status"])

    @property
    def spec(self) -> SweepSpec:
        """The resolved sweep that was run."""
        return read_sweep(self.study.spec)

    @property
    def document(self) -> dict[str, Any]:
        """What sweep.json says, its status as it is true now (docs/cli.md). Raises StorageError where it is damaged."""
        return read_study(self.study)

    @property
    def result(self) -> dict[str, Any]:
        """The document, once the study has ended. Raises NotFoundError while it has not."""
        document = self.document
        if document["status"] == "RUNNING":
            raise NotFoundError(f"{self.study.id} has not ended: it has no result yet; .document says how it stands")
        return document

    @property
    def trials(self) -> tuple[LoadedTrial, ...]:
        """The trials by number, those under way included. Raises StorageError where sweep.json is damaged."""
        return tuple(self._trial(trial) for trial in self.document["trials"])

    @property
    def best(self) -> LoadedTrial | None:
        """The trial that the study ranks first; None where it has none yet."""
        best = self.document.get("best")
        return next((trial for trial in self.trials if best and trial.number == best["number"]), None)

    @property
    def metrics(self) -> pandas.DataFrame:
        """The metrics of every run, the step as the index; trial and seed are columns."""
        return _joined([(place, run.metrics) for place, run in self._runs()])

    @property
    def samples(self) -> pandas.DataFrame:
        """The samples of every run, the step as the index; trial and seed are columns."""
        return _joined([(place, run.samples) for place, run in self._runs()])

    @property
    def problems(self) -> pandas.DataFrame | None:
        """The problems of every run, with trial and seed as columns; None where a run has none."""
        return _joined_problems(self._runs())

    @property
    def findings(self) -> dict[str, tuple[Finding, ...]]:
        """Run id -> what the rules of health found at its end, of the runs that have ended."""
        return {run.id: run.findings for _, run in self._runs() if run.run.result.exists()}

    def _runs(self) -> list[tuple[dict[str, object], LoadedRun]]:
        """(trial and seed, run) of each run that has begun."""
        numbered = [(trial.number, run) for trial in self.trials for run in trial.runs]
        return [({"trial": number, "seed": int(run.id.rpartition("-s")[2])}, run) for number, run in numbered]

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


Loaded = LoadedRun | LoadedExperiment | LoadedStudy


@overload
def load(name: Place, kind: Literal["run"], *, home: Place | None = None) -> LoadedRun: ...
@overload
def load(name: Place, kind: Literal["experiment"], *, home: Place | None = None) -> LoadedExperiment: ...
@overload
def load(name: Place, kind: Literal["study"], *, home: Place | None = None) -> LoadedStudy: ...
@overload
def load(name: Place, kind: None = None, *, home: Place | None = None) -> Loaded: ...
def load(name: Place, kind: Kind | None = None, *, home: Place | None = None) -> Loaded:
    """The run of this id or directory, else the experiment, else the study of that name, else what an id begins with.

    `kind` says which is meant: of an experiment's name, "run" is its newest run, ended or not. `home` is the folder of
    runs; by default the one of the current directory. Raises NotFoundError, AmbiguousNameError.
    """
    text, place = name_text(name), home_at(home)
    liveness.reconcile(place)
    match kind:
        case "run":
            return LoadedRun(run=place.find(text))
        case "study":
            return LoadedStudy(study=find_study(place, text))
        case "experiment":
            return _experiment(text, place)
        case None:
            return _any(text, place)
        case _:
            raise UserError(f"got kind {kind!r}; allowed: {', '.join(get_args(Kind))}")


def name_text(name: Place, argument: str = "name") -> str:
    """A name or path as text. Raises UserError for anything else, and for an empty one."""
    text = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(text, str) or not text:
        raise UserError(f"got {argument}={name!r}; expected a name or a path, e.g. 'p31' (see: grpoctl ls)")
    return text


def home_at(home: Place | None) -> Home:
    """The folder of runs that is meant; without a word that of the current directory. Raises UserError."""
    return Home.locate() if home is None else Home(path=Path(name_text(home, "home")).expanduser().absolute())


def _any(name: str, home: Home) -> Loaded:
    wanted = name.lower()
    known: Sequence[RunDir | StudyDir] = (*home.runs(), *studies(home))
    path = path_of(name)
    exact = any(wanted == entry.id for entry in known)
    exact = exact or RunDir(path=path).spec.is_file() or StudyDir(path=path).spec.is_file()
    if not exact and _is_experiment(name, home):
        return _experiment(name, home)
    try:
        return LoadedRun(run=home.find(name))
    except NotFoundError as no_run:
        try:
            return LoadedStudy(study=find_study(home, name))
        except AmbiguousNameError:
            raise
        except NotFoundError:
            try:
                return _experiment_of(side([run.path for run in home.runs()], name))  # by the hash of its spec
            except AmbiguousNameError:
                raise
            except NotFoundError:
                if wanted in sweep_library().files():
                    no_study = f"no study of {name} yet; start one with: grpoctl sweep {name}"
                    raise NotFoundError(no_study) from None
                raise no_run from None


def _is_experiment(name: str, home: Home) -> bool:
    """True for a file, a known or recorded name, and the name of an experiment that there are runs of."""
    if name.lower().endswith(".yaml") or re.fullmatch(r"[\w-]+@\d+(\+[0-9a-f]+)?", name):
        return True
    wanted = name.lower()
    return wanted in Library().files() or any(summary(run).get("experiment") == wanted for run in home.runs())


def _experiment(name: str, home: Home) -> LoadedExperiment:
    """The experiment with the runs that stand for it. Raises NotFoundError where it has neither runs nor a file."""
    stem = Path(name).stem if name.lower().endswith(".yaml") else name
    try:
        records = side([run.path for run in home.runs()], stem)
    except NotFoundError:
        spec = _planned(name, home)
        return LoadedExperiment(name=spec.name, spec=spec, runs=())
    return _experiment_of(records)


def _experiment_of(records: Sequence[RunRecord]) -> LoadedExperiment:
    """The runs of one spec as an experiment."""
    runs = tuple(LoadedRun(run=RunDir(path=record.path)) for record in records if record.path is not None)
    return LoadedExperiment(name=str(records[-1].result["experiment"]), spec=runs[-1].spec, runs=runs)


def _planned(name: str, home: Home) -> RunSpec:
    """What `grpoctl run NAME` would run here."""
    revisions = revisions_of(home)
    profile, _ = profiles.resolve_or_full(profiles.AUTO, lambda: profiles.full_of(name, (), revisions))
    return dtype.settled(load_spec(name, profile=profile, revisions=revisions).spec)


def _finding(entry: Mapping[str, Any]) -> Finding:
    """The finding that a result's entry tells of."""
    causes = (str(cause).partition(": ") for cause in entry.get("rules_out") or ())
    decider = entry.get("decider")
    return Finding(
        id=str(entry["id"]),
        severity=entry["severity"],
        summary=str(entry["summary"]),
        evidence=dict(entry.get("evidence") or {}),
        rules_out=tuple(RuledOut(id=cause, why=why) for cause, _, why in causes),
        suggest=tuple(entry.get("suggest") or ()),
        advice=str(entry.get("advice") or ""),
        confidence=entry.get("confidence", "strong"),
        decider=None
        if decider is None
        else Decider(
            question=decider["question"], overrides=tuple(decider["overrides"]), expects=tuple(decider["expects"])
        ),
    )


def _by_step(rows: Sequence[Mapping[str, object]]) -> pandas.DataFrame:
    import pandas

    frame = pandas.DataFrame(rows)
    return frame.set_index("step") if "step" in frame else frame


def _joined(parts: Iterable[tuple[Mapping[str, object], pandas.DataFrame]]) -> pandas.DataFrame:
    """The tables below each other, each with the columns that say where its rows are from, those first."""
    import pandas

    frames = []
    for place, frame in parts:
        named = frame.copy()
        for at, (column, value) in enumerate(place.items()):
            named.insert(at, column, value)
        frames.append(named)
    return pandas.concat(frames) if frames else pandas.DataFrame()


def _joined_problems(runs: Sequence[tuple[Mapping[str, object], LoadedRun]]) -> pandas.DataFrame | None:
    tables = [(place, table) for place, run in runs if (table := run.problems) is not None]
    return _joined(tables) if len(tables) == len(runs) and tables else None
