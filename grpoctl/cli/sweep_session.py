"""One `grpoctl sweep`: resolve the sweep, open its study, drive it to its end, and print how it went."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from core.errors import GrpoError, StorageError, SupersededError, UserError
from core.policies.registry import check_policy
from grpoctl import console
from grpoctl.analysis.sweeps.report import head
from grpoctl.cli import exits
from grpoctl.cli.options import parse_seeds
from grpoctl.cli.sweep_progress import SweepProgress
from grpoctl.credentials import masked
from grpoctl.executors import registry, slurm
from grpoctl.executors.base import Executor
from grpoctl.executors.slots import Slot, check_devices, cpu_slots, gpu_slots, usable_cores
from grpoctl.executors.slurm import SlurmJobs
from grpoctl.executors.terminal import Terminated, signals_as_interrupts
from grpoctl.files import remove, storage_errors
from grpoctl.resources import verified
from grpoctl.runs import liveness
from grpoctl.runs import profile as profiles
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import STUDIES, Home
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.candidates import Candidates
from grpoctl.sweeps.driver import GO_ON, Driver, Plan, Watcher, conclude, end_status
from grpoctl.sweeps.loading import base_of, load_sweep, read_sweep, study_stem, sweep_sha
from grpoctl.sweeps.preview import notes
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Book
from grpoctl.sweeps.storage import BEHIND, StudyStorage, check_url
from grpoctl.sweeps.study import (
    OpenStudy,
    Terms,
    check_terms,
    kept_in,
    make_up,
    named_study,
    new_study,
    reopened,
    unfinished,
)
from grpoctl.sweeps.validation import check_trainers
from grpoctl.tracking.mirror import ADVICE, MirrorHandle, start_mirror

WORKERS = 4  # at most, by default: each has torch in memory, and each more is a trial less to learn from
MIRROR_PATIENCE = 30.0  # seconds to wait for MLflow after the sweep


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """The options that say where runs are executed, and how many at a time."""

    parallel: int | None = None
    gpus: str | None = None
    per_gpu: int = 1
    inline: bool = False
    executor: str | None = None
    slurm: SlurmJobs = field(default_factory=SlurmJobs)
    address: str | None = None  # of a Ray cluster

    @property
    def executed_by(self) -> str:
        """The name of the executor. Raises UserError where two options name one, or it is not installed."""
        if self.inline and self.executor not in (None, registry.INLINE):
            raise UserError(f"got --inline and --executor {self.executor}; leave one of them out")
        name = self.executor or (registry.INLINE if self.inline else registry.POOL)
        if self.address is not None and name != registry.RAY:
            raise UserError(f"got --address {self.address}, which is of a Ray cluster, without --executor ray")
        registry.check_installed(name)
        if name == registry.SLURM and self.gpus is not None:
            raise UserError("got --gpus with --executor slurm; --slurm-gpus says how many GPUs each worker's job gets")
        if name != registry.SLURM and self.slurm != SlurmJobs():
            raise UserError(f"got --slurm options with --executor {name}; add --executor slurm, or leave them out")
        return name

    def check(self) -> None:
        """Raises UserError where the options contradict each other, or a cluster refuses its part of them."""
        match self.executed_by:
            case registry.SLURM:
                slurm.check(self.slurm)
            case registry.RAY:
                from grpoctl.executors.ray import check_reachable

                check_reachable(self.address)
            case _:
                pass
        if self.gpus is not None:
            check_devices(parse_seeds(self.gpus), "--parallel N shares the cores")

    def slots(self, sweep: SweepSpec) -> tuple[Slot, ...]:
        """Where workers may run; none in this process. Raises UserError for options that contradict each other.

        Without a word: as many as cores, four at most, for the built-in model (its runs use one thread), else one; four
        on a cluster.
        """
        inline = self.executed_by == registry.INLINE
        if inline and (self.parallel or self.gpus):
            raise UserError("got --inline, which runs one at a time in this process, with --parallel or --gpus")
        if self.executed_by == registry.RAY:
            if self.gpus is not None:
                raise UserError(
                    "got --gpus, which are of this machine; Ray has its own: --per-gpu says how many share one"
                )
            return cpu_slots(self.parallel or self._unasked(sweep))
        if self.gpus is not None:
            if self.parallel is not None:
                raise UserError("got --gpus and --parallel; --per-gpu says how many workers each GPU gets")
            return gpu_slots(parse_seeds(self.gpus), self.per_gpu)
        if self.per_gpu != 1:
            raise UserError("got --per-gpu without --gpus; --parallel says how many workers there are")
        if inline:
            return ()
        return cpu_slots(self.parallel or self._unasked(sweep))

    def _unasked(self, sweep: SweepSpec) -> int:
        """Workers where nobody says how many."""
        if self.executed_by == registry.SLURM:
            return WORKERS
        return min(usable_cores(), WORKERS) if sweep.profile == profiles.TINY else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRequest:
    """The arguments of `grpoctl sweep`."""

    name: str
    overrides: tuple[str, ...] = ()
    profile: str = profiles.AUTO
    trials: int | None = None
    seeds: str | None = None
    storage: str | None = None
    workers: Workers = field(default_factory=Workers)
    resume: bool = False
    retry_failed: bool = False
    fail_on_trial_error: bool = False
    json: bool = False
    quiet: bool = False
    argv: tuple[str, ...] = ()


def resolve(request: SweepRequest, home: Home) -> SweepSpec:
    """The sweep under its profile. Raises SpecError, NotFoundError, UserError."""
    overrides = list(request.overrides)
    if request.seeds is not None:
        overrides.append(f"seeds={parse_seeds(request.seeds)}")
    revisions = revisions_of(home)
    profile, why = profiles.resolve(request.profile, lambda: base_of(request.name, overrides, revisions))
    if request.profile == profiles.AUTO and not request.json:
        console.print_text(f"profile {profile} ({why})")
    sweep = load_sweep(request.name, profile=profile, overrides=overrides, revisions=revisions).spec
    candidates = Candidates.of(sweep, revisions=revisions)
    if not sweep.ladder:  # whose rungs may have bases of their own: then their runs say it
        check_policy(candidates.reference({}))
    if request.workers.executed_by in (registry.INLINE, registry.POOL):  # workers elsewhere have what they need there
        check_trainers(candidates)
    return sweep


def run(request: SweepRequest, begun: Callable[[], None] = lambda: None) -> tuple[int, dict[str, Any]]:
    """Run a sweep, or continue its study, to the end; gives the exit code, and what `--notify` is told.

    `begun` is called once the study is driven: what is refused before that had started nothing.
    """
    study, document = run_to_end(request, Home.locate(), begun=begun)
    code = exits.exit_code_of_study(str(document["status"]))
    if request.fail_on_trial_error and any(trial["status"] == "FAILED" for trial in document["trials"]):
        code = exits.FAILED
    if request.json:
        console.print_json(document)
    else:
        console.print_sections(head(document))
    keys = ("study", "sweep", "profile", "status", "message", "metric", "best")
    return code, {**{key: document.get(key) for key in keys}, "study_dir": str(study.path)}


def run_to_end(
    request: SweepRequest,
    home: Home,
    watcher: Callable[[StudyDir], Watcher] | None = None,
    begun: Callable[[], None] = lambda: None,
) -> tuple[StudyDir, dict[str, Any]]:
    """The study and its document once it has ended; progress is printed meanwhile. Raises what ended it, but Ctrl-C.

    `watcher` makes, for the study, who is told of what ends meanwhile; `begun` is called once the study is driven.
    """
    liveness.reconcile(home)
    with signals_as_interrupts(), opened_study(request, home) as opened:
        unverified = None if opened.over else verified.unverified_text(verified.cuda_devices())
        for note in (*([] if unverified is None else [unverified]), *opened.notes):
            console.print_note(note)
        if opened.over:
            bring_up_to_date(request, opened)
        else:
            _drive(request, opened, None if watcher is None else watcher(opened.study), begun)
        return opened.study, opened.book.document()


def bring_up_to_date(request: SweepRequest, opened: OpenStudy) -> None:
    """Write into Optuna's database what the book of an ended study has and it lacks, and note where that failed."""
    known = opened.book.header.get(BEHIND)
    if behind := make_up(opened, terms(request, opened.sweep), request.storage):
        console.print_note(f"Optuna's database could not be brought up to date: {behind}")
    elif known:
        console.print_note(f"Optuna's database was behind ({known}); it is now complete")


@contextmanager
def opened_study(request: SweepRequest, home: Home) -> Iterator[OpenStudy]:
    """The study, new or continued, held as long as this lasts. Raises BusyError where another process drives it."""
    if request.storage:
        check_url(request.storage)  # before anything is written
    with ExitStack() as stack:
        existing, sweep = _study_and_sweep(request, home)
        agreed = terms(request, sweep)  # options that contradict each other are refused before anything is written, too
        request.workers.check()
        if existing is not None:
            stack.enter_context(existing.hold(attempt=True))
            remove(existing.control)  # it was for an earlier driver
            yield reopened(existing, agreed)
            return
        with _one_at_a_time(home):  # two that begin the same sweep at once: the second sees that the first drives it
            above = StudyStorage.highest(request.storage, study_stem(sweep)) if request.storage else 0
            opened = new_study(sweep, home, notes(sweep), replace(agreed, above=above))
            stack.enter_context(opened.study.hold(attempt=True))
        yield opened


def terms(request: SweepRequest, sweep: SweepSpec) -> Terms:
    """How far the study goes, and where it is kept."""
    return Terms(
        trials=request.trials,
        slots=max(1, len(request.workers.slots(sweep))),
        masked=masked(request.storage) if request.storage else "",
        retry_failed=request.retry_failed,
        asked={
            "name": request.name,
            "overrides": list(request.overrides),
            "seeds": request.seeds,
            "trials": request.trials,
        },
    )


def _study_and_sweep(request: SweepRequest, home: Home) -> tuple[StudyDir | None, SweepSpec]:
    """The study to continue, None for a new one, and its sweep."""
    if request.resume and (study := named_study(home, request.name)) is not None:
        if request.overrides or request.seeds:
            raise UserError(f"{study.id} continues with the settings it began with; leave out overrides and seeds")
        return study, read_sweep(study.spec)
    sweep = resolve(request, home)
    if not request.resume:
        return None, sweep
    study = unfinished(sweep, home)
    if study is None:
        console.print_note(f"no study of {sweep.name} to resume: starting a new one")
    return study, sweep if study is None else read_sweep(study.spec)


@contextmanager
def _one_at_a_time(home: Home) -> Iterator[None]:
    """Only one process begins a study in this home at a time."""
    with storage_errors("create a study in", home.path):
        home.make()
        (home.path / STUDIES).mkdir(exist_ok=True)
    with hold_lock(home.path / STUDIES / ".lock", None):
        yield


def _drive(request: SweepRequest, opened: OpenStudy, watcher: Watcher | None, begun: Callable[[], None]) -> None:
    """Open storage, mirror, progress and workers, and drive the study to its end. Raises what ended it, but Ctrl-C."""
    study, sweep, book = opened.study, opened.sweep, opened.book
    storage = open_storage(request, opened)
    workers = max(1, len(request.workers.slots(sweep)))
    book.header |= {"status": "RUNNING", "message": "", "ended": None, "workers": workers}
    book.save()
    mirror = start_mirror(study)
    progress = SweepProgress(json=request.json, quiet=request.quiet)
    plan = Plan(
        sweep=sweep,
        study=study,
        total=int(book.header["total"]),
        lag=book.header["lag"],
        fail_on_trial_error=request.fail_on_trial_error,
        watcher=watcher,
    )
    executor = registry.build(
        request.workers.executed_by,
        request.workers.slots(sweep),
        logs=study.worker_logs,
        argv=masked_argv(request),
        cluster=registry.Cluster(
            address=request.workers.address,
            per_gpu=request.workers.per_gpu,
            slurm=request.workers.slurm,
            say=progress.note,
        ),
    )
    driver = driver_of(plan, book=book, storage=storage, executor=executor, progress=progress)
    progress.start(book.document())
    begun()
    try:
        drive_to_end(driver, executor)
    finally:
        progress.finish()
        storage.close()
    _wait_for(mirror)


def driver_of(plan: Plan, *, book: Book, storage: StudyStorage, executor: Executor, progress: SweepProgress) -> Driver:
    """Who drives a study, by its allocation."""
    match plan.sweep.allocation:
        case "fixed":
            return Driver(plan, book=book, storage=storage, executor=executor, progress=progress)
        case "adaptive":
            from grpoctl.sweeps.adaptive import AdaptiveDriver  # loads numpy and scipy

            return AdaptiveDriver(plan, book=book, storage=storage, executor=executor, progress=progress)
        case _:
            assert_never(plan.sweep.allocation)


def drive_to_end(driver: Driver, executor: Executor) -> None:
    """Run trials until the study ends, and write its status. Raises the GrpoError that ended it, if one did."""
    problem: GrpoError | None = None
    try:
        executor.warm(min(executor.slots, driver.plan.total))
        driver.run()
        ending = end_status(driver)
    except KeyboardInterrupt as error:
        ending = ("INTERRUPTED", f"{'terminated' if isinstance(error, Terminated) else 'interrupted'}; {GO_ON}")
    except SupersededError:
        executor.close()
        raise  # the study is another driver's: nothing may be said of it here
    except GrpoError as error:
        problem, ending = error, ("INTERRUPTED", str(error) if "--resume" in str(error) else f"{error}; {GO_ON}")
    with suppress(KeyboardInterrupt):  # a second Ctrl-C kills the workers; how the study ended is written all the same
        executor.close()
    try:
        if (fault := conclude(driver.book, driver, ending)) is not None:
            console.print_note(fault)
        driver.save()  # last: whoever reads that the study ended finds everything there
    except StorageError:
        if problem is None:
            raise
    if problem is not None:
        raise problem


def open_storage(request: SweepRequest, opened: OpenStudy) -> StudyStorage:
    """The study in Optuna's database. A new study that the database refuses is taken away again."""
    study, sweep = opened.study, opened.sweep
    check_terms(opened.book.header, terms(request, sweep))
    where = request.storage or kept_in(study, opened.book.header)
    try:
        return StudyStorage.open(where, study.id, sweep, create=opened.fresh, sweep_sha=sweep_sha(sweep))
    except GrpoError:
        if opened.fresh:
            shutil.rmtree(study.path, ignore_errors=True)
        raise


def masked_argv(request: SweepRequest) -> list[str]:
    """The command line, the storage's password masked: a worker's arguments stand in the list of processes."""
    url = request.storage
    return [word.replace(url, masked(url)) if url else word for word in request.argv]


def _wait_for(mirror: MirrorHandle) -> None:
    """Until MLflow has it all, or the patience is over."""
    try:
        state = mirror.wait(MIRROR_PATIENCE)
    except KeyboardInterrupt:
        console.print_note(f"MLflow is behind: not waited for; {ADVICE}")
        return
    if not state.done:
        why = str(state.error).removesuffix(f"; {ADVICE}")
        console.print_note(f"MLflow is behind: {why}; {ADVICE}")
