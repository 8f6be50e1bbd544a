"""An executor whose runs are arithmetic: real directories and files, rewards by formula, events in any order one likes.

It can be stopped after any event, as kill -9 stops everything; what is then on disk is what a killed sweep leaves.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.config import RunSpec
from grpoctl.config import read_resolved
from grpoctl.executors.base import Died, Ended, Event, Job, JobDone, Row
from grpoctl.executors.execution import read_control
from grpoctl.files import RowWriter, read_rows, replace_json, truncate_after
from grpoctl.host import boot_id, host_name
from grpoctl.runs import status
from grpoctl.runs.claims import Claim, newest_claim
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status, StatusRecord

WORKER = 1  # the process that every claim names: not the driver's
CHECKPOINT = 2  # a run goes on from its last step that is a multiple of this


class Killed(BaseException):
    """Everything stopped at once."""


Reward = Callable[[RunSpec, float], float]  # the spec and the share of its budget spent -> eval/reward
Accident = Callable[[RunDir, int], Event | None]  # before a step of a run: what happens to it instead
Own = Callable[[RunDir, int], Status | None]  # after a step of a run: how it ends by itself there


def learning_curve(spec: RunSpec, share: float) -> float:
    """Better the nearer the learning rate is to 1e-3, with a little of the seed."""
    stage: Any = next(iter(spec.stages.values()))
    height = 0.6 - 0.05 * abs(math.log10(stage.learning_rate) + 3)
    return height * (0.5 + 0.5 * share) + 0.003 * spec.seed


@dataclass(kw_only=True)
class PaperExecutor:
    """`slots` jobs at once; whose turn it is, is drawn. `stop_after` events it raises Killed."""

    slots: int = 2
    order: int = 0
    stop_after: int | None = None
    reward: Reward = learning_curve
    accident: Accident = lambda run, step: None
    own: Own = lambda run, step: None
    began: list[Path] = field(default_factory=list)
    closed: bool = False
    told: int = 0
    _jobs: list[Iterator[Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.order)

    def free(self) -> int:
        return self.slots - len(self._jobs)

    def warm(self, jobs: int) -> None: ...

    def submit(self, job: Job) -> None:
        assert self.free() > 0
        self._jobs.append(self._work(job))

    def events(self, timeout: float) -> list[Event]:
        if not self._jobs:
            return []
        if self.told == self.stop_after:
            raise Killed
        self.told += 1
        turn = self._dice.randrange(len(self._jobs))
        event = next(self._jobs[turn])
        if isinstance(event, JobDone):
            del self._jobs[turn]
        return [event]

    def close(self) -> None:
        self.closed = True

    def _work(self, job: Job) -> Iterator[Event]:
        for path in job.runs:
            last: Event | None = None
            for last in self._run(job, RunDir(path=path)):
                yield last
            if isinstance(last, Died) or (isinstance(last, Ended) and last.status in ("PRUNED", "FAILED")):
                break
        yield JobDone(job=job.number)

    def _run(self, job: Job, run: RunDir) -> Iterator[Event]:
        """One run, gone on with from its last checkpoint."""
        spec = _spec(run.spec.read_bytes(), run.spec)
        self.began.append(run.path)
        claim_as(WORKER, run)
        _say(run, Status.RUNNING)
        run.result.unlink(missing_ok=True)
        rows = read_rows(run.metrics)
        step = (int(rows[-1]["step"]) // CHECKPOINT) * CHECKPOINT if rows else -1
        truncate_after(run.metrics, step)
        if (ended := self._ended(job, run, step)) is not None:  # as a trainer does that stands at its checkpoint
            yield ended
            return
        with RowWriter(run.metrics) as writer:
            while step < spec.max_steps:
                step += 1
                if (event := self.accident(run, step)) is not None:
                    _say(run, Status.RUNNING if isinstance(event, Died) else Status.FAILED)
                    yield event
                    return
                row = self._row(spec, step)
                writer.append(row)
                yield Row(job=job.number, run=run.path, row=row)
                if (ended := self._ended(job, run, step)) is not None:
                    yield ended
                    return
        yield _end(job, run, Status.COMPLETED)

    def _ended(self, job: Job, run: RunDir, step: int) -> Ended | None:
        """How the run ends after a step: all callbacks are asked, and its own come first, as in a trainer."""
        told = _asked(run, step)
        own = self.own(run, step) if step > 0 else None
        if own is not None:
            return _end(job, run, own)
        return None if told is None else _end(job, run, Status.PRUNED, told)

    def _row(self, spec: RunSpec, step: int) -> dict[str, Any]:
        assert spec.budget is not None
        spent = step * spec.budget.amount // spec.max_steps
        value = self.reward(spec, spent / spec.budget.amount)
        return {"step": step, "completions": spent, "tokens": 9 * spent, "eval/reward": value}


def claim_as(pid: int, run: RunDir) -> None:
    """Claim the run, as that process does when it begins it."""
    before = newest_claim(run.path)
    claim = Claim(directory=run.path, attempt=1 if before is None else before.attempt + 1)
    claim.file.parent.mkdir(exist_ok=True)
    document = {"schema": 1, "attempt": claim.attempt, "host": host_name(), "boot": boot_id(), "pid": pid}
    claim.file.write_text(json.dumps(document), encoding="utf-8")
    claim.heartbeat.write_text("ended", encoding="utf-8")


_SPECS: dict[bytes, RunSpec] = {}


def _spec(text: bytes, file: Path) -> RunSpec:
    """The spec in the file: the runs of a study killed again and again are the same few."""
    if text not in _SPECS:
        _SPECS[text] = read_resolved(file)
    return _SPECS[text]


def _asked(run: RunDir, step: int) -> str | None:
    """Why the run is to end at this evaluation, if its parent said so; it must have answered."""
    order = read_control(run.control)
    if order is None or step <= 0:
        return None
    assert not order.wait or order.seen >= step, "the parent had not answered"
    return None if order.end is None or step < order.since else order.end.message


def _end(job: Job, run: RunDir, how: Status, message: str = "") -> Ended:
    rows = read_rows(run.metrics)
    best = max(rows, key=lambda row: row["eval/reward"])
    names = ("eval/reward", "completions", "tokens")
    result = {
        "schema": 1, "status": str(how), "message": message, "seconds": 1.0, "final": {n: rows[-1][n] for n in names},
        "best": {n: best[n] for n in names}, "findings": [],
    }  # fmt: skip
    replace_json(run.result, result, durable=False)
    _say(run, how)
    return Ended(job=job.number, run=run.path, status=str(how), message=message)


def _say(run: RunDir, how: Status) -> None:
    status.write(run.status, StatusRecord(status=how, pid=1, started=1.0, ended=2.0 if how.ended else None))
