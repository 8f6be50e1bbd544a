"""problems.parquet: made of rows, whole, equal for equal rows, and read at any time."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.files import replace_rows
from grpoctl.runs.problems import read_problems, write_problems
from grpoctl.runs.run_dir import RunDir


def row(step: int, place: int, reward: float | None, **more: object) -> dict[str, object]:
    known = {"step": step, "place": place, "draw": 0, "prompt_id": f"e{place}", "problem": f"{place:016x}"}
    return {**known, "reward": reward, "valid": True, "right": None, "output": "a", **more}


ROWS = [
    row(0, 0, 0.5, prompt="1 + 1"),
    row(0, 1, None, prompt="2 + 2"),
    row(8, 0, 1, **{"rewards/format": 1}),
    row(8, 1, 0.25, output="half a pair: \ud83d"),
]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(path=tmp_path)
    replace_rows(run.problem_rows, ROWS)
    return run


def test_the_file_has_what_the_rows_have_and_the_text_of_each_problem(run: RunDir) -> None:
    growing = read_problems(run)
    write_problems(run)
    run.problem_rows.unlink()
    table = read_problems(run)
    assert table is not None
    assert table.equals(growing)
    assert table.column("step").to_pylist() == [0, 0, 8, 8]
    assert table.column("reward").to_pylist() == [0.5, None, 1.0, 0.25]
    assert table.column("rewards/format").to_pylist() == [None, None, 1.0, None]
    assert table.column("prompt").to_pylist() == ["1 + 1", "2 + 2"] * 2
    assert table.column("output").to_pylist()[-1] == "half a pair: \\ud83d"
    assert table.column("right").null_count == 4


def test_clusters_are_a_column_where_the_task_has_them(run: RunDir) -> None:
    without = read_problems(run)
    assert without is not None
    assert "cluster" not in without.column_names
    replace_rows(run.problem_rows, [{**one, "cluster": "lake.png"} for one in ROWS])
    table = read_problems(run)
    assert table is not None
    assert table.column("cluster").to_pylist() == ["lake.png"] * 4


def test_equal_rows_give_equal_bytes(run: RunDir, tmp_path: Path) -> None:
    write_problems(run)
    before = run.problems.read_bytes()
    run.problems.unlink()
    write_problems(run)
    assert run.problems.read_bytes() == before


def test_an_older_run_has_none_and_nothing_is_written_of_it(tmp_path: Path) -> None:
    run = RunDir(path=tmp_path)
    write_problems(run)
    assert read_problems(run) is None
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_named(run: RunDir) -> None:
    write_problems(run)
    run.problem_rows.unlink()
    run.problems.write_bytes(run.problems.read_bytes()[:100])
    with pytest.raises(StorageError, match=r"problems\.parquet: damaged"):
        read_problems(run)
