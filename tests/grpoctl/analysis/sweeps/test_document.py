"""A study as it is true now, whoever wrote it last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.analysis.sweeps.document import read_study, study_row, study_summaries, study_summary
from grpoctl.analysis.sweeps.report import head
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps.state import Point, read_book
from tests.studies import advantage_study, study, trial, write


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(path=tmp_path)


def test_a_driver_that_died_leaves_an_interrupted_study(home: Home) -> None:
    document = study([trial(0, [0.5]), trial(1, [], "RUNNING")], status="RUNNING", total=4)
    found = write(home, document)
    with found.hold():
        assert read_study(found)["status"] == "RUNNING"
    dead = read_study(found)
    assert dead["status"] == "INTERRUPTED"
    assert [one["status"] for one in dead["trials"]] == ["COMPLETED", "INTERRUPTED"]
    assert "--resume" in dead["message"]
    assert '"status": "RUNNING"' in found.state.read_text()  # looking changes nothing


def test_a_driver_that_died_before_its_first_word(home: Home) -> None:
    found = write(home, study([]))
    found.state.unlink()
    document = read_study(found)
    assert (document["status"], document["sweep"], document["trials"]) == ("INTERRUPTED", "advantage-study", [])


@pytest.mark.parametrize(
    "text", ['{"schema": 1, ', '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "trials": []}', "[]"]
)
def test_a_damaged_document_is_said_to_be_one(home: Home, text: str) -> None:
    found = write(home, study([]))
    found.state.write_text(text)
    with pytest.raises(StorageError):
        read_study(found)
    entry = study_summary(found)
    assert (entry["status"], entry["best"], entry["sweep"]) == ("DAMAGED", None, "advantage-study")
    assert study_row(entry)[1:] == ("DAMAGED", "-", "-")


def test_a_summary_is_short(home: Home) -> None:
    write(home, advantage_study())
    (entry,) = study_summaries(home)
    assert (entry["status"], entry["ended"], entry["total"], entry["metric"]) == ("COMPLETED", 24, 24, "eval/reward")
    assert entry["best"]["number"] == 1
    assert study_row(entry)[2:] == ("24/24", "eval/reward 0.614 ± 0.015 (#1)")


OLD = [[0.0, 0.1], [0.5, 0.2], [1.0, 0.3], [1.25, 0.4], [2.0, 0.5]]  # seed's index + share, as schema 1 had it


def old_study(home: Home) -> StudyDir:
    """Seeds 7 and 3: what is read must name the seeds themselves."""
    document = study([trial(0, [0.3, 0.5], seeds=[7, 3], curve=OLD), trial(1, [0.4, 0.4])])
    return write(home, {**document, "schema": 1})


def test_curves_of_older_studies_are_read_and_marked(home: Home) -> None:
    read = read_study(old_study(home))
    first, second = read["trials"]
    assert read["schema"] == 2
    assert first["curve"] == [[7, 0.0, 0.1], [7, 0.5, 0.2], [7, 1.0, 0.3], [3, 0.25, 0.4], [3, 1.0, 0.5]]
    assert first["curve_possibly_wrong"] is True
    assert not second.get("curve_possibly_wrong")  # it has none
    (note,) = [line.text for line in head(read)[0].lines if line.label == "Note"]
    assert "#0" in note


def test_an_older_study_is_gone_on_with(home: Home) -> None:
    found = old_study(home)
    book = read_book(found.state)
    assert book.trials[0].curve[-1] == Point(3, 1.0, 0.5)
    book.save()
    again = json.loads(found.state.read_text())
    assert (again["schema"], again["trials"][0]["curve"][0]) == (2, [7, 0.0, 0.1])
    assert again["trials"][0]["curve_possibly_wrong"] is True
    assert read_study(found)["trials"][1]["curve_possibly_wrong"] is False
