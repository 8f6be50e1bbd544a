"""The mirror as a process of its own, beside a process that trains: live, killed, resumed, and with MLflow away."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from grpoctl.files import truncate_after
from grpoctl.runs import status
from grpoctl.runs.locks import is_locked
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status
from grpoctl.tracking.mirror_state import MirrorState, read_state
from tests.grpoctl.tracking.stand_in import refusing, silent, stand_in
from tests.grpoctl.tracking.stored import history, runs_of

pytestmark = pytest.mark.process


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Any]:
    """Starts fake trainers; ends those that are left, and their mirrors."""
    with contextlib.ExitStack() as stack:
        yield lambda run, uri="", cwd=tmp_path: stack.enter_context(stand_in("fake_trainer.py", run.path, uri, cwd))


def state_of(run: RunDir) -> MirrorState:
    return read_state(run) or MirrorState()


def losses_in(home: Home) -> list[tuple[int, float]]:
    (stored,) = runs_of(home)
    return history(home, stored.mlflow_run_id, "loss")


def expected(last: int) -> list[tuple[int, float]]:
    return [(step, step / 10) for step in range(last + 1)]


def test_a_run_is_followed_to_its_end_beside_the_users_own_core(
    home: Home, run: Any, train: Any, tmp_path: Path, eventually: Any
) -> None:
    for name in ("core", "grpoctl", "mlflow"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the wrong one')")
    trainer = train(run.dir)
    trainer.say("rows 0 3")
    eventually(lambda: state_of(run.dir).synced_step == 3)
    assert losses_in(home) == expected(3)
    assert [stored.status for stored in runs_of(home)] == ["RUNNING"]
    trainer.say("rows 4 9")
    _, state, error = trainer.wait(0)
    assert (state, "after 0 s" in error, "grpoctl sync" in error) == ("behind", True, True)
    trainer.say("end STOPPED_EARLY")
    assert trainer.wait()[1:] == ("done", "None")
    assert losses_in(home) == expected(9)
    assert [stored.status for stored in runs_of(home)] == ["FINISHED"]
    assert run.dir.mirror_log.read_text() == ""


def test_a_killed_run_is_killed_in_mlflow_and_goes_on_as_the_same_when_resumed(
    home: Home, run: Any, train: Any, eventually: Any
) -> None:
    trainer = train(run.dir)
    trainer.say("rows 0 7")
    eventually(lambda: state_of(run.dir).synced_step == 7)
    trainer.process.kill()
    eventually(lambda: state_of(run.dir).done, seconds=5)
    record = status.read(run.dir.status)
    assert record is not None
    assert (record.status, record.step) == (Status.INTERRUPTED, 7)
    assert [stored.status for stored in runs_of(home)] == ["KILLED"]
    truncate_after(run.dir.metrics, 4)
    resumed = train(run.dir)
    resumed.say("rows 5 9")
    eventually(lambda: state_of(run.dir).synced_step == 9)
    assert [stored.status for stored in runs_of(home)] == ["RUNNING"]
    resumed.say("end COMPLETED")
    assert resumed.wait()[1] == "done"
    assert losses_in(home) == expected(9)
    assert [stored.status for stored in runs_of(home)] == ["FINISHED"]


def test_two_mirrors_of_one_run_take_turns(home: Home, run: Any, train: Any, eventually: Any) -> None:
    """Ctrl-C spares the mirror, so it may still be at work when the resumed attempt starts its own."""
    first = train(run.dir)
    first.say("rows 0 3")
    eventually(lambda: is_locked(run.dir.mirror_lock))
    os.killpg(first.process.pid, signal.SIGINT)
    first.process.wait()
    resumed = train(run.dir)  # at once: the first mirror is still importing mlflow
    resumed.say("rows 4 6")
    eventually(lambda: state_of(run.dir).synced_step == 6)
    assert int(run.dir.mirror_lock.read_text()) == first.mirror  # it goes on with the resumed attempt
    resumed.say("end COMPLETED")
    assert resumed.wait()[1] == "done"
    assert losses_in(home) == expected(6)


class Broken(BaseHTTPRequestHandler):
    """Answers everything with 500."""

    def do_GET(self) -> None:
        """Fail."""
        self.send_error(500, "out of order")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextlib.contextmanager
def broken() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Broken)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# With a run that trains, end_to_end/test_mlflow.py has a server that refuses and one that is silent.
@pytest.mark.parametrize(
    ("server", "limit"),
    [
        pytest.param(refusing, 4.0, marks=pytest.mark.slow),
        pytest.param(silent, 6.0, marks=pytest.mark.slow),
        (broken, 4.0),
    ],
)
def test_a_server_that_is_away_neither_stops_nor_slows_the_run(
    home: Home, run: Any, train: Any, eventually: Any, server: Any, limit: float
) -> None:
    with server() as port:
        trainer = train(run.dir, f"http://me:hunter2@127.0.0.1:{port}")
        eventually(lambda: state_of(run.dir).state == "behind")
        assert float(trainer.say("rows 0 199")[1]) < 0.5  # 200 rows: 2.5 ms each would be slow
        trainer.say("end COMPLETED")
        took, state, error = trainer.wait()
    assert state == "behind"
    assert f"127.0.0.1:{port}" in error
    assert took < limit
    written = run.dir.mlflow.read_text() + run.dir.mirror_log.read_text() + error
    assert "hunter2" not in written
    assert trainer.say("rows 200 200")[0] == "rows"  # alive and well


def test_a_mirror_that_dies_is_told_and_takes_nothing_with_it(home: Home, run: Any, train: Any) -> None:
    trainer = train(run.dir)
    os.kill(trainer.mirror, signal.SIGKILL)
    trainer.say("rows 0 1")
    trainer.say("end COMPLETED")
    _, state, error = trainer.wait()
    assert (state, "code -9" in error, "grpoctl sync" in error) == ("behind", True, True)
