"""How a language model's policy is put together from a spec."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from core.policies.lm.build import unread_variables


@pytest.mark.parametrize(
    ("template", "unread"),
    [
        ("{% if enable_thinking is false %}x{% endif %}", ["effort"]),
        ("{{ effort }}{{ enable_thinking_more }}", ["enable_thinking"]),  # a name, not a part of one
        (None, ["enable_thinking", "effort"]),
    ],
)
def test_a_variable_that_no_template_reads_is_known(template: str | None, unread: list[str]) -> None:
    tokenizer = SimpleNamespace(chat_template=template)
    assert unread_variables(tokenizer, {"enable_thinking": False, "effort": "low"}) == unread
