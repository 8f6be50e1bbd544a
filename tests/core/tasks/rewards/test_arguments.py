"""Which arguments a reward function is given, and what is said of one that it lacks."""

from __future__ import annotations

import pytest

from core.tasks.rewards.judge import Reward
from tests.core.tasks.rewards.judging import reward


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
