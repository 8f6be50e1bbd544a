"""`grpoctl watch`: findings come and go as a log grows."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from core.health.finding import Finding
from grpoctl.cli import watch as command
from grpoctl.diagnose.diagnosis import Diagnosis, diagnose
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import create_study
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl

DEAD = "{'loss': 0.0, 'reward': 0.0, 'reward_std': 0.0, 'frac_reward_zero_std': 1.0, 'step': %d}\n"
LIVE = "{'loss': 0.1, 'reward': 0.%d, 'reward_std': 0.4, 'frac_reward_zero_std': 0.0, 'step': %d}\n"


@pytest.fixture
def dead(tmp_path: Path) -> str:
    """Twelve steps without a reward."""
    (tmp_path / "run.log").write_text("".join(DEAD % step for step in range(1, 13)))
    return "run.log"


def test_a_line_for_each_finding(grpoctl: Grpoctl, dead: str) -> None:
    said = grpoctl("watch", dead, "--idle", "0")
    assert said.code == 0
    assert any(line.startswith("step 12: ERROR: dead-run") for line in said.out.splitlines())


def test_fail_on(grpoctl: Grpoctl, dead: str, tmp_path: Path) -> None:
    assert grpoctl("watch", dead, "--idle", "0", "--fail-on", "error").code == 1
    (tmp_path / "live.log").write_text("".join(LIVE % (step % 9, step) for step in range(1, 13)))
    assert grpoctl("watch", "live.log", "--idle", "0", "--fail-on", "error").code == 0


@pytest.mark.parametrize("content", [None, b"", b"\x00\xff\xfe\x01" * 50])
def test_what_was_never_read_is_no_success(grpoctl: Grpoctl, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "trian.log").write_bytes(content)
    said = grpoctl("watch", "trian.log", "--idle", "0", "--fail-on", "error")
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1].startswith("error: nothing was ever read from 'trian.log'")


def test_a_folder_without_a_log_is_no_success(grpoctl: Grpoctl, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    said = grpoctl("watch", "logs", "--idle", "0")
    assert (said.code, "nothing was ever read from 'logs'" in said.err) == (2, True)


def test_a_log_without_findings_says_so(grpoctl: Grpoctl, tmp_path: Path, dead: str) -> None:
    live = "".join(LIVE % (step % 9, step) for step in range(1, 13))
    (tmp_path / "live.log").write_text(live)
    said = grpoctl("watch", "live.log", "--idle", "0")
    assert (said.code, said.out) == (0, "nothing found in 12 rows\n")
    assert "nothing found" not in grpoctl("watch", dead, "--idle", "0").out


def test_of_several_runs_a_line_names_the_one_it_is_of(grpoctl: Grpoctl, tmp_path: Path) -> None:
    short = [f"{step},live,0.{step}" for step in range(1, 6)]
    long = [f"{step},dead,0" for step in range(1, 31)]
    (tmp_path / "runs.csv").write_text("\n".join(["step,run,reward", *short, *long]) + "\n")
    said = grpoctl("watch", "runs.csv", "--idle", "0")
    assert any(line.startswith("step 30 of dead: ERROR: dead-run") for line in said.out.splitlines())


def test_a_finding_that_is_taken_back(tmp_path: Path, dead: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / dead
    request = Source(name=str(file), path=None)
    shown = command.look(request, {}, None)  # what a look leaves behind is what the next one starts from
    assert "dead-run" in shown
    file.write_text("".join(LIVE % (step % 9, step) for step in range(1, 40)))
    capsys.readouterr()
    assert "dead-run" not in command.look(request, shown, None)
    assert "step 39: TAKEN BACK: dead-run" in capsys.readouterr().out


def test_what_only_a_whole_run_shows_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    file.write_text("".join(LIVE % (step % 9, step) for step in range(1, 80)))
    request = Source(name=str(file), path=None)
    assert "no-validation" not in command.look(request, {}, None)
    assert "no-validation" in command.look(request, {}, None, ended=True)


def test_hints_are_of_a_log_that_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.log"
    file.write_text("step 1: reward=0.6 loss=0.1\nstep 2: reward=0.5 loss=0.2\nstep 3: reward=0.1 loss=0.1\n")
    request = Source(name=str(file), path=None)
    assert "policy-collapse" in [one.id for one in diagnose(open_source(request)).findings]
    assert command.look(request, {}, None) == {}
    assert capsys.readouterr().out == ""


def test_a_command_is_told(grpoctl: Grpoctl, dead: str, tmp_path: Path) -> None:
    script = "import sys; open('told', 'a').write(sys.stdin.read())"
    said = grpoctl("watch", dead, "--idle", "0", "--notify", shlex.join([sys.executable, "-c", script]))
    assert said.code == 0
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    first = told[0]
    assert (first["id"], first["severity"], first["event"], first["source"]) == ("dead-run", "error", "found", dead)


@pytest.mark.parametrize("notify", ["/no/such/command", f"{sys.executable} -c 'raise SystemExit(3)'"])
def test_a_command_that_fails_is_a_warning(grpoctl: Grpoctl, dead: str, notify: str) -> None:
    said = grpoctl("watch", dead, "--idle", "0", "--notify", notify)
    assert said.code == 0
    assert "warning: --notify" in said.err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("-",), "standard input"),
        (("run.log", "--notify", "a 'b"), "--notify"),
        (("run.log", "--notify", " "), "--notify"),
        (("run.log", "--fail-on", "info"), "allowed: error, warning, never"),
    ],
)
def test_bad_usage(grpoctl: Grpoctl, dead: str, arguments: tuple[str, ...], part: str) -> None:
    said = grpoctl("watch", *arguments)
    assert (said.code, said.out) == (2, "")
    assert part in said.err


def test_a_log_that_is_not_there_yet_is_waited_for(grpoctl: Grpoctl) -> None:
    said = grpoctl("watch", "later.log", "--idle", "0")
    assert said.code == 2
    assert "waiting" in said.err


def test_a_log_that_never_comes_ends_by_idle(grpoctl: Grpoctl) -> None:
    said = grpoctl("watch", "later.log", "--every", "0.1", "--idle", "0.3")
    assert said.code == 2
    assert said.err.count("waiting") == 1


def test_no_escape_sequence_reaches_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path, dead: str) -> None:
    evil = Finding(id="dead-run", severity="error", summary="a\x1b[2Jb\nc")
    reading = command.open_source(Source(name=str(tmp_path / dead), path=None))
    diagnosis = Diagnosis(name=dead, reading=reading, facts={"last_step": 3.0}, findings=(evil,))
    command.tell("found", evil, diagnosis, None)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize("name", ["nosuchrun", "absent/run.log", ""])
def test_what_can_never_come_is_refused(grpoctl: Grpoctl, name: str) -> None:
    said = grpoctl("watch", name, "--idle", "0")
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert name in said.err


def test_a_study_is_watched_run_by_run(grpoctl: Grpoctl, home: Home, recorded: Recorded) -> None:
    study = create_study(home, "demo-tiny-1a2b3c4d")
    study.spec.write_text("name: demo\n")
    said = grpoctl("watch", "demo", "--idle", "0")
    assert (said.code, said.out, f"{study.id} is a study, and has no run yet" in said.err) == (2, "", True)
    for number in range(2):
        run = study.run(number, 0)
        run.path.mkdir(parents=True)
        run.spec.write_bytes(recorded().spec.read_bytes())
    for name in ("demo", str(study.path)):
        said = grpoctl("watch", name, "--idle", "0")
        assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
        assert f"its 2 runs are watched one by one: grpoctl watch {study.run(1, 0).id}" in said.err


def test_a_file_without_a_suffix_is_waited_for_in_its_folder(grpoctl: Grpoctl) -> None:
    said = grpoctl("watch", "./later", "--idle", "0")
    assert said.code == 2
    assert "waiting" in said.err


def test_why_a_folder_is_waited_for_is_said_once(tmp_path: Path, dead: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One log in it is read; when a second comes nobody knows which is meant."""
    request, told = Source(name=str(tmp_path), path=None), set[str]()
    shown = command.look(request, {}, None, told=told)
    assert "dead-run" in shown
    (tmp_path / "second.log").write_text((tmp_path / dead).read_text())
    capsys.readouterr()
    for _ in range(2):
        assert command.look(request, shown, None, told=told) == shown
    assert capsys.readouterr().err.count("waiting: ") == 1
