"""The other processes of a run that has several: what rank 0 does with them, and what each of them does.

Rank 0 is the run's own process: it starts the others, watches them, tells them where to begin and ends them. Each other
one is `python -P -m grpoctl.executors.ranks RUN RANK SIZE FOLDER THREADS`. It leads a session of its own, so Ctrl-C
reaches rank 0 only; it runs the same trainer and writes nothing: no row, no checkpoint, no status. Its stdin says which
checkpoint to start from, then nothing more; when that ends, so does the process, so none outlives rank 0. What is not
here: how they compute together (core.training.parallel).
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import GrpoError, RunError
from grpoctl.children import child_environment, last_line, python_module
from grpoctl.config import read_resolved
from grpoctl.executors.slots import Slot
from grpoctl.files import read_rows, storage_errors
from grpoctl.runs.run_dir import RunDir

if TYPE_CHECKING:
    from core.training.outcome import Ending
    from core.training.parallel import World
    from core.training.requests import Evaluated

GRACE = 5.0  # seconds that the others have to end once the run has
PATIENCE = 10.0  # seconds after a signal until what rank 0 waits for is cut off, so that it can end
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK = 0.02  # seconds between two looks whether all are ready to meet


class OtherRanks:
    """Ranks 1 and up of a run under way."""

    def __init__(self, run: RunDir, slots: Sequence[Slot]) -> None:
        self._run, self._slots, self._size = run, slots, len(slots)
        self._folder = Path(tempfile.mkdtemp(prefix="grpoctl-ranks-"))  # of this user, on this machine
        self._logs = {rank: run.path / f"rank-{rank}.log" for rank in range(1, self._size)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._closing = threading.Event()
        self._fallen: list[int] = []

    def start(self) -> None:
        """Start them all; they load what they need and then wait for `begin`. Raises StorageError."""
        for rank, log in self._logs.items():
            slot = self._slots[rank]
            words = (self._run.path, rank, self._size, self._folder, slot.threads)
            with storage_errors("start a process that writes", log), log.open("wb") as output:
                self._processes[rank] = subprocess.Popen(
                    python_module("grpoctl.executors.ranks", *map(str, words)),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=slot.environment(child_environment()),
                    start_new_session=True,
                )

    def begin(self, step: int) -> None:
        """Tell them which checkpoint the run goes on from, -1 for none: what is on disk is now as it stays."""
        for process in self._processes.values():
            with suppress(OSError):  # one that is gone is found when they are to meet
                assert process.stdin is not None
                process.stdin.write(json.dumps({"step": step}).encode() + b"\n")
                process.stdin.flush()

    @contextmanager
    def joined(self) -> Iterator[World]:
        """The world of all of them, once every one has loaded its model. Raises RunError where one has died."""
        from core.training.parallel import joined_ranks

        while not all((self._folder / f"ready-{rank}").exists() for rank in self._processes):
            if self.dead():
                raise RunError(self.obituary())
            time.sleep(LOOK)
        with self._watched(), joined_ranks(0, self._size, self._folder / "meeting") as world:
            try:
                yield world
            except RuntimeError as error:  # what waiting for a rank that is gone comes to
                deadline = time.monotonic() + GRACE  # the connection is gone a moment before the process is
                while not self.dead() and time.monotonic() < deadline:
                    time.sleep(LOOK)
                if self.dead():
                    raise RunError(self.obituary()) from error
                raise
            finally:
                self.close()

    def dead(self) -> list[int]:
        """The ranks whose process has ended."""
        return [rank for rank, process in self._processes.items() if process.poll() is not None]

    def obituary(self) -> str:
        """How the first rank that died ended, and the last line of its log."""
        rank = (self._fallen or self.dead())[0]
        code, log = self._processes[rank].returncode, self._logs[rank]
        how = f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        why = ", perhaps because memory ran out" if code == -signal.SIGKILL else ""
        last = last_line(log)
        return f"rank {rank} of {self._size} {how}{why}{f': {last}' if last else ''} (its log: {log})"

    def close(self) -> None:
        """End them all, gently for GRACE seconds."""
        self._closing.set()
        for process in self._processes.values():
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
        deadline = time.monotonic() + GRACE
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self._kill()
        for process in self._processes.values():
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """A thread that cuts off what this process waits for, when a rank dies or a signal is not heard.

        Waiting for other ranks happens outside of Python, where neither an exception nor a signal gets through.
        """
        with ExitStack() as stack:
            heard, wake = (stack.enter_context(end) for end in socket.socketpair())
            for end in (heard, wake):
                end.setblocking(False)
            if threading.current_thread() is threading.main_thread():
                before = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
                stack.callback(signal.set_wakeup_fd, before)
            watcher = threading.Thread(target=self._watch, args=(heard,), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                self._closing.set()
                with suppress(OSError):
                    wake.send(b"\0")
                watcher.join()

    def _watch(self, heard: socket.socket) -> None:
        from core.training.parallel import abort

        with selectors.DefaultSelector() as selector, ExitStack() as stack:
            selector.register(heard, selectors.EVENT_READ)
            for process in self._processes.values():
                with suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(process.pid)
                    stack.callback(os.close, descriptor)
                    selector.register(descriptor, selectors.EVENT_READ)
            signalled = _signalled(selector, heard)
        if not self._closing.wait(PATIENCE if signalled else 0.0):
            self._fallen = self.dead()  # before the others follow: by our hand, or because they lost it
            self._kill()
            abort()


def _signalled(selector: selectors.BaseSelector, heard: socket.socket) -> bool:
    """Waits until this process is to end, True, or until another one has, or all is over: False."""
    while True:
        if any(key.fileobj is not heard for key, _ in selector.select()):
            return False
        numbers = heard.recv(1 << 10)  # of the signals that Python has taken; 0 is our own
        if any(number in ENDS for number in numbers):
            return True
        if 0 in numbers:
            return False


@contextmanager
def other_ranks(run: RunDir, slots: Sequence[Slot]) -> Iterator[OtherRanks | None]:
    """The other ranks of a run that is to have one on each slot; None where there is no more than one."""
    if len(slots) < 2:
        yield None
        return
    others = OtherRanks(run, slots)
    try:
        others.start()
        yield others
    finally:
        others.close()


def ask_together(ask: Callable[[int], Ending | None], worlds: Sequence[World]) -> Callable[[int], Ending | None]:
    """`ask`, but on rank 0 alone, with its answer for all ranks. `worlds` is empty for a run of one process."""

    def ask_once(step: int) -> Ending | None:
        return worlds[0].from_rank_0(lambda: ask(step)) if worlds else ask(step)

    return ask_once


class Silent:
    """The observer of a rank that is not the first."""

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: Evaluated | None = None,
    ) -> None:
        """Rank 0 records it."""


def train_rank(run: RunDir, rank: int, size: int, folder: Path, step: int) -> None:
    """Compute everything that rank 0 computes, on this rank's share of the rows. Ends with the process only."""
    from core.assemble import assemble, open_checkpoints
    from core.training.callbacks import Checkpointing, Watching
    from core.training.parallel import Machine, joined_ranks, same_start
    from core.training.trainer import drive
    from grpoctl.runs.launch import initial_snapshot

    spec = read_resolved(run.spec)
    checkpoints = open_checkpoints(spec, run.checkpoints)
    restart = None if step < 0 else checkpoints.load(step)
    initial = initial_snapshot(spec, run)[0] if restart is None else None
    worlds: list[World] = []
    trainer = assemble(
        spec,
        checkpoints,
        restart=restart,
        table=read_rows(run.metrics),
        initial=None if initial is None else initial.weights,
        control=ask_together(lambda _: None, worlds),
    )
    with closing(trainer.task):
        pass  # rank 0 asks for rewards: what was started here to check them (a judge's model, perhaps) is ended again
    trainer.callbacks = [
        callback for callback in trainer.callbacks if not isinstance(callback, (Checkpointing, Watching))
    ]
    (folder / f"ready-{rank}").touch()
    with joined_ranks(rank, size, folder / "meeting") as world:
        worlds.append(world)
        same_start(trainer.policy, world)
        drive(trainer.steps(), Silent(), Machine(world=world))
        # Rank 0 still writes: whoever left now would look dead to it.
        threading.Event().wait()


def main(argv: list[str]) -> int:
    """Be a rank; gives the exit code of one that failed (any other is ended when rank 0 closes its stdin)."""
    run, (rank, size), folder = RunDir(path=Path(argv[1])), map(int, argv[2:4]), Path(argv[4])
    pipe = sys.stdin.buffer
    first = pipe.readline()
    if not first:
        return 0
    threading.Thread(target=_end_with, args=(pipe.fileno(),), daemon=True).start()
    import torch

    torch.set_num_threads(int(argv[5]))
    try:
        train_rank(run, rank, size, folder, int(json.loads(first)["step"]))
    except GrpoError as error:
        print(f"error: {error}", file=sys.stderr)
    return 3


def _end_with(descriptor: int) -> None:
    """End this process, whatever it is at, when rank 0 hangs up or is gone."""
    while os.read(descriptor, 1 << 12):
        pass
    os._exit(0)


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
