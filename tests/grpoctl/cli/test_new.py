"""`grpoctl new`: what it writes, what it refuses, and that it never writes over anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import StorageError, UserError
from core.tasks.registry import check_task
from grpoctl.cli.new import write_files
from grpoctl.config import Library, load
from grpoctl.runs.run_dir import Home
from tests.grpoctl.cli.conftest import Grpoctl


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["my-task", "a", "123", "null", "x_1", "9-lives"])
def test_what_it_writes_is_sound_in_every_profile(name: str, tmp_path: Path) -> None:
    files = write_files(name, tmp_path)
    module = name.replace("-", "_")
    written = [f"experiments/{name}.yaml", f"rewards/{module}.py", f"data/{name}.jsonl"]
    assert [str(file.relative_to(tmp_path)) for file in files] == written
    for profile in load(name).profiles:
        spec = load(name, profile=profile).spec
        check_task(spec)
        assert spec.task.rewards[0].function == f"{files[1]}:right_place"  # type: ignore[union-attr]
    assert load(name).profiles == ("full", "tiny", "small")


def test_a_run_whose_reward_file_is_gone_is_refused_before_it_begins(
    grpoctl: Grpoctl, home: Home, tmp_path: Path
) -> None:
    files = write_files("my-task", tmp_path)
    files[1].rename(tmp_path / "rewards" / "mine.py")
    said = grpoctl("run", "my-task", "--profile", "tiny")
    assert said.code == 2
    assert "task.rewards.0.function: " in said.err
    assert "my_task.py: no such file; Python files in " in said.err
    assert not home.path.exists()


def test_nothing_is_written_where_one_of_the_files_is_there(tmp_path: Path) -> None:
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "my_task.py").write_text("mine")
    with pytest.raises(UserError, match=r"rewards/my_task.py exists already; choose another name, or --force"):
        write_files("my-task", tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["my_task.py"]
    write_files("my-task", tmp_path, force=True)
    assert "right_place" in (tmp_path / "rewards" / "my_task.py").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My.Task", "allowed: at most 64 lower-case letters, digits, - and _; for instance my-task"),
        ("", "got the name ''"),
        ("-x", "for instance x"),
        ("../x", "got the name '../x'"),
        ("a" * 65, "at most 64"),
        ("p31", "p31 is an experiment that comes with grpoctl"),
    ],
)
def test_a_bad_name_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        write_files(name, tmp_path, force=True)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_in_a_checkout_ones_own_can_be_replaced_and_what_comes_with_grpoctl_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There both stand in one folder."""
    folder = tmp_path / "experiments"
    monkeypatch.setattr("grpoctl.cli.new.Library", lambda: Library(user=folder, shipped=folder))
    first, *_ = write_files("my-task", tmp_path)
    first.write_text("mine")
    write_files("my-task", tmp_path, force=True)
    assert "name: my-task" in first.read_text()
    (folder / "p31.yaml").write_text("name: p31\n")
    with pytest.raises(UserError, match="p31 is an experiment that comes with grpoctl"):
        write_files("p31", tmp_path, force=True)


@pytest.mark.parametrize("folder", ["experiments", "data"])
def test_a_folder_that_cannot_be_written_is_one_error(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).write_text("a file")
    with pytest.raises(StorageError, match=rf"{folder}/my-task\."):
        write_files("my-task", tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [folder]
