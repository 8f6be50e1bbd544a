"""What all forms of the report say: the verdict, and evidence as numbers and lines."""

from __future__ import annotations

import pytest

from core.health.case import Settings
from core.health.finding import Finding
from grpoctl.diagnose import wording
from grpoctl.diagnose.html import page
from grpoctl.diagnose.report import report
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, Diagnosed


def test_verdict(diagnosed: Diagnosed) -> None:
    info = Finding(id="noise", severity="info", summary="a note")
    worst = wording.verdict(diagnosed(GRAVE, MILD, MILD, info))
    assert worst.startswith("1 error, 2 warnings, 1 info; ")
    assert worst.endswith("rollout-mode (strong)")
    assert wording.worst(diagnosed(MILD, info)) == "warning"
    # What was looked at: ten rows of step, update, reward/mean, completions/valid, kl, eval/reward and its error.
    assert "10 rows, 7 columns" in wording.verdict(diagnosed())
    assert wording.verdict(diagnosed(info)).endswith("noise (strong)")
    assert wording.worst(diagnosed(info)) == wording.worst(diagnosed()) == "ok"


@pytest.mark.parametrize("rows", [(), ({"step": 0, "eval/reward": 0.5},)])
def test_without_a_step_nothing_is_fine(diagnosed: Diagnosed, rows: tuple[dict[str, float], ...]) -> None:
    info = Finding(id="noise", severity="info", summary="a note")
    for found in (diagnosed(rows=rows), diagnosed(info, rows=rows)):
        assert wording.worst(found) == "unknown"
        assert report(found)[0].lines[-1].mark == "UNKNOWN"
        assert 'class="badge unknown"' in page(found)
    assert wording.worst(diagnosed(GRAVE, rows=rows)) == "error"


@pytest.mark.parametrize(
    ("value", "text"),
    [(38, "38"), (38.0, "38"), (0.0, "0"), (1.949e-25, "1.949e-25"), (0.82461, "0.8246"), (2e-6, "2e-06"),
     (1e300, "1e+300"), (float("nan"), "nan"), (float("-inf"), "-inf"), (True, "true")],
)  # fmt: skip
def test_number_text(value: float, text: str) -> None:
    assert wording.number_text(value) == text


def test_evidence_is_numbers_on_a_line_and_texts_of_their_own() -> None:
    assert wording.numbers(GRAVE) == "after_update 3, p 1.25e-09, metric completions/valid"
    assert wording.texts(GRAVE) == [("warnings", ["line 7: `use_cache=True`", "b"])]


def test_long_and_many_texts_are_cut() -> None:
    many = Finding(
        id="a", severity="info", summary="b", evidence={"x": ["y\n z" * 100, *map(str, range(9))], "none": []}
    )
    ((key, texts),) = wording.texts(many)
    assert (key, texts[-1], len(texts)) == ("x", "and 2 more", 9)
    assert texts[0].endswith("…")
    assert len(texts[0]) == 160
    assert "\n" not in texts[0]


def test_facts_and_settings(diagnosed: Diagnosed) -> None:
    known = diagnosed(settings=Settings(beta=0.04, dynamic_sampling=False))
    assert wording.setting_rows(known) == [("beta", "0.04"), ("dynamic_sampling", "false")]
    assert wording.fact_rows(known) == [("steps", "9"), ("updates", "3")]
    assert wording.main_facts(known) == "steps 9, updates 3"
