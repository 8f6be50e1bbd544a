"""Drives a study to its end: asks for trials, hands their runs to workers, prunes, tells, and concludes. One loop.

What is here: the order of things. What is not: how points are drawn (samplers), how runs are executed
(grpoctl.executors), what one trial has reported (trial), what the numbers say (grpoctl.analysis).
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

from core.config import RunSpec
from core.errors import BusyError, StorageError, in_words
from core.health import finding
from core.health.rules.gains import Ruler, gain_since, mean_gain, stage_gains
from core.training.outcome import check_expectations
from grpoctl.analysis.sweeps.figures.drawing import draw
from grpoctl.analysis.sweeps.findings import study_conclusions
from grpoctl.analysis.sweeps.ranking import ranked, ruler_of
from grpoctl.config import Loaded
from grpoctl.credentials import without_credentials
from grpoctl.executors.base import Died, Ended, Event, Executor, Job, JobDone, Row, Step
from grpoctl.fence import check_fence
from grpoctl.files import read_json, remove
from grpoctl.runs.claims import silence
from grpoctl.runs.dtype import settled_in, settled_trial
from grpoctl.runs.launch import prepare_in
from grpoctl.runs.liveness import holder_text
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import TrialStatus
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps import pruning
from grpoctl.sweeps.candidates import Candidates, identity, is_point, points
from grpoctl.sweeps.edits import requests
from grpoctl.sweeps.importances import importances
from grpoctl.sweeps.losses import Losses, reason
from grpoctl.sweeps.optuna_conversion import ended_trial
from grpoctl.sweeps.prefixes import SharedPrefixes, saved
from grpoctl.sweeps.samplers import Suggester
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Book, TrialRecord
from grpoctl.sweeps.storage import BEHIND, StudyStorage, project
from grpoctl.sweeps.trial import ActiveTrial, Decide, read_result, read_sound_rows, yardstick

ORPHAN = 30.0  # seconds for a worker to notice that its parent is gone
HOPELESS = 3  # so many first trials failed, and no other came to an end: the rest would, too
LOOK = 0.5  # seconds between two looks at what others ask of the driver
STORAGE_PACE = 5.0  # seconds at least between two updates of the database, a picture, while the study goes on
GO_ON = "continue with --resume"
STOPPED_BY_USER = "stopped by sweep-edit"


class Progress(Protocol):
    """Who shows how the study goes."""

    def update(self, document: Mapping[str, Any], running: Mapping[int, float]) -> None:
        """Called often; `running` is the share done of each trial under way."""
        ...

    def note(self, text: str) -> None:
        """Something the user should see."""
        ...


class Watcher(Protocol):
    """Who is told what has ended. A text that it gives ends the study: what is under way comes to its end."""

    def run_ended(self, run: RunDir) -> str | None:
        """Called once a run came to an end of its own, in whatever way, and its files say how."""
        ...

    def trial_ended(self, number: int) -> str | None:
        """Called once a trial is over, and the study's document says how; of an adaptive study never."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What is driven. `lag` is None where no trial learns from another."""

    sweep: SweepSpec
    study: StudyDir
    total: int
    lag: int | None
    fail_on_trial_error: bool = False
    watcher: Watcher | None = None


class Driver:
    """One study under way. Everything it knows is in the book and in the runs' directories."""

    def __init__(
        self, plan: Plan, *, book: Book, storage: StudyStorage, executor: Executor, progress: Progress
    ) -> None:
        self.plan, self.book = plan, book
        self._storage, self._executor, self._progress = storage, executor, progress
        self._active: dict[int, ActiveTrial] = {}
        self._losses = Losses()  # of this driver: what the driver's own end cut short is nobody's failure
        self._candidates = Candidates.of(plan.sweep)
        self._proposer = TrialProposer(plan.sweep, book, plan.lag)
        self.prefixes = SharedPrefixes(plan.study)
        self._exhausted = False
        self.over = ""  # what brought an adaptive study to its end
        self.stopped = ""  # why nothing more is asked for; empty where all trials were
        self.hopeless = False  # whether that is a failure
        self.met = next((trial.name for trial in book.ordered() if rung_is_met(trial)), None)  # the rung that ended it
        self._worked = float(book.header.get("seconds") or 0.0)
        self._began = time.monotonic()
        self._looked = 0.0
        self._unsaved = False  # whether the book lacks what has happened
        self._storage_behind = False  # whether the storage lacks what the book has
        self._storage_due = 0.0

    def run(self) -> None:
        """Go on until the study has what it was asked for, or is to stop. The book says how it ended.

        Raises StorageError where the disk or the storage refuses, KeyboardInterrupt where it is told to end.
        """
        self.prefixes = SharedPrefixes.of(
            self._candidates, self.plan.study, lambda spec: settled_in(spec, self.book.header, self._progress.note)
        )
        over = [(trial.params, trial.seeds) for trial in self.book.ordered() if trial.status.ended]
        for note in self.prefixes.begin(over):
            self._progress.note(note)
        self._take_up()
        self.save()
        while True:
            self._check_limits()
            self._fill()  # first: what is looked at and written now costs the workers no time
            self._catch_up()
            if not self._busy:
                self._progress.update(self.book.document(), self.running)  # what was taken in since the last event
                return
            for event in self._executor.events(LOOK):
                self._handle(event)
            self._progress.update(self.book.document(), self.running)

    def _take_up(self) -> None:
        """Line up what an earlier driver left under way."""
        for trial in self.book.ordered():
            if not trial.status.ended:
                self._start(trial)

    @property
    def _busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._active)

    def interrupt(self) -> None:
        """The trials under way as they stand, in the book: nobody works on them any more."""
        self.book.trials |= {number: trial.interrupted() for number, trial in self._active.items()}

    @property
    def running(self) -> dict[int, float]:
        """The share done of each trial under way."""
        return {number: trial.share for number, trial in self._active.items()}

    def _fill(self) -> None:
        """Give every idle worker something: what waits of trials under way, else a new trial."""
        while self._executor.free() > 0:
            waiting = [(active, runs) for active in self._active.values() for runs in active.waiting]
            chosen = next((job for job in waiting if not self.prefixes.being_made(job[1])), None)
            crowded = len(self._active) >= self._executor.slots
            if chosen is None and not (waiting and crowded) and self._ask() is not None:
                continue  # its runs wait now, unless all of them had ended before
            if not waiting:
                return
            trial, runs = chosen or waiting[0]
            trial.waiting.remove(runs)
            trial.working += 1
            self.prefixes.submitted(runs)
            self._executor.submit(Job(number=trial.record.number, runs=tuple(run.path for run in runs)))

    def _ask(self) -> ActiveTrial | None:
        """The next trial, in the book and in the storage; None where there is none now."""
        number = len(self.book.trials)
        if self.stopped or self.met or self._exhausted or number >= self.plan.total or not self._proposer.ready(number):
            return None
        chosen = self._proposer.choose(number)
        if chosen is None:
            self._exhausted = True
            return None
        name, params = chosen
        record = TrialRecord(number=number, name=name, params=params, seeds=tuple(self.plan.sweep.seeds))
        self.book.trials[number] = record
        self.save()
        return self._start(record)

    def _start(self, record: TrialRecord) -> ActiveTrial:
        """The trial's runs prepared, and what is left of it lined up."""
        study = self.plan.study
        overrides = self._candidates.overrides(record.params)
        runs = tuple(study.run(record.number, seed) for seed in record.seeds)
        spec = None
        for run, seed in zip(runs, record.seeds, strict=True):
            loaded = self._candidates.loaded(record.params, overrides, seed=seed)
            spec = loaded.spec
            self._prepare(run, loaded, record.number, overrides)
            self.prefixes.add(run, record.params, spec)
        assert spec is not None
        self.book.header.setdefault("eval_prompts", spec.task.independent_eval_prompts)
        self.book.header.setdefault("reward_range", spec.task.reward_range)
        trial = ActiveTrial(
            dataclasses.replace(record, status=TrialStatus.RUNNING),
            runs,
            yardstick(self.plan.sweep, spec),
            self._proposer.decider(record.number),
        )
        trial.enqueue()
        self._active[record.number] = trial
        self.book.trials[record.number] = trial.record
        if trial.over:  # the driver was killed between the last run's end and the tell
            self._finish(trial)
        return trial

    def _prepare(self, run: RunDir, loaded: Loaded, number: int, overrides: Sequence[str]) -> bool:
        """A sound directory for the run that nobody holds any more; whether a damaged one had to be put aside."""
        patience = max(ORPHAN, 2 * silence())
        deadline = time.monotonic() + patience
        while run.is_held(hung=True):  # a worker whose parent was killed is about to notice, wherever it is
            if time.monotonic() > deadline:
                by = holder_text(run) or "another process"
                raise BusyError(f"{run.id} is still held by {by} after {patience:g} s; end it, then --resume")
            time.sleep(0.05)
        loaded = settled_trial(loaded, self.book.header, self._progress.note)
        note = prepare_in(run, loaded, study=self.plan.study.id, trial=number, overrides=overrides)
        if note:
            self._progress.note(note)
        return bool(note)

    def _handle(self, event: Event) -> None:
        """Act on an event of a worker."""
        trial = self._active.get(event.job)
        if trial is None:
            return
        match event:
            case Row():
                trial.report(RunDir(path=event.run), event.row)
            case Step():
                trial.step(RunDir(path=event.run), {"completions": event.completions, "step": event.step})
            case Ended(status="FAILED" | "INTERRUPTED") | Died():
                self._run_lost(trial, event)
            case Ended():
                self._ended(trial, RunDir(path=event.run), event.status)
            case JobDone():
                trial.working -= 1
                if trial.over:
                    self._finish(trial)

    def _ended(self, trial: ActiveTrial, run: RunDir, how: str) -> None:
        """A run came to an end of its own."""
        self.prefixes.ended(run)
        trial.shares[run.id] = 1.0
        if how == "PRUNED":
            trial.give_up(run)
        self._tell_run(run)

    def _tell_run(self, run: RunDir) -> None:
        """Tell who watches that a run has ended; a text that comes back ends the study."""
        if self.plan.watcher is not None and (why := self.plan.watcher.run_ended(run)) is not None:
            self._end(why)

    def _run_lost(self, trial: ActiveTrial, event: Ended | Died) -> None:
        """A run failed, or its worker died: it is gone on with, or its trial has failed.

        Raises StorageError where the disk is at fault.
        """
        run = RunDir(path=event.run)
        self.prefixes.ended(run)
        too_many = self._losses.too_many(event)  # before the run is prepared, which claims it
        self._prepare_again(run, trial.record, trial.record.seeds[trial.runs.index(run)], event)
        if too_many:
            trial.fail(run, reason(event))
        else:
            trial.go_on(trial.left_from(run))
        self.book.trials[trial.record.number] = trial.record
        self.save()

    def _prepare_again(self, run: RunDir, record: TrialRecord, seed: int, event: Ended | Died) -> None:
        """Count the failure of a run, and make it ready to go on. Raises StorageError where the disk is at fault."""
        self.book.header["failures"] = int(self.book.header.get("failures") or 0) + 1
        self._progress.note(f"{run.id}: {reason(event)}")
        overrides = self._candidates.overrides(record.params)
        loaded = self._candidates.loaded(record.params, overrides, seed=seed)
        damaged = self._prepare(run, loaded, record.number, overrides)
        if isinstance(event, Ended) and event.error == "StorageError" and not damaged:
            raise StorageError(f"{run.id}: {reason(event)}")

    def _finish(self, trial: ActiveTrial) -> None:
        """Tell: the trial is over, and the book and the storage know how."""
        number = trial.record.number
        record = trial.ended()
        if self.plan.sweep.ladder:
            record = self._with_expectations(record, trial)
        for run in trial.runs:
            if str(run.path) not in record.runs:
                remove(run.path)  # prepared, and never begun
        del self._active[number]
        self.prefixes.trial_ended(record.params, record.seeds)
        self.book.trials[number] = record
        self.save()
        if self.plan.watcher is not None and (why := self.plan.watcher.trial_ended(number)) is not None:
            self._end(why)
        ended = [other.status for other in self.book.ordered() if other.status.ended]
        if record.status is TrialStatus.FAILED and self.plan.fail_on_trial_error:
            self._end(f"trial {number} failed: {record.message}", hopeless=True)
        elif len(ended) >= HOPELESS and all(status is TrialStatus.FAILED for status in ended):
            self._end(f"the first {HOPELESS} trials failed; the last one: {record.message}", hopeless=True)

    def _with_expectations(self, record: TrialRecord, trial: ActiveTrial) -> TrialRecord:
        """The record of a rung with what became of its expectations; the ladder ends where all are met."""
        spec = self._candidates.spec(record.params)
        runs = [(read_result(run), read_sound_rows(run)) for run in trial.runs]
        checked = averaged_expectations(rung_expects(self.plan.sweep, record.name, spec), spec, runs)
        record = dataclasses.replace(record, expects=checked)
        self.met = record.name if rung_is_met(record) else None
        return record

    def _end(self, why: str, *, hopeless: bool = False) -> None:
        """Ask for nothing more."""
        self.stopped = self.stopped or why
        self.hopeless = self.hopeless or hopeless

    def _check_limits(self) -> None:
        """What others ask, and whether the time is up; a study that is gone on with then has as long again."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        check_fence(self.plan.study.path)
        self._take_edits()
        if self.stopped:
            return
        hours = self.plan.sweep.max_hours
        if hours is not None and self.worked > hours * 3600 * (self._worked // (hours * 3600) + 1):
            self._end(f"the time limit of {hours:g} h is reached")
        elif stop_requested(self.plan.study):
            self._end("stopped, as asked")

    def _take_edits(self) -> None:
        """Act on what was asked of single trials since the last look, and note when that was."""
        taken: list[dict[str, Any]] = self.book.header.setdefault("edits", [])
        for edit in requests(self.plan.study)[len(taken) :]:
            if "clone" in edit:
                self._add_clone(edit)
            else:
                self._stop_trial(int(edit["stop_trial"]))
            taken.append({**edit, "trials": len(self.book.trials), "seconds": round(self.worked, 1)})
            self.save()
        if not taken:
            del self.book.header["edits"]

    def _stop_trial(self, number: int) -> None:
        """End a trial: its run under way at the next evaluation, those that wait at once."""
        record, trial = self.book.trials[number], self._active.get(number)
        if trial is None or record.stopped:
            return  # it ended meanwhile
        trial.stop(STOPPED_BY_USER)
        self.book.trials[number] = trial.record
        if trial.over:
            self._finish(trial)

    def _add_clone(self, edit: Mapping[str, Any]) -> None:
        """Begin a changed copy of a trial; the study has one trial more."""
        record = self._clone_of(edit)
        self.save()
        self._start(record)

    def _clone_of(self, edit: Mapping[str, Any]) -> TrialRecord:
        """The record of a changed copy, in the book; the total counts it."""
        number, source = len(self.book.trials), self.book.trials[int(edit["clone"])]
        name = None if source.name is None else f"{source.name}+{number}"
        record = TrialRecord(
            number=number, name=name, params=edit["params"], seeds=tuple(self.plan.sweep.seeds),
            origin={"clone": source.number, "changed": edit["changed"]},
        )  # fmt: skip
        self.book.trials[number] = record
        self.book.header["total"] = int(self.book.header["total"]) + 1
        self.plan = dataclasses.replace(self.plan, total=self.plan.total + 1)
        return record

    @property
    def worked(self) -> float:
        """Seconds of work on this study, over all attempts."""
        return self._worked + time.monotonic() - self._began

    def save(self) -> None:
        """The book with what can be said of it now; the storage after it, and at the study's end before it.

        Raises StorageError where the book cannot be written.
        """
        check_fence(self.plan.study.path)
        sweep = self.plan.sweep
        ranking = ranked(
            [
                {"number": t.number, "status": str(t.status), "values": t.values, "errors": t.errors}
                for t in self.book.ordered()
            ],
            direction=sweep.direction, worst=sweep.worst, ruler=ruler_of(self.book.header),
            believed=(self.book.analysis.get("search") or {}).get("believed"),
        )  # fmt: skip
        self.book.intervals = ranking.intervals
        self.book.analysis |= ranking.document() | {"best": self.book.best(ranking.best)}
        self.book.header["seconds"] = round(self.worked, 3)
        self._storage_behind = True
        if self.book.header["status"] != "RUNNING":  # the book last: it says whether the storage has it all
            self._bring_up()
        self.book.save()
        self._unsaved = False

    def _catch_up(self) -> None:
        """What has happened, in the book and then in the storage, where they lack it."""
        if self._unsaved:
            self.save()
        if self._storage_behind and time.monotonic() >= self._storage_due and self._bring_up():
            self.book.save()

    def _bring_up(self) -> bool:
        """Bring the storage to what the book has; whether the book says otherwise of it than before."""
        check_fence(self.plan.study.path)  # the storage has no fence of its own
        self._storage_behind, self._storage_due = False, time.monotonic() + STORAGE_PACE
        known = self.book.header.get(BEHIND)
        behind = project(self._storage, self.book)
        if behind and not known:  # a picture, made up for at the next call: no reason to lose hours of work
            self._progress.note(f"{behind}; the sweep continues and writes it later")
        elif known and not behind:
            self._progress.note("the study's database has everything again")
        return bool(behind) != bool(known)


def stop_requested(study: StudyDir) -> bool:
    """True when somebody asked the driver for no more trials (`sweep NAME --stop`)."""
    with suppress(StorageError):
        return bool((read_json(study.control) or {}).get("stop"))
    return False


class TrialProposer:
    """Which point a trial takes, and which trials it may learn from. `lag` is None where no trial learns from another.

    A trial learns from the trials before it less those that may still be at work, `lag` of them with itself. So what is
    asked, and what is pruned, is the same however long anything takes and however often it is interrupted.
    """

    def __init__(self, sweep: SweepSpec, book: Book, lag: int | None) -> None:
        self.sweep, self.book, self.lag = sweep, book, lag
        self._suggester = Suggester(sweep)

    def ready(self, number: int) -> bool:
        """True when all trials that this one learns from have ended."""
        return all(trial.status.ended for trial in self._before(number))

    def choose(self, number: int) -> tuple[str | None, Mapping[str, Any]] | None:
        """(name, params) of the trial; None where every point there is has been tried."""
        if self.sweep.ladder or self.sweep.candidates:
            listed = points(self.sweep)
            names = [*self.sweep.candidates, *(rung.name for rung in self.sweep.ladder)]
            clones = sum(bool(trial.origin) for trial in self.book.ordered() if trial.number < number)
            place = number - clones
            return (names[place], listed[place]) if place < len(listed) else None
        past = [ended_trial(trial) for trial in self._before(number) if is_point(self.sweep, trial.params)]
        before = [trial for trial in self.book.ordered() if trial.number < number]
        taken = {identity(trial.params) for trial in before if is_point(self.sweep, trial.params)}
        params = self._suggester.suggest(number, past, taken)
        return None if params is None else (None, params)

    def decider(self, number: int) -> Decide | None:
        """What decides whether a trial goes on: the rule, against the trials it learns from; None: nothing does."""
        rule = self.sweep.pruner
        if rule.name == "none":
            return None
        others = [trial.curve for trial in self._before(number) if trial.curve]
        seeds, direction = self.sweep.seeds, self.sweep.direction
        return lambda curve: pruning.decide(rule, curve, others, seeds, direction)

    def _before(self, number: int) -> list[TrialRecord]:
        """The trials that this one learns from."""
        count = 0 if self.lag is None else max(0, number - self.lag + 1)
        return [self.book.trials[before] for before in range(count)]


def rung_expects(sweep: SweepSpec, name: str | None, spec: RunSpec) -> Sequence[str]:
    """What the rung must meet: its own `expects`, else those of its experiment."""
    own = next((rung.expects for rung in sweep.ladder if rung.name == name), None)
    return spec.expects if own is None else own


def averaged_expectations(
    expects: Sequence[str], spec: RunSpec, runs: Sequence[tuple[Mapping[str, Any], Sequence[finding.Row]]]
) -> tuple[Mapping[str, Any], ...]:
    """Each expectation with the mean over the runs, each given by its result and its rows.

    Not observed (`met` None) where a run does not have the metric. A gain has an interval over seeds.
    """
    finals = [dict(result.get("final") or {}) for result, _ in runs]
    common = set.intersection(*(set(final) for final in finals)) if finals else set()
    means = {name: fmean(final[name] for final in finals) for name in common}
    ruler, names = Ruler.of(spec), list(spec.stages)
    gains = [stage_gains(rows, names, ruler) for _, rows in runs]
    whole = mean_gain([gain_since(rows, names, names[0], ruler) for _, rows in runs], ruler)
    stages = {name: mean_gain([of_run[name] for of_run in gains], ruler) for name in spec.stages}
    return tuple(check_expectations(expects, means, whole, stages))


def rung_is_met(trial: TrialRecord) -> bool:
    """True where a rung met all its expectations."""
    return trial.status is TrialStatus.COMPLETED and bool(trial.expects) and all(e["met"] for e in trial.expects)


def end_status(driver: Driver) -> tuple[str, str]:
    """(status, message) of a study whose driver came to its end: COMPLETED, STOPPED or FAILED."""
    if driver.hopeless:
        return "FAILED", driver.stopped
    unfinished = driver.plan.sweep.allocation == "adaptive" or len(driver.book.trials) < driver.plan.total
    if driver.stopped and not driver.met and not driver.over and unfinished:
        return "STOPPED", f"{driver.stopped}; {GO_ON}"
    if not any(trial.score is not None for trial in driver.book.trials.values()):
        return "FAILED", "no trial has a score"
    if driver.plan.sweep.allocation == "adaptive":
        return "COMPLETED", driver.over
    if driver.plan.sweep.ladder:
        return "COMPLETED", f"rung {driver.met} met its expectations" if driver.met else "no rung met its expectations"
    return "COMPLETED", ""


def conclude(book: Book, driver: Driver, how: tuple[str, str]) -> str | None:
    """Put the ending into the book, with importances and findings, and draw the figures; gives what went wrong there.

    How a study ended must not depend on what can be said of it: a fault in a report leaves the report out.
    """
    status, message = how
    ended = max(float(book.header.get("started") or 0.0), time.time())  # a clock may be set back
    book.header |= {"status": status, "message": message, "ended": ended, "seconds": round(driver.worked, 3)}
    if (shared := saved(driver.plan.study))["runs"]:
        book.header["shared"] = shared
    if status == "COMPLETED":
        driver.prefixes.close()
    driver.interrupt()
    for trial in book.ordered():
        if trial.status is TrialStatus.RUNNING:  # asked for, and not begun
            book.trials[trial.number] = dataclasses.replace(trial, status=TrialStatus.INTERRUPTED)
    book.changed()
    try:
        book.analysis["importances"] = importances(driver.plan.sweep, book.ordered())
        book.changed()
        book.analysis |= study_conclusions(book.document())
        if status != "INTERRUPTED":
            draw(book.document(), driver.plan.study.figures)
    except Exception as error:  # noqa: BLE001  the boundary around what is said of a study
        with suppress(OSError), driver.plan.study.log.open("a", encoding="utf-8") as log:
            log.write(without_credentials(traceback.format_exc()))
        return f"the report is incomplete: {in_words(error)} (traceback in {driver.plan.study.log})"
    return None
