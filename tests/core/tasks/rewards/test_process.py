"""The process of reward functions: nothing that it started outlives a hang, a close, or its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config.task import RewardSpec
from core.tasks.rewards.judge import Judge
from tests.core.tasks.rewards.judging import STUCK, Judging, descendants, running, values

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[4]
# Children in its group, in a session of their own, and one whose parent is gone; their numbers are in `pids.txt`.
SPAWNS = """
    import os, pathlib, subprocess, sys, time
    LONG = [sys.executable, "-c", "import time; time.sleep(600)"]

    def spawn():
        pids = [subprocess.Popen(LONG).pid, subprocess.Popen(LONG, start_new_session=True).pid]
        orphan = f"import subprocess as s; print(s.Popen({{LONG!r}}, start_new_session=True, stdout=-3, stderr=-3).pid)"
        pids.append(int(subprocess.run([sys.executable, "-c", orphan], capture_output=True, check=True).stdout))
        pathlib.Path("pids.txt").write_text(" ".join(map(str, [os.getpid(), os.getppid(), *pids])))

    def f(completions, **kwargs):
        spawn()
        {then}
        return [1.0] * len(completions)
"""


def gone(pids: list[int], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(running, pids)) and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return not any(map(running, pids))


def noted(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids.txt").read_text().split()]


def test_close_ends_everything_that_was_started(judging: Judging, tmp_path: Path) -> None:
    judge = judging(SPAWNS.format(then=""))
    assert values(judge, ["a"]) == [1.0]
    pids = noted(tmp_path)
    assert len(pids) == 5
    assert all(map(running, pids))
    judge.close()
    assert not any(map(running, pids))
    judge.close()
    assert values(judge, ["a"]) == [1.0]  # the next use starts another


@pytest.mark.parametrize("then", [STUCK, "os._exit(1)"])
def test_a_lost_call_ends_everything_that_was_started(judging: Judging, tmp_path: Path, then: str) -> None:
    judge = judging(SPAWNS.format(then=then), timeout=2)
    assert values(judge, ["a"]) == [None]
    assert not any(map(running, noted(tmp_path)))


def test_a_judge_that_is_dropped_ends_its_process(judging: Judging, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\ndef f(completions): return [os.getpid()]")
    judge = Judge([RewardSpec(function="mine:f")], base=tmp_path)
    (pid,) = values(judge, ["a"])
    assert pid is not None
    assert running(int(pid))
    del judge
    assert gone([int(pid)])


PARENT = """
import sys
from pathlib import Path
from core.config.task import RewardSpec
from core.tasks.rewards.judge import Judge

judge = Judge([RewardSpec(function="mine:f", timeout=600)], base=Path.cwd())
judge.check()
print("ready", flush=True)
try:
    judge.judge(["p"], ["a"], [], {})
except KeyboardInterrupt:
    print("interrupted", flush=True)
    judge.close()
"""
BUSY = f"""
import os, pathlib
def f(completions):
    pathlib.Path("pids.new").write_text(f"{{os.getpid()}} {{os.getppid()}}")
    os.rename("pids.new", "pids.txt")
    {STUCK}
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process whose reward function is busy for ever; `pids.txt` is there."""
    (tmp_path / "mine.py").write_text(BUSY)
    command = [sys.executable, "-P", "-c", PARENT]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while not (tmp_path / "pids.txt").exists():
        threading.Event().wait(0.01)
    yield process
    process.kill()
    process.wait()


def test_a_parent_that_is_killed_leaves_nothing(parent: subprocess.Popen[str], tmp_path: Path) -> None:
    pids = noted(tmp_path)
    assert set(pids) == descendants(parent.pid)
    parent.kill()
    parent.communicate()
    assert gone(pids)


def test_ctrl_c_reaches_the_parent_alone(parent: subprocess.Popen[str], tmp_path: Path) -> None:
    pids = noted(tmp_path)
    assert all(os.getpgid(pid) != parent.pid for pid in pids)
    os.killpg(parent.pid, signal.SIGINT)  # what a terminal sends
    said, _ = parent.communicate(timeout=20)
    assert (said, parent.returncode) == ("interrupted\n", 0)
    assert not any(map(running, pids))


def test_ctrl_c_in_a_call_does_not_keep_the_next_one_waiting(judging: Judging, tmp_path: Path) -> None:
    judge = judging("""
        import pathlib, threading
        def f(completions):
            if completions == ["slow"]:
                pathlib.Path("begun").touch()
                threading.Event().wait()
            return [float(len(completions[0]))]
    """)

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            threading.Event().wait(0.01)
        assert main.ident is not None
        signal.pthread_kill(main.ident, signal.SIGINT)  # as a terminal's reaches it: its wait is cut short

    main = threading.current_thread()
    thread = threading.Thread(target=interrupt)
    judge.check()
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        values(judge, ["slow"])
    thread.join()
    assert values(judge, ["ab"]) == [2.0]


def test_it_loads_nothing_heavy(judging: Judging) -> None:
    judge = judging("""
        import sys
        HEAVY = {"torch", "transformers", "numpy", "pydantic", "asyncio"}
        def f(completions): return [len(HEAVY & set(sys.modules))]
    """)
    assert values(judge, ["a"]) == [0.0]


def test_it_holds_no_file_of_its_parent(judging: Judging, tmp_path: Path) -> None:
    """stdin, stdout, stderr and its two pipes; what it starts has the first three alone."""
    judge = judging("""
        import os, subprocess
        def f(completions):
            below = subprocess.run("ls /proc/$$/fd | wc -l", shell=True, capture_output=True, close_fds=False).stdout
            return [sum(os.readlink(f"/proc/self/fd/{fd}").endswith("open.txt") for fd in os.listdir("/proc/self/fd")
                        if os.path.islink(f"/proc/self/fd/{fd}")), int(below)]
    """)
    with (tmp_path / "open.txt").open("w"):
        held, below = values(judge, ["a", "b"])
    assert held == 0
    assert below is not None
    assert below <= 5  # its own script or pipe besides the three
