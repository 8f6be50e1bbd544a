"""sweep.json: what is written is read again, an old trial's interval can change, and what damaged ones lack is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.runs.status import TrialStatus
from grpoctl.sweeps.state import Book, Point, TrialRecord, read_book

HEADER = {"study": "lr-tiny-0-1", "status": "RUNNING", "total": 3, "lag": None}
ENDED = TrialRecord(
    number=1, params={"beta": 0.1}, seeds=(0, 1), status=TrialStatus.COMPLETED, score=0.5, values=(0.4, 0.6),
    errors=(0.01, None), runs=("a", "b"), statuses=("COMPLETED", "COMPLETED"), curve=(Point(0, 0.5, 0.3),),
    findings=(("dead-groups",), ()),
)  # fmt: skip
FRESH = TrialRecord(number=0, params={"beta": 0.2}, seeds=(0, 1))


def book_in(folder: Path) -> Book:
    return Book(folder / "sweep.json", dict(HEADER), {1: ENDED, 0: FRESH})


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    book.intervals = {1: (0.4, 0.6)}
    book.analysis = {"best": book.best(1), "ranking": [1]}
    book.save()
    again = read_book(book.path)
    assert again.ordered() == [FRESH, ENDED]
    assert {key: again.header[key] for key in HEADER} == HEADER
    assert json.loads(json.dumps(again.document())) == json.loads(book.path.read_text())
    assert [trial["interval"] for trial in again.document()["trials"]] == [None, [0.4, 0.6]]
    best = again.document()["best"]
    assert (best["number"], best["params"], best["score"], best["interval"]) == (1, {"beta": 0.1}, 0.5, [0.4, 0.6])
    assert book.best(None) is None


def test_baselines_are_in_the_file_where_a_task_has_some(tmp_path: Path) -> None:
    book, reached = book_in(tmp_path), {"final": {"eval/reward": 0.5}, "random": {"eval/reward": 0.25}}
    book.trials[0] = replace(FRESH, baselines=reached)
    book.save()
    first, second = json.loads(book.path.read_text())["trials"]
    assert first["baselines"] == reached
    assert "baselines" not in second
    assert read_book(book.path).ordered() == [book.trials[0], ENDED]


def test_an_interval_that_changed_is_written_beside_the_trial_as_it_was(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    for interval in ((0.4, 0.6), (0.45, 0.55), None):
        book.intervals = {1: interval}
        book.save()
        assert read_book(book.path).intervals[1] == (None if interval is None else list(interval))


def test_a_trial_that_went_on_is_written_anew(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    book.save()
    book.trials[0] = replace(FRESH, status=TrialStatus.FAILED, message="away")
    book.save()
    assert read_book(book.path).ordered() == [book.trials[0], ENDED]


def test_a_document_is_that_of_the_last_save(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    assert book.document()["status"] == "RUNNING"
    book.header["status"] = "COMPLETED"
    assert book.document()["status"] == "RUNNING"
    book.changed()
    assert book.document()["status"] == "COMPLETED"


@pytest.mark.parametrize("key", ["study", "status", "total", "lag", "trials"])
def test_a_file_that_lacks_what_is_needed_is_damaged(tmp_path: Path, key: str) -> None:
    book = book_in(tmp_path)
    book.save()
    document = json.loads(book.path.read_text())
    del document[key]
    book.path.write_text(json.dumps(document))
    with pytest.raises(StorageError, match=key):
        read_book(book.path)


def test_a_file_of_another_schema_or_none(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    with pytest.raises(StorageError, match="missing"):
        read_book(book.path)
    book.path.write_text('{"schema": 99}')
    with pytest.raises(StorageError, match="schema 99"):
        read_book(book.path)
