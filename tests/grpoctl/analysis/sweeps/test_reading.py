"""A study as it is true now, whoever wrote it last."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import StorageError
from grpoctl.analysis.sweeps.reading import read_study, study_row, study_summaries, study_summary
from grpoctl.runs.run_dir import Home
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
