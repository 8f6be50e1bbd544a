"""Which arguments a reward function is given, and what the log is told of it."""

from __future__ import annotations

import logging

import pytest

from core.tasks.rewards import judge
from core.tasks.rewards.judge import Notes, Reward, gist
from tests.core.tasks.rewards.judging import reward
from tests.logs import Logged

RAISED = """Traceback (most recent call last):
  File "{dir}/mine.py", line 4, in f
    return one(completions)
  File "{dir}/lib/python3.12/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError
ValueError: no
  and a second line"""
HUNG = """no answer within 2 s
the last that it printed:
Current thread 0x7f (most recent call first):
  File "{dir}/lib/python3.12/re/__init__.py", line 166 in match
  File "{dir}/mine.py", line 7 in hang
  File "{dir}/mine.py", line 30 in f"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RAISED, "ValueError: no ({dir}/mine.py line 4)"),  # the user's own place, not the library's
        (RAISED.replace("\n  and", "\nand"), "ValueError: no ({dir}/mine.py line 4)"),  # a message of several lines
        ("Traceback (most recent call last):\nSyntaxError: bad\nmore", "SyntaxError: bad"),  # no frame at all
        (HUNG, "no answer within 2 s ({dir}/mine.py line 7)"),
        ("its process ended with exit code 3", "its process ended with exit code 3"),
        ("", ""),
        ("x" * 5000, "x" * 300),
    ],
)
def test_an_error_in_one_line(error: str, line: str) -> None:
    assert gist(error) == line


def test_an_error_is_told_in_full_once(logged: Logged) -> None:
    note = Notes()
    for _ in range(3):
        note.losses(reward("f"), 8, {2: RAISED}, RAISED)
    note.losses(reward("f"), 8, {}, HUNG)
    texts = logged.messages
    assert sum("in full" in text for text in texts) == 2
    # whose, of how many, why and where, and how many were lost
    facts = ("reward f", "8 completions", "ValueError: no ({dir}/mine.py line 4)", "1 of them")
    assert [fact for fact in facts if fact not in texts[0]] == []
    assert {record.name for record in logged.records} == {"core.tasks.rewards"}


def test_what_is_printed_is_noted_up_to_a_limit(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "PRINTED", 30)
    note = Notes()
    with logged.at_level(logging.INFO, logger="core.tasks.rewards"):
        for _ in range(5):
            note.printed("0123456789\n", 11)
        note.printed("tail", 5_000_000)
    texts = logged.messages
    *noted, last = texts
    assert len(noted) == 3
    assert all(text.endswith("0123456789") for text in noted)
    assert "30 bytes" in last


def test_text_that_was_cut_says_so(logged: Logged) -> None:
    with logged.at_level(logging.INFO, logger="core.tasks.rewards"):
        Notes().printed("tail", 5_000_000)
    text = logged.records[0].getMessage()
    assert "5000000 bytes" in text
    assert text.endswith("tail")


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (reward("completions"), "completions"),
        (reward("completions answer"), "answer completions"),
        (reward("", anything=True), "answer completion_ids completions log_metric prompts"),
        (reward("prompt", anything=True), "answer completion_ids completions log_metric prompt prompts"),
        (reward("log_metric"), "log_metric"),
        (reward(""), ""),
    ],
)
def test_what_is_passed(function: Reward, given: str) -> None:
    """Of a column called `prompt` or `completion` TRL gives **kwargs nothing."""
    there = ["prompts", "completions", "completion_ids", "answer", "prompt", "completion", "log_metric"]
    assert " ".join(sorted(name for name in there if function.wants(name))) == given


@pytest.mark.parametrize(
    ("required", "columns", "says"),
    [
        ("completions prompts completion_ids trainer_state log_extra log_metric", "", None),
        ("completions answer", "answer question", None),
        ("completions answers", "answer question", "did you mean answer?"),
        ("completion", "answer", "did you mean completions?"),
        (
            "zebra",
            "answer question",
            "needs an argument `zebra`, which is no column of the data (columns: answer, quest",
        ),
        ("zebra", "", "(columns: none)"),
    ],
)
def test_what_it_lacks(required: str, columns: str, says: str | None) -> None:
    said = reward(required, required=required).lacks(columns.split())
    assert said is None if says is None else (says in str(said) and "./mine.py:f" in str(said))
