"""Trials on a Ray cluster: a worker is an actor that keeps a warm worker process, as a pool does on one machine.

Only Ray's core is used, and only to place processes and to carry jobs and events: what a run does, where it goes on
and who may write is decided by its directory on shared storage. Ray does not fence: a node that was stopped and woken
goes on with what it was at. The claims of a run do (grpoctl.runs.claims).

A worker that does not hear its driver for DEAF seconds ends what it is at, and itself. A driver that does not hear a
worker waits for longer than that, or until the run's directory says that nobody has it, before it tells that the
worker died; then the driver of the study gives the run to another one, which goes on from the last checkpoint.

What is not here: the worker process itself (worker), and how it is started and heard (pool).
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import RunError, UserError
from grpoctl.children import child_environment
from grpoctl.executors.base import LEAVES, Died, Ended, Event, Job, JobDone, event_line, event_of, job_line, job_of
from grpoctl.executors.pool import WORKER, Start, WorkerProcess
from grpoctl.executors.slots import THREAD_VARIABLES, Slot
from grpoctl.executors.worker import GRACE
from grpoctl.host import host_name
from grpoctl.runs.claims import silence
from grpoctl.runs.run_dir import RunDir

ASK = 0.2  # seconds that a worker waits for an event to tell before it answers that there is none
UNHEARD = 3.0  # seconds without an answer after which the heartbeat of its run is looked at, too
BACK_OFF = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before each further try to reach or to create a worker
REACHED = 10.0  # seconds for the cluster to accept a connection
CLOSING = 15.0  # seconds that workers have to end their runs when the study does


def deaf() -> float:
    """Seconds without a word from its driver after which a worker ends."""
    return silence() * 2 / 3


def lost() -> float:
    """Seconds without a word from a worker after which it has ended by itself, whatever became of its machine."""
    return deaf() + GRACE + 5.0


def check_ray() -> None:
    """Raises UserError where Ray is not installed; imports nothing."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--executor ray needs Ray: pip install 'grpoctl[ray]', here and on every node")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a worker says when it is asked: which one it is, and the lines of its events from number `first` on.

    `token` is new where Ray has started the actor again. `why`: how its process ended, empty while it lives.
    """

    token: str
    where: str
    first: int
    lines: Sequence[bytes]
    why: str = ""


class RayWorker:
    """The actor. It keeps events until the driver says that it has them: an answer may be lost on its way."""

    def __init__(self, log: str, threads: int, argv: Sequence[str], patience: float) -> None:
        self._token = secrets.token_hex(8)
        self._start = Start(
            command=WORKER,
            arguments=(str(threads), json.dumps(list(argv))),
            environment=_environment(threads),
            log=Path(log),
        )
        self._process: WorkerProcess | None = WorkerProcess(self._start)
        self._lines: list[bytes] = []
        self._first, self._why = 0, ""
        self._lock = threading.Lock()  # two calls may be under way
        self._heard, self._patience = time.monotonic(), patience
        threading.Thread(target=self._watch_driver, daemon=True).start()

    def submit(self, line: bytes, fresh: bool) -> None:
        """Begin a job; `fresh`: in a new process, since one in which a run failed may be left in any state."""
        self._heard = time.monotonic()
        job = job_of(line)
        assert job is not None
        with self._lock:
            if fresh and self._process is not None:
                self._process.bury()
                self._process = None
            if self._process is None:
                self._process, self._why = WorkerProcess(self._start), ""
            self._process.send(job)

    def ask(self, known: int) -> Answer:
        """The events from number `known` on, those before it are with the driver; waits a little for the first."""
        self._heard = time.monotonic()
        self._lines, self._first = self._lines[max(0, known - self._first) :], max(known, self._first)
        deadline = time.monotonic() + ASK
        while True:
            with self._lock:
                self._hear()
            if self._lines or time.monotonic() >= deadline:
                break
            time.sleep(0.01)
        lines = tuple(self._lines)
        return Answer(token=self._token, where=host_name(), first=self._first, lines=lines, why=self._why)

    def end(self) -> None:
        """End what is under way, INTERRUPTED; its last events can still be asked for."""
        self._heard = time.monotonic()
        if self._process is not None:
            self._process.hang_up()

    def _hear(self) -> None:
        if self._process is None:
            return
        events, more = self._process.receive()
        self._lines += [event_line(event) for event in events]
        if not more:
            self._why, self._process = self._process.bury(), None

    def _watch_driver(self) -> None:
        """End everything once the driver has not been heard for too long: it will give the run to somebody else."""
        while time.monotonic() - self._heard < self._patience:
            time.sleep(min(1.0, self._patience / 4))
        if (process := self._process) is not None:
            process.hang_up()
            process.ended(GRACE + 1.0)
            process.signal(signal.SIGKILL)
        os._exit(1)


def _environment(threads: int) -> Mapping[str, str]:
    """That of the node, which is this actor's, with its share of the cores; Ray has set the GPUs that it may use."""
    return {**child_environment(), **dict.fromkeys(THREAD_VARIABLES, str(threads))}


class _Seat:
    """A slot, its worker if there is one, and how far that is with its job."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.actor: Any = None
        self.token = ""  # of the worker that has answered; empty before it has
        self.where = ""
        self.known = 0  # events of it that are here
        self.answer: Any = None  # what it was asked for and has not said yet
        self.heard = 0.0
        self.tries = 0
        self.not_before = 0.0  # when it may be asked, or created, again
        self.job: Job | None = None
        self.sent = False  # whether the job is with the worker
        self.fresh = False  # whether the next one needs a new process
        self.ended: list[str] = []
        self.gone = ""  # why it is taken for dead, while its run's directory is watched
        self.over = 0.0  # when that watch ends

    def at(self) -> Path | None:
        """The run the worker is at; None where it has ended the last it was to execute."""
        if self.job is None or len(self.ended) == len(self.job.runs) or (self.ended and self.ended[-1] in LEAVES):
            return None
        return self.job.runs[len(self.ended)]

    def back_off(self) -> None:
        """Wait before the next try, each time longer."""
        self.not_before = time.monotonic() + BACK_OFF[min(self.tries, len(BACK_OFF) - 1)]
        self.tries += 1

    def leave(self) -> None:
        """There is no worker any more."""
        self.actor = self.answer = None
        self.token, self.known, self.sent, self.fresh, self.gone = "", 0, False, False, ""


class RayPool:
    """An executor of actors on a Ray cluster, one for each slot, created when there is work for it.

    `address`: of the cluster; None for the one that RAY_ADDRESS names, that runs here, or else one of this machine
    alone. `per_gpu`: workers on each GPU, where the cluster has any. Raises RunError where it cannot be reached.
    """

    def __init__(
        self, slots: Sequence[Slot], logs: Path, *, argv: Sequence[str], address: str | None, per_gpu: int = 1
    ) -> None:
        self._seats = [_Seat(slot) for slot in slots]
        self._logs, self._argv = logs, list(argv)
        self._due: list[Event] = []
        self._closed = False
        self._ray = _connected(address)
        gpus = self._ray.cluster_resources().get("GPU", 0.0)
        # No task is ever retried by Ray: a job that was handed over twice would be two writers.
        self._options = {
            "num_gpus": 1 / per_gpu if gpus else 0,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": 2,
            "scheduling_strategy": "SPREAD",
        }

    @property
    def slots(self) -> int:
        """Workers at most."""
        return len(self._seats)

    def free(self) -> int:
        """Slots without a job."""
        return 0 if self._closed else sum(seat.job is None for seat in self._seats)

    def warm(self, jobs: int) -> None:
        """Create workers until there are that many; they import what they need meanwhile."""
        for seat in self._seats[:jobs]:
            if seat.actor is None:
                self._create(seat)

    def submit(self, job: Job) -> None:
        """Give the job to a worker that has answered, else to one that is coming. Raises ValueError."""
        idle = [seat for seat in self._seats if seat.job is None and not self._closed]
        if not idle or not job.runs:
            raise ValueError(f"got job {job.number} with {len(job.runs)} runs, {len(idle)} slots are free")
        seat = next((seat for seat in idle if seat.token and not seat.gone), idle[0])
        seat.job, seat.ended, seat.sent = job, [], False
        self._send(seat)

    def events(self, timeout: float) -> list[Event]:
        """What has happened; waits up to `timeout` seconds for the first of it."""
        deadline = time.monotonic() + timeout
        while not self._closed:
            self._look()
            left = deadline - time.monotonic()
            if self._due or left <= 0:
                break
            self._wait(min(left, ASK))
        events, self._due = self._due, []
        return events

    def close(self) -> None:
        """Stop everything: workers end their runs, INTERRUPTED, and then themselves; a second Ctrl-C kills them."""
        if self._closed:
            return
        try:
            busy = [seat for seat in self._seats if seat.actor is not None and seat.job is not None and seat.sent]
            for seat in busy:
                seat.actor.end.remote()
            deadline = time.monotonic() + CLOSING
            while any(seat.job is not None for seat in busy) and time.monotonic() < deadline:
                self._look()
                self._wait(ASK)
        finally:
            for seat in self._seats:
                self._kill(seat)
            self._closed = True
            self._ray.shutdown()

    def _look(self) -> None:
        """Take in every answer, and see to those who give none."""
        for seat in self._seats:
            if seat.gone:
                self._bury_when_sure(seat)
                continue
            if seat.actor is None:
                if seat.job is not None and time.monotonic() >= seat.not_before:
                    self._create(seat)
                continue
            self._hear(seat)
            silent = time.monotonic() - seat.heard
            if seat.job is None or not seat.sent or silent < UNHEARD:
                continue
            if (at := seat.at()) is not None:
                RunDir(path=at).is_held(hung=True)  # its heartbeat is observed from here on
            if silent > lost():
                self._lose(seat, f"was not heard for {lost():.0f} s", sure=True)
        self._move_waiting()

    def _hear(self, seat: _Seat) -> None:
        """The seat's answer, if it is there; else it is asked, where that is not being done already."""
        if seat.answer is None:
            if time.monotonic() >= seat.not_before:
                seat.answer = seat.actor.ask.remote(seat.known)
            return
        ready, _ = self._ray.wait([seat.answer], timeout=0)
        if not ready:
            return
        reference, seat.answer = seat.answer, None
        try:
            answer: Answer = self._ray.get(reference)
        except self._ray.exceptions.ActorUnavailableError as error:  # starts again, or the network is away
            self._unreachable(seat, error, sure=False)
        except self._ray.exceptions.RayError as error:  # ActorDiedError, and whatever else a call of it may come to
            self._unreachable(seat, error, sure=True)
        else:
            self._take(seat, answer)

    def _unreachable(self, seat: _Seat, error: Exception, *, sure: bool) -> None:
        """A call failed: `sure` where the worker is no more, else it may answer again."""
        seat.back_off()
        if seat.job is not None and seat.sent:
            if sure:
                self._lose(seat, f"died ({_first_line(error)})", sure=False)
            return
        if sure:
            seat.leave()

    def _take(self, seat: _Seat, answer: Answer) -> None:
        """An answer: of the worker that was asked, or of one that Ray has put in its place."""
        seat.heard, seat.tries, seat.not_before = time.monotonic(), 0, 0.0
        if seat.token and answer.token != seat.token:
            if seat.job is not None and seat.sent:
                self._lose(seat, "died, and Ray has started another", sure=False)
                return
            seat.known = 0
        seat.token, seat.where = answer.token, answer.where
        for line in answer.lines[max(0, seat.known - answer.first) :]:
            if (event := event_of(line)) is not None:
                self._handle(seat, event)
        seat.known = max(seat.known, answer.first + len(answer.lines))
        if answer.why and seat.job is not None and seat.sent:
            self._release(seat, f"{answer.why}, on {seat.where}")
        self._send(seat)

    def _handle(self, seat: _Seat, event: Event) -> None:
        if seat.job is None or event.job != seat.job.number:
            return
        self._due.append(event)
        if isinstance(event, Ended):
            seat.ended.append(event.status)
        if isinstance(event, JobDone):
            seat.job, seat.sent = None, False
            seat.fresh = "FAILED" in seat.ended

    def _send(self, seat: _Seat) -> None:
        """Hand over the seat's job, once its worker has answered: one that never was cannot have begun it."""
        if seat.job is not None and not seat.sent and seat.token and not seat.gone:
            seat.sent, seat.heard = True, time.monotonic()
            seat.actor.submit.remote(job_line(seat.job), seat.fresh)
            seat.fresh = False

    def _move_waiting(self) -> None:
        """A job whose worker is not there yet goes to one that is and has none."""
        for seat in self._seats:
            other = next((s for s in self._seats if s.job is None and s.token and not s.gone), None)
            if seat.job is not None and not seat.sent and not (seat.token and not seat.gone) and other is not None:
                other.job, other.ended, other.sent = seat.job, [], False
                seat.job = None
                self._send(other)

    def _lose(self, seat: _Seat, why: str, *, sure: bool) -> None:
        """The worker counts as dead. `sure`: it must have ended by now; else its run's directory is watched first."""
        seat.gone = f"the worker on {seat.where or 'a node of the cluster'} {why}"
        seat.over = time.monotonic() if sure else seat.heard + lost()
        self._bury_when_sure(seat)

    def _bury_when_sure(self, seat: _Seat) -> None:
        """Give up the worker once nobody has its run any more, or it has had the time to end by itself."""
        at = seat.at()
        held = at is not None and RunDir(path=at).is_held(hung=True)
        if held and time.monotonic() < seat.over:
            return
        why = seat.gone
        self._kill(seat)
        seat.leave()
        seat.back_off()
        self._release(seat, why)

    def _release(self, seat: _Seat, why: str) -> None:
        """The seat's job is over: its worker died with it."""
        if seat.job is None:
            return
        if (run := seat.at()) is not None:
            self._due.append(Died(job=seat.job.number, run=run, message=why))
        self._due.append(JobDone(job=seat.job.number))
        seat.job, seat.sent = None, False

    def _create(self, seat: _Seat) -> None:
        """Ask Ray for a worker; it answers once there is room for it somewhere."""
        seat.leave()
        log = self._logs / f"worker-{seat.slot.number}.log"
        options = {**self._options, "num_cpus": seat.slot.threads}
        actor = self._ray.remote(RayWorker).options(**options)
        try:
            seat.actor = actor.remote(str(log), seat.slot.threads, self._argv, deaf())
        except self._ray.exceptions.RayError:
            seat.back_off()

    def _kill(self, seat: _Seat) -> None:
        if seat.actor is not None:
            with suppress(self._ray.exceptions.RayError, ValueError):
                self._ray.kill(seat.actor, no_restart=True)

    def _wait(self, seconds: float) -> None:
        """Sleep until somebody answers, but no longer than that."""
        answers = [seat.answer for seat in self._seats if seat.answer is not None]
        if answers:
            self._ray.wait(answers, num_returns=1, timeout=seconds)
        else:
            time.sleep(min(seconds, 0.05))


def _connected(address: str | None) -> Any:
    """The module ray, connected. Raises UserError where it is not installed, RunError where no cluster answers."""
    check_ray()
    import ray

    check_reachable(address)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace=f"grpoctl-{_unique()}")
    except (ConnectionError, RuntimeError, OSError, ValueError, TimeoutError) as error:
        where = address or "RAY_ADDRESS, or this machine"
        raise RunError(f"no Ray cluster at {where} ({_first_line(error)}); start one: ray start --head") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)  # the study's own: they end it with its book in order
    return ray


def check_reachable(address: str | None) -> None:
    """Raises RunError where nobody listens at HOST:PORT: Ray itself would try for minutes, then end this process."""
    host, _, port = (address or os.environ.get("RAY_ADDRESS", "")).rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACHED).close()
    except OSError as error:
        raise RunError(f"no Ray cluster at {host}:{port} ({error}); start one: ray start --head") from error


def _unique() -> str:
    return f"{socket.gethostname()}-{secrets.token_hex(4)}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
