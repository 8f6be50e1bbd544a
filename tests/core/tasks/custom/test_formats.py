"""Files -> rows, and one line for each way in which a file is no good."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from core.config.task import DataSpec
from core.errors import SpecError
from core.tasks.custom.formats import plain
from core.tasks.custom.problems import rows_of


def read(path: Path, content: str | bytes, **more: Any) -> list[dict[str, object]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [dict(row.values) for row in rows_of(DataSpec(path=str(path), **more), seed=0)]


GOOD = [
    ("a.jsonl", '{"q": "x"}\n\n{"q": "y", "n": 1}\n', [{"q": "x", "n": None}, {"q": "y", "n": 1}]),  # blank, missing
    ("a.jsonl", b'\xef\xbb\xbf{"q": "x"}\r\n', [{"q": "x"}]),  # a byte order mark, Windows line ends
    ("a.jsonl", '{"q": {"t": [1, null]}}', [{"q": {"t": [1, None]}}]),  # nested, no last line end
    ("a.jsonl", '{"q": NaN}', [{"q": None}]),  # Python's JSON writes it so
    ("a.jsonl", '{"q": "\u2028"}', [{"q": "\u2028"}]),  # a line end for Unicode, none for JSON
    ("a.json", '[{"q": 1}, {"q": 2}]', [{"q": 1}, {"q": 2}]),
    ("a.json", '{"q": 1}\n{"q": 2}', [{"q": 1}, {"q": 2}]),
    ("a.csv", "q,a\nx,1\ny,2\n", [{"q": "x", "a": 1}, {"q": "y", "a": 2}]),
    ("a.csv", b"\xef\xbb\xbfq,a\r\nx,1.5\r\n\r\ny,\r\n", [{"q": "x", "a": 1.5}, {"q": "y", "a": None}]),
    ("a.csv", 'q,a\n"x, y\n""z""",007\n', [{"q": 'x, y\n"z"', "a": "007"}]),  # a code is no number
    ("a.csv", "q,a\nx,true\ny,False\n", [{"q": "x", "a": True}, {"q": "y", "a": False}]),
    ("a.csv", "q,a\nx,1\ny,one\n", [{"q": "x", "a": "1"}, {"q": "y", "a": "one"}]),  # a column has one kind
    ("A.CSV", "q\nx\n", [{"q": "x"}]),
]


@pytest.mark.parametrize(("name", "content", "rows"), GOOD)
def test_a_file_is_read(name: str, content: str | bytes, rows: list[dict[str, object]], tmp_path: Path) -> None:
    assert read(tmp_path / name, content) == rows


BAD = [
    ("a.jsonl", "", "has no rows"),
    ("a.jsonl", "\n \n", "has no rows"),
    ("a.jsonl", '{"q": 1}\n{"q": }\n', "line 2: is not JSON: Expecting value at column 7"),
    ("a.jsonl", '{"q": 1}\n{"q"', "line 2: is not JSON"),  # a file that was cut off
    ("a.jsonl", b'{"q": 1}\n{"q": "\xff"}\n', "line 2: is not UTF-8 text: byte 8 of the line is 0xff"),
    ("a.jsonl", "\ufeff".encode("utf-16-le") + '{"q": 1}'.encode("utf-16-le"), "is UTF-16 text; save it as UTF-8"),
    ("a.jsonl", '{"q": 1}\n[1]\n', "line 2: got a list; a row is a JSON object"),
    ("a.jsonl", "null\n", "line 1: got null"),
    ("a.jsonl", '{"q": Infinity}', "line 1: column 'q' holds an infinite number"),
    ("a.jsonl", '{"q": "\\ud800"}', "line 1: column 'q' holds a text with half a character (U+D800)"),
    ("a.jsonl", '{"q": ' + "[" * 100_000, "line 1: is not JSON that can be read: nested too deeply"),
    ("a.jsonl", '{"q": ' + "1" * 5000 + "}", "line 1: is not JSON that can be read: a number of too many digits"),
    ("a.jsonl", '{"q": 1}\n{"q": 1, "a": 2, "q": 3}\n', "line 2: duplicate key 'q'"),
    ("a.jsonl", '{"q": {"r": 1, "r": 1}}\n', "line 1: duplicate key 'r'"),
    ("a.json", '[{"q": 1, "q": 2}]', "duplicate key 'q'"),
    ("a.json", '[{"q": 1},\n{"q" 2}]', "line 2: is not JSON: Expecting ':' delimiter at column 6"),
    ("a.csv", "", "is empty; a CSV file has a header line"),
    ("a.csv", "q,a\n", "has no rows"),
    ("a.csv", "q,a\nx,1\ny\n", "line 3: got 1 cell(s), the header has 2"),
    ("a.csv", "q,a\nx,1,2\n", "line 2: got 3 cell(s), the header has 2"),
    ("a.csv", 'q,a\n"x\ny",1\nz\n', "line 4: got 1 cell(s)"),  # the row before it has two lines
    ("a.csv", "q,q\nx,1\n", "line 1: two columns are called 'q'"),
    ("a.csv", "q,\nx,1\n", "line 1: column 2 of the header has no name"),
    ("a.csv", "q;a\nx;1\n", "the header has one column, with ';' in it"),
    ("a.csv", b"q,a\nx,1\ny,\xe9\n", "line 3: is not UTF-8 text: byte 3 of the line is 0xe9"),
    ("a.csv", b"q,a\nx,\x00\n", "line 2: is not CSV text: it holds a zero byte"),
    ("a.csv", 'q,a\n"x,1\ny,2', "line 2: is not CSV: unexpected end of data"),
    ("a.parquet", b"PAR1 and no more", "is no Parquet file that can be read"),
    ("a.txt", "q", "got a file that ends in '.txt'; allowed: .jsonl, .json, .csv, .parquet"),
    ("a", "q", "got a file without an ending"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=[message[:40] for _, _, message in BAD])
def test_a_bad_file_is_refused_by_name_and_line(name: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read(tmp_path / name, content)
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}")
    assert "\n" not in str(caught.value)


def test_a_line_of_ten_megabytes_is_a_row(tmp_path: Path) -> None:
    (row,) = read(tmp_path / "a.jsonl", '{"q": "' + "x" * 10_000_000 + '"}')
    assert len(str(row["q"])) == 10_000_000
    (row,) = read(tmp_path / "a.csv", "q\n" + "x" * 10_000_000)
    assert len(str(row["q"])) == 10_000_000


def test_parquet_values_become_what_json_can_hold(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "n": [1.5, math.nan, None],
            "day": [datetime.date(2026, 1, 2), datetime.date(2026, 1, 3), None],
            "raw": [b"text", b"\xff", None],
            "chat": [[{"role": "user", "content": "hi"}], [], None],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    rows = [row.values for row in rows_of(DataSpec(path=str(tmp_path / "a.parquet")), seed=0)]
    assert rows == [
        {"n": 1.5, "day": "2026-01-02", "raw": "text", "chat": [{"role": "user", "content": "hi"}]},
        {"n": None, "day": "2026-01-03", "raw": "/w==", "chat": []},  # base64 of the byte 0xff
        {"n": None, "day": None, "raw": None, "chat": None},
    ]
    parquet.write_table(pyarrow.table({"n": [1.0, math.inf]}), tmp_path / "b.parquet")
    with pytest.raises(SpecError, match="row 2: column 'n' holds an infinite number"):
        rows_of(DataSpec(path=str(tmp_path / "b.parquet")), seed=0)


def test_a_parquet_file_with_one_name_twice_is_refused(tmp_path: Path) -> None:
    column = pyarrow.array([1])
    parquet.write_table(pyarrow.Table.from_arrays([column, column], names=["q", "q"]), tmp_path / "a.parquet")
    with pytest.raises(SpecError, match="two columns are called 'q'"):
        rows_of(DataSpec(path=str(tmp_path / "a.parquet")), seed=0)


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl", '{"q": 1}') == [{"q": 1}]
    assert read(tmp_path / "a.jsonl", '{"q": 1}\n{"q": 2}') == [{"q": 1}, {"q": 2}]


@pytest.mark.parametrize(
    ("value", "made"),
    [(True, True), (3, 3), ("x", "x"), ((1, "y"), [1, "y"]), ({1: None}, {"1": None}), (datetime.time(3), "03:00:00")],
)
def test_a_value_is_made_plain(value: object, made: object) -> None:
    assert plain(value) == made


def test_a_dataset_of_the_hub_is_read_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder stands in for the hub: `datasets` reads both alike."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text('{"q": "x", "a": 1}\n{"q": "y", "a": 2}\n')
    rows = rows_of(DataSpec(hub=str(tmp_path / "set")), seed=0)
    assert [dict(row.values) for row in rows] == [{"q": "x", "a": 1}, {"q": "y", "a": 2}]
    with pytest.raises(SpecError, match=r"cannot load '.*set', split 'test', from the hub: .*test"):
        rows_of(DataSpec(hub=str(tmp_path / "set"), split="test"), seed=0)
    with pytest.raises(SpecError, match=r"cannot load 'nobody/nothing-there'.*give a local file as task"):
        rows_of(DataSpec(hub="nobody/nothing-there"), seed=0)
