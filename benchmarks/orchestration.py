"""What a pool of warm workers costs beside the runs themselves: everything that is no step, evaluation or checkpoint.

    python benchmarks/orchestration.py [WORKERS] [STEPS]

Each worker first executes one short run (imports, first model); then the clock starts and each gets two jobs of three
runs. A run's own time is the sum of its timings (promise: the rest is under 5 % where a run takes six seconds).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from grpoctl.config import load
from grpoctl.executors.base import Ended, Job, JobDone
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import cpu_slots
from grpoctl.files import read_rows
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home, RunDir


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


def main() -> None:
    """Print the wall time, the runs' own time, and the share of the rest."""
    workers, steps = [*(int(word) for word in sys.argv[1:]), *(2, 96)[len(sys.argv) - 1 :]]
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


if __name__ == "__main__":
    main()
