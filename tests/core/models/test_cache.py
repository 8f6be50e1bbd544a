"""The cache of models made here: an entry is there whole or not at all, and made by one process."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from core.errors import ModelError, StorageError
from core.models.cache import check_free_space, folder_bytes, get_or_make, intact


def one_file(work: Path) -> None:
    (work / "a").write_text("x")


def never(work: Path) -> None:
    raise AssertionError("it was there")


def names(root: Path) -> list[str]:
    return sorted(one.name for one in root.iterdir())


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    folder = get_or_make(tmp_path / "entry", one_file, files=["a"], what="make it")
    assert (folder / "a").read_text() == "x"
    assert get_or_make(folder, never, files=["a"], what="make it") == folder
    assert names(tmp_path) == ["entry", "entry.lock"]
    assert folder_bytes(folder) == 1 + (folder / "checksums.json").stat().st_size


@pytest.mark.parametrize("damage", ["y", ""])
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: str) -> None:
    folder = get_or_make(tmp_path / "entry", one_file, files=["a"], what="make it")
    (folder / "a").write_text(damage)
    assert not intact(folder)
    get_or_make(folder, one_file, files=["a"], what="make it")
    assert intact(folder)


def test_an_entry_without_a_file_that_belongs_to_it_is_not_intact(tmp_path: Path) -> None:
    folder = get_or_make(tmp_path / "entry", one_file, files=["a"], what="make it")
    assert intact(folder, ["a"])
    assert not intact(folder, ["a", "b"])


def half(error: BaseException) -> object:
    def make(work: Path) -> None:
        one_file(work)
        raise error

    return make


@pytest.mark.parametrize(
    ("error", "becomes", "says"),
    [
        (OSError(28, "No space left on device"), StorageError, r"cannot make it in .*: No space left.*; make room"),
        (PermissionError(13, "Permission denied"), StorageError, r"cannot make it in .*: Permission denied$"),
        (ModelError("told already"), ModelError, "^told already$"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)
def test_what_fails_half_way_leaves_nothing(
    tmp_path: Path, error: BaseException, becomes: type[BaseException], says: str
) -> None:
    with pytest.raises(becomes, match=says):
        get_or_make(tmp_path / "entry", half(error), files=["a"], what="make it")  # type: ignore[arg-type]
    assert names(tmp_path) == ["entry.lock"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "entry.work-killed").mkdir()
    (tmp_path / "entry.work-killed" / "a").write_text("half")
    (tmp_path / "entry2.work-other").mkdir()  # another entry's, perhaps at work
    get_or_make(tmp_path / "entry", one_file, files=["a"], what="make it")
    assert names(tmp_path) == ["entry", "entry.lock", "entry2.work-other"]


def test_who_comes_second_waits_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "entry"
    with (tmp_path / "entry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=get_or_make, args=(folder, never), kwargs={"files": ["a"], "what": "make it"})
        second.start()
        while "another process is making this model ready" not in capsys.readouterr().err:
            second.join(0.01)
            assert second.is_alive()
        kept_by_the_first = tmp_path / "first"
        get_or_make(kept_by_the_first, one_file, files=["a"], what="make it").rename(folder)
    second.join(10)
    assert not second.is_alive()
    assert intact(folder)


def test_room_is_asked_of_the_disk_that_the_folder_will_be_on(tmp_path: Path) -> None:
    check_free_space(tmp_path / "not" / "yet", 1, "make it")
    with pytest.raises(StorageError, match=r"make it.*1073741824\.00 GiB.*XDG_CACHE"):
        check_free_space(tmp_path / "not" / "yet", 2**60, "make it")
