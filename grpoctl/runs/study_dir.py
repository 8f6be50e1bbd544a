"""Study directories: the only file that knows where a sweep's files are and what they are called.

A study is one sweep under way or ended. What is here: making, finding and holding one. What is not: what stands in its
files (grpoctl.sweeps), and its runs' own files (run_dir).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import AmbiguousNameError, BusyError, NotFoundError
from grpoctl.fence import Fence
from grpoctl.files import storage_errors
from grpoctl.runs.claims import terms
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import STUDIES, STUDY_SPEC, HeldDir, Home, RunDir, is_a_spec, path_of


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyDir(HeldDir):
    """One study's directory. Each property is the path of one file in it, whether or not it exists yet."""

    @property
    def home(self) -> Home:
        """The home the study lives in."""
        return Home(path=self.path.parent.parent)

    @property
    def spec(self) -> Path:
        """The resolved sweep: what is run is this file."""
        return self.path / STUDY_SPEC

    @property
    def state(self) -> Path:
        """How the study stands, trial by trial: the truth, replaced in one stroke."""
        return self.path / "sweep.json"

    @property
    def edits(self) -> Path:
        """What somebody asked of single trials while it ran (`sweep-edit`), a line each."""
        return self.path / "edits.jsonl"

    @property
    def storage(self) -> Path:
        """The SQLite file Optuna gets when no other storage is named."""
        return self.path / "study.db"

    @property
    def worker_logs(self) -> Path:
        """Folder: what each worker printed."""
        return self.path / "workers"

    @property
    def prefixes(self) -> Path:
        """Folder of what runs share: how they stood at the end of a stage (prefixes)."""
        return self.path / "prefixes"

    @property
    def figures(self) -> Path:
        """Folder of PNG files."""
        return self.path / "figures"

    def run(self, number: int, seed: int) -> RunDir:
        """The directory of a trial's run, whether or not it exists yet."""
        return RunDir(path=self.path / "runs" / f"{self.id}-t{number:04d}-s{seed}")

    def runs(self) -> list[RunDir]:
        """The runs that have a spec, by trial and seed, damaged ones that were moved aside left out.

        Raises StorageError where the study cannot be read.
        """
        with storage_errors("read", self.path):
            try:
                entries = [RunDir(path=Path(entry.path)) for entry in os.scandir(self.path / "runs") if entry.is_dir()]
            except FileNotFoundError:
                return []
        numbered = [(place, run) for run in entries if (place := _trial_and_seed(run)) is not None]
        return [run for _, run in sorted(numbered, key=lambda entry: entry[0]) if run.spec.exists()]

    @contextlib.contextmanager
    def hold(self, patience: float = 0.5, *, silent: float | None = None, attempt: bool = False) -> Iterator[Fence]:
        """Hold the study as a run is held (RunDir.hold). Raises BusyError naming the holder."""

        def busy(by: str) -> BusyError:
            return BusyError(f"{self.id} is driven by {by}; wait until it ends, or: grpoctl stop {self.id}")

        with self._claimed(busy, patience, terms(silent, watches=patience > 0, attempt=attempt)) as fence:
            yield fence

    @contextlib.contextmanager
    def hold_for_confirmation(self) -> Iterator[None]:
        """Only one process at a time runs fresh seeds of the study's winner. Raises BusyError naming the holder."""
        with hold_lock(self.path / "confirm.lock", 0.5) as holder:
            if holder is not None:
                by = f"process {holder}" if holder else "another process"
                raise BusyError(f"the winner of {self.id} is being confirmed by {by}; wait until it ends")
            yield


def study_of(run: RunDir) -> StudyDir | None:
    """The study that a run is of; None for one of its own."""
    study = StudyDir(path=run.path.parent.parent)
    return study if study.spec.is_file() else None


def studies(home: Home) -> list[StudyDir]:
    """Every study that has its spec, the one begun last first. Raises StorageError where the home cannot be read."""
    with storage_errors("read", home.path / STUDIES):
        try:
            dirs = [StudyDir(path=Path(entry.path)) for entry in os.scandir(home.path / STUDIES) if entry.is_dir()]
        except FileNotFoundError:
            return []
    begun = {study.id: study.spec.stat().st_mtime for study in dirs if study.spec.exists()}
    return sorted((study for study in dirs if study.id in begun), key=lambda s: (begun[s.id], s.id), reverse=True)


def create_study(home: Home, stem: str, above: int = 0) -> StudyDir:
    """A new, empty `<stem>-<n>`, n one above `above` and the highest there is; two processes at once get two.

    Raises StorageError.
    """
    folder = home.path / STUDIES
    with storage_errors("create a study in", home.path):
        home.make()
        folder.mkdir(exist_ok=True)
        taken = (re.fullmatch(re.escape(stem) + r"-(\d+)", entry.name) for entry in folder.iterdir())
        number = max((int(match[1]) for match in taken if match), default=0)
        number = max(number, above) + 1
        while True:
            study = StudyDir(path=folder / f"{stem}-{number}")
            try:
                study.path.mkdir()
            except FileExistsError:
                number += 1
            else:
                return study


def find_study(home: Home, name: str) -> StudyDir:
    """The study of this path, id, sweep name (its newest study) or unique beginning of an id. Raises NotFoundError."""
    by_path = StudyDir(path=path_of(name))
    if by_path.spec.is_file():
        return StudyDir(path=by_path.path.resolve())
    return choose_study(name, studies(home), home)


def choose_study(name: str, known: Sequence[StudyDir], home: Home) -> StudyDir:
    """The one of this id, sweep name (the first of its studies) or unique beginning of an id. Raises NotFoundError."""
    wanted = name.lower()
    if not wanted:
        raise NotFoundError("got an empty name; grpoctl ls shows the studies there are")
    for study in known:
        if study.id == wanted:
            return study
    # `<sweep>-<profile>-<sha8>-<n>`: the sweep's name is what stands before the last three words
    named = [study for study in known if study.id.rsplit("-", 3)[0] == wanted]
    beginning = [study for study in known if study.id.startswith(wanted)]
    fitting = named or ([] if beginning and is_a_spec(wanted) else beginning)
    if named or len(fitting) == 1:
        return fitting[0]
    if fitting:
        some = ", ".join(study.id for study in fitting[:4]) + (", ..." if len(fitting) > 4 else "")
        raise AmbiguousNameError(f"{name!r} fits {len(fitting)} studies ({some}); give more of the id")
    raise NotFoundError(f"no study {name!r} in {home.path}; grpoctl ls shows the studies there are")


def _trial_and_seed(run: RunDir) -> tuple[int, int] | None:
    """The numbers in a run's name; None for another folder."""
    match = re.search(r"-t(\d+)-s(\d+)$", run.id)
    return (int(match[1]), int(match[2])) if match else None
