"""RUN/log.txt: what core says while a run lasts, and nothing before or after."""

from __future__ import annotations

import logging
from pathlib import Path

from grpoctl.runs.log import add_text, logged
from grpoctl.runs.run_dir import RunDir


def test_core_is_heard_while_the_run_lasts(tmp_path: Path) -> None:
    run, core = RunDir(path=tmp_path), logging.getLogger("core.training")
    core.info("too early")
    with logged(run):
        core.warning("memory is short")
        core.info("noted")
        core.debug("too fine")
        logging.getLogger("elsewhere").warning("not ours")
    core.warning("too late")
    lines = run.log.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["WARNING memory is short", "INFO noted"]


def test_the_level_of_before_is_back(tmp_path: Path) -> None:
    core = logging.getLogger("core")
    with logged(RunDir(path=tmp_path)):
        assert core.level == logging.INFO
    assert core.level == logging.NOTSET
    assert not core.handlers


def test_what_is_there_is_added_to_and_a_disk_that_refuses_ends_nothing(tmp_path: Path) -> None:
    run = RunDir(path=tmp_path)
    add_text(run, "one\n")
    with logged(run):
        logging.getLogger("core").warning("two")
    assert run.log.read_text().startswith("one\n")
    assert run.log.read_text().endswith("two\n")
    add_text(RunDir(path=tmp_path / "not" / "there"), "lost\n")
