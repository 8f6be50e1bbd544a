"""A worker's own work: which orders it takes, when it ends, and a run that leaves its machine after any step."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from grpoctl.children import spawn
from grpoctl.config import load
from grpoctl.executors.base import Ended, Job, JobDone, Row, Step, event_line
from grpoctl.executors.execution import Hooks, execute
from grpoctl.executors.mailbox import Employer, Order, WorkerDir
from grpoctl.executors.slurm_worker import cores_of
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir
from tests.end_to_end.cli import eventually, rows_of, status_of

SHORT = ("max_steps=4", "evaluation.eval_steps=4", "task.eval_prompts=2", "checkpoints.save_steps=100")


class LeavingAfter(Hooks):
    """Has the run leave after this step."""

    def __init__(self, step: int) -> None:
        self._last, self.step = step, 0

    def row(self, row: Mapping[str, float | None]) -> None:
        self.step = int(row["step"] or 0)

    def leaving(self) -> str:
        return "the machine is needed" if self.step == self._last else ""


def new_run(home: Home) -> RunDir:
    return prepare(Launch(loaded=load("p31", profile="tiny", seed=0, overrides=SHORT)), home).run


def test_a_run_that_leaves_has_a_checkpoint_of_that_step_and_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    undisturbed, run = new_run(Home(path=tmp_path / "a")), new_run(Home(path=tmp_path / "b"))
    execute(undisturbed, Hooks(), mirror=False)
    left = execute(run, LeavingAfter(2), mirror=False).result
    assert (left["status"], left["message"]) == ("INTERRUPTED", "the machine is needed")
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-000002"]  # neither evaluated nor due
    assert not run.adapter.exists()
    assert execute(run, Hooks(), mirror=False).result["status"] == "COMPLETED"
    assert run.metrics.read_bytes() == undisturbed.metrics.read_bytes()
    assert run.samples.read_bytes() == undisturbed.samples.read_bytes()


def test_a_run_that_has_done_all_it_had_to_does_not_leave(tmp_path: Path) -> None:
    run = new_run(Home(path=tmp_path))
    assert execute(run, LeavingAfter(4), mirror=False).result["status"] == "COMPLETED"


@pytest.mark.parametrize(
    ("given", "cores"),
    [({"SLURM_CPUS_PER_TASK": "1", "SLURM_CPUS_ON_NODE": "64"}, 1), ({"SLURM_CPUS_ON_NODE": "1"}, 1)],
)
def test_a_worker_takes_the_cores_that_slurm_gave_it(given: dict[str, str], cores: int) -> None:
    assert cores_of(given) == cores
    assert cores_of({}) >= 1


def test_a_worker_works_for_one_attempt_at_driving(tmp_path: Path) -> None:
    study = StudyDir(path=tmp_path / "study")
    study.path.mkdir()
    worker = WorkerDir(path=tmp_path / "worker")
    with study.hold(attempt=True) as fence:
        worker.employ(Employer(study=study.path, attempt=fence.attempt, argv=("grpoctl", "sweep")))
        employer = worker.employer()
        assert (employer.argv, employer.gone()) == (("grpoctl", "sweep"), False)
        assert Employer(study=study.path, attempt=fence.attempt - 1, argv=()).gone()
    assert employer.gone()


def test_a_line_that_is_not_whole_yet_is_heard_once_it_is(tmp_path: Path) -> None:
    worker = WorkerDir(path=tmp_path)
    job = Job(number=1, runs=(tmp_path / "run",))
    given = Order(attempt=1, serial=1, job=job)
    assert worker.heard(1, 1, 0) == ((), 0)
    worker.tell(given, Step(job=1, run=job.runs[0], step=1, completions=2))
    line = event_line(Ended(job=1, run=job.runs[0], status="COMPLETED"))
    with worker.events(1, 1).open("ab") as file:
        file.write(line[:20])
    events, offset = worker.heard(1, 1, 0)
    assert [type(event) for event in events] == [Step]
    with worker.events(1, 1).open("ab") as file:
        file.write(line[20:])
    worker.tell(given, JobDone(job=1))
    later, _ = worker.heard(1, 1, offset)
    assert [type(event) for event in later] == [Ended, JobDone]


@pytest.mark.slow
@pytest.mark.process
def test_a_worker_takes_its_own_orders_and_leaves_when_slurm_says_so(tmp_path: Path) -> None:
    """A real worker process, without SLURM: the order of an earlier attempt is none of its business."""
    home = Home(path=tmp_path / "home")
    spec = load("p31", profile="tiny", seed=0, overrides=("max_steps=4000", "task.eval_prompts=2"))
    mine, theirs = (prepare(Launch(loaded=spec), home).run for _ in range(2))
    study, worker = StudyDir(path=tmp_path / "study"), WorkerDir(path=tmp_path / "worker")
    study.path.mkdir()
    with study.hold(attempt=True) as fence:
        worker.employ(Employer(study=study.path, attempt=fence.attempt, argv=("grpoctl", "sweep")))
        worker.give(Order(attempt=0, serial=7, job=Job(number=0, runs=(theirs.path,))))
        process = spawn(["grpoctl.executors.slurm_worker", str(worker.path), "600"], worker.log)
        try:
            eventually(worker.lock.exists, "the worker holds its folder")
            worker.give(Order(attempt=1, serial=1, job=Job(number=1, runs=(mine.path,))))
            eventually(lambda: len(rows_of(mine.metrics)) > 2, "its run is under way")
            process.send_signal(signal.SIGUSR1)
            assert process.wait(120) == 0, worker.log.read_text()
        finally:
            process.kill()
    last = rows_of(mine.metrics)[-1]["step"]
    assert status_of(mine) == "INTERRUPTED"
    assert mine.checkpoints / f"step-{last:06d}" in mine.checkpoints.iterdir()
    assert worker.why_left(1) == "left before its time limit"
    events, _ = worker.heard(1, 1, 0)
    assert {type(event) for event in events} <= {Row, Step}  # no word of an end: the rest goes to another worker
    assert not theirs.metrics.exists()
