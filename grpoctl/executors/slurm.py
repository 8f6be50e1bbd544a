"""Workers as jobs of a SLURM cluster: `sbatch` submits each, and takes it away again at the end.

What is here: the jobs, which worker gets which runs, and what becomes of a worker that is not heard of. What is not:
the files between them (mailbox) and a worker's own work (slurm_worker).

Whether a worker lives is read from its claim's heartbeat. SLURM itself is asked of those that are silent only: whether
their jobs still wait in its queue, which it may take as long as it likes for. A worker that ends or is lost gives its
runs back, and whoever is next idle goes on with them from their last checkpoints, by a new attempt.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import RunError, StorageError, UserError
from grpoctl.children import child_environment, last_line, python_module
from grpoctl.credentials import STORAGE_VARIABLE, TRACKING_VARIABLE
from grpoctl.executors.base import LEAVES, Died, Ended, Event, Job, JobDone, Row, Step
from grpoctl.executors.mailbox import Employer, Order, WorkerDir, driver_attempt
from grpoctl.files import replace_text
from grpoctl.host import HOST_VARIABLE
from grpoctl.runs.claims import Claim, newest_claim, silence, silent_for
from grpoctl.runs.study_dir import StudyDir

POLL = 0.2  # seconds between two looks at what the workers tell
QUEUE_LOOK = 5.0  # seconds between two questions to SLURM about workers that are silent
PATIENCE = 10.0  # seconds workers have to end their runs by themselves
ASK = 60.0  # seconds that a command of SLURM's may take
WORTH_SAYING = 20.0  # seconds in the queue
STARTING = 120.0  # seconds that a job which runs may take to import and claim its folder
LEAD = 120  # seconds before the time limit that the runs leave; a quarter of a short limit
LEAST_LEAD = 15
TRIES = 3  # times that a worker is lost at a job without any progress, or ends as soon as it has started
SHORT_LIFE = 60.0  # seconds
HELD = "launch failed requeued held"  # the reason of a job that SLURM starts again only when somebody releases it
_JOB_FILE = "job-id"
_NO_LIMIT = ("UNLIMITED", "INFINITE")


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmJobs:
    """What each worker's job asks for; None leaves it to the cluster. `arguments` are further words for sbatch."""

    partition: str | None = None
    gpus: int | None = None
    time: str | None = None
    account: str | None = None
    qos: str | None = None
    arguments: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """The options of sbatch. The user's own come last, so that they count."""
        values = {
            "--partition": self.partition, "--gpus": self.gpus or None, "--time": self.time,
            "--account": self.account, "--qos": self.qos,
        }  # fmt: skip
        named = [f"{name}={value}" for name, value in values.items() if value is not None]
        signal = f"--signal=B:USR1@{self.lead}"  # B: to the batch shell, which has become the worker
        return ["--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append", signal, *named, *self.arguments]

    @property
    def lead(self) -> int:
        """Seconds before the limit at which SLURM sends its signal (up to half a minute earlier, as it looks)."""
        limit = None if self.time is None else seconds_of(self.time)
        return LEAD if limit is None else max(LEAST_LEAD, min(LEAD, limit // 4))


def seconds_of(limit: str) -> int | None:
    """The seconds of a time limit as SLURM writes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; None for any other text."""
    days, dash, rest = limit.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in parts) or len(parts) > 3 or (dash and not days.isdigit()):
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


class _RefusedError(UserError):
    """A command of SLURM's ended with an error; `why` is what it says of it."""

    def __init__(self, program: str, why: str) -> None:
        super().__init__(f"{program} refuses: {why}; check the --slurm options against sinfo and your accounts")
        self.why = why


def check(jobs: SlurmJobs) -> None:
    """Raises UserError where SLURM is not there or refuses such jobs: before a study is made. Submits nothing."""
    if jobs.time is not None and seconds_of(jobs.time) is None and jobs.time.upper() not in _NO_LIMIT:
        forms = "MINUTES, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED"
        raise UserError(f"got --slurm-time {jobs.time}; allowed: {forms}, e.g. 4:00:00")
    try:
        _ask("sbatch", "--test-only", *jobs.options(), "--wrap=true")
    except _RefusedError as refused:
        if shutil.which("squeue") is None or queued() is not None:
            raise
        said = f"no SLURM controller answers sbatch and squeue: {refused.why}; is slurmctld running?"
        raise UserError(said) from None


def _ask(program: str, *arguments: str) -> str:
    """What a command of SLURM's prints. Raises UserError with what it refuses, in its own words."""
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=ASK, env=_environment(),
        )  # fmt: skip
    except FileNotFoundError:
        raise UserError(
            f"{program} is not on the PATH: --executor slurm starts workers from a machine that submits to SLURM"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{program} cannot be used: {error}") from error
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        first = next((line for line in lines if "error:" in line), lines[0] if lines else "")
        why = first.removeprefix(f"{program}: ").removeprefix("error: ") or f"exit code {done.returncode}"
        raise _RefusedError(program, why)
    return done.stdout


def _environment() -> dict[str, str]:
    """What a job is started with: SLURM keeps it in files of its own, so that no URL with a password is in it."""
    secret = (STORAGE_VARIABLE, TRACKING_VARIABLE)
    return {name: value for name, value in child_environment().items() if name not in secret}


class _Seat:
    """One worker: its folder, its job in SLURM if there is one, and how far it is with what it was given."""

    def __init__(self, number: int, folder: WorkerDir) -> None:
        self.number, self.folder = number, folder
        self.id: str | None = None  # of SLURM's job
        self.began = 0.0  # when it was submitted, or when it was first heard
        self.quiet = 0.0  # since when it is expected to begin: it was submitted, waited in the queue, or has ended
        self.waiting = 0.0  # since when it is known to wait in the queue
        self.claim: Claim | None = None  # as last heard
        self.alive = False
        self.useful = False  # whether this job of SLURM's has told anything
        self.job: Job | None = None
        self.serial = self.offset = 0
        self.ended: list[str] = []  # statuses of the job's runs that have ended

    def left(self) -> tuple[Path, ...]:
        """The runs of its job that are still to be executed."""
        if self.job is None or (self.ended and self.ended[-1] in LEAVES):
            return ()
        return self.job.runs[len(self.ended) :]

    def __str__(self) -> str:
        where = f" on {self.claim.host}" if self.claim is not None else ""
        return f"worker {self.number} (SLURM job {self.id}{where})"


class Slurm:
    """An executor of SLURM jobs, one for each worker.

    `logs` is the study's folder of workers, which every node sees; `say` is told what becomes of the jobs.
    """

    def __init__(
        self, workers: int, logs: Path, jobs: SlurmJobs, *, argv: Sequence[str], say: Callable[[str], None]
    ) -> None:
        study = StudyDir(path=logs.parent)
        self._employer = Employer(study=study.path.absolute(), attempt=driver_attempt(study), argv=tuple(argv))
        place = logs.absolute() / f"slurm-{self._employer.attempt}"
        folders = [WorkerDir(path=place / f"worker-{number}") for number in range(workers)]
        self._seats = [_Seat(number, folder) for number, folder in enumerate(folders)]
        self._name, self._jobs, self._say = f"grpoctl-{study.id}", jobs, say
        self._backlog: deque[Job] = deque()
        self._losses: Counter[int] = Counter()  # of jobs, by number, since the last progress
        self._steps: dict[Path, int] = {}
        self._wanted = 0  # workers
        self._stillborn = 0  # jobs of SLURM's in a row that ended as soon as they had started
        self._due: list[Event] = []
        self._asked = 0.0
        self._accepted = False  # whether sbatch ever took a job
        self._refused: set[str] = set()
        self._said: set[tuple[str, str]] = set()
        self._closed = False
        self._cancel(left_behind(logs, place))

    @property
    def slots(self) -> int:
        """Workers at most."""
        return len(self._seats)

    def free(self) -> int:
        """Jobs that can be taken now; one may have to wait for SLURM to start a worker."""
        return self.slots - len(self._backlog) - sum(seat.job is not None for seat in self._seats)

    def warm(self, jobs: int) -> None:
        """Submit workers until there are that many. Raises UserError where sbatch refuses the first."""
        self._wanted = min(jobs, self.slots)
        self._staff()

    def submit(self, job: Job) -> None:
        """Line the job up for the next idle worker. Raises ValueError where no slot is free, UserError as `_staff`."""
        if self._closed or not self.free() or not job.runs:
            raise ValueError(f"got job {job.number} with {len(job.runs)} runs, {self.free()} slots are free")
        self._losses[job.number] = 0
        self._backlog.append(job)
        self._staff()

    def events(self, timeout: float) -> list[Event]:
        """What has happened; waits up to `timeout` seconds. Raises RunError where workers end as soon as they start."""
        deadline = time.monotonic() + timeout
        while not self._closed:
            for seat in self._seats:
                self._hear(seat)
            self._look_after()
            self._hand_out()
            left = deadline - time.monotonic()
            if self._due or left <= 0:
                break
            time.sleep(min(POLL, left))
        events, self._due = self._due, []
        return events

    def close(self) -> None:
        """Ask the workers to end, wait, and take every job away, those that wait in the queue, too."""
        if self._closed:
            return
        self._closed = True
        self._backlog.clear()
        try:
            for seat in self._seats:
                if seat.alive and seat.claim is not None:
                    with suppress(OSError):
                        seat.claim.stop_request.touch()
            deadline = time.monotonic() + PATIENCE
            while any(seat.alive for seat in self._seats) and time.monotonic() < deadline:
                for seat in self._seats:
                    self._hear(seat)
                time.sleep(POLL)
        finally:
            self._cancel([seat.id for seat in self._seats if seat.id is not None])

    def _staff(self) -> None:
        """Submit workers as far as there is work for them. Raises UserError where the very first is refused.

        Later SLURM may be away for a while: it is asked again.
        """
        busy = len(self._backlog) + sum(seat.job is not None for seat in self._seats)
        missing = max(busy, self._wanted) - sum(seat.id is not None for seat in self._seats)
        for seat in [seat for seat in self._seats if seat.id is None][: max(0, missing)]:
            try:
                self._start(seat)
            except UserError as error:
                if not self._accepted:
                    raise
                if str(error) not in self._refused:
                    self._refused.add(str(error))
                    self._say(f"{error}; tried again")
                return
            self._accepted = True

    def _start(self, seat: _Seat) -> None:
        """Submit a job of SLURM's for the seat."""
        folder = seat.folder
        folder.employ(self._employer)
        script = folder.path / "start.sh"
        module = shlex.join(python_module("grpoctl.executors.slurm_worker", str(folder.path), str(self._jobs.lead)))
        # The node's name in SLURM is what its users know it by, and no two of a cluster have the same; the driver's
        # own name, which comes with its environment, would make one machine of all.
        host = f'[ -z "$SLURMD_NODENAME" ] || export {HOST_VARIABLE}="$SLURMD_NODENAME"'
        replace_text(script, f"#!/bin/sh\n{host}\nexec {module}\n")
        printed = _ask(
            "sbatch", "--parsable", f"--job-name={self._name}-{seat.number}", f"--output={folder.log}",
            *self._jobs.options(), str(script),
        )  # fmt: skip
        seat.id = printed.strip().partition(";")[0]
        seat.began = seat.quiet = time.monotonic()
        seat.useful = False
        replace_text(folder.path / _JOB_FILE, f"{seat.id}\n")

    def _hand_out(self) -> None:
        """Give each idle worker that lives a job of those that wait."""
        for seat in self._seats:
            if not self._backlog:
                return
            if seat.alive and seat.job is None and seat.claim is not None:
                seat.job, seat.ended, seat.offset = self._backlog.popleft(), [], 0
                seat.serial += 1
                seat.folder.give(Order(attempt=seat.claim.attempt, serial=seat.serial, job=seat.job))

    def _hear(self, seat: _Seat) -> None:
        """Take in what a worker has told, and whether it lives."""
        now = newest_claim(seat.folder.path)
        if seat.claim is not None and (now is None or now.attempt != seat.claim.attempt):
            self._ended(seat, "was started anew")
        if now is None:
            return
        if seat.claim is None or now.attempt != seat.claim.attempt:
            seat.claim, seat.began, seat.waiting = now, time.monotonic(), 0.0
        over = now.ended  # before reading: what it told before it ended is then all there
        self._take(seat)
        if seat.alive and over:
            seat.quiet = time.monotonic()
        seat.alive = not over and silent_for(now) < silence()
        if over and seat.job is not None:
            self._ended(seat, seat.folder.why_left(now.attempt) or "ended")

    def _take(self, seat: _Seat) -> None:
        """Take in what it has told of its job."""
        if seat.job is None or seat.claim is None:
            return
        events, seat.offset = seat.folder.heard(seat.claim.attempt, seat.serial, seat.offset)
        for event in events:
            seat.useful, self._stillborn = True, 0
            self._due.append(event)
            match event:
                case Step() if event.step > self._steps.get(event.run, -1):
                    self._steps[event.run] = event.step
                    self._losses[event.job] = 0
                case Ended():
                    seat.ended.append(event.status)
                    self._losses[event.job] = 0
                case JobDone():
                    seat.job = None
                case Row() | Step() | Died():
                    pass

    def _ended(self, seat: _Seat, how: str) -> None:
        """The worker is gone, or as good as that: what is left of its job waits for another one, first of all."""
        self._take(seat)
        seat.alive = False
        job, left = seat.job, seat.left()
        seat.job = None
        if job is None or self._closed:
            return
        if not left:  # it could not even say that this was all
            self._due.append(JobDone(job=job.number))
            return
        self._losses[job.number] += 1
        if self._losses[job.number] >= TRIES:
            why = f"{seat} {how}; without a step {TRIES} times in a row ({last_line(seat.folder.log) or 'no output'})"
            self._due += [Died(job=job.number, run=left[0], message=why), JobDone(job=job.number)]
            return
        self._say(f"{seat} {how}; {left[0].name} goes on from its last checkpoint")
        self._backlog.appendleft(Job(number=job.number, runs=left))

    def _look_after(self) -> None:
        """Ask SLURM about the workers that are not heard of, and replace those that it will not start again."""
        now = time.monotonic()
        if now - self._asked < QUEUE_LOOK:
            return
        self._asked = now
        silent = [seat for seat in self._seats if seat.id is not None and not seat.alive]
        queue = queued() if silent else {}
        if queue is None:
            return  # SLURM does not answer: it will go on with its queue once it does
        for seat in silent:
            state, reason = queue.get(str(seat.id), ("", ""))
            self._judge(seat, state, reason)
        self._staff()

    def _judge(self, seat: _Seat, state: str, reason: str) -> None:
        """What becomes of a silent worker, by how its job stands in SLURM."""
        if not state:
            self._gone(seat)
        elif state in ("RUNNING", "COMPLETING"):
            starts = seat.claim is None or seat.claim.ended or seat.waiting > 0
            silent = time.monotonic() - seat.quiet if starts or seat.claim is None else silent_for(seat.claim)
            if state == "RUNNING" and silent >= (STARTING if starts else silence()):
                self._cancel([str(seat.id)])
                self._ended(seat, f"was not heard of for {silent:.0f} s")
                seat.id = None
        elif reason.replace("_", " ") == HELD:
            self._cancel([str(seat.id)])
            self._say(f"{seat} could not be launched by SLURM, which holds it; another one is submitted")
            self._gone(seat, held=True)
        else:
            self._ended(seat, "was queued again by SLURM")
            seat.waiting = seat.waiting or time.monotonic()  # for a node, or once more
            seat.quiet = time.monotonic()
            long = seat.quiet - seat.waiting > WORTH_SAYING and reason not in ("None", "")
            if long and (str(seat.id), reason) not in self._said:
                self._said.add((str(seat.id), reason))
                self._say(f"worker {seat.number} (SLURM job {seat.id}) waits in the queue: {reason}")

    def _gone(self, seat: _Seat, *, held: bool = False) -> None:
        """SLURM knows its job no more, or holds it after a launch that failed."""
        self._hear(seat)
        if seat.alive:  # it was only just started, and has ended, or SLURM's answer was older than its heartbeat
            return
        self._ended(seat, "is no longer in SLURM's queue")
        left = seat.claim is not None and seat.folder.why_left(seat.claim.attempt)
        if held or (not seat.useful and not left and time.monotonic() - seat.began < SHORT_LIFE):
            self._stillborn += 1
        if self._stillborn >= TRIES:
            last = last_line(seat.folder.log) or f"no output: does the node see {seat.folder.path}?"
            raise RunError(f"SLURM's jobs end as soon as they start: {last} (log: {seat.folder.log})")
        seat.id = None

    def _cancel(self, ids: Sequence[str]) -> None:
        if ids:
            with suppress(UserError):  # those that have ended are not known any more
                _ask("scancel", "--quiet", *ids)


def queued() -> Mapping[str, tuple[str, str]] | None:
    """Job -> (state, reason) of this user's jobs that wait or run; None where SLURM does not answer."""
    try:
        printed = _ask("squeue", "--noheader", f"--user={_user()}", "--format=%i|%T|%r")
    except UserError:
        return None
    rows = [line.split("|") for line in printed.splitlines()]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for the id, as in a container
        return str(os.getuid())


def left_behind(logs: Path, besides: Path) -> list[str]:
    """The jobs of SLURM's that earlier drivers of the study submitted."""
    jobs = []
    for file in logs.glob(f"slurm-*/worker-*/{_JOB_FILE}"):
        if besides not in file.parents:
            with suppress(OSError, StorageError):
                jobs.append(file.read_text(encoding="ascii").strip())
    return jobs
