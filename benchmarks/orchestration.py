"""What a pool of warm workers costs beside the runs themselves: everything that is no step, evaluation or checkpoint.

    python benchmarks/orchestration.py [--workers 2] [--steps 96]
    python benchmarks/orchestration.py [KEY=VALUE ...] --study advantage-study [--workers 2] [--json]

Without a study each worker first executes one short run (imports, first model); then the clock starts and each gets two
jobs of three runs. A run's own time is the sum of its timings (promise: the rest is under 5 % where a run takes six
seconds).

With one, an adaptive sweep runs under its profile tiny, and the workers' time, from when the first run begins to the
end of the last job, is told apart by when jobs were given out, when their rows and ends were heard of, and the timings
of runs:

- steps: the steps, evaluations and checkpoints of runs
- begin, resume: of a job, until its first step begins; with the calibration of a run that is gone on with elsewhere
- pause, end: of a job, from its last row on (checkpoint, findings, result, weights)
- round: a worker has nothing to do until the last job of a round is over
- driver: a worker has nothing to do, and the driver is at work (book, database, what is believed)
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from grpoctl.cli.sweep_progress import SweepProgress
from grpoctl.cli.sweep_session import SweepRequest, Workers, drive_to_end, driver_of, open_storage, opened_study
from grpoctl.config import load
from grpoctl.executors.base import Ended, Event, Job, JobDone, Row, Step
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import cpu_slots
from grpoctl.files import read_rows
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.driver import Plan


def jobs_of(home: Home, count: int, runs: int, steps: int) -> list[Job]:
    """Jobs of so many runs of p31 in its tiny profile."""
    override = f"stages.grpo.max_steps={steps}"
    seeds = iter(range(count * runs))

    def one() -> Path:
        loaded = load("p31", profile="tiny", seed=next(seeds), overrides=[override])
        return prepare(Launch(loaded=loaded), home).run.path

    return [Job(number=number, runs=tuple(one() for _ in range(runs))) for number in range(count)]


def work_off(pool: Pool, jobs: list[Job]) -> float:
    """Seconds until all are done. Raises RuntimeError where a run did not complete."""
    began, left, waiting = time.perf_counter(), len(jobs), list(jobs)
    while left:
        while waiting and pool.free():
            pool.submit(waiting.pop(0))
        for event in pool.events(1.0):
            if isinstance(event, Ended) and event.status != "COMPLETED":
                raise RuntimeError(f"{event.run.name}: {event.status}, {event.message}")
            left -= isinstance(event, JobDone)
    return time.perf_counter() - began


@dataclass(kw_only=True, slots=True)
class Heard:
    """One job: when it was given out, when its first and last rows were heard of, and when it was over."""

    run: RunDir
    given: float
    rows: list[tuple[float, int]] = field(default_factory=list)  # (when, step)
    over: float = 0.0
    paused: bool = False


class StampedPool(Pool):
    """A pool that notes when what happens, and when its driver listens."""

    jobs: dict[int, Heard]
    listening: list[tuple[float, float]]

    def submit(self, job: Job) -> None:
        """Give out the job."""
        self.jobs[job.number] = Heard(run=RunDir(path=job.runs[0]), given=time.perf_counter())
        super().submit(job)

    def events(self, timeout: float) -> list[Event]:
        """What has happened."""
        began = time.perf_counter()
        events = super().events(timeout)
        now = time.perf_counter()
        self.listening.append((began, now))
        for event in events:
            heard = self.jobs[event.job]
            match event:
                case Row(row=row):
                    heard.rows.append((now, int(row["step"] or 0)))
                case Step(step=step):
                    heard.rows.append((now, step))
                case Ended(status=status):
                    heard.paused = status == "INTERRUPTED"
                case JobDone():
                    heard.over = now
                case _:
                    pass
        return events


def drive(name: str, overrides: list[str], workers: int, home: Home) -> tuple[StampedPool, StudyDir]:
    """Run the sweep as `grpoctl sweep` does, without MLflow."""
    request = SweepRequest(
        name=name, overrides=tuple(overrides), profile="tiny", workers=Workers(parallel=workers), quiet=True
    )
    with opened_study(request, home) as opened:
        if opened.sweep.allocation != "adaptive":
            raise SystemExit(f"{name}: its jobs are trials, not runs; add allocation=adaptive")
        storage = open_storage(request, opened)
        pool = StampedPool(cpu_slots(workers), opened.study.worker_logs)
        pool.jobs, pool.listening = {}, []
        header = opened.book.header
        plan = Plan(sweep=opened.sweep, study=opened.study, total=int(header["total"]), lag=header["lag"])
        driver = driver_of(
            plan, book=opened.book, storage=storage, executor=pool, progress=SweepProgress(json=False, quiet=True)
        )
        try:
            drive_to_end(driver, pool)
        finally:
            storage.close()
        return pool, opened.study


def told_apart(pool: StampedPool, workers: int) -> dict[str, float]:
    """Seconds of all workers, by what they were for; `importing` is what came before the clock started."""
    jobs = list(pool.jobs.values())
    seconds: defaultdict[str, float] = defaultdict(float)
    timings = {run: {int(row["step"]): row for row in read_rows(run.timings)} for run in {job.run for job in jobs}}
    done: dict[RunDir, int] = {}  # the last step of each run so far
    clock = min(job.rows[0][0] - timings[job.run][0]["total"] for job in jobs if job.rows)
    seconds["importing"] = workers * (clock - min(job.given for job in jobs))
    for job in sorted(jobs, key=lambda job: job.given):
        resumed, before = job.run in done, done.get(job.run, -1)
        last = max((step for _, step in job.rows), default=before)
        own = {step: row for step, row in timings[job.run].items() if before < step <= last}
        done[job.run] = last
        first, steps = min(own, default=0), sum(row["total"] for row in own.values())
        again = own[first].get("calibrate", 0.0) if resumed and own else 0.0  # counts towards its first step
        ending = job.over - max(when for when, _ in job.rows) if job.rows else 0.0
        seconds["steps"] += steps - again
        seconds["pause" if job.paused else "end"] += ending
        seconds["resume" if resumed else "begin"] += job.over - max(job.given, clock) - steps + again - ending
    over = max(job.over for job in jobs)
    seconds["idle"] = workers * (over - clock) - sum(job.over - max(job.given, clock) for job in jobs)
    seconds["driver"] = seconds["idle"] - (waited := idle_while_listening(pool, workers, clock, over))
    seconds["round"] = waited
    del seconds["idle"]
    return {"workers": workers * (over - clock), **seconds}


def idle_while_listening(pool: StampedPool, workers: int, begins: float, ends: float) -> float:
    """Seconds of workers without a job while the driver waits for events: there was nothing to give out."""
    changes = sorted([(job.given, 1) for job in pool.jobs.values()] + [(job.over, -1) for job in pool.jobs.values()])
    total = 0.0
    for heard_from, heard_to in pool.listening:
        at, stop = max(heard_from, begins), min(heard_to, ends)
        while at < stop:
            busy = sum(change for when, change in changes if when <= at)
            until = min([when for when, _ in changes if at < when < stop], default=stop)
            total += (workers - busy) * (until - at)
            at = until
    return total


def study_main(name: str, overrides: list[str], workers: int) -> Mapping[str, float]:
    """Run the study, and tell its workers' time apart."""
    with tempfile.TemporaryDirectory() as folder:
        began, cpu = time.perf_counter(), time.process_time()
        with redirect_stdout(StringIO()):
            pool, _ = drive(name, overrides, workers, Home(path=Path(folder) / "home"))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        jobs = pool.jobs.values()
        counts = {"jobs": len(jobs), "runs": len({job.run for job in jobs}), "pauses": sum(job.paused for job in jobs)}
        return {**counts, "wall": wall, "driver_cpu": cpu, **told_apart(pool, workers)}


def pool_main(workers: int, steps: int) -> None:
    """Print the wall time, the runs' own time, and the share of the rest."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(path=Path(folder) / "home")
        pool = Pool(cpu_slots(workers), Path(folder) / "logs")
        try:
            cold = work_off(pool, jobs_of(home, workers, 1, 1))
            jobs = jobs_of(home, 2 * workers, 3, steps)
            wall = work_off(pool, jobs)
        finally:
            pool.close()
        runs = [RunDir(path=path) for job in jobs for path in job.runs]
        own = [sum(row["total"] for row in read_rows(run.timings)) for run in runs]
        rest = workers * wall - sum(own)
        print(f"{workers} workers, ready and one step after {cold:.1f} s; then {len(runs)} runs of {steps} steps")
        print(f"wall {wall:.2f} s, a run {sum(own) / len(own):.2f} s, beside it {rest / len(own):.3f} s")
        print(f"orchestration {rest / (workers * wall):.1%} of the workers' time")


def main() -> None:
    """Measure the pool alone, or a study."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="of the study")
    parser.add_argument("--study", help="a sweep, run under its profile tiny")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.study is None:
        pool_main(asked.workers, asked.steps)
        return
    measured = study_main(asked.study, asked.overrides, asked.workers)
    if asked.json:
        print(json.dumps({key: round(value, 3) for key, value in measured.items()}))
        return
    for key, value in measured.items():
        share = f"{value / measured['workers']:8.1%}" if key in PARTS else ""
        print(f"{key:12} {value:10.1f}{share}")


PARTS = ("steps", "begin", "resume", "pause", "end", "round", "driver")

if __name__ == "__main__":
    main()
