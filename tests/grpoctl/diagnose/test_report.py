"""The report of the terminal: what stands where, whole where it is piped, wrapped where it is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape

import pytest

from core.health.finding import Finding
from grpoctl import console
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.html import page
from grpoctl.diagnose.markdown import markdown
from grpoctl.diagnose.readers.base import Unread
from grpoctl.diagnose.report import report
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, Diagnosed

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _piped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def of_terminal(diagnosis: Diagnosis) -> str:
    return "\n".join(line.text for section in report(diagnosis) for line in section.lines)


def of_page(diagnosis: Diagnosis) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page(diagnosis)))


FORMS = pytest.mark.parametrize("form", [of_terminal, markdown, of_page])


def test_a_whole_report(diagnosed: Diagnosed, capsys: Capture) -> None:
    console.print_sections(report(diagnosed(GRAVE, MILD, notes=("the log is cut off",))))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("Not run ")] == [
        "Verdict   ERROR: 1 error, 1 warning; most severe: rollout-mode (strong)",
        "Source    old.log (console)",
        "Facts     steps 9, updates 3",
        "Note      the log is cut off",
        "",
        "Finding   ERROR: rollout-mode (strong): 3 of 3 steps after an update were all-invalid",
        "Evidence  after_update 3, p 1.25e-09, metric completions/valid",
        "          warnings: line 7: `use_cache=True`",
        "          b",
        "Ruled out policy-collapse - it healed: without an update",
        "Try       grpoctl run NAME guards.rollout_integrity=stop",
        "Advice    sample in eval mode",
        "Decides   Is it the sampler?",
        "          grpoctl run NAME num_generations=4 guards.rollout_integrity=stop",
        "          if it is right: collapse_rate < 0.05",
        "",
        "Finding   WARNING: dead-groups (moderate): half were dead",
        "",
        "Next      grpoctl diagnose old.log --propose NAME   # writes the deciding experiment",
        "Note      NAME above: an experiment of yours with this run's settings; that command writes one",
    ]


def test_too_little_is_said_first(diagnosed: Diagnosed, capsys: Capture) -> None:
    console.print_sections(report(diagnosed()))
    assert capsys.readouterr().out.startswith("Verdict   UNKNOWN: not enough to judge")


def test_sentences_are_wrapped_and_commands_are_not(
    diagnosed: Diagnosed, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    long = Finding(id="a", severity="info", summary="word " * 40, suggest=tuple(f"key_{i}=0.1" for i in range(12)))
    console.print_sections(report(diagnosed(long)))
    lines = capsys.readouterr().out.splitlines()
    assert [line[:18] for line in lines if len(line) > 60] == ["Try       grpoctl "]


def test_a_log_drives_no_terminal(diagnosed: Diagnosed, capsys: Capture) -> None:
    """Neither a control character nor markup of ours is anything but text, wherever the log put it."""
    evil = "\x1b[2J[red]x[/red]\u202e"
    finding = Finding(id="a", severity="error", summary=evil, evidence={"k": [evil]}, advice=evil)
    console.print_sections(report(diagnosed(finding, source=evil, notes=(evil,))))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count("[red]x[/red]") == 5


@FORMS
def test_every_report_says_what_was_not_looked_at(form: Callable[[Diagnosis], str], diagnosed: Diagnosed) -> None:
    unread = tuple(Unread(line=place, text=f"zork={place}") for place in range(1, 6))
    text = form(diagnosed(MILD, not_understood=unread))
    assert "ules that lack a column or setting" in text
    assert "line 1: zork=1" in text
    assert "zork=4" not in text
    assert "and 2 more kinds of lines" in text


@FORMS
def test_every_report_names_all_sources_and_whose_facts_it_shows(
    form: Callable[[Diagnosis], str], diagnosed: Diagnosed
) -> None:
    both = replace(diagnosed(MILD), others=(diagnosed(source="new.log", notes=("its own note",)).reading,))
    text = form(both)
    assert "old.log" in text
    assert "new.log" in text
    assert "its own note" in text


def test_each_source_has_its_curves_on_the_page(diagnosed: Diagnosed) -> None:
    both = replace(diagnosed(MILD), others=(diagnosed(source="new.log").reading,))
    assert page(both).count("<svg") == 2
    assert page(diagnosed(MILD)).count("<svg") == 1
    assert "Facts of new.log" in page(both)
