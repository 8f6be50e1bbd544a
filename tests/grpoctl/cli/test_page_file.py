"""Where `--html` writes, and above all where it does not: nothing that is there is lost but an older page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.errors import UserError
from grpoctl.cli.page_file import keeps, place
from tests.grpoctl.cli.conftest import Grpoctl

TABLE = "step,update,reward/mean\n" + "".join(f"{step},1,0.5\n" for step in range(1, 13))


@pytest.fixture
def log(grpoctl: Grpoctl, tmp_path: Path) -> Path:
    """A readable source in the folder that commands run in."""
    file = tmp_path / "a.csv"
    file.write_text(TABLE)
    return file


def refused(grpoctl: Grpoctl, *arguments: str) -> str:
    """The one line of an exit code 2."""
    said = grpoctl("diagnose", *arguments)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    return said.err


def test_the_source_is_never_written_over(grpoctl: Grpoctl, log: Path, tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(log)
    (tmp_path / "log.html").write_text(TABLE)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss": 0.1, "reward": 0.5}]}')
    whole = {path: path.read_bytes() for path in (log, tmp_path / "log.html", folder / "trainer_state.json")}
    assert "a.csv is there and is no page" in refused(grpoctl, "a.csv", "--html", "a.csv")
    assert "a.csv is there and is no page" in refused(grpoctl, "log.html", "--map", "loss=loss", "--html", "a.csv")
    assert "is there and is no page" in refused(grpoctl, "a.csv", "--html", "link.html")
    assert "would replace it" in refused(grpoctl, "log.html", "--html", "./log.html")
    assert "is no page" in refused(grpoctl, "out", "--html", "out/trainer_state.json")
    assert {path: path.read_bytes() for path in whole} == whole
    assert (tmp_path / "link.html").is_symlink()


def test_a_page_does_not_replace_what_standard_input_reads(grpoctl: Grpoctl, tmp_path: Path) -> None:
    file = tmp_path / "x.html"
    file.write_text("{'loss': 0.5, 'reward': 0.25}\n")
    kept, read = os.dup(0), os.open(file, os.O_RDONLY)
    os.dup2(read, 0)  # grpoctl diagnose - --html x.html < x.html
    try:
        assert "would replace it" in refused(grpoctl, "-", "--html", "x.html")
        keeps(tmp_path, "-")  # another file
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(read)
    assert file.read_text() == "{'loss': 0.5, 'reward': 0.25}\n"


def test_only_a_regular_file_is_replaced(grpoctl: Grpoctl, log: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "loop.html").symlink_to("loop.html")
    (tmp_path / "null.html").symlink_to("/dev/null")
    for name in ("/dev/null", "/dev/stdout", "pipe.html", "null.html"):
        assert "is no regular file" in refused(grpoctl, "a.csv", "--html", name)
    assert "--html: loop.html" in refused(grpoctl, "a.csv", "--html", "loop.html")
    assert "not to standard output" in refused(grpoctl, "a.csv", "--html", "-")
    assert not (tmp_path / "-").exists()
    assert (tmp_path / "pipe.html").is_fifo()


def test_a_name_that_no_file_can_have_is_one_line(grpoctl: Grpoctl, log: Path) -> None:
    for name in ("x" * 300, "x" * 300 + "/a.html", "a\0b"):
        line = refused(grpoctl, "a.csv", "--html", name)
        assert line.startswith("error: --html: ")
        assert "Errno" not in line
        assert len(line) < 150


def test_a_link_is_followed_and_an_older_page_replaced(grpoctl: Grpoctl, log: Path, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for name, before in {"page": "<!DOCTYPE html>", "empty": "", "old.html": "old", "new.html": None}.items():
        file, link = tmp_path / "pages" / name, tmp_path / f"to-{name}"
        link.symlink_to(file)
        if before is not None:
            file.write_text(before)
        assert grpoctl("diagnose", "a.csv", "--html", link.name).code == 0
        assert link.is_symlink()
        assert "<svg" in file.read_text() or "No figure" in file.read_text()


def test_a_source_that_is_no_file_is_no_page_either(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("")
    keeps(page, "mlflow:1234")
    keeps(page, "-")
    with pytest.raises(UserError, match="is what is to be diagnosed"):
        keeps(page, str(tmp_path / "." / "a.html"))
    assert place(None) is None
