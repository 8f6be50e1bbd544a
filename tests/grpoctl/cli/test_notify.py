"""`--notify COMMAND`: told once, at the end, as JSON; its failure is a warning, and it never changes an exit code."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import RunError, UserError
from grpoctl.cli import notify
from tests.end_to_end.cli import eventually
from tests.grpoctl.cli.conftest import Grpoctl
from tests.grpoctl.printed import Capture


def into(path: Path, *, then: str = "") -> list[str]:
    """A command that writes what it is told to the path."""
    script = f"import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read()); {then}"
    return [sys.executable, "-c", script, str(path)]


def test_the_end_of_the_work_is_told_with_its_exit_code(tmp_path: Path) -> None:
    told = tmp_path / "a name with spaces; and $HOME"
    code = notify.telling(into(told), "run_ended", lambda: (4, {"status": "COLLAPSED", "runs": [{"seed": 0}]}))
    assert code == 4
    assert json.loads(told.read_text()) == {
        "schema": 1, "event": "run_ended", "status": "COLLAPSED", "runs": [{"seed": 0}], "exit_code": 4,
    }  # fmt: skip


def test_an_error_is_told_and_raised_again(tmp_path: Path) -> None:
    told = tmp_path / "told"

    def work() -> tuple[int, dict[str, object]]:
        raise RunError("the worker died")

    with pytest.raises(RunError, match="the worker died"):
        notify.telling(into(told), "sweep_ended", work)
    document = json.loads(told.read_text())
    assert (document["status"], document["message"], document["exit_code"]) == ("FAILED", "the worker died", 3)


@pytest.mark.parametrize("command", [("run", "p31"), ("sweep", "lr-study")])
def test_nothing_is_told_of_what_was_refused_before_it_started(
    grpoctl: Grpoctl, tmp_path: Path, command: tuple[str, ...]
) -> None:
    said = grpoctl(*command, "nosuch=1", "-p", "tiny", "--notify", f"tee {tmp_path / 'told'}")
    assert (said.code, "nosuch" in said.err) == (2, True)
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_refused_after_something_had_run_is_told(tmp_path: Path, begun: bool) -> None:
    """As of the second of two seeds, whose run another process holds."""
    told = tmp_path / "told"

    def work() -> tuple[int, dict[str, object]]:
        raise UserError("another process holds it")

    with pytest.raises(UserError, match="another process"):
        notify.telling(into(told), "run_ended", work, lambda: begun)
    assert told.exists() == begun


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path, capsys: Capture) -> None:
    command = ["sh", "-c", f"sleep 600 & echo $! > {tmp_path / 'child'}; wait"]
    notify.send(command, {}, seconds=2.0)
    assert "was ended after 2 seconds" in capsys.readouterr().err
    state = Path("/proc") / (tmp_path / "child").read_text().strip() / "stat"

    def gone() -> bool:
        with suppress(OSError):
            return state.read_text().rpartition(")")[2].split()[0] == "Z"
        return True

    eventually(gone, "the child has ended", 30.0)


@pytest.mark.parametrize("command", [["/no/such/command"], [sys.executable, "-c", "raise SystemExit(3)"]])
def test_a_command_that_fails_is_a_warning(command: list[str], capsys: Capture) -> None:
    assert notify.telling(command, "run_ended", lambda: (0, {})) == 0
    assert "warning: --notify" in capsys.readouterr().err


def test_what_it_prints_stands_outside_the_json_document(capfd: pytest.CaptureFixture[str]) -> None:
    notify.send([sys.executable, "-c", "print('hello')"], {})
    assert capfd.readouterr() == ("", "hello\n")


def test_a_command_that_is_not_there_is_one_warning_in_words(capsys: Capture) -> None:
    notify.send(["nosuch"], {})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: --notify: nosuch")
    assert "Errno" not in line
