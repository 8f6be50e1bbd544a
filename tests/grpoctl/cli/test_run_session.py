"""Warnings of a run that goes on: a note each while it runs, and not where they would stand twice."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from core.tasks.rewards import judge
from core.training import callbacks
from grpoctl.cli import run_session
from grpoctl.cli.run_session import LiveWarnings
from grpoctl.runs.run_dir import RunDir


def said(capsys: pytest.CaptureFixture[str], warnings: LiveWarnings, run: RunDir) -> str:
    """What stands on standard error of a warning before, during and after."""
    logger = logging.getLogger(callbacks.__name__)
    logger.warning("before")
    warnings.start(run)
    logger.warning("step 25: kl-weight: much")
    logger.info("step 25: inert-clip: no matter")
    warnings.finish()
    warnings.finish()
    logger.warning("after")
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a handler Python itself prints warnings to standard error."""
    monkeypatch.setattr(logging, "lastResort", logging.NullHandler())


def test_warnings_are_notes_while_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, LiveWarnings(), RunDir(path=tmp_path)) == "note: step 25: kl-weight: much\n"
    assert said(capsys, LiveWarnings(quiet=True), RunDir(path=tmp_path)) == ""


def test_what_rewards_tell_is_a_note_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warnings = LiveWarnings()
    warnings.start(RunDir(path=tmp_path))
    logging.getLogger("core.tasks.rewards").warning("one call failed")
    judge._told.warning("3 calls in a row failed")
    warnings.finish()
    judge._told.warning("after")
    assert capsys.readouterr().err == "note: 3 calls in a row failed\n"


def test_the_names_are_those_of_the_loggers() -> None:
    assert callbacks.__name__ == run_session.CALLBACKS
    assert judge._told.name == run_session.REWARDS


def test_a_detached_run_has_them_in_its_log_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(path=tmp_path)
    warnings = LiveWarnings()
    with run.log.open("w", encoding="utf-8") as log:
        monkeypatch.setattr("sys.stderr", log)
        warnings.start(run)
        logging.getLogger(callbacks.__name__).warning("step 25: kl-weight: much")
        warnings.finish()
    assert run.log.read_text(encoding="utf-8") == ""
