"""Adaptive allocation: a study whose completions go, job by job, to whichever run decides most.

What is here: the driver of such a study. What is not: the candidates (samplers), which job is next, and what is
believed of them (allocation).

A job is a candidate's run with one seed up to a share of its budget. It pauses there, at an evaluation, with a
checkpoint; a later job may go on with it. Jobs stand in sweep.json in the order they are given out, each with what it
showed; the last one may be ready, and wait for a worker. They come in rounds, and a round follows from those before it:
so a killed study repeats itself.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from core.config import RunSpec
from grpoctl.executors.base import Died, Ended, Event, Executor, Job, JobDone, Row, Step
from grpoctl.files import read_json, replace_json
from grpoctl.runs import status
from grpoctl.runs.problems import write_problems
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import FINISHED, Status, TrialStatus
from grpoctl.sweeps import allocation
from grpoctl.sweeps.allocation import Limits, Problem, Search, Seen, Standing
from grpoctl.sweeps.candidates import identity, name_of
from grpoctl.sweeps.driver import HOPELESS, STOPPED_BY_USER, Driver, Plan, Progress
from grpoctl.sweeps.losses import reason
from grpoctl.sweeps.pruning import sign
from grpoctl.sweeps.samplers import pool_of
from grpoctl.sweeps.state import Book, Point, TrialRecord
from grpoctl.sweeps.storage import StudyStorage
from grpoctl.sweeps.trial import (
    Yardstick,
    has_result,
    is_evaluation,
    measured_record,
    read_result,
    read_sound_rows,
    run_status,
    tell,
    tell_to_end,
    yardstick,
)

PAUSES = (1 / 8, 3 / 8)  # of a run's last stage, where it may pause
MOST_SEEDS = 100  # of a candidate, beyond those that the sweep names
SLACK = 0.005  # of a share: an evaluation so little before a rung is the rung's


def rungs_of(spec: RunSpec) -> tuple[float, ...]:
    """The shares of its budget at which a run may pause, by its clock (core's), and the end.

    Those are the first evaluations at or after an eighth and three eighths of its last stage: before that stage, runs
    that differ in it alone are the same.
    """
    stages, every = list(spec.stages.values()), spec.evaluation.eval_steps
    before, last = spec.max_steps - stages[-1].max_steps, stages[-1].max_steps
    if spec.budget is None:
        begun = before / spec.max_steps
    else:
        paid = sum(stage.max_steps * stage.rows_per_step for stage in stages[:-1]) if spec.budget.completions else 0
        begun = paid / spec.budget.amount
    ticks = [step - before for step in range(every, spec.max_steps, every) if step > before]
    pauses = [next((tick for tick in ticks if tick >= part * last - SLACK), last) for part in PAUSES]
    return tuple(dict.fromkeys(begun + (1 - begun) * tick / last for tick in (*pauses, last)))


class ActiveJob:
    """A job that a worker has, or that waits for one. `until` is the share of the run's budget at which it pauses."""

    def __init__(self, number: int, job: Mapping[str, Any], run: RunDir, measure: Yardstick) -> None:
        self.number, self.trial, self.run, self.measure = number, int(job["trial"]), run, measure
        self.until = float(job["share"])
        self.at = float(job["from"])  # the share it has reached
        self.waiting, self.paused, self.failed = True, False, ""
        self.ended = False  # its trial was stopped
        self.begun = False  # a worker has had it
        self.again = False  # it failed, and is gone on with once its worker is free
        self.over = False  # its worker is free, and what it showed is still to be looked at

    def answer(self, row: Mapping[str, Any]) -> None:
        """Tell the run that waits at this evaluation to go on, or to pause."""
        if self.ended:
            return
        share, step = self.measure.share(row), int(row["step"])
        due = self.until < 1 and share >= self.until - SLACK and row.get(self.measure.metric) is not None
        self.paused = due and share < 1
        message = f"paused after {share:.0%} of its budget; the sweep may go on with it"
        end = {"status": "INTERRUPTED", "message": message, "step": step} if self.paused else None
        tell(self.run, seen=step, end=end)

    def end(self) -> None:
        """Tell the run to end at its next evaluation."""
        self.ended = True
        tell_to_end(self.run, STOPPED_BY_USER)

    def prepare(self) -> bool:
        """What the run reads of its parent when it begins; False where it has come so far already."""
        if has_result(self.run) and run_status(self.run) != Status.PRUNED:
            return False
        rows = [row for row in read_sound_rows(self.run) if is_evaluation(row)]
        there = [row for row in rows if row.get(self.measure.metric) is not None]
        if self.until < 1 and any(self.measure.share(row) >= self.until - SLACK for row in there):
            return False
        seen = int(rows[-1]["step"]) if rows else 0
        tell(self.run, seen=seen)
        return True


class AdaptiveDriver(Driver):
    """A study whose jobs are chosen one by one. The executor's jobs are numbered as the book's."""

    def __init__(
        self, plan: Plan, *, book: Book, storage: StudyStorage, executor: Executor, progress: Progress
    ) -> None:
        super().__init__(plan, book=book, storage=storage, executor=executor, progress=progress)
        sweep = plan.sweep
        self._jobs: list[dict[str, Any]] = book.header.setdefault("jobs", [])
        self._pool = pool_of(sweep, plan.total)
        self._known = {identity(params): place for place, params in enumerate(self._pool)}
        self._places: dict[int, int] = {}  # of each trial, among the candidates
        for trial in book.ordered():
            self._put(trial)
        # of a metric that is known at a run's end alone, nothing is seen before
        has_curve = sweep.metric.startswith("eval/")
        self._rungs = rungs_of(self._candidates.spec(self._pool[0])) if has_curve else (1.0,)
        self._search = self._new_search()
        self._under_way: dict[int, ActiveJob] = {}
        self._made_ready: set[str] = set()  # runs that this driver has looked at, by id
        self._sign = sign(sweep.direction)

    @property
    def running(self) -> dict[int, float]:
        """The share of a run's budget that each trial under way has reached."""
        return {job.trial: job.at for job in self._under_way.values()}

    @property
    def left(self) -> float:
        """What jobs may still spend, in budgets of a run."""
        return self.plan.total * len(self.plan.sweep.seeds) - self._spent

    @property
    def _spent(self) -> float:
        """What the jobs so far were given, in budgets of a run."""
        return sum(float(job["share"]) - float(job["from"]) for job in self._jobs)

    def interrupt(self) -> None:
        """The trials as they stand: paused, or interrupted where a run of theirs is under way."""
        busy = {job.trial for job in self._under_way.values()}
        finished = not busy and bool(self.over or self.stopped)
        if finished:
            self._set_aside()
        for trial in self.book.ordered():
            if trial.number in busy:
                record = dataclasses.replace(self._record(trial), status=TrialStatus.INTERRUPTED)
                self.book.trials[trial.number] = record
            elif not trial.status.ended or finished:
                self.book.trials[trial.number] = self._record(trial, over=finished)
        if self._jobs:
            self._say(self._standing())

    def _stop_trial(self, number: int) -> None:
        """End a trial: its runs under way at their next evaluations, those that wait at once."""
        trial = self.book.trials[number]
        if trial.status.ended or trial.stopped:
            return  # it ended meanwhile
        self.book.trials[number] = dataclasses.replace(trial, stopped=STOPPED_BY_USER)
        for job in [job for job in self._under_way.values() if job.trial == number]:
            job.end()
            if job.waiting:
                self._end_job(job)
        self.book.trials[number] = self._record(self.book.trials[number])

    def _add_clone(self, edit: Mapping[str, Any]) -> None:
        """A changed copy among the candidates: it is begun next, as all are, and goes on where it is good enough."""
        record = dataclasses.replace(self._clone_of(edit), seeds=(), status=TrialStatus.PAUSED)
        self.book.trials[record.number] = record
        self._put(record)
        self._search = self._new_search()

    def _take_up(self) -> None:
        """The jobs that were decided on and have not ended, lined up again."""
        for number, job in enumerate(self._jobs):
            if "seen" not in job:
                self._begin(number)

    @property
    def _busy(self) -> bool:
        return bool(self._under_way)

    def _fill(self) -> None:
        """Give every idle worker a job: one that waits, else a new one.

        What a job showed decides nothing before its round is over: the next one of the round is given out first.
        """
        self._give_out()
        if over := [job for job in self._under_way.values() if job.over]:
            for job in over:
                self._end_job(job)
            self._give_out()
        if self._under_way and not any(job.waiting for job in self._under_way.values()):
            self._ask_job()  # ready for the worker that is free next

    def _give_out(self) -> None:
        if self.stopped:  # what nobody has begun is begun where the study is gone on with
            self._under_way = {number: job for number, job in self._under_way.items() if job.begun or not job.waiting}
        while self._executor.free() > 0:
            waiting = [job for job in self._under_way.values() if job.waiting]
            job = next((job for job in waiting if not self.prefixes.being_made([job.run])), None)
            if job is None:
                if not self._ask_job():
                    return
                continue
            job.waiting, job.begun = False, True
            self.prefixes.submitted([job.run])
            self._executor.submit(Job(number=job.number, runs=(job.run.path,)))

    def _ask_job(self) -> bool:
        """Give out the next job of the round, and begin it; False where there is none now.

        What is decided is decided where a round is over, and nothing is under way: whatever came first.
        """
        if self.stopped or self.over:
            return False
        seen = self._seen(self._jobs)
        given = [self._job_of(job) for job in self._jobs if "seen" not in job]
        if not given and self._jobs:
            standing = self._search.standing(seen, self._limits)
            self._say(standing)
            if self.plan.sweep.stop == "decided" and self._search.is_decided(standing):
                near = f"within {self.plan.sweep.tolerance:g} of the best candidate"
                self.over = f"decided: the choice is {near} with probability {standing.right:.2f}"
                return False
        job, wait = self._search.job(seen, given, self._limits)
        if job is None:
            self.over = "" if wait else "the budget is spent" if self.left < 1 else "nothing is left to run"
            return False
        return self._add_job(len(self._jobs), job)

    @property
    def _limits(self) -> Limits:
        """What the search may still do."""
        excluded = frozenset(
            self._places[trial.number]
            for trial in self.book.ordered()
            if trial.status is TrialStatus.FAILED or trial.stopped
        )
        return Limits(runs=self.left, excluded=excluded)

    def _add_job(self, number: int, job: allocation.Job) -> bool:
        """Put the job into the book, and begin it."""
        self._jobs.append(self._document(job))
        self.save()
        self._begin(number)
        return True

    def _document(self, job: allocation.Job) -> dict[str, Any]:
        """The job as the book has it; its trial is made where the candidate has none."""
        tried_by = next((number for number, place in self._places.items() if place == job.candidate), None)
        if tried_by is None:
            params = self._pool[job.candidate]
            name = name_of(self.plan.sweep, params)
            trial = TrialRecord(number=len(self.book.trials), name=name, params=params, seeds=(job.seed,))
            self._put(trial)
        else:
            trial = self.book.trials[tried_by]
            if job.seed not in trial.seeds:
                trial = dataclasses.replace(trial, seeds=(*trial.seeds, job.seed))
        self.book.trials[trial.number] = dataclasses.replace(trial, status=TrialStatus.RUNNING)
        same = [one for one in self._jobs if one["trial"] == trial.number and one["seed"] == job.seed]
        before = max((float(one["share"]) for one in same), default=0.0)
        return {"trial": trial.number, "seed": job.seed, "from": before, "share": job.share}

    def _begin(self, number: int) -> None:
        """Prepare the job's run and line it up; where the run has come so far already the job is done."""
        job = self._jobs[number]
        trial = self.book.trials[int(job["trial"])]
        run = self.plan.study.run(trial.number, int(job["seed"]))
        overrides = self._candidates.overrides(trial.params)
        loaded = self._candidates.loaded(trial.params, overrides, seed=int(job["seed"]))
        if run.id not in self._made_ready:  # else it paused under this very driver, or has yet to begin
            self._prepare(run, loaded, trial.number, overrides)
            self._made_ready.add(run.id)
        self.prefixes.add(run, trial.params, loaded.spec)
        self.book.header.setdefault("eval_prompts", loaded.spec.task.independent_eval_prompts)
        self.book.header.setdefault("reward_range", loaded.spec.task.reward_range)
        reopen(run)
        active = ActiveJob(number, job, run, yardstick(self.plan.sweep, loaded.spec))
        self._under_way[number] = active
        if trial.status is not TrialStatus.RUNNING:
            self.book.trials[trial.number] = dataclasses.replace(trial, status=TrialStatus.RUNNING)
        if trial.stopped or not active.prepare():
            self._end_job(active)

    def _handle(self, event: Event) -> None:
        """Act on an event of a worker."""
        job = self._under_way.get(event.job)
        if job is None:
            return
        match event:
            case Row() if is_evaluation(event.row):
                job.at = max(job.at, job.measure.share(event.row))
                job.answer(event.row)
            case Step():
                job.at = max(job.at, job.measure.share({"completions": event.completions, "step": event.step}))
            case Ended(status="INTERRUPTED") if job.paused:
                pass
            case Ended(status="FAILED" | "INTERRUPTED") | Died():
                self._job_lost(job, event)
            case Ended():
                self._tell_run(job.run)
            case JobDone():
                job.waiting, job.again = job.again, False
                job.over = not job.waiting
                self.prefixes.ended(job.run)
                if job.over and job.failed:  # its candidate is out: the round must not go on with it
                    self._end_job(job)
            case _:
                pass

    def _job_lost(self, job: ActiveJob, event: Ended | Died) -> None:
        """A run failed, or its worker died: it is gone on with, or its job has failed. Raises StorageError."""
        trial = self.book.trials[job.trial]
        too_many = self._losses.too_many(event)  # before the run is prepared, which claims it
        self._prepare_again(job.run, trial, int(self._jobs[job.number]["seed"]), event)
        if too_many:
            job.failed = f"{job.run.id}: {reason(event)}"
        else:
            self.book.trials[trial.number] = dataclasses.replace(trial, attempts=trial.attempts + 1)
            job.again = job.prepare()
        self.save()

    def _end_job(self, job: ActiveJob) -> None:
        """Take in what the job showed: the book has it, and the trial as it now stands."""
        del self._under_way[job.number]
        entry, trial = self._jobs[job.number], self.book.trials[job.trial]
        rungs = [rung for rung in self._rungs if float(entry["from"]) < rung]
        shown = [] if job.failed else observations(job.run, job.measure, rungs, float(entry["share"]))
        if not shown and not job.failed and not trial.stopped:
            job.failed = f"{job.run.id} has no {self.plan.sweep.take} {self.plan.sweep.metric}"
        entry["seen"] = shown
        if job.failed:
            record = dataclasses.replace(self._record(trial), status=TrialStatus.FAILED, message=job.failed, score=None)
        else:
            record = self._record(trial)
        self.book.trials[job.trial] = record
        self._unsaved = True  # whoever goes on without it finds the same in the run
        ended = [other.status for other in self.book.ordered() if other.status is not TrialStatus.RUNNING]
        if job.failed and self.plan.fail_on_trial_error:
            self._end(f"trial {job.trial} failed: {job.failed}", hopeless=True)
        elif len(ended) >= HOPELESS and all(one is TrialStatus.FAILED for one in ended):
            self._end(f"the first {HOPELESS} trials failed; the last one: {job.failed}", hopeless=True)

    def _record(self, trial: TrialRecord, *, over: bool = False) -> TrialRecord:
        """The trial as its runs stand now; `over` where the study has nothing more for it."""
        if trial.status is TrialStatus.FAILED:
            return trial
        runs = tuple(self.plan.study.run(trial.number, seed) for seed in trial.seeds)
        measure = yardstick(self.plan.sweep, self._candidates.spec(trial.params))
        statuses = {run.id: run_status(run) for run in runs if run.status.exists()}
        short = {run for run, how in statuses.items() if how not in FINISHED or how == Status.PRUNED}
        curve = tuple(
            Point(seed, measure.share(row), float(row[measure.metric]))
            for seed, run in zip(trial.seeds, runs, strict=True)
            for row in read_sound_rows(run)
            if row.get(measure.metric) is not None and is_evaluation(row)
        )
        graver = (TrialStatus.INVALID_ROLLOUT, TrialStatus.COLLAPSED)
        stands = next((how for how in graver if str(how) in statuses.values()), None)
        busy = any(job.trial == trial.number for job in self._under_way.values())
        if busy or not (over or trial.stopped):
            stands = TrialStatus.RUNNING if busy else TrialStatus.PAUSED
        elif trial.stopped:
            stands = TrialStatus.PRUNED
        elif stands is None:
            stands = TrialStatus.COMPLETED if len(short) < len(statuses) else TrialStatus.PRUNED
        reached = max((share for _, share, _ in curve), default=0.0)
        message = trial.stopped or f"set aside after {reached:.0%} of a run"
        record = dataclasses.replace(
            trial, status=stands, curve=curve, message=message if stands is TrialStatus.PRUNED else ""
        )
        return measured_record(record, runs, measure, short)

    def _set_aside(self) -> None:
        """The paused runs as pruned ones: nothing more comes of them, unless the study is gone on with."""
        for trial in self.book.ordered():
            for run in (self.plan.study.run(trial.number, seed) for seed in trial.seeds):
                if run_status(run) == Status.INTERRUPTED:
                    set_aside(run)

    def _put(self, trial: TrialRecord) -> None:
        """Note which candidate a trial tries; one that is not among those that are searched, a clone, comes last."""
        place = self._known.setdefault(identity(trial.params), len(self._pool))
        if place == len(self._pool):
            self._pool.append(dict(trial.params))
        self._places[trial.number] = place

    def _new_search(self) -> Search:
        """The search among the candidates there are now."""
        sweep = self.plan.sweep
        unused = (seed for seed in itertools.count() if seed not in sweep.seeds)
        more = itertools.islice(unused, MOST_SEEDS)
        problem = Problem(
            candidates=len(self._pool), seeds=(*sweep.seeds, *more), shares=self._rungs,
            tolerance=sweep.tolerance, confidence=sweep.confidence,
        )  # fmt: skip
        return Search(problem, sweep.study_seed)

    def _seen(self, jobs: Sequence[Mapping[str, Any]]) -> list[Seen]:
        """What the jobs showed, in their order, more being better."""
        return [
            Seen(
                candidate=self._places[int(job["trial"])], seed=int(job["seed"]),
                share=float(share), value=self._sign * float(value), error=float(error or 0.0),
            )
            for job in jobs
            for share, value, error in job.get("seen") or ()
        ]  # fmt: skip

    def _job_of(self, job: Mapping[str, Any]) -> allocation.Job:
        candidate = self._places[int(job["trial"])]
        return allocation.Job(candidate=candidate, seed=int(job["seed"]), share=float(job["share"]))

    def _standing(self) -> Standing:
        """What is believed with all that was seen."""
        return self._search.standing(self._seen(self._jobs), self._limits)

    def _say(self, standing: Standing) -> None:
        """What is believed, for the book: `search`."""
        numbers = {place: number for number, place in self._places.items()}
        sweep = self.plan.sweep
        self.book.analysis["search"] = {
            "choice": None if standing.choice is None else numbers[standing.choice],
            "right": round(standing.right, 4),
            "tolerance": sweep.tolerance,
            "confidence": sweep.confidence,
            "stop": sweep.stop,
            "ended": self.over,
            "decided": self.over.startswith("decided"),
            "jobs": len(self._jobs),
            "runs": round(self._spent, 4),
            "of": float(self.plan.total * len(sweep.seeds)),
            "candidates": len(self._pool),
            "seeds": standing.seeds,
            "left": [numbers[place] for place in standing.left if place in numbers],
            "believed": {
                str(numbers[place]): [round(self._sign * mean, 6), round(sd, 6), round(right, 4)]
                for place, (mean, sd, right) in sorted(standing.worth.items(), key=lambda one: numbers[one[0]])
            },
        }


def observations(run: RunDir, measure: Yardstick, rungs: Sequence[float], until: float) -> list[list[float | None]]:
    """[rung, value, error] at each of the rungs that the run has come to, up to `until`.

    A run that ended by itself has come to the end: what it is worth there counts for the rungs it did not reach.
    """
    rows = [row for row in read_sound_rows(run) if row.get(measure.metric) is not None and is_evaluation(row)]
    over = has_result(run) and run_status(run) != Status.PRUNED
    final = measure.value(read_result(run)) if over else None
    shown: list[list[float | None]] = []
    for rung in rungs:
        at = next((index for index, row in enumerate(rows) if measure.share(row) >= rung - SLACK), None)
        if at is not None and rung < 1:
            row = measure.taken_of(rows[: at + 1])
            shown.append([rung, float(row[measure.metric]), row.get(f"{measure.metric}_se")])
        elif over and final is not None:
            shown.append([rung, final, measure.error(read_result(run)) if rung >= 1 else None])
        if rung >= until and not over:
            break
    return [entry for entry in shown if math.isfinite(entry[1] or 0.0)]


def set_aside(run: RunDir) -> None:
    """Say in the run's files that it is pruned. Raises StorageError."""
    before = status.read(run.status)
    if before is None:
        return
    message = before.message.partition(";")[0].replace("paused", "set aside")
    if result := read_json(run.result):
        replace_json(run.result, {**result, "status": str(Status.PRUNED), "message": message})
    write_problems(run)  # its rows stay: it may be gone on with
    status.write(run.status, dataclasses.replace(before, status=Status.PRUNED, message=message))


def reopen(run: RunDir) -> None:
    """A run that was set aside may be gone on with again. Raises StorageError."""
    before = status.read(run.status) if run.status.exists() else None
    if before is not None and before.status is Status.PRUNED:
        status.write(run.status, dataclasses.replace(before, status=Status.INTERRUPTED, message=""))
