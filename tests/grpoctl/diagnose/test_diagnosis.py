"""A case judged: facts, settings and findings in one JSON document without a number that JSON lacks."""

from __future__ import annotations

import json

from core.health.case import Case, Settings
from core.health.finding import Finding
from grpoctl.diagnose.diagnosis import diagnose
from grpoctl.diagnose.readers.base import Read
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, ROWS, Diagnosed

KEYS = ["schema", "source", "kind", "facts", "settings", "notes", "findings"]


def test_facts_of_the_format_stand_beside_those_of_every_source() -> None:
    read = Read(case=Case(rows=ROWS), kind="csv", source="a.csv", extra={"beams": 4.0})
    found = diagnose(read)
    assert (found.facts["updates"], found.facts["collapsed_after_update"], found.facts["beams"]) == (3, 3, 4.0)
    assert found.asked == "a.csv"
    assert diagnose(read, asked="-").asked == "-"


def test_numbers_beyond_all_training_are_noted() -> None:
    rows = [{"step": step, "reward/mean": 1e308, "loss": 0.5} for step in range(1, 11)]
    found = diagnose(Read(case=Case(rows=rows), kind="csv", source="a.csv", notes=("a guess",)))
    assert found.read.notes[0] == "a guess"
    assert found.read.notes[1].startswith("10 numbers are of 1e+100 or more")
    assert "lost-rewards" in {one.id for one in found.findings}
    assert "reward/first" not in found.facts


def test_the_document(diagnosed: Diagnosed) -> None:
    document = diagnosed(GRAVE, MILD, settings=Settings(num_generations=2, beta=0.0), notes=("a guess",)).as_json()
    assert list(document) == KEYS
    assert document["settings"] == {"num_generations": 2, "beta": 0.0}  # what is not known is not there; 0 is known
    assert (document["schema"], document["source"], document["kind"]) == (1, "old.log", "console")
    assert document["notes"] == ["a guess"]
    assert [one["id"] for one in document["findings"]] == ["rollout-mode", "dead-groups"]
    assert document["findings"][0]["decider"]["expects"] == ["collapse_rate < 0.05"]


def test_a_number_that_is_none_becomes_null(diagnosed: Diagnosed) -> None:
    odd = Finding(id="numerical", severity="error", summary="NaN", evidence={"loss": float("nan"), "lines": ["a", "b"]})
    text = json.dumps(diagnosed(odd).as_json(), allow_nan=False)
    assert json.loads(text)["findings"][0]["evidence"] == {"loss": None, "lines": ["a", "b"]}


def test_severities_are_counted_gravest_first(diagnosed: Diagnosed) -> None:
    assert list(diagnosed(MILD, GRAVE, MILD).counts().items()) == [("error", 1), ("warning", 2)]
    assert diagnosed().counts() == {}
