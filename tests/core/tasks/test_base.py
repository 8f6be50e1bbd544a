"""Which problems are the same, and the table of samples that every task has."""

from __future__ import annotations

from collections.abc import Mapping

from core.tasks.base import SHOWN, names_of
from core.tasks.text import text_example
from tests.fakes import PricedTask


def test_problems_are_the_same_by_id_or_by_what_the_model_is_given() -> None:
    one, other = text_example(id="a", prompt="2 + 2"), text_example(id="b", prompt="2 + 2")
    chat = text_example(id="b", prompt="2 + 2", messages=({"role": "user", "content": "2 + 2"},))
    (same,) = set(names_of(one)) & set(names_of(other))
    assert "2 + 2" in same
    assert set(names_of(chat)) & set(names_of(other)) == {"id b"}
    assert not set(names_of(one)) & set(names_of(chat))


class Doubled(PricedTask):
    """Shows an output twice."""

    def shown_output(self, sample: Mapping[str, object]) -> str:
        return f"{sample['text']}{sample['text']}"


def sample(step: int, reward: float | None) -> dict[str, object]:
    return {"step": step, "prompt_id": f"p{step}", "text": "ab", "valid": reward == 1.0, "reward": reward}


def test_a_task_without_tables_shows_the_samples_of_the_last_step() -> None:
    task = Doubled(lambda *_: 0.0)
    (table,) = task.tables([sample(1, 0.5), sample(4, 1.0), sample(4, None), sample(2, 1.0)])
    assert table.rows == (("p4", "abab", "1.000", "yes"), ("p4", "abab", "missing", "no"))
    assert "4" in table.title
    (table,) = task.tables([sample(3, 0.25)] * 32)
    assert table.rows == (("p3", "abab", "0.250", "no"),) * SHOWN
    assert f"{SHOWN} of 32" in table.title
