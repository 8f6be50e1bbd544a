"""Two or three writers on one run directory, each but the last stopped between two of its system calls, then woken.

    python -m benchmarks.fencing [--schedules 500] [--json]

A writer does to a run's directory what `grpoctl run` does, with numbers in the place of a model: claims it, rewinds,
appends rows, saves checkpoints, writes what came out. It is traced (ptrace) and stopped after its n-th system call that
concerns files: before every call that changes something, then evenly over the others. A successor on another host, or
on this one, takes over and goes on to the end; then the first is woken and goes on, too. Nothing it does may show:
every file must equal an undisturbed run's.
Linux on x86-64 only.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from core.errors import BusyError, SupersededError
from core.training.checkpoint import Checkpoints, Progress, Snapshot
from core.training.requests import Evaluated
from grpoctl.executors.recorder import Recorder, last_recorded, rewind
from grpoctl.files import folder_in_place_of, remove, replace_json
from grpoctl.host import HOST_VARIABLE
from grpoctl.runs import status
from grpoctl.runs.claims import left_by_attempts
from grpoctl.runs.problems import drop_rows, write_problems
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status, StatusRecord

STEPS, SAVE = 5, 2
LATE = ("pyarrow.parquet", "pandas")
KILLED_AT = 3  # the step after which the writer died that a resuming one goes on from
SUPERSEDED, BUSY = 7, 8  # exit codes of writers

# Numbers of x86-64: read write open close stat fstat lstat lseek pread pwrite access sendfile fcntl flock fsync
# fdatasync truncate ftruncate getdents rename mkdir rmdir link unlink chmod fchmod getdents64 openat mkdirat newfstatat
# unlinkat renameat linkat fchmodat fallocate renameat2 copy_file_range statx
FILE_CALLS = frozenset(
    {0, 1, 2, 3, 4, 5, 6, 8, 17, 18, 21, 40, 72, 73, 74, 75, 76, 77, 78, 82, 83, 84, 86, 87, 90, 91, 217, 257, 258,
     262, 263, 264, 265, 268, 285, 316, 326, 332}
)  # fmt: skip
# Those that change a file or a directory: write pwrite sendfile ftruncate rename mkdir rmdir link unlink, and the like
CHANGING = frozenset({1, 18, 40, 77, 82, 83, 84, 86, 87, 258, 263, 264, 265, 316, 326})
_TRACE_ME, _PEEK_USER, _SYSCALL, _DETACH, _SET_OPTIONS = 0, 3, 24, 17, 0x4200
_ORIG_RAX = 120  # offset in struct user: the system call
_SYSCALL_STOP = signal.SIGTRAP | 0x80

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def snapshot(step: int) -> Snapshot:
    """What a checkpoint after this step holds."""
    weights = {"w": torch.full((4, 4), float(step))}
    return Snapshot(
        progress=Progress(step=step, best_step=2), weights=weights, optimizer={"m": torch.full((2,), step / 7)}
    )


def record_step(recorder: Recorder, step: int) -> None:
    """A step's rows, and an evaluation's at even ones."""
    row = {"step": step, "completions": 8 * step, "reward/mean": step / 3}
    samples = [
        {"step": step, "row": number, "text": f"a completion of step {step}", "reward": 0.5} for number in (0, 1)
    ]
    evaluated = None
    if step % 2 == 0:
        row["eval/reward"] = step / 9
        problem = {"step": step, "place": 0, "draw": 0, "prompt_id": "p", "problem": "q", "reward": 0.5, "output": "o"}
        evaluated = Evaluated(problems=[{**problem, "prompt": "2 + 2"}], picture=f"picture {step}".encode())
    recorder.step_done(row, samples, {"total": step / 10}, evaluated)


def write_run(run: RunDir, *, last: int = STEPS) -> None:
    """One attempt at the run, as grpoctl.executors.execution makes it. `last`: the step after which it is killed."""
    with run.hold(0.01, silent=0.0, attempt=True) as fence:
        record = status.read(run.status)
        if record is not None and not record.status.resumable and run.result.exists():
            drop_rows(run)
            return
        stands = StatusRecord(status=Status.RUNNING, pid=1, started=1.0)
        status.write(run.status, stands)
        remove(run.result)
        checkpoints = Checkpoints(run.checkpoints, keep=2, drafts=fence)
        checkpoints.drop_after(last_recorded(run))
        restart, _ = checkpoints.newest_sound()
        start = -1 if restart is None else restart.progress.step
        checkpoints.drop_after(start)
        rewind(run, start)
        with Recorder(run, lambda _: None) as recorder:
            for step in range(start + 1, last + 1):
                record_step(recorder, step)
                if step and step % SAVE == 0:
                    checkpoints.save(snapshot(step))
        if last < STEPS:
            os._exit(0)
        with folder_in_place_of(run.adapter) as draft:
            (draft / "adapter_config.json").write_text("{}")
        replace_json(run.result, {"status": "COMPLETED", "steps": STEPS})
        write_problems(run)
        status.write(run.status, StatusRecord(status=Status.COMPLETED, pid=1, started=1.0, ended=2.0, step=STEPS))
        drop_rows(run)


def forked(work: Callable[[], None], host: str, *, traced: bool = False) -> int:
    """The process that does this work, on this host; it ends with 0, SUPERSEDED or BUSY."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ[HOST_VARIABLE] = host
        if traced:
            _libc.ptrace(_TRACE_ME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
        work()
        code = 0
    except SupersededError:
        code = SUPERSEDED
    except BusyError:
        code = BUSY
    except BaseException as error:
        print(f"{host}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        raise
    finally:
        os._exit(code)


def exit_code(pid: int) -> int:
    """How the process ended, waiting for it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def stopped_after(pid: int, calls: int | None) -> list[int]:
    """Trace the process until so many file system calls are done and leave it stopped; None traces it to its end.

    Gives the calls it made; the process has ended where they are fewer than `calls`.
    """
    os.waitpid(pid, 0)
    _libc.ptrace(_SET_OPTIONS, pid, None, 1)  # system calls are told from real traps
    done: list[int] = []
    entering, delivered = True, 0
    while True:
        _libc.ptrace(_SYSCALL, pid, None, delivered)
        _, state = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(state):
            return done
        delivered = 0
        if os.WSTOPSIG(state) != _SYSCALL_STOP:
            delivered = os.WSTOPSIG(state)
            continue
        entering = not entering
        call = _libc.ptrace(_PEEK_USER, pid, _ORIG_RAX, None)
        if not entering or call not in FILE_CALLS:
            continue
        done.append(call)
        if len(done) == calls:
            _libc.ptrace(_DETACH, pid, None, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            return done


def content(run: RunDir) -> dict[str, bytes]:
    """Every file of the run but claims and lock."""
    files = (path for path in run.path.rglob("*") if path.is_file())
    names = {path: str(path.relative_to(run.path)) for path in files}
    return {
        name: path.read_bytes() for path, name in names.items() if name != "lock" and not name.startswith("claims/")
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Where the writers start from, and how many of them are stopped before the last one."""

    name: str
    begun: bool
    stopped: int
    same_host: bool


SCENARIOS = (
    Scenario(name="a fresh run, its successor elsewhere", begun=False, stopped=1, same_host=False),
    Scenario(name="a fresh run, its successor on the same host", begun=False, stopped=1, same_host=True),
    Scenario(name="a resumed run, its successor elsewhere", begun=True, stopped=1, same_host=False),
    Scenario(name="a resumed run, its successor on the same host", begun=True, stopped=1, same_host=True),
    Scenario(name="two successors, of which one is stopped, too", begun=True, stopped=2, same_host=False),
)


class Bench:
    """Schedules in a folder, compared with a run that nobody disturbed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        undisturbed = self._run(begun=False)
        assert exit_code(forked(lambda: write_run(undisturbed), "a")) == 0
        self.expected = content(undisturbed)

    def _run(self, *, begun: bool) -> RunDir:
        self._count += 1
        run = RunDir(path=self._folder / f"run-{self._count}")
        run.path.mkdir()
        if begun:
            assert exit_code(forked(lambda: write_run(run, last=KILLED_AT), "a")) == 0
        return run

    def calls(self, *, begun: bool) -> list[int]:
        """The file system calls of one writer."""
        run = self._run(begun=begun)
        return stopped_after(forked(lambda: write_run(run), "a", traced=True), None)

    def schedule(self, scenario: Scenario, point: int, later: int) -> tuple[str, list[str]]:
        """Stop the first writer at `point`, a second one at `later`; (what became of the first, what is wrong)."""
        run = self._run(begun=scenario.begun)
        hosts = ["a"] * 3 if scenario.same_host else ["a", "b", "c"]
        stopped: list[int] = []
        for host, at in zip(hosts[: scenario.stopped], (point, later), strict=False):
            pid = forked(lambda: write_run(run), host, traced=True)
            if len(stopped_after(pid, at)) == at:
                stopped.append(pid)
        wrong = []
        last = exit_code(forked(lambda: write_run(run), hosts[scenario.stopped]))
        if last not in (0, BUSY):
            wrong.append(f"the successor ended with {last}")
        endings = []
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
            endings.append(exit_code(pid))
        if last == BUSY and 0 not in endings:  # the lock was held by one that had claimed nothing: it goes on itself
            endings.append(exit_code(forked(lambda: write_run(run), "d")))
        wrong += [f"a writer ended with {code}" for code in endings if code not in (0, SUPERSEDED, BUSY)]
        found = content(run)
        for name in sorted({*found, *self.expected}):
            if found.get(name) != self.expected.get(name):
                how = "missing" if name not in found else "left over" if name not in self.expected else "different"
                wrong.append(f"{name} is {how}")
        wrong += [f"{path.name} is left over" for path in left_by_attempts(run.path)]
        ending = {0: "went on to the end", SUPERSEDED: "was superseded", BUSY: "found it in use"}
        if not wrong:
            shutil.rmtree(run.path)
        return ending.get(endings[0], "failed") if endings else "had ended", wrong


def chosen(calls: list[int], count: int) -> list[int]:
    """So many points, each the number of calls done: evenly of those before a call that changes something, then others.

    What a writer knows when it is stopped, and what there is by then, differ most there.
    """
    changing = [place for place in range(1, len(calls)) if calls[place] in CHANGING]
    others = sorted(set(range(1, len(calls) + 1)) - set(changing))
    first = [changing[place * len(changing) // count] for place in range(count)] if count < len(changing) else changing
    left = count - len(first)
    return [*first, *(others[place * len(others) // left] for place in range(left))]


def measure(schedules: int) -> dict[str, object]:
    """Evenly spaced points of every scenario; what became of the writers, and everything that was wrong."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SystemExit("benchmarks.fencing traces system calls of Linux on x86-64")
    torch.set_num_threads(1)
    for name in LATE:  # else most of the calls would be those of imports
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="grpoctl-fencing-") as folder:
        bench = Bench(Path(folder))
        calls = {begun: bench.calls(begun=begun) for begun in (False, True)}
        each = -(-schedules // len(SCENARIOS))
        points = {begun: chosen(calls[begun], each) for begun in calls}
        became: Counter[str] = Counter()
        wrong: list[str] = []
        for number in range(schedules):
            scenario = SCENARIOS[number % len(SCENARIOS)]
            most, place = len(calls[scenario.begun]), number // len(SCENARIOS)
            point = points[scenario.begun][place]
            later = points[scenario.begun][(place * 7919 + 13) % each]  # spread over the first one's
            ending, problems = bench.schedule(scenario, point, later)
            became[ending] += 1
            wrong += [f"{scenario.name}, stopped after call {point} of {most}: {problem}" for problem in problems]
    made = {"fresh": len(calls[False]), "resumed": len(calls[True])}
    return {"schedules": schedules, "file_system_calls": made, "first_writer": dict(became), "wrong": wrong}


def main() -> int:
    """Print what was measured; 1 where a file was damaged, doubled or lost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    document = measure(options.schedules)
    if options.json:
        print(json.dumps(document))
    else:
        for name, value in document.items():
            print(f"{name}: {value}")
    return 1 if document["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
