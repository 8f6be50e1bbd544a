"""A process that is started for good, and what its starter is told. It does nothing but print or hold a lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import RunError, StorageError
from grpoctl.children import spawn
from grpoctl.executors.terminal import wait_until_held
from grpoctl.runs.locks import hold_lock, is_locked
from tests.end_to_end.cli import ROOT, eventually

pytestmark = pytest.mark.process

PRINTS = """\
import os, sys, time
from pathlib import Path
from grpoctl.executors.terminal import ignore_hang_up, print_into
ignore_hang_up()
for name in ("a", "a", "b"):
    print_into(Path(sys.argv[1]) / name)
    print("in", name, flush=True)
print("ready", file=sys.stderr, flush=True)
time.sleep(60)
"""


def test_one_that_ends_at_once_says_why(tmp_path: Path) -> None:
    log, lock = tmp_path / "log.txt", tmp_path / "lock"
    process = spawn(["json.tool", str(tmp_path / "nothing")], log)
    with pytest.raises(RunError, match=r"ended at once, with code \d: .*No such file.* \(its log: "):
        wait_until_held(lock, process, log)


def test_one_that_had_nothing_to_do_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    process = spawn(["platform"], log)
    wait_until_held(tmp_path / "lock", process, log)
    assert "Linux" in log.read_text()


def test_somebody_elses_hold_does_not_count(tmp_path: Path) -> None:
    log, lock = tmp_path / "log.txt", tmp_path / "lock"
    process = spawn(["http.server", "--bind", "127.0.0.1", "0"], log)
    with hold_lock(lock, 0), pytest.raises(RunError, match=r"had not begun after 0\.1 s and was ended"):
        wait_until_held(lock, process, log, seconds=0.1)
    assert process.wait() == -signal.SIGKILL


def test_it_has_a_session_of_its_own_and_no_stdin(tmp_path: Path) -> None:
    process = spawn(["http.server", "--bind", "127.0.0.1", "0"], tmp_path / "log.txt")
    try:
        eventually(lambda: os.getsid(process.pid) == process.pid, "it leads a session")
        assert os.readlink(f"/proc/{process.pid}/fd/0") == os.devnull
    finally:
        process.kill()
        process.wait()


def test_where_it_cannot_print_it_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot start a process that writes"):
        spawn(["platform"], tmp_path / "no folder" / "log.txt")


def test_a_log_is_locked_while_somebody_prints_into_it(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", PRINTS, str(tmp_path)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            log = tmp_path / "b"
            eventually(lambda: log.exists() and "ready" in log.read_text(), "it has printed")
            assert (tmp_path / "a").read_text() == "in a\nin a\n"
            assert (is_locked(tmp_path / "a"), is_locked(log)) == (False, True)
            process.send_signal(signal.SIGHUP)
            assert is_locked(log)
        finally:
            process.kill()
    assert not is_locked(log)
    assert process.returncode == -signal.SIGKILL  # the hang-up before did nothing
