"""The report as Markdown, and that a log's text stays text in it."""

from __future__ import annotations

import pytest

from core.health.case import Settings
from core.health.finding import Finding
from grpoctl.diagnose.markdown import code, markdown, plain
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, Diagnosed


def test_a_whole_report(diagnosed: Diagnosed) -> None:
    text = markdown(diagnosed(GRAVE, MILD, settings=Settings(beta=0.1), notes=("cut off",)))
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# Diagnosis of old.log", "## ERROR: rollout-mode", "## WARNING: dead-groups", "## Facts", "## Settings",
        "## Notes", "## Not looked at", "## Next",
    ]  # fmt: skip
    assert "- after_update 3, p 1.25e-09, metric completions/valid" in lines
    assert "  - `` line 7: `use_cache=True` ``" in lines
    assert "- **policy-collapse**: it healed: without an update" in lines
    assert "grpoctl run NAME num_generations=4 guards.rollout_integrity=stop" in lines
    assert "| beta | 0.1 |" in lines
    assert lines.count("```sh") == lines[lines.index("```sh") :].count("```")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("# no heading", r"\# no heading"),
        ("<script>", r"\<script\>"),
        ("a | b", r"a \| b"),
        ("num_generations stays, _this_ does not lean", r"num_generations stays, \_this\_ does not lean"),
        ("[a](b) *c*", r"\[a\](b) \*c\*"),
        ("two\nlines\x1b[0m", r"two lines\\x1b\[0m"),
        ("see `a_b|c` there", "see `a_b|c` there"),
        ("one ` alone <b>", r"one \` alone \<b\>"),
    ],
)
def test_plain(text: str, escaped: str) -> None:
    assert plain(text) == escaped


@pytest.mark.parametrize(
    ("text", "quoted"), [("a", "`a`"), ("a `b` c", "`` a `b` c ``"), ("``", "``` `` ```"), ("a\nb", "`a b`")]
)
def test_code(text: str, quoted: str) -> None:
    assert code(text) == quoted


def test_a_log_line_ends_no_list(diagnosed: Diagnosed) -> None:
    evil = Finding(id="a", severity="error", summary="x\n\n# y", evidence={"k": ["```\n# z"]})
    assert [line for line in markdown(diagnosed(evil)).splitlines() if line.startswith("#")] == [
        "# Diagnosis of old.log", "## ERROR: a", "## Facts", "## Not looked at",
    ]  # fmt: skip
