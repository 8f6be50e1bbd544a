"""Who holds a directory that several machines see. The machines are names (GRPOCTL_HOST), the holders real processes.

On one machine every process sees the lock, too; where that would tell, it is taken away, as on storage without locks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.errors import BusyError, SupersededError
from grpoctl.fence import fence_of
from grpoctl.files import RowWriter, read_rows, replace_json
from grpoctl.host import HOST_VARIABLE
from grpoctl.runs import garbage, liveness, status
from grpoctl.runs.claims import SILENCE_VARIABLE, claims_folder, left_by_attempts, newest_claim
from grpoctl.runs.listing import summary
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord, StudyStatus
from grpoctl.runs.study_dir import StudyDir
from tests.conftest import Recorded
from tests.end_to_end.cli import ROOT, eventually

HOLDS = """\
import itertools, sys
from pathlib import Path
from core.errors import GrpoError
from grpoctl.files import RowWriter
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.study_dir import StudyDir
path = Path(sys.argv[1])
of = StudyDir(path=path) if (path / "sweep.yaml").exists() else RunDir(path=path)
try:
    with of.hold(silent=float(sys.argv[2]), attempt=True), RowWriter(path / "rows.jsonl") as rows:
        for step, line in enumerate(itertools.chain(["begin"], iter(sys.stdin.readline, ""))):
            rows.append({"step": step, "by": line.strip()})
            print("written", flush=True)
except GrpoError as error:
    print(type(error).__name__, error, flush=True)
"""
SILENT = 2.5  # seconds: two heartbeats and a half


class Holder:
    """A process on a host that holds a directory and appends a row for each word it is given."""

    def __init__(self, path: Path, host: str, silent: float = SILENT) -> None:
        command = [sys.executable, "-P", "-c", HOLDS, str(path), str(silent)]
        environment = {**os.environ, HOST_VARIABLE: host, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        self.first = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def append(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.line()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


Holds = Callable[..., Holder]


@pytest.fixture
def held_by() -> Iterator[Holds]:
    holders: list[Holder] = []

    def start(path: Path, host: str, silent: float = SILENT) -> Holder:
        holders.append(Holder(path, host, silent))
        return holders[-1]

    yield start
    for holder in holders:
        holder.end()


@pytest.fixture(autouse=True)
def observer(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """This process is on host b, and remembers what it observes in a folder of the test's."""
    monkeypatch.setenv(HOST_VARIABLE, "b")
    monkeypatch.setenv(SILENCE_VARIABLE, str(SILENT))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("observed")))


@pytest.fixture
def run(recorded: Recorded) -> RunDir:
    return recorded(ended="RUNNING")


def test_a_claim_says_whose_it_is_and_its_number_grows(run: RunDir) -> None:
    for attempt in (1, 2):
        with run.hold(attempt=True):
            replace_json(run.control, {"attempt": attempt})
    first, second = (json.loads((claims_folder(run.path) / f"attempt-{n}.json").read_text()) for n in (1, 2))
    assert (first["host"], first["pid"], second["attempt"]) == ("b", os.getpid(), 2)
    assert abs(first["start"] - time.time()) < 60
    claim = newest_claim(run.path)
    assert claim is not None
    assert (claim.attempt, claim.ended) == (2, True)
    assert left_by_attempts(run.path) == []


@pytest.mark.parametrize("changes", [False, True])
def test_who_only_looks_after_something_leaves_no_claim(run: RunDir, changes: bool) -> None:
    with run.hold():
        if changes:
            replace_json(run.control, {})
    assert not claims_folder(run.path).exists()


def test_a_claim_that_another_followed_keeps_its_number(run: RunDir) -> None:
    """Numbers have no gap: a former writer that wakes sees by the next one that it was followed."""
    with contextlib.suppress(SupersededError), run.hold(attempt=True):
        (claims_folder(run.path) / "attempt-2.json").write_text("{}")
    assert sorted(path.name for path in claims_folder(run.path).glob("*.json")) == ["attempt-1.json", "attempt-2.json"]


def test_nothing_is_put_together_beside_what_it_replaces(run: RunDir) -> None:
    with run.hold() as fence:
        assert fence_of(run.path / "deep" / "file") is fence
        with RowWriter(run.path / "rows.jsonl") as rows:
            rows.append({"step": 0})
        names = {path.name for path in run.path.iterdir()}
        assert not [name for name in names if name.endswith(".tmp")]
    assert fence_of(run.path) is None


@pytest.mark.process
def test_a_run_on_another_host_is_running_for_as_long_as_it_is_heard(run: RunDir, home: Home, held_by: Holds) -> None:
    holder = held_by(run.path, "a")
    run.lock.unlink()  # storage without locks
    assert run.is_held()
    assert summary(run)["status"] == "RUNNING"
    assert summary(run)["host"] == "a"
    assert f"process {holder.process.pid} on a" in summary(run)["message"]
    with pytest.raises(BusyError, match=f"in use by process {holder.process.pid} on a"), run.hold(attempt=True):
        pass
    for file in claims_folder(run.path).iterdir():  # no time of another host's is believed
        os.utime(file, (1, 1))
    assert run.is_held()
    assert holder.append("more") == "written"


@pytest.mark.process
def test_one_that_was_killed_elsewhere_is_gone_once_nothing_was_heard(run: RunDir, home: Home, held_by: Holds) -> None:
    holder = held_by(run.path, "a")
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait()
    assert run.is_held()  # the lock is free, and says nothing of another host
    seen = time.monotonic()
    eventually(lambda: not run.is_held(), "it is gone")
    assert time.monotonic() - seen > SILENT - 0.5
    assert liveness.reconcile(home) == []  # a look takes nothing from anybody
    record = liveness.standing(run)
    assert record is not None
    assert record.status is Status.INTERRUPTED
    assert f"process {holder.process.pid} on a" in record.message
    with run.hold(0, attempt=True) as fence:
        assert fence.attempt == 2


@pytest.mark.process
def test_one_that_was_killed_here_is_gone_at_once(run: RunDir, held_by: Holds) -> None:
    holder = held_by(run.path, "b")
    assert run.is_held()
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait()
    assert not run.is_held()
    with run.hold(0) as fence:
        assert fence.attempt == 2


@pytest.mark.process
def test_what_one_command_observed_the_next_one_knows(run: RunDir, held_by: Holds, tmp_path: Path) -> None:
    holder = held_by(run.path, "a")
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait()
    look = "import sys; from pathlib import Path; from grpoctl.runs.run_dir import RunDir; "
    look += "print(RunDir(path=Path(sys.argv[1])).is_held())"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def held() -> str:
        command = [sys.executable, "-P", "-c", look, str(run.path)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert held() == "True"
    eventually(lambda: held() == "False", "another process goes on where the first stopped looking")


@pytest.mark.process
@pytest.mark.parametrize("host", ["a", "b"])
def test_one_that_is_woken_after_its_successor_began_writes_nothing(run: RunDir, held_by: Holds, host: str) -> None:
    hung = held_by(run.path, host)
    assert hung.append("first") == "written"
    hung.process.send_signal(signal.SIGSTOP)
    successor = held_by(run.path, "b")
    assert successor.first == "written"
    hung.process.send_signal(signal.SIGCONT)
    assert hung.append("second").startswith("SupersededError")
    assert successor.append("third") == "written"
    assert [row["by"] for row in read_rows(run.path / "rows.jsonl")] == ["begin", "first", "begin", "third"]
    assert run.is_held()
    assert [folder.name.startswith("attempt-2-") for folder in left_by_attempts(run.path)] == [True]


@pytest.mark.process
def test_one_that_hangs_here_keeps_the_run_but_from_an_attempt_to_go_on(run: RunDir, held_by: Holds) -> None:
    hung = held_by(run.path, "b")
    hung.process.send_signal(signal.SIGSTOP)
    with pytest.raises(BusyError, match=str(hung.process.pid)), run.hold():
        pass
    assert run.is_held()  # the lock decides
    with run.hold(attempt=True):
        assert run.is_held()
        hung.process.send_signal(signal.SIGCONT)
        assert hung.append("more").startswith("SupersededError")
        assert run.is_held()
    assert not run.is_held()


@pytest.mark.process
def test_of_several_successors_exactly_one_goes_on(run: RunDir, held_by: Holds) -> None:
    hung = held_by(run.path, "a")
    hung.process.send_signal(signal.SIGSTOP)
    run.lock.unlink()
    command = [sys.executable, "-P", "-c", HOLDS, str(run.path), "0"]
    several = [
        subprocess.Popen(
            command, env={**os.environ, HOST_VARIABLE: host, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for host in "cdef"
    ]  # fmt: skip
    try:
        eventually(lambda: len(read_rows(run.path / "rows.jsonl")) > 1, "one of them goes on")
        lines = [process.communicate("more\n")[0].splitlines() for process in several]
    finally:
        for process in several:
            process.kill()
            process.wait()
    # Whoever comes when one is there finds it in use, or, with a silence of 0, ends it: the files are always of one.
    by = [row["by"] for row in read_rows(run.path / "rows.jsonl")]
    assert by.count("more") >= sum(line.count("written") > 1 for line in lines)  # what was acknowledged is there
    numbers = sorted(int(path.stem.rpartition("-")[2]) for path in claims_folder(run.path).glob("attempt-*.json"))
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.process
def test_it_is_stopped_from_any_host(run: RunDir, held_by: Holds) -> None:
    from grpoctl.runs.claims import ask_to_stop

    holder = held_by(run.path, "a")
    claim = run.holder_elsewhere()
    assert claim is not None
    assert ask_to_stop(claim, 30.0)
    assert holder.process.wait(10) == -signal.SIGTERM


@pytest.mark.process
def test_two_hosts_do_not_drive_one_study(home: Home, held_by: Holds) -> None:
    study = StudyDir(path=home.path / "sweeps" / "lr-study-tiny-abc-1")
    study.path.mkdir(parents=True)
    study.spec.write_text("name: lr-study\n")
    holder = held_by(study.path, "a")
    study.lock.unlink()
    with pytest.raises(BusyError, match=f"driven by process {holder.process.pid} on a"), study.hold(attempt=True):
        pass
    assert liveness.study_status(study) == (StudyStatus.RUNNING, f"process {holder.process.pid} on a")
    holder.process.send_signal(signal.SIGKILL)
    eventually(lambda: liveness.study_status(study)[0] is StudyStatus.INTERRUPTED, "its driver is gone")
    with study.hold(attempt=True) as fence:
        assert fence.attempt == 2


@pytest.mark.process
def test_gc_leaves_what_another_host_may_still_need(home: Home, recorded: Recorded, held_by: Holds) -> None:
    run = recorded()
    holder = held_by(run.path, "a")
    run.lock.unlink()
    draft = run.path / f".mlflow.json.{'0' * 8}.{2**22 + 1}.tmp"  # of a third host
    draft.write_text("{")
    assert garbage.find(home) == []
    holder.process.send_signal(signal.SIGKILL)
    eventually(lambda: garbage.find(home) != [], "nobody holds it any more")
    (left,) = garbage.find(home)
    assert left.path.parent == claims_folder(run.path)
    garbage.remove(left)
    assert garbage.find(home) == []
    assert draft.exists()


def test_a_writer_that_was_superseded_gets_no_further(run: RunDir) -> None:
    status.write(run.status, StatusRecord(status=Status.RUNNING, pid=1, started=1.0))
    rows = RowWriter(run.path / "rows.jsonl")
    with run.hold(attempt=True), RowWriter(run.path / "rows.jsonl") as mine:
        rows.append({"step": 0})  # into the file that was replaced
        claim = newest_claim(run.path)
        assert claim is not None
        claim.successor.write_text(json.dumps({"host": "c", "pid": 12}))
        for write in (lambda: mine.append({"step": 1}), lambda: replace_json(run.control, {})):
            with pytest.raises(SupersededError, match="process 12 on c"):
                write()
    rows.close()
    assert read_rows(run.path / "rows.jsonl") == []
    assert not run.control.exists()


def test_a_row_that_a_successor_may_have_missed_is_not_acknowledged(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def overtaken(descriptor: int, data: bytes) -> int:
        (claims_folder(run.path) / "attempt-2.json").write_text(json.dumps({"host": "c", "pid": 12}))
        return write(descriptor, data)

    with run.hold(attempt=True), RowWriter(run.path / "rows.jsonl") as rows:
        rows.append({"step": 0})
        monkeypatch.setattr("grpoctl.files.os.write", overtaken)
        with pytest.raises(SupersededError, match="process 12 on c"):
            rows.append({"step": 1})
        monkeypatch.undo()


def claimed_by_hand(directory: Path, attempt: int, host: str, counter: str) -> Path:
    """A claim as another host's process makes it; gives its heartbeat."""
    folder = claims_folder(directory)
    folder.mkdir(exist_ok=True)
    document = {"schema": 1, "attempt": attempt, "host": host, "boot": "another", "pid": 12, "start": 9e9}
    (folder / f"attempt-{attempt}.json").write_text(json.dumps(document))
    heartbeat = folder / f"attempt-{attempt}.heartbeat"
    heartbeat.write_text(counter)
    return heartbeat


def test_a_heartbeat_counts_by_its_change_alone(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SILENCE_VARIABLE, "0.3")
    heartbeat = claimed_by_hand(run.path, 4, "a", "7")
    assert run.is_held()
    with pytest.raises(BusyError, match="process 12 on a"), run.hold(0):
        pass
    eventually(lambda: not run.is_held(), "nothing was heard for long enough")
    heartbeat.write_text("8")
    assert run.is_held()
    heartbeat.write_text("ended")
    assert not run.is_held()
    with run.hold(0, attempt=True) as fence:
        assert fence.attempt == 5


def test_a_caller_who_knows_that_it_is_gone_need_not_wait(run: RunDir) -> None:
    claimed_by_hand(run.path, 1, "a", "7")
    folder = claims_folder(run.path) / "attempt-1-00c0ffee"
    folder.mkdir()
    (folder / "0-result.json").write_text("{}")
    with run.hold(silent=0, attempt=True) as fence:
        assert left_by_attempts(run.path) == [fence.folder]  # the former one's was taken away


def test_rows_go_on_in_a_file_that_nobody_else_has_open(run: RunDir) -> None:
    file = run.path / "rows.jsonl"
    with RowWriter(file) as former:
        former.append({"step": 0})
        with run.hold(), RowWriter(file) as mine:
            former.append({"step": 1, "of": "the former"})
            mine.append({"step": 1})
    assert read_rows(file) == [{"step": 0}, {"step": 1}]


def test_a_draft_of_another_host_is_left_to_it(home: Home, recorded: Recorded) -> None:
    run = recorded()
    claimed_by_hand(run.path, 1, "a", "ended")
    (run.path / f".mlflow.json.{'0' * 8}.{2**22 + 1}.tmp").write_text("{")
    (claims_folder(run.path) / "attempt-1-00c0ffee").mkdir()
    assert [one.path.name for one in garbage.find(home)] == ["attempt-1-00c0ffee"]
