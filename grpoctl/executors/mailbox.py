"""What a driver and its workers on other machines tell each other: files of a folder that both see.

    WORKER/worker.json               whose worker it is: study, the driver's attempt, the command line; written once
    WORKER/claims/                   the worker's claim and heartbeat (grpoctl.runs.claims): whether it lives
    WORKER/started.json              the worker's last attempt, by its own account
    WORKER/order.json                the driver's last job for it: attempt, serial, number, runs
    WORKER/events-<attempt>-<serial>.jsonl    what it tells of that job, a line each (grpoctl.executors.base)
    WORKER/left-<attempt>            why it ended by itself; not there where it was lost
    WORKER/log.txt                   what it prints

A job is for one attempt of the worker alone: whoever comes back from the dead finds nothing to do, and what it still
tells stands in a file that nobody reads. What is not here: starting workers, and which of them gets a job.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import BusyError, StorageError
from grpoctl.executors.base import Event, Job, event_line, event_of
from grpoctl.fence import Fence
from grpoctl.files import read_json, replace_json, replace_text, storage_errors
from grpoctl.runs.claims import newest_claim, silence, silent_for, terms
from grpoctl.runs.run_dir import HeldDir
from grpoctl.runs.study_dir import StudyDir

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Employer:
    """Who a worker works for: one attempt at driving a study. `argv` is the command line that its runs name."""

    study: Path
    attempt: int
    argv: tuple[str, ...]

    def gone(self) -> bool:
        """True when that driver has ended, another one has taken over, or nothing was heard of it for a while.

        A worker waits twice as long as everybody else: it costs a study little that a worker ends late, and much that
        all of them end at once.
        """
        claim = newest_claim(self.study)
        if claim is None or claim.attempt != self.attempt or claim.ended:
            return True
        return silent_for(claim) > 2 * silence()


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A job for one attempt of a worker. `serial` grows from order to order."""

    attempt: int
    serial: int
    job: Job


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerDir(HeldDir):
    """One worker's folder."""

    @property
    def settings(self) -> Path:
        """Whose worker it is."""
        return self.path / "worker.json"

    @property
    def order(self) -> Path:
        """The last job that it was given."""
        return self.path / "order.json"

    def events(self, attempt: int, serial: int) -> Path:
        """What it tells of a job."""
        return self.path / f"events-{attempt}-{serial}.jsonl"

    @contextlib.contextmanager
    def hold(self) -> Iterator[Fence]:
        """Be this worker; one that was not heard of for a while is taken over from. Raises BusyError."""

        def busy(by: str) -> BusyError:
            return BusyError(f"worker {self.path.name} is {by} already")

        with self._claimed(busy, 0.5, terms(None, watches=True, attempt=True)) as fence:
            # A claim under which nothing is changed goes when it is over, and its number comes again: an order of an
            # earlier attempt must not be taken for one of this.
            replace_json(self.path / "started.json", {"schema": SCHEMA, "attempt": fence.attempt, "pid": os.getpid()})
            yield fence

    def leave(self, attempt: int, why: str) -> None:
        """Say why this worker ends. Raises StorageError."""
        replace_text(self.path / f"left-{attempt}", why)

    def why_left(self, attempt: int) -> str:
        """Why it ended by itself; empty where it did not say so."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self.path / f"left-{attempt}").read_text(encoding="utf-8")
        return ""

    def employ(self, employer: Employer) -> None:
        """Write down whose worker it is. Raises StorageError."""
        with storage_errors("create", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        document = {"study": str(employer.study), "attempt": employer.attempt, "argv": list(employer.argv)}
        replace_json(self.settings, {"schema": SCHEMA, **document})

    def employer(self) -> Employer:
        """Whose worker it is. Raises StorageError where that is not written there."""
        document = read_json(self.settings)
        if document is None:
            raise StorageError(f"{self.settings} is missing: a sweep that runs on this cluster writes it")
        return Employer(
            study=Path(str(document["study"])), attempt=int(document["attempt"]), argv=tuple(document["argv"])
        )

    def give(self, order: Order) -> None:
        """Hand the worker a job. Raises StorageError."""
        job = {"number": order.job.number, "runs": [str(run) for run in order.job.runs]}
        document = {"schema": SCHEMA, "attempt": order.attempt, "serial": order.serial, **job}
        replace_json(self.order, document, durable=False)

    def ordered(self) -> Order | None:
        """The last job that was given; None before the first."""
        document = read_json(self.order)
        if document is None:
            return None
        job = Job(number=int(document["number"]), runs=tuple(Path(run) for run in document["runs"]))
        return Order(attempt=int(document["attempt"]), serial=int(document["serial"]), job=job)

    def tell(self, order: Order, event: Event) -> None:
        """Add an event of a job. What was written and closed is seen by other machines. Raises OSError."""
        with self.events(order.attempt, order.serial).open("ab") as file:
            file.write(event_line(event))

    def heard(self, attempt: int, serial: int, offset: int) -> tuple[Sequence[Event], int]:
        """What was told of a job after the offset, and the next offset. A line that is not whole yet is left."""
        try:
            descriptor = os.open(self.events(attempt, serial), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return (), offset
        try:
            data = os.pread(descriptor, 1 << 24, offset)
        finally:
            os.close(descriptor)
        whole = data[: data.rfind(b"\n") + 1]
        events = [event for line in whole.split(b"\n") if (event := event_of(line)) is not None]
        return events, offset + len(whole)


def driver_attempt(study: StudyDir) -> int:
    """The attempt at driving the study that this process makes: it holds the study."""
    claim = newest_claim(study.path)
    return 0 if claim is None else claim.attempt
