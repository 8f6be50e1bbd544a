"""Templates: lookups and nothing else."""

from __future__ import annotations

import pytest

from core.errors import SpecError
from core.tasks.custom.problems import parse

ROW = {"q": "two", "n": 3, "x": 0.5, "ok": True, "no": None, "m": {"t": ["a", {"b": "deep"}]}, "a b.c": "odd"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("{q}?", "two?"),
        ("{q}{q}", "twotwo"),
        ("{{{q}}}", "{two}"),
        ("{n} {x} {ok}", "3 0.5 true"),  # what is no text is JSON
        ("{m[t][0]} {m[t][-1][b]}", "a deep"),
        ("{m[t]}", '["a", {"b": "deep"}]'),
        ("{a b.c}", "odd"),  # a column's name, no attribute of anything
        ("{q}\n}}", "two\n}"),
    ],
)
def test_a_row_is_filled_in(template: str, text: str) -> None:
    assert parse(template, "task.prompt").filled(ROW) == text


@pytest.mark.parametrize("template", ["{", "}", "{q", "{}", "{q}}", "{q[}", "{[q]}", "{q{n}}", "{q[]}"])
def test_what_is_no_template_is_refused_with_its_place(template: str) -> None:
    with pytest.raises(SpecError, match=r"task.prompt: got .* at character \d+; allowed: \{column\}"):
        parse(template, "task.prompt")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{no}", "{no} is null"),
        ("{m[z]}", "{m[z]} finds nothing: no 'z'"),
        ("{m[t][2]}", "no '2'"),
        ("{q[0]}", "no '0' in \"two\""),  # no letters of a text
        ("{m[t][__class__]}", "no '__class__'"),
    ],
)
def test_what_a_row_does_not_have_is_told(template: str, message: str) -> None:
    with pytest.raises(LookupError) as caught:
        parse(template, "k").filled(ROW)
    assert message in str(caught.value.args[0])


def test_what_a_row_holds_is_no_template() -> None:
    assert parse("{q}", "k").filled({"q": "{n} {q.__class__}"}) == "{n} {q.__class__}"


def test_it_says_which_columns_it_needs() -> None:
    assert parse("{a[b]} {c} {a}", "k").columns == ["a", "c"]
