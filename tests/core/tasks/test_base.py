"""Which problems are the same."""

from __future__ import annotations

from core.tasks.base import names_of
from core.tasks.text import text_example


def test_problems_are_the_same_by_id_or_by_what_the_model_is_given() -> None:
    one, other = text_example(id="a", prompt="2 + 2"), text_example(id="b", prompt="2 + 2")
    chat = text_example(id="b", prompt="2 + 2", messages=({"role": "user", "content": "2 + 2"},))
    (same,) = set(names_of(one)) & set(names_of(other))
    assert "2 + 2" in same
    assert set(names_of(chat)) & set(names_of(other)) == {"id b"}
    assert not set(names_of(one)) & set(names_of(chat))
