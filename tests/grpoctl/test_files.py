"""Rows and documents on disk: exact, whole, and honest about damage."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.files import (
    RowWriter,
    create_text,
    encode,
    read_json,
    read_new,
    read_resolved_yaml,
    read_rows,
    replace_json,
    replace_text,
    storage_errors,
    truncate_after,
)

ROOT = Path(__file__).resolve().parents[2]


def written(path: Path, *rows: dict[str, object]) -> Path:
    with RowWriter(path) as writer:
        writer.append(*rows)
    return path


@pytest.mark.parametrize(
    "value",
    [0.1, 1 / 3, 1e-320, 1.7976931348623157e308, -0.0, 2**53 + 1, 2e-6, 0, "数学 ->\u2028\n\x85", "\ud83d", None, True],
)
def test_values_read_back_exactly(tmp_path: Path, value: object) -> None:
    row = read_rows(written(tmp_path / "rows", {"step": 1, "v": value}))[0]
    assert row == {"step": 1, "v": value}
    assert type(row["v"]) is type(value)
    if isinstance(value, float):
        assert math.copysign(1, row["v"]) == math.copysign(1, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_word_for_is_null(value: float) -> None:
    assert encode({"step": 1, "v": value, "deep": [{"v": value}]}) == b'{"step": 1, "v": null, "deep": [{"v": null}]}\n'


def test_a_row_is_there_as_soon_as_append_returns(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "rows") as writer:
        writer.append({"step": 1})
        assert read_rows(tmp_path / "rows") == [{"step": 1}]


def test_no_file_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "rows") == []
    truncate_after(tmp_path / "rows", 3)
    assert not (tmp_path / "rows").exists()


# What is in the file -> the steps that are read. A line without its newline is torn even where it parses.
@pytest.mark.parametrize(
    ("content", "steps"),
    [
        (b'{"step": 1}\n{"step": 2}\n', [1, 2]),
        (b'{"step": 1}\n{"step": 2}', [1]),
        (b'{"step": 1}\n{"st', [1]),
        (b'{"step": 1}\n\x00\x00\x00\n', [1]),
        (b'{"st', []),
        (b"", []),
    ],
)
def test_a_torn_last_line_is_left_out(tmp_path: Path, content: bytes, steps: list[int]) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    assert [row["step"] for row in read_rows(path)] == steps


def test_damage_before_the_last_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b'{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(StorageError, match=r"row 2 is damaged"):
        read_rows(path)


def test_a_writer_removes_a_torn_line_before_it_appends(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b'{"step": 1}\n' + b'{"step": 2, "text": "' + b"x" * 200_000)  # longer than one block
    written(path, {"step": 2})
    assert read_rows(path) == [{"step": 1}, {"step": 2}]


# Two rows of each step 0..3, 12 bytes each: after step s there are 2 * (s + 1) rows.
@pytest.mark.parametrize(("step", "rows"), [(-1, 0), (0, 2), (2, 6), (3, 8), (99, 8)])
def test_truncate_after_keeps_the_rows_up_to_the_step(tmp_path: Path, step: int, rows: int) -> None:
    path = written(tmp_path / "rows", *({"step": number // 2} for number in range(8)))
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"step": 3')
    truncate_after(path, step)
    assert path.read_bytes() == whole[: 12 * rows]


@pytest.mark.parametrize("line", [b'{"loss": 1}\n', b'{"step": null}\n'])
def test_truncate_after_refuses_rows_without_a_step(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "rows"
    path.write_bytes(line)
    with pytest.raises(StorageError, match="without a step"):
        truncate_after(path, 0)
    assert path.read_bytes() == line


def test_a_follower_reads_each_row_once_and_waits_for_torn_ones(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    assert read_new(path, 0) == ([], 0)
    path.write_bytes(b'{"step": 1}\n{"ste')
    rows, offset = read_new(path, 0)
    assert (rows, offset) == ([{"step": 1}], 12)
    assert read_new(path, offset) == ([], 12)
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n')
    assert read_new(path, offset) == ([{"step": 2}], 24)


def test_a_follower_starts_again_when_the_file_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b'{"step": 1}\n')
    assert read_new(path, 24) == ([{"step": 1}], 12)  # shorter than where it was
    path.write_bytes(b'{"step": 1, "loss": 0.5}\n{"step": 2}\n')
    assert [row["step"] for row in read_new(path, 12)[0]] == [1, 2]  # no line starts at byte 12


def test_documents_are_replaced_whole_and_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "doc.json"
    replace_json(path, {"a": math.nan, "t": "数\ud83d"})
    replace_json(path, {"a": 1.5, "t": "数\ud83d"})
    assert read_json(path) == {"a": 1.5, "t": "数\ud83d"}
    assert os.listdir(tmp_path) == ["doc.json"]


@pytest.mark.parametrize("content", [b'{"a": ', b"[1]", b"\xff"])
def test_a_damaged_document_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "doc.json"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"doc\.json: damaged"):
        read_json(path)


@pytest.mark.parametrize("content", [b"a: [", b"[1]", b"\xff", b"a: " + b"[" * 5000])
def test_a_damaged_spec_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"spec\.yaml: damaged"):
        read_resolved_yaml(path)


@pytest.mark.parametrize("folder", ["/dev/null", "/proc", "/sys"])
def test_a_place_that_cannot_be_written_is_one_line(folder: str) -> None:
    path = Path(folder) / "rows"
    for attempt in (lambda: RowWriter(path), lambda: replace_text(path, "x")):
        with pytest.raises(StorageError, match=rf"^cannot write {path}: [^\n]+$"):
            attempt()


@pytest.mark.parametrize(
    ("place", "advice"),
    [
        ("home/runs/r/rows", "continue with --resume"),
        (".grpoctl/runs/r/rows", "continue with --resume"),
        ("r", "try again"),
    ],
)
def test_only_what_is_of_a_run_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, advice: str
) -> None:
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "home"))
    path = tmp_path / place
    with (
        pytest.raises(StorageError, match=rf"^cannot write {path}: full; free some space, then {advice}$"),
        storage_errors("write", path),
    ):
        raise OSError(errno.ENOSPC, "full")


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from core.errors import StorageError
from grpoctl.files import RowWriter, replace_text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that the limit is an error of the write, as a full disk is
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
rows, document = Path(sys.argv[1]), Path(sys.argv[2])
for attempt in (lambda: RowWriter(rows).append({"step": 2}, {"step": 3, "text": "x" * 100}),
                lambda: replace_text(document, "new" * 100)):
    try:
        attempt()
    except StorageError as error:
        print(error)
"""


@pytest.mark.process
def test_a_full_disk_leaves_the_last_whole_state(tmp_path: Path) -> None:
    rows, document = written(tmp_path / "rows", {"step": 1}), tmp_path / "doc"
    document.write_text("old")
    command = [sys.executable, "-c", FULL_DISK, str(rows), str(document)]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"cannot write {rows}", f"cannot write {document}"]
    assert all("free some space" in line for line in lines)
    assert read_rows(rows) == [{"step": 1}]  # both rows of the append are gone, also the one that fitted
    assert document.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["doc", "rows"]


CUTTER = """
import sys
from pathlib import Path
from grpoctl.files import RowWriter, truncate_after
path = Path(sys.argv[1])
while True:
    with RowWriter(path) as writer:
        for step in range(3, 40):
            writer.append({"step": step, "text": "x" * 50})
    truncate_after(path, 2)
    print("cut", flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("rounds", [1, 5, 20])
def test_a_kill_leaves_whole_rows_in_order(tmp_path: Path, rounds: int) -> None:
    path = written(tmp_path / "rows", {"step": 1}, {"step": 2})
    process = subprocess.Popen([sys.executable, "-c", CUTTER, str(path)], cwd=ROOT, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        for _ in range(rounds):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    steps = [row["step"] for row in read_rows(path)]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 2


def test_of_two_that_create_a_file_one_does(tmp_path: Path) -> None:
    file = tmp_path / "mine@1.json"
    assert create_text(file, "one") is True
    assert create_text(file, "other") is False  # had looked before `one` was there
    assert file.read_text() == "one"
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_that_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "a file where a folder belongs"
    folder.write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        create_text(folder / "new.json", "text")
    assert list(tmp_path.iterdir()) == [folder]
