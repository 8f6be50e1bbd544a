"""Processes of ours: what they find in their environment, where their output goes, and what a log ends with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.children import child_environment, last_line, python_module, spawn

ROOT = str(Path(__file__).resolve().parents[2])


def test_this_very_code_is_first_in_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert child_environment()["PYTHONPATH"] == f"{ROOT}{os.pathsep}/mine"
    monkeypatch.delenv("PYTHONPATH")
    assert child_environment()["PYTHONPATH"] == ROOT  # no empty entry: that would be the current folder
    assert os.environ.get("PYTHONPATH") is None


def test_a_folder_of_the_users_is_not_taken_for_ours() -> None:
    assert python_module("grpoctl.app", "ls")[1:] == ["-P", "-m", "grpoctl.app", "ls"]


@pytest.mark.process
def test_output_is_added_to_the_log_and_colours_are_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    log = tmp_path / "log.txt"
    log.write_text('"before"\n')
    (tmp_path / "shown.py").write_text(
        "import json, os, sys\n"
        "leads = os.getsid(0) == os.getpid()\n"
        "print(json.dumps([os.environ.get('FORCE_COLOR'), sys.argv[1:], leads, sys.stdin.read()]))\n"
    )
    env = {**child_environment(), "PYTHONPATH": str(tmp_path)}
    assert spawn(["shown", "a b"], log, env).wait() == 0
    before, shown = map(json.loads, log.read_text().splitlines())
    assert (before, shown) == ("before", [None, ["a b"], True, ""])


def test_a_log_that_cannot_be_written_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        spawn(["this"], tmp_path / "nowhere" / "log.txt")


@pytest.mark.parametrize(
    ("text", "last"), [("a\nb\n", "b"), ("a\n  b  \n\n \n", "b"), ("\n \n", ""), ("", ""), (None, "")]
)
def test_the_last_line_that_says_something(tmp_path: Path, text: str | None, last: str) -> None:
    log = tmp_path / "log.txt"
    if text is not None:
        log.write_text(text)
    assert last_line(log) == last
