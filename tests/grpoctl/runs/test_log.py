"""RUN/log.txt: what core says while a run lasts, and nothing before or after."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from grpoctl.runs.log import add_text, keep_off_terminal, logged
from grpoctl.runs.run_dir import RunDir


def test_core_is_heard_while_the_run_lasts(tmp_path: Path) -> None:
    run, core = RunDir(path=tmp_path), logging.getLogger("core.training")
    core.info("too early")
    with logged(run):
        core.warning("memory is short")
        core.info("noted")
        core.debug("too fine")
        logging.getLogger("elsewhere").info("not ours")
    core.warning("too late")
    lines = run.log.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["WARNING memory is short", "INFO noted"]


def test_the_level_of_before_is_back(tmp_path: Path) -> None:
    core = logging.getLogger("core")
    with logged(RunDir(path=tmp_path)):
        assert core.level == logging.INFO
    assert core.level == logging.NOTSET
    assert not core.handlers


@pytest.mark.process
def test_a_process_without_a_log_of_its_own_prints_it() -> None:
    said = (
        "import logging; from grpoctl.runs.log import log_to_stderr; log_to_stderr();"
        "logging.getLogger('core.tasks.rewards').info('printed by rewards: hi');"
        "logging.getLogger('elsewhere').info('not ours'); logging.getLogger('elsewhere').warning('theirs')"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stderr == "INFO:core.tasks.rewards:printed by rewards: hi\nWARNING:elsewhere:theirs\n"


def test_what_is_there_is_added_to_and_a_disk_that_refuses_ends_nothing(tmp_path: Path) -> None:
    run = RunDir(path=tmp_path)
    add_text(run, "one\n")
    with logged(run):
        logging.getLogger("core").warning("two")
    assert run.log.read_text().startswith("one\n")
    assert run.log.read_text().endswith("two\n")
    add_text(RunDir(path=tmp_path / "not" / "there"), "lost\n")


def test_what_libraries_warn_of_goes_to_the_log_and_nowhere_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = RunDir(path=tmp_path)
    keep_off_terminal()
    with logged(run):
        logging.getLogger("accelerate.utils").warning("a setting is odd")
        warnings.warn("this will\ngo", UserWarning, stacklevel=1)
        logging.getLogger("core.training").warning("ours")
    warnings.warn("after the run", UserWarning, stacklevel=1)
    lines = [line.split(" ", 2)[2] for line in run.log.read_text().splitlines()]
    assert lines[0] == "WARNING a setting is odd"
    assert lines[1].startswith("WARNING UserWarning: this will go (")
    assert lines[2:] == ["WARNING ours"]  # once
    assert capfd.readouterr() == ("", "")
