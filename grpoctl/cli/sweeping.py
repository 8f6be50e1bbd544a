"""One `grpoctl sweep`: resolve the sweep, open its study, drive it, conclude, and say how it went."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import GrpoError, StorageError, UserError
from grpoctl import console
from grpoctl.analysis.sweeps.report import head
from grpoctl.cli import exits
from grpoctl.cli.seeds import seeds_of
from grpoctl.cli.sweep_progress import SweepProgress
from grpoctl.credentials import masked
from grpoctl.executors import registry
from grpoctl.executors.base import Executor
from grpoctl.executors.slots import Slot, cpu_slots, gpu_slots, usable_cores
from grpoctl.executors.terminal import Terminated, signals_as_interrupts
from grpoctl.files import storage_errors
from grpoctl.runs import liveness
from grpoctl.runs import profile as profiles
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.locks import hold_lock
from grpoctl.runs.run_dir import STUDIES, Home
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.driver import GO_ON, Driver, Plan, conclude, how_it_ended
from grpoctl.sweeps.loading import base_of, load_sweep, read_sweep, study_stem, sweep_sha
from grpoctl.sweeps.preview import notes
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.storage import BEHIND, StudyStorage, check_url
from grpoctl.sweeps.study import (
    Opened,
    Terms,
    check_terms,
    kept_in,
    make_up,
    named_study,
    new_study,
    reopened,
    unfinished,
)
from grpoctl.tracking.mirror import ADVICE, MirrorHandle, start_mirror

WORKERS = 4  # at most, unless asked for: each has torch in memory, and each more is a trial less to learn from
MIRROR_PATIENCE = 30.0  # seconds to wait for MLflow after the sweep


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """How runs are executed."""

    parallel: int | None = None
    gpus: str | None = None
    per_gpu: int = 1
    inline: bool = False
    executor: str | None = None

    @property
    def executed_by(self) -> str:
        """The name of the executor. Raises UserError where two options name one, or it is not installed."""
        if self.inline and self.executor not in (None, registry.INLINE):
            raise UserError(f"got --inline and --executor {self.executor}; leave one of them out")
        name = self.executor or (registry.INLINE if self.inline else registry.POOL)
        registry.check_installed(name)
        return name

    def slots(self, sweep: SweepSpec) -> tuple[Slot, ...]:
        """Where workers may run; none in this process. Raises UserError for options that contradict each other.

        Without a word: as many as cores, four at most, for the built-in model (its runs use one thread), else one.
        """
        inline = self.executed_by == registry.INLINE
        if inline and (self.parallel or self.gpus):
            raise UserError("got --inline, which runs one at a time in this process, with --parallel or --gpus")
        if self.gpus is not None:
            if self.parallel is not None:
                raise UserError("got --gpus and --parallel; --per-gpu says how many workers each GPU gets")
            return gpu_slots([int(str(gpu)) for gpu in seeds_of(None, self.gpus)], self.per_gpu)
        if self.per_gpu != 1:
            raise UserError("got --per-gpu without --gpus; --parallel says how many workers there are")
        if inline:
            return ()
        return cpu_slots(self.parallel or (min(usable_cores(), WORKERS) if sweep.profile == profiles.TINY else 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the command line asked for."""

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


def resolve(asked: Asked, home: Home) -> SweepSpec:
    """The sweep that is meant, under its profile. Raises SpecError, NotFoundError, UserError."""
    overrides = list(asked.overrides)
    if asked.seeds is not None:
        overrides.append(f"seeds={list(seeds_of(None, asked.seeds))}")
    revisions = revisions_of(home)
    profile, why = profiles.asked_or_chosen(asked.profile, lambda: base_of(asked.name, overrides, revisions))
    if asked.profile == profiles.AUTO and not asked.json:
        console.print_text(f"profile {profile} ({why})")
    return load_sweep(asked.name, profile=profile, overrides=overrides, revisions=revisions).spec


def run(asked: Asked) -> int:
    """The exit code of a sweep that was run, or gone on with, to its end."""
    home = Home.locate()
    liveness.reconcile(home)
    with signals_as_interrupts(), opened_study(asked, home) as opened:
        for note in opened.notes:
            console.print_note(note)
        if opened.over:
            say_made_up(asked, opened)
        else:
            _drive(asked, opened)
        document = opened.book.document()
        code = exits.exit_code_of_study(str(document["status"]))
        if asked.fail_on_trial_error and any(trial["status"] == "FAILED" for trial in document["trials"]):
            code = exits.FAILED
        _print(document, asked)
    return code


def say_made_up(asked: Asked, opened: Opened) -> None:
    """Bring Optuna's database to what the book of an ended study says, and note where that could not be done."""
    known = opened.book.header.get(BEHIND)
    if behind := make_up(opened, terms(asked, opened.sweep), asked.storage):
        console.print_note(f"Optuna's database could not be brought up to date: {behind}")
    elif known:
        console.print_note(f"Optuna's database was behind ({known}); it is now complete")


@contextmanager
def opened_study(asked: Asked, home: Home) -> Iterator[Opened]:
    """The study, new or to be gone on with, held as long as this lasts. Raises BusyError where somebody drives it."""
    if asked.storage:
        check_url(asked.storage)  # before anything is written
    with ExitStack() as held:
        existing, sweep = _meant(asked, home)
        wanted = terms(asked, sweep)  # options that contradict each other are refused before anything is written, too
        if existing is not None:
            held.enter_context(existing.hold())
            with storage_errors("write", existing.control):  # it asked an earlier driver to stop; from now on, this one
                existing.control.unlink(missing_ok=True)
            yield reopened(existing, wanted)
            return
        with _one_at_a_time(home):  # two that begin the same sweep at once: the second sees that the first drives it
            above = StudyStorage.highest(asked.storage, study_stem(sweep)) if asked.storage else 0
            opened = new_study(sweep, home, notes(sweep), replace(wanted, above=above))
            held.enter_context(opened.study.hold())
        yield opened


def terms(asked: Asked, sweep: SweepSpec) -> Terms:
    """How far the study goes, and where it is kept."""
    return Terms(
        trials=asked.trials,
        slots=max(1, len(asked.workers.slots(sweep))),
        masked=masked(asked.storage) if asked.storage else "",
        retry_failed=asked.retry_failed,
    )


def _meant(asked: Asked, home: Home) -> tuple[StudyDir | None, SweepSpec]:
    """The study to go on with, None for a new one, and its sweep."""
    if asked.resume and (named := named_study(home, asked.name)) is not None:
        if asked.overrides or asked.seeds:
            raise UserError(f"{named.id} continues with the settings it began with; leave out overrides and seeds")
        return named, read_sweep(named.spec)
    sweep = resolve(asked, home)
    if not asked.resume:
        return None, sweep
    if (found := unfinished(sweep, home)) is None:
        console.print_note(f"no study of {sweep.name} to resume: starting a new one")
    return found, sweep if found is None else read_sweep(found.spec)


@contextmanager
def _one_at_a_time(home: Home) -> Iterator[None]:
    """Only one process begins a study in this home at a time."""
    with storage_errors("create a study in", home.path):
        home.make()
        (home.path / STUDIES).mkdir(exist_ok=True)
    with hold_lock(home.path / STUDIES / ".lock", None):
        yield


def _drive(asked: Asked, opened: Opened) -> None:
    """Drive the study until it ends, however it does, and write down how. Raises what ended it, but Ctrl-C."""
    study, sweep, book = opened.study, opened.sweep, opened.book
    storage = opened_storage(asked, opened)
    book.header |= {"status": "RUNNING", "message": "", "ended": None}
    book.save()
    mirror = start_mirror(study)
    progress = SweepProgress(json=asked.json, quiet=asked.quiet)
    plan = Plan(
        sweep=sweep,
        study=study,
        total=int(book.header["total"]),
        lag=book.header["lag"],
        fail_on_trial_error=asked.fail_on_trial_error,
    )
    executor = _executor(asked, sweep, study)
    driver = Driver(plan, book=book, storage=storage, executor=executor, progress=progress)
    progress.start(book.document())
    try:
        _driven(driver, executor)
    finally:
        progress.finish()
        storage.close()
    _wait_for(mirror)


def _driven(driver: Driver, executor: Executor) -> None:
    """Go to the end; the book and the storage then say how that was. Raises the GrpoError that ended it, if one did."""
    problem: GrpoError | None = None
    try:
        executor.warm(min(executor.slots, driver.plan.total))
        driver.run()
        how = how_it_ended(driver)
    except KeyboardInterrupt as error:
        how = ("INTERRUPTED", f"{'terminated' if isinstance(error, Terminated) else 'interrupted'}; {GO_ON}")
    except GrpoError as error:
        problem, how = error, ("INTERRUPTED", str(error) if "--resume" in str(error) else f"{error}; {GO_ON}")
    with suppress(KeyboardInterrupt):  # a second Ctrl-C kills the workers; how the study ended is written all the same
        executor.close()
    try:
        if (fault := conclude(driver.book, driver, how)) is not None:
            console.print_note(fault)
        driver.save()  # the last word: whoever reads that it ended finds everything there
    except StorageError:
        if problem is None:
            raise
    if problem is not None:
        raise problem


def opened_storage(asked: Asked, opened: Opened) -> StudyStorage:
    """The study in Optuna's database. A new study that the database refuses is taken away again."""
    study, sweep = opened.study, opened.sweep
    check_terms(opened.book.header, terms(asked, sweep))
    where = asked.storage or kept_in(study, opened.book.header)
    try:
        return StudyStorage.open(where, study.id, sweep, create=opened.fresh, sweep_sha=sweep_sha(sweep))
    except GrpoError:
        if opened.fresh:
            shutil.rmtree(study.path, ignore_errors=True)
        raise


def _executor(asked: Asked, sweep: SweepSpec, study: StudyDir) -> Executor:
    workers = asked.workers
    return registry.build(workers.executed_by, workers.slots(sweep), logs=study.worker_logs, argv=shown_argv(asked))


def shown_argv(asked: Asked) -> list[str]:
    """The command line, the storage's password masked: a worker's arguments stand in the list of processes."""
    url = asked.storage
    return [word.replace(url, masked(url)) if url else word for word in asked.argv]


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


def _print(document: Mapping[str, Any], asked: Asked) -> None:
    """What there is to say at the end."""
    if asked.json:
        console.print_json(document)
    else:
        console.print_sections(head(document))
