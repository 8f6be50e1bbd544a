"""Run directories: the only file that knows where they are and what their files are called.

What is here: finding the home, making and finding runs, and holding one. What is not: what stands in the files
(grpoctl.files, status, provenance), how a lock works (locks) and how a run is started (launch).
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import AmbiguousNameError, BusyError, NotFoundError, StorageError
from grpoctl.fence import Fence
from grpoctl.files import read_json, storage_errors
from grpoctl.runs import status
from grpoctl.runs.claims import Claim, Claimed, Terms, holding, make_claim, newest_claim, silence, silent_for, terms
from grpoctl.runs.locks import hold_lock, is_locked, replace_lock

HOME_NAME = ".grpoctl"
HOME_VARIABLE = "GRPOCTL_HOME"
STUDIES = "sweeps"  # the folder of studies in a home (study_dir)
STUDY_SPEC = "sweep.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldDir:
    """What a run's directory and a study's have in common: one process holds it, another copies it to MLflow.

    Each property is the path of one file in it, whether or not it exists yet.
    """

    path: Path

    @property
    def id(self) -> str:
        """Its id, which is the directory's name."""
        return self.path.name

    @property
    def lock(self) -> Path:
        """Held by the one process that may write here."""
        return self.path / "lock"

    @property
    def log(self) -> Path:
        """What that process printed where nobody watched, and tracebacks."""
        return self.path / "log.txt"

    @property
    def control(self) -> Path:
        """What others ask of that process; it looks from time to time."""
        return self.path / "control.json"

    @property
    def mlflow(self) -> Path:
        """How far the copy in MLflow has come."""
        return self.path / "mlflow.json"

    @property
    def mirror_lock(self) -> Path:
        """Held by the one process that may write it to MLflow."""
        return self.path / "mirror.lock"

    @property
    def mirror_log(self) -> Path:
        """What that one printed."""
        return self.path / "mirror.log"

    def is_held(self, *, hung: bool = False) -> bool:
        """True while a process holds it, on whatever machine; this one's own hold counts.

        On this machine the lock says so; of another one's process it is true until its heartbeat was seen to stand
        still for a while (claims). With `hung` that ends it for a process of this machine, too.
        """
        claim = newest_claim(self.path)
        if claim is None or claim.ended or (claim.here and not hung):
            return is_locked(self.lock)
        if claim.here and not is_locked(self.lock):
            return False
        return silent_for(claim) < silence()

    def holder_elsewhere(self) -> Claim | None:
        """The claim of a process on another machine that has not let go, whether or not it lives; else None."""
        claim = newest_claim(self.path)
        return None if claim is None or claim.here or claim.ended else claim

    def lives_elsewhere(self) -> bool:
        """True while a process on another machine holds it."""
        return self.holder_elsewhere() is not None and self.is_held()

    @contextlib.contextmanager
    def _claimed(self, busy: Callable[[str], BusyError], patience: float, terms: Terms) -> Iterator[Fence]:
        """Hold lock and claim. `busy` makes the error of who has it, in words."""
        with contextlib.ExitStack() as stack:
            pid = stack.enter_context(hold_lock(self.lock, patience))
            claimed = make_claim(self.path, terms, locked=pid is not None)
            if not isinstance(claimed, Claimed):
                if claimed is not None and not claimed.here:
                    raise busy(f"process {claimed.pid} on {claimed.host}")
                raise busy(f"process {pid}" if pid else "another process")
            fence = stack.enter_context(holding(claimed, lasting=terms.attempt))
            if pid is not None:
                stack.enter_context(replace_lock(self.lock, fence))
            yield fence


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDir(HeldDir):
    """One run's directory. Each property is the path of one file in it, whether or not it exists yet."""

    @property
    def home(self) -> Home:
        """The home the run lives in; a sweep's run is two folders further down."""
        around = self.path.parent.parent
        return Home(path=around.parent.parent if (around / STUDY_SPEC).is_file() else around)

    @property
    def spec(self) -> Path:
        """The resolved spec: what is run is this file."""
        return self.path / "spec.yaml"

    @property
    def authored(self) -> Path:
        """The spec as its author wrote it; not every run has one."""
        return self.path / "authored.json"

    @property
    def provenance(self) -> Path:
        """Code, versions and machine, one entry per attempt."""
        return self.path / "provenance.json"

    @property
    def status(self) -> Path:
        """How the run stands."""
        return self.path / "status.json"

    @property
    def metrics(self) -> Path:
        """One row per step: the truth about the run."""
        return self.path / "metrics.jsonl"

    @property
    def has_begun(self) -> bool:
        """Whether it has recorded a step: one that never came so far has nothing to be looked at but its log."""
        with contextlib.suppress(OSError):
            return self.metrics.stat().st_size > 0
        return False

    @property
    def timings(self) -> Path:
        """One row per step: seconds. Apart from the metrics, which must be equal when a run is repeated."""
        return self.path / "timings.jsonl"

    @property
    def samples(self) -> Path:
        """One row per completion."""
        return self.path / "samples.jsonl"

    @property
    def problems(self) -> Path:
        """What each evaluation came to, problem by problem (grpoctl.runs.problems)."""
        return self.path / "problems.parquet"

    @property
    def problem_rows(self) -> Path:
        """The same as rows, while the run can go on."""
        return self.path / "problems.jsonl"

    @property
    def pictures(self) -> Path:
        """Folder of a PNG image of each evaluation, where the task has something to look at."""
        return self.path / "pictures"

    def picture(self, step: int) -> Path:
        """The image of the evaluation after so many steps."""
        return self.pictures / f"step-{step:06d}.png"

    @property
    def greedy(self) -> Path:
        """One row per held-out problem: the likeliest output of the weights at the end; not of language models."""
        return self.path / "greedy.jsonl"

    @property
    def result(self) -> Path:
        """What came out, once the run has ended."""
        return self.path / "result.json"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def adapter(self) -> Path:
        """Folder of the trained adapter, in PEFT's format; of the model where every weight was trained."""
        return self.path / "adapter"

    @property
    def merged(self) -> Path:
        """Folder of the model with the adapter in its weights, where the spec asks for it."""
        return self.path / "merged"

    @contextlib.contextmanager
    def hold(self, patience: float = 0.5, *, silent: float | None = None, attempt: bool = False) -> Iterator[Fence]:
        """Hold the run, and write into it through the fence that this gives; both end with this process.

        `patience` (seconds) outlasts those who only look whether it is held; 0 also waits for no heartbeat. `silent`:
        seconds without a heartbeat after which a process of another machine is taken for gone (default: `silence()`;
        0 for a caller who knows that it is). `attempt`: to go on with the run; then a process of this machine is, too,
        though it has the lock. Raises BusyError naming the holder.
        """

        def busy(by: str) -> BusyError:
            return BusyError(f"{self.id} is in use by {by}; wait until it ends, or start a new run without --resume")

        with self._claimed(busy, patience, terms(silent, watches=patience > 0, attempt=attempt)) as fence:
            yield fence


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """The folder all runs live in. Nothing is created before the first run."""

    path: Path

    @classmethod
    def locate(cls, start: Path | None = None, environ: Mapping[str, str] = os.environ) -> Home:
        """The home for commands given in `start` (the current directory): GRPOCTL_HOME, else the nearest `.grpoctl`
        in it or a parent, else the one that the first run will create in it.
        """
        with storage_errors("find a home from", start or Path(".")):
            here = (start or Path.cwd()).resolve()
            if named := environ.get(HOME_VARIABLE):
                return cls(path=(here / os.path.expanduser(named)).resolve())
            homes = (folder / HOME_NAME for folder in (here, *here.parents))
            return cls(path=next((home for home in homes if home.is_dir()), here / HOME_NAME))

    @property
    def runs_folder(self) -> Path:
        """The folder with one directory per run."""
        return self.path / "runs"

    @property
    def mlflow_store(self) -> Path:
        """The SQLite file MLflow gets when no other store is named."""
        return self.path / "mlflow.db"

    @property
    def mlflow_lock(self) -> Path:
        """Held while that file is created or migrated."""
        return self.path / "mlflow.lock"

    @property
    def mlflow_version(self) -> Path:
        """The version of MLflow that file was last used with."""
        return self.path / "mlflow.version"

    @property
    def mlflow_artifacts(self) -> Path:
        """Where artifacts of a store without a server go."""
        return self.path / "mlartifacts"

    def make(self) -> None:
        """The home's folder, hidden from git: runs are no source code, and must not make a repository look dirty."""
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")

    def create_run(self, stem: str) -> RunDir:
        """A new, empty `<stem>-<n>`, n one above the highest there is. Two processes at once get two different ones.

        Raises StorageError where the home cannot be written.
        """
        with storage_errors("create a run in", self.path):
            self.make()
            self.runs_folder.mkdir(exist_ok=True)
            number = max((number for number, _ in self._numbered(stem)), default=0) + 1
            while True:
                run = RunDir(path=self.runs_folder / f"{stem}-{number}")
                try:
                    run.path.mkdir()
                except FileExistsError:
                    number += 1
                else:
                    return run

    def runs(self) -> list[RunDir]:
        """Every run that has a spec, the one started last first. Raises StorageError where the home cannot be read."""
        runs = [run for run in self._directories() if run.spec.exists()]
        return sorted(runs, key=lambda run: (_started(run), run.id), reverse=True)

    def newest_unfinished(self, stem: str) -> RunDir | None:
        """The newest run of the stem that did not come to an end of its own; None where all did.

        It may be held by another process: `RunDir.hold` says so.
        """
        for _, run in sorted(self._numbered(stem), key=lambda entry: entry[0], reverse=True):
            record = status.read(run.status)
            if run.spec.exists() and (record is None or record.status.resumable):
                return run
        return None

    def find(self, name: str, *, begun: bool = False) -> RunDir:
        """The run of this path, id, experiment name (its newest run) or unique beginning of an id. A study's runs are
        found by their id from its `-t` on. begun: of an experiment's the newest that has recorded a step, if one has.

        Raises AmbiguousNameError naming what fits, NotFoundError naming the nearest there is.
        """
        by_path = RunDir(path=path_of(name))
        if by_path.spec.is_file():
            return RunDir(path=by_path.path.resolve())
        run = choose(name, [*self.runs(), *self._runs_of_studies(name.lower())], self.path)
        if not begun or run.has_begun or run.id == name.lower():
            return run
        return next((other for other in of_experiment(name.lower(), self.runs()) if other.has_begun), run)

    def _runs_of_studies(self, beginning: str) -> list[RunDir]:
        """The runs inside studies whose id begins so; a study is looked into only where the beginning names it."""
        names = (re.fullmatch(r"(.+)-t\d*(?:-s\d*)?", beginning) or ["", ""])[1]
        folder = self.path / STUDIES / names / "runs"
        if not names or not (path_of(str(folder.parent)) / STUDY_SPEC).is_file():
            return []
        exact = RunDir(path=folder / beginning)
        if exact.spec.is_file():
            return [exact]
        with storage_errors("read", folder):
            runs = [RunDir(path=Path(entry)) for entry in sorted(folder.glob(f"{beginning}*"))]
        return [run for run in runs if re.search(r"-s\d+$", run.id) and run.spec.exists()]

    def _directories(self) -> list[RunDir]:
        with storage_errors("read", self.runs_folder):
            try:
                return [RunDir(path=Path(entry.path)) for entry in os.scandir(self.runs_folder) if entry.is_dir()]
            except FileNotFoundError:
                return []

    def _numbered(self, stem: str) -> Iterator[tuple[int, RunDir]]:
        for run in self._directories():
            if match := re.fullmatch(re.escape(stem) + r"-(\d+)", run.id):
                yield int(match[1]), run


def _started(run: RunDir) -> float:
    """When the run was started, by its status; by the age of its spec where that does not say."""
    try:
        record = status.read(run.status)
    except StorageError:
        record = None
    return record.started if record else run.spec.stat().st_mtime


def path_of(name: str) -> Path:
    """The path that a name may be; one that there cannot be, of an unknown user or over-long, is one that is not."""
    path = Path(os.path.expanduser(name))
    try:
        (path / "spec.yaml").exists()
    except (OSError, ValueError):
        return Path(os.devnull)
    return path


def choose(name: str, runs: Sequence[RunDir], home: Path) -> RunDir:
    """The run of this id, experiment name (the first of its runs) or unique beginning of an id.

    An experiment's name means no other one's runs, though it may begin their ids (p30, p30-sound). Raises
    AmbiguousNameError naming what fits, NotFoundError naming the nearest there is.
    """
    wanted = name.lower()
    if not wanted:
        raise NotFoundError("got an empty name; grpoctl ls shows the runs there are")
    for run in runs:
        if run.id == wanted:
            return run
    if (own := next(of_experiment(wanted, runs), None)) is not None:
        return own
    fitting = [run for run in runs if run.id.startswith(wanted)]
    some = ", ".join(run.id for run in fitting[:4]) + (", ..." if len(fitting) > 4 else "")
    if fitting and is_a_spec(wanted) and all(map(_experiment, fitting)):  # each says that it is of another one
        raise NotFoundError(f"no run of {name!r} in {home}, an experiment; name another one by its id ({some})")
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise AmbiguousNameError(f"{name!r} fits {len(fitting)} runs ({some}); give more of the id")
    near = difflib.get_close_matches(wanted, [run.id for run in runs] + [_experiment(run) for run in runs], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "grpoctl ls shows the runs there are"
    raise NotFoundError(f"no run {name!r} in {home}; {hint}")


def is_a_spec(name: str) -> bool:
    """Whether an experiment or a sweep has this name: it is no beginning of an id then."""
    from grpoctl.config import Library, sweep_library  # not where only help is printed

    return name in Library().files() or name in sweep_library().files()


def of_experiment(name: str, runs: Iterable[RunDir]) -> Iterator[RunDir]:
    """Those of the runs that are of the experiment of that name, in their order; each is looked into when asked for."""
    return (run for run in runs if run.id.startswith(f"{name}-") and _experiment(run) == name)


def _experiment(run: RunDir) -> str:
    """The experiment the run belongs to; empty where its provenance does not say."""
    try:
        named = str((read_json(run.provenance) or {}).get("experiment") or "")
        return Path(named).name.removesuffix(".yaml").lower()
    except StorageError:
        return ""
