"""The executor slurm, with commands of SLURM's that are three lines of shell and workers that the test plays itself.

tests/services/test_slurm.py has a real cluster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.errors import RunError, UserError
from grpoctl.executors import slurm
from grpoctl.executors.base import Died, Ended, Event, Job, JobDone, Step
from grpoctl.executors.mailbox import Order, WorkerDir
from grpoctl.executors.slurm import Slurm, SlurmJobs, seconds_of
from grpoctl.fence import Fence
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir

SBATCH = """#!/bin/sh
if [ -f "$PLAYED/refuses" ]; then cat "$PLAYED/refuses" >&2; exit 1; fi
env > "$PLAYED/environment"
echo "$@" >> "$PLAYED/sbatch"
wc -l < "$PLAYED/sbatch" | tr -d ' '
"""
PLAYED = {
    "sbatch": SBATCH,
    "squeue": '#!/bin/sh\ncat "$PLAYED/queue"\n',
    "scancel": '#!/bin/sh\necho "$@" >> "$PLAYED/scancel"\n',
}


class Played:
    """A cluster that does what the test says. Its jobs are numbered from 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("sbatch", "scancel", "queue"):
            (folder / name).touch()

    def queue(self, *rows: str) -> None:
        """What squeue prints: job|STATE|reason."""
        (self.folder / "queue").write_text("".join(f"{row}\n" for row in rows))

    def refuse(self, text: str) -> None:
        (self.folder / "refuses").write_text(text)

    @property
    def submitted(self) -> list[str]:
        return (self.folder / "sbatch").read_text().splitlines()

    @property
    def cancelled(self) -> list[str]:
        return [word for line in (self.folder / "scancel").read_text().splitlines() for word in line.split()[1:]]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in PLAYED.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PLAYED", str(tmp_path))
    monkeypatch.setattr(slurm, "QUEUE_LOOK", 0.0)
    monkeypatch.setattr(slurm, "PATIENCE", 0.0)
    return Played(tmp_path)


@pytest.fixture
def study(home: Home) -> Iterator[StudyDir]:
    """A study that this process drives."""
    study = StudyDir(path=home.path / "sweeps" / "lr-study-tiny-0a1b2c3d-1")
    study.path.mkdir(parents=True)
    with study.hold(attempt=True):
        yield study


class Said(list[str]):
    """What the executor told the user."""


Make = Callable[..., Slurm]


@pytest.fixture
def make(played: Played, study: StudyDir) -> Iterator[Make]:
    with ExitStack() as stack:

        def made(workers: int = 2, said: Said | None = None, jobs: SlurmJobs | None = None) -> Slurm:
            say = (Said() if said is None else said).append
            executor = Slurm(workers, study.worker_logs, jobs or SlurmJobs(), argv=["grpoctl"], say=say)
            stack.callback(executor.close)
            return executor

        yield made


def folder(study: StudyDir, number: int) -> WorkerDir:
    return WorkerDir(path=study.worker_logs / "slurm-1" / f"worker-{number}")


def order(worker: WorkerDir) -> Order:
    found = worker.ordered()
    assert found is not None
    return found


@contextmanager
def at_work(study: StudyDir, number: int) -> Iterator[tuple[WorkerDir, Fence]]:
    """A worker that lives."""
    worker = folder(study, number)
    with worker.hold() as fence:
        yield worker, fence


def runs(study: StudyDir, *names: str) -> tuple[Path, ...]:
    return tuple(study.path / "runs" / name for name in names)


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_job_waits_for_a_worker_that_lives(played: Played, study: StudyDir, make: Make) -> None:
    executor = make()
    executor.warm(2)
    executor.submit(Job(number=7, runs=runs(study, "a")))
    played.queue("1|PENDING|Priority", "2|RUNNING|None")
    assert (len(played.submitted), executor.free(), executor.events(0)) == (2, 1, [])
    assert folder(study, 0).ordered() is None
    with at_work(study, 1) as (worker, fence):  # the second to be submitted is the first to start
        assert executor.events(0) == []
        given = order(worker)
        assert (given.attempt, given.job) == (fence.attempt, Job(number=7, runs=runs(study, "a")))
        worker.tell(given, Step(job=7, run=given.job.runs[0], step=1, completions=8))
        worker.tell(given, Ended(job=7, run=given.job.runs[0], status="COMPLETED"))
        worker.tell(given, JobDone(job=7))
        assert kinds(executor.events(0)) == ["Step", "Ended", "JobDone"]
        assert (executor.events(0), executor.free()) == ([], 2)


def test_what_is_left_of_a_job_goes_on_elsewhere_once_its_worker_is_gone(
    played: Played, study: StudyDir, make: Make
) -> None:
    said = Said()
    executor = make(said=said)
    executor.warm(2)
    played.queue("1|RUNNING|None", "2|RUNNING|None")
    with at_work(study, 1) as (second, _):
        with at_work(study, 0) as (first, _):
            executor.submit(Job(number=0, runs=runs(study, "a", "b", "c")))
            executor.events(0)
            given = order(first)
            first.tell(given, Ended(job=0, run=given.job.runs[0], status="COMPLETED"))
            first.leave(given.attempt, "left before its time limit")
        assert kinds(executor.events(0)) == ["Ended"]  # nothing is lost, so nothing is said to have died
        executor.events(0)
        assert order(second).job.runs == runs(study, "b", "c")
        assert len(said) == 1
        assert "left before its time limit" in said[0]
        first.tell(given, JobDone(job=0))  # it comes back from the dead
        assert (executor.events(0), executor.free()) == ([], 1)


def test_a_worker_that_starts_anew_is_given_a_job_anew(played: Played, study: StudyDir, make: Make) -> None:
    executor = make(1)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    played.queue("1|RUNNING|None")
    attempts = []
    for _ in range(2):
        with at_work(study, 0) as (worker, fence):
            executor.events(0)
            executor.events(0)
            attempts.append((fence.attempt, order(worker).attempt, order(worker).serial))
    assert attempts == [(1, 1, 1), (2, 2, 2)]


def test_a_job_at_which_workers_are_lost_again_and_again_has_died(played: Played, study: StudyDir, make: Make) -> None:
    executor = make(1)
    executor.submit(Job(number=3, runs=runs(study, "a")))
    played.queue("1|RUNNING|None")
    events: list[Event] = []
    for _ in range(slurm.TRIES):
        assert events == []
        with at_work(study, 0) as (worker, _):
            executor.events(0)
            worker.log.write_text("out of memory\n")
        events = executor.events(0)
    died, done = events
    assert isinstance(died, Died)
    assert (died.run, "out of memory" in died.message) == (runs(study, "a")[0], True)
    assert (done, executor.free()) == (JobDone(job=3), 1)


def test_progress_between_two_losses_forgives_them(played: Played, study: StudyDir, make: Make) -> None:
    executor = make(1)
    executor.submit(Job(number=3, runs=runs(study, "a")))
    played.queue("1|RUNNING|None")
    for step in range(2 * slurm.TRIES):
        with at_work(study, 0) as (worker, _):
            executor.events(0)
            worker.tell(order(worker), Step(job=3, run=runs(study, "a")[0], step=step, completions=8))
        assert kinds(executor.events(0)) == ["Step"]


def test_a_worker_that_runs_and_is_silent_is_replaced(
    played: Played, study: StudyDir, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = make(1)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    played.queue("1|RUNNING|None")
    with at_work(study, 0):
        executor.events(0)
        assert (len(played.submitted), played.cancelled) == (1, [])
        monkeypatch.setenv("GRPOCTL_SILENCE", "0")
        assert executor.events(0) == []
        assert (len(played.submitted), played.cancelled) == (2, ["1"])


@pytest.mark.parametrize("state", ["PENDING", "SUSPENDED"])
def test_a_worker_that_waits_in_the_queue_may_do_so_for_ever(
    played: Played, study: StudyDir, make: Make, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(slurm, "STARTING", 0.0)
    monkeypatch.setattr(slurm, "WORTH_SAYING", -1.0)
    said = Said()
    executor = make(1, said)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    played.queue(f"1|{state}|Resources")
    for _ in range(3):
        assert executor.events(0) == []
    assert (len(played.submitted), played.cancelled) == (1, [])
    assert len(said) == 1
    assert "Resources" in said[0]


@pytest.mark.parametrize("reason", ["launch failed requeued held", "launch_failed_requeued_held"])
def test_a_job_that_slurm_failed_to_start_and_holds_is_replaced(
    played: Played, study: StudyDir, make: Make, reason: str
) -> None:
    said = Said()
    executor = make(1, said)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    played.queue(f"1|PENDING|{reason}", "2|PENDING|Priority")
    for _ in range(3):
        assert executor.events(0) == []
    assert (len(played.submitted), played.cancelled, len(said)) == (2, ["1"], 1)


def test_jobs_that_slurm_fails_to_start_again_and_again_end_the_sweep(
    played: Played, study: StudyDir, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "SHORT_LIFE", 0.0)  # each waited in the queue before
    executor = make(1)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    played.queue(*(f"{job}|PENDING|{slurm.HELD}" for job in range(1, 9)))
    for _ in range(slurm.TRIES - 1):
        executor.events(0)
    with pytest.raises(RunError, match="as soon as they start"):
        executor.events(0)


def test_a_job_that_somebody_holds_stays(played: Played, study: StudyDir, make: Make) -> None:
    executor = make(1)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    played.queue("1|PENDING|JobHeldUser")
    executor.events(0)
    assert (len(played.submitted), played.cancelled) == (1, [])


def test_jobs_that_end_as_soon_as_they_start_end_the_sweep(played: Played, study: StudyDir, make: Make) -> None:
    executor = make(1)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    folder(study, 0).log.write_text("python: not found\n")
    for _ in range(slurm.TRIES - 1):
        executor.events(0)
    with pytest.raises(RunError, match="python: not found"):
        executor.events(0)
    assert len(played.submitted) == slurm.TRIES


def test_a_cluster_that_does_not_answer_changes_nothing(played: Played, study: StudyDir, make: Make) -> None:
    executor = make(1)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    (played.folder / "queue").unlink()
    for _ in range(2 * slurm.TRIES):
        assert executor.events(0) == []
    assert len(played.submitted) == 1


def test_a_cluster_that_refuses_for_a_while_is_asked_again(played: Played, study: StudyDir, make: Make) -> None:
    said = Said()
    executor = make(2, said)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    played.queue("1|PENDING|Priority", "2|PENDING|Priority")
    played.refuse("sbatch: error: Unable to contact slurm controller\n")
    executor.submit(Job(number=1, runs=runs(study, "b")))
    for _ in range(3):
        assert executor.events(0) == []
    assert (len(played.submitted), len(said)) == (1, 1)
    assert "Unable to contact" in said[0]
    (played.folder / "refuses").unlink()
    executor.events(0)
    assert len(played.submitted) == 2


def test_a_worker_that_leaves_after_hours_is_given_the_time_to_be_queued_again(
    played: Played, study: StudyDir, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = make(1)
    executor.submit(Job(number=0, runs=runs(study, "a")))
    played.queue("1|RUNNING|None")
    with at_work(study, 0) as (worker, fence):
        executor.events(0)
        later = time.monotonic() + 4 * 3600
        monkeypatch.setattr(slurm, "time", SimpleNamespace(monotonic=lambda: later, sleep=time.sleep))
        worker.leave(fence.attempt, "left before its time limit")
    executor.events(0)  # its job still asks to be queued again
    assert (len(played.submitted), played.cancelled) == (1, [])


def test_jobs_are_taken_away_at_the_end_and_those_of_earlier_drivers_at_the_beginning(
    played: Played, study: StudyDir, make: Make
) -> None:
    earlier = study.worker_logs / "slurm-0" / "worker-0"
    earlier.mkdir(parents=True)
    (earlier / "job-id").write_text("4711\n")
    executor = make(2)
    assert played.cancelled == ["4711"]
    executor.warm(2)
    executor.close()
    assert played.cancelled == ["4711", "1", "2"]


def test_a_job_asks_for_what_the_user_says(played: Played, study: StudyDir, make: Make) -> None:
    jobs = SlurmJobs(partition="gpu", gpus=2, time="4:00:00", account="lab", qos="low", arguments=("--mem=16G",))
    make(1, jobs=jobs).warm(1)
    (line,) = played.submitted
    words = line.split()
    assert {"--partition=gpu", "--gpus=2", "--time=4:00:00", "--account=lab", "--qos=low", "--requeue"} <= set(words)
    assert "--signal=B:USR1@120" in words
    assert words[-2:] == ["--mem=16G", str(folder(study, 0).path / "start.sh")]


def test_no_password_goes_to_slurm(played: Played, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOCTL_STORAGE", "postgresql://u:PW77@host/db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://u:PW78@host")
    make(1).warm(1)
    environment = (played.folder / "environment").read_text()
    assert "PLAYED=" in environment
    assert "PW7" not in environment


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("sbatch: error: invalid partition specified: nosuch\nsbatch: error: Batch job submission failed\n", "nosuch"),
        ("sbatch: unrecognized option '--nosuch'\nTry \"sbatch --help\"\n", "unrecognized option '--nosuch'"),
        ("", "exit code 1"),
    ],
)
def test_what_sbatch_refuses_is_said_in_its_words(played: Played, said: str, fact: str) -> None:
    played.refuse(said)
    with pytest.raises(UserError, match="sbatch refuses: ") as refused:
        slurm.check(SlurmJobs(partition="nosuch"))
    assert fact in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_cluster_whose_controller_does_not_answer_is_not_told_about_partitions(played: Played) -> None:
    played.refuse("sbatch: error: Unable to contact slurm controller (connect failure)\n")
    (played.folder / "programs" / "squeue").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UserError, match="no SLURM controller answers") as refused:
        slurm.check(SlurmJobs(partition="short"))
    assert "Unable to contact slurm controller (connect failure)" in str(refused.value)
    assert "sinfo" not in str(refused.value)


@pytest.mark.parametrize("limit", ["4:00:00", "90", "1-12", "2-0:30:15", "unlimited", "INFINITE"])
def test_a_time_limit_as_slurm_writes_it_is_taken(played: Played, limit: str) -> None:
    slurm.check(SlurmJobs(time=limit))
    assert f"--time={limit}" in played.submitted[-1]


@pytest.mark.parametrize("limit", ["foo", "4h", "1:2:3:4", "x-3", ""])
def test_any_other_time_limit_is_refused_before_slurm_is_asked(played: Played, limit: str) -> None:
    with pytest.raises(UserError, match=f"--slurm-time {limit}; allowed: "):
        slurm.check(SlurmJobs(time=limit))
    assert played.submitted == []


def test_a_machine_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="sbatch is not on the PATH"):
        slurm.check(SlurmJobs())


@pytest.mark.parametrize(
    ("limit", "seconds", "lead"),
    [
        ("4:00:00", 14_400, 120), ("30", 1800, 120), ("4", 240, 60), ("1:30", 90, 22), ("1", 60, 15), ("0:10", 10, 15),
        ("1-0", 86_400, 120), ("1-2:30", 95_400, 120), ("1-02:30:15", 95_415, 120), ("UNLIMITED", None, 120),
        ("", None, 120), ("1:2:3:4", None, 120),
    ],
)  # fmt: skip
def test_limits_are_read_as_slurm_reads_them(limit: str, seconds: int | None, lead: int) -> None:
    assert (seconds_of(limit), SlurmJobs(time=limit).lead) == (seconds, lead)
