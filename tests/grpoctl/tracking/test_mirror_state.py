"""How far the copy in MLflow is: written and read, damaged, of another version; and its errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpoctl.runs.run_dir import RunDir
from grpoctl.tracking.mirror_state import MirrorState, one_line, read_state, write_state


@pytest.fixture
def empty(tmp_path: Path) -> RunDir:
    """A run's directory with nothing in it."""
    return RunDir(path=tmp_path)


def test_what_is_written_is_read(empty: RunDir) -> None:
    assert read_state(empty) is None
    state = MirrorState(state="behind", error="away", synced_step=7, synced_ended=2000.5)
    write_state(empty, state)
    assert read_state(empty) == state
    assert json.loads(empty.mlflow.read_text())["schema"] == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "done"}', '{"schema": 2, "state": "done"}'])
def test_what_cannot_be_read_is_asked_of_mlflow_again(empty: RunDir, text: str) -> None:
    empty.mlflow.write_text(text)
    assert read_state(empty) is None


def test_a_key_of_a_later_version_is_passed_over(empty: RunDir) -> None:
    empty.mlflow.write_text('{"schema": 1, "state": "done", "synced_moon": true}')
    state = read_state(empty)
    assert state == MirrorState(state="done")


@pytest.mark.parametrize(("state", "done"), [("live", False), ("behind", False), ("done", True)])
def test_only_what_is_all_there_is_done(state: str, done: bool) -> None:
    assert MirrorState(state=state).done == done  # type: ignore[arg-type]


def test_an_error_is_one_line_without_passwords() -> None:
    url = "http://me:hunter2@host/"
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(ValueError()) == "ValueError"
    assert len(one_line(ValueError("x" * 1000))) == 300
    text = one_line(ValueError(f"cannot reach {url} as hunter2"), url)
    assert "hunter2" not in text
    assert "host" in text
