"""Real processes that are started, replaced, killed, stopped and ended. What they work on is played (acting_worker)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpoctl.executors.base import Died, Ended, Job, JobDone, Row
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import THREAD_VARIABLES, Slot
from tests.end_to_end.cli import ROOT, eventually
from tests.grpoctl.executors.conftest import ACTING, NewPool, Plays, told

pytestmark = pytest.mark.process


def pid_of(job: Job, run: int = 0) -> int:
    """The worker that began the run."""
    file = job.runs[run] / "pid"
    return int(eventually(lambda: file.exists() and file.read_text(), "the run has begun"))


def gone(pid: int) -> bool:
    """Whether there is no such process, not even a dead one that nobody has buried."""
    return not Path(f"/proc/{pid}").exists()


def descriptors() -> set[str]:
    folder = Path("/proc/self/fd")
    return {f"{entry.name} {os.readlink(entry)}" for entry in list(folder.iterdir()) if os.path.lexists(entry)}


def test_a_job_is_told_in_order_and_left_after_a_failure(new_pool: NewPool, plays: Plays) -> None:
    pool, job = new_pool(), plays(4, "COMPLETED", "COLLAPSED", "FAILED", "COMPLETED")
    pool.submit(job)
    assert pool.free() == 0
    events = told(pool, 1)
    rows = [Row(job=4, run=run, row={"step": 0, "eval/reward": None}) for run in job.runs[:3]]
    ends = [
        Ended(job=4, run=run, status=status, error=error)
        for run, status, error in zip(
            job.runs, ("COMPLETED", "COLLAPSED", "FAILED"), (None, None, "StorageError"), strict=False
        )
    ]
    assert events == [rows[0], ends[0], rows[1], ends[1], rows[2], ends[2], JobDone(job=4)]
    assert pool.free() == 1


def test_a_worker_is_kept_until_a_run_fails_in_it(new_pool: NewPool, plays: Plays) -> None:
    pool = new_pool()
    jobs = [plays(0, "COMPLETED"), plays(1, "PRUNED"), plays(2, "FAILED"), plays(3, "COMPLETED")]
    for job in jobs:
        pool.submit(job)
        told(pool, 1)
    pids = [pid_of(job) for job in jobs]
    assert pids[0] == pids[1] == pids[2] != pids[3]
    assert pool.pids() == [pids[3]]
    eventually(lambda: pool.events(0.01) == [] and gone(pids[0]), "the one before is buried")


def test_no_more_workers_than_jobs_at_a_time(new_pool: NewPool, plays: Plays) -> None:
    pool = new_pool(3)
    assert (pool.slots, pool.free(), pool.pids()) == (3, 3, [])
    for number in range(2):
        pool.submit(plays(number, "COMPLETED"))
        told(pool, 1)
    assert len(pool.pids()) == 1
    pool.warm(2)
    assert len(pool.pids()) == 2
    with pytest.raises(ValueError, match="job 9 with 0 runs"):
        pool.submit(Job(number=9, runs=()))


def test_a_killed_worker_is_noticed_at_once_and_its_job_can_be_begun_again(new_pool: NewPool, plays: Plays) -> None:
    pool, other = new_pool(2), plays(1, "hang")
    pool.submit(plays(0, "COMPLETED", "hang"))
    pool.submit(other)
    killed, alive = pid_of(plays(0, "COMPLETED", "hang"), 1), pid_of(other)
    pool.events(0)
    os.kill(killed, signal.SIGKILL)
    events = told(pool, 1)  # the run would hang for ever
    again = plays(0, "COMPLETED", "COMPLETED")
    why = f"worker {killed} was killed (SIGKILL), perhaps because memory ran out"
    assert events[-2:] == [Died(job=0, run=again.runs[1], message=why), JobDone(job=0)]
    assert gone(killed)
    pool.submit(again)
    assert [event.status for event in told(pool, 1) if isinstance(event, Ended)] == ["COMPLETED"] * 2
    assert pool.free() == 1  # the other one never noticed
    assert not gone(alive)


@pytest.mark.parametrize("command", [ACTING, ("no such program",)])
def test_a_worker_that_ends_by_itself_is_asked_why(new_pool: NewPool, plays: Plays, command: tuple[str, ...]) -> None:
    pool, job = new_pool(command=command), plays(0, "crash")
    pool.submit(job)
    died = next(event for event in told(pool, 1) if isinstance(event, Died))
    assert died.run == job.runs[0]
    reason = "ended with code 7: out of luck (its log: " if command == ACTING else "cannot start a worker: "
    assert reason in died.message
    assert pool.free() == 1


def test_a_worker_that_dies_after_the_last_word_of_its_job_has_not_died_at_a_run(
    new_pool: NewPool, plays: Plays
) -> None:
    pool, job = new_pool(), plays(0, "last words", "COMPLETED")
    pool.submit(job)
    assert told(pool, 1)[1:] == [Ended(job=0, run=job.runs[0], status="FAILED"), JobDone(job=0)]


def test_closing_ends_every_worker_however_it_resists(new_pool: NewPool, plays: Plays) -> None:
    before = descriptors()
    pool = new_pool(4)
    jobs = [plays(0, "hang", "COMPLETED"), plays(1, "deaf"), plays(2, "hang"), plays(3, "COMPLETED")]
    for job in jobs:
        pool.submit(job)
    pids = [pid_of(job) for job in jobs]
    os.kill(pids[2], signal.SIGSTOP)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 5.0
    assert all(map(gone, pids))
    assert descriptors() == before
    ends = {event.job: event for event in pool.events(0) if isinstance(event, Ended | Died)}
    assert isinstance(ends[0], Ended)
    assert (ends[0].status, ends[0].run) == ("INTERRUPTED", jobs[0].runs[0])
    assert isinstance(ends[1], Died)
    assert "SIGKILL" in ends[1].message
    assert isinstance(ends[2], Ended)  # woken by SIGCONT, it could still speak
    pool.close()
    assert (pool.free(), pool.events(0)) == (4, [])
    with pytest.raises(ValueError, match="0 slots are free"):
        pool.submit(jobs[0])


PARENT = """\
import sys, time
from pathlib import Path
from grpoctl.executors.base import Job
from grpoctl.executors.pool import Pool
from grpoctl.executors.slots import cpu_slots
pool = Pool(cpu_slots(3), Path(sys.argv[1]), command=sys.argv[2:5])
for number, run in enumerate(sys.argv[5:]):
    pool.submit(Job(number=number, runs=(Path(run),)))
pool.warm(3)
print(*pool.pids(), flush=True)
time.sleep(60)
"""


def test_workers_do_not_outlive_their_parent(tmp_path: Path, plays: Plays) -> None:
    jobs = [plays(0, "hang"), plays(1, "hang")]
    command = [sys.executable, "-P", "-c", PARENT, str(tmp_path / "logs"), *ACTING, *(str(job.runs[0]) for job in jobs)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert {pid_of(job) for job in jobs} < set(workers)
        parent.kill()
    eventually(lambda: all(map(gone, workers)), "two at work and one idle are gone", seconds=4.0)


def test_what_a_worker_finds_around_it(
    new_pool: NewPool, plays: Plays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPOCTL_DEBUG", "1")
    for name in THREAD_VARIABLES:  # a smaller number of the tester's own would stay
        monkeypatch.delenv(name, raising=False)
    pool = new_pool((Slot(number=5, threads=3, device="GPU-7"),), argv=("grpoctl", "sweep", "x"))
    job = plays(0, "describe")
    pool.submit(job)
    told(pool, 1)
    seen = json.loads((job.runs[0] / "seen").read_text())
    pid = pid_of(job)
    threads = {seen["env"][name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")}
    assert threads == {"3"}
    assert (seen["env"]["CUDA_VISIBLE_DEVICES"], seen["env"]["GRPOCTL_DEBUG"]) == ("GPU-7", "1")
    assert (seen["sid"], seen["stdin"]) == (pid, os.devnull)  # Ctrl-C in a terminal goes to another session
    assert [seen["argv"][3], json.loads(seen["argv"][4])] == ["3", ["grpoctl", "sweep", "x"]]
    assert len(seen["fds"]) == 6  # three streams, two pipes, and the folder it listed
    assert (tmp_path / "logs" / "worker-5.log").read_text() == ""


def test_a_second_ctrl_c_kills_at_once(new_pool: NewPool, plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, job = new_pool(patience=60.0), plays(0, "deaf")
    pool.submit(job)
    pid = pid_of(job)

    def interrupted(seconds: float) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("grpoctl.executors.pool.time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.close()
    assert gone(pid)


def test_the_pool_is_an_executor(tmp_path: Path) -> None:
    from grpoctl.executors.base import Executor

    executor: Executor = Pool((), tmp_path)
    assert executor.slots == 0
    executor.close()
