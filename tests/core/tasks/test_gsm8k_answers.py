r"""Numbers out of texts: `#### N`, `\boxed{N}`, the last number; what is no answer; hostile texts in linear time."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest

from core.tasks.gsm8k import answer_in, lenient_answer, whole, written


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        (" 18. ", 18),
        ("18.00", 18),
        ("0018", 18),
        (".5", Fraction(1, 2)),
        ("1,080", 1080),
        ("1,080,000.5", Fraction(2160001, 2)),
        ("1{,}080", 1080),
        ("10\\,000", 10000),
        ("$1,080.00", 1080),
        ("\\$18", 18),
        ("$18$", 18),
        ("€ 5", 5),
        ("-5", -5),
        ("-$5", -5),
        ("\u22125", -5),  # the minus of typesetters
        ("+5", 5),
        ("50%", 50),
        ("50\\%", 50),
        ("-3 %.", -3),
        ("3/4", Fraction(3, 4)),
        ("3/4 cup", Fraction(3, 4)),
        ("1 1/2", Fraction(3, 2)),
        ("\\frac{3}{4}", Fraction(3, 4)),
        ("-\\dfrac{1}{2}", Fraction(-1, 2)),
        ("\\frac12", Fraction(1, 2)),
        ("1\\frac{1}{2}", Fraction(3, 2)),
        ("18 eggs", 18),
        ("18 eggs per day.", 18),
        ("18/hour", 18),
        ("18\\text{ m}^2", 18),
        ("25 m^2", 25),
        ("18^\\circ", 18),
        ("\\text{18 dollars}", 18),
        ("\\boxed{7}", 7),
        ("**18**", 18),
        ("x = 18", 18),
        ("2 + 3 = 5 apples", 5),
    ],
)
def test_a_whole_number_whatever_it_is_dressed_in(text: str, value: int | Fraction) -> None:
    assert whole(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "eggs", "Step 1", "about 18", "18 or 20", "18, 20", "18-20", "18 to 20", "5:30", "1,2", "12,34", "1000,000",
        "18.5.2", "10^2", "2e3", "2*3", "2**3", "2 x 10^3", "18 x 2", "10 000", "3/0", "\\frac{a}{b}", "9" * 41,
        "\u0661\u0668",  # 18 in Arabic-Indic digits
    ],
)  # fmt: skip
def test_what_is_no_answer(text: str) -> None:
    assert whole(text) is None


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("so 9 + 9 = 18\n#### 18", "hashes", 18),
        ("#### 18\nI hope this helps, 100%!", "hashes", 18),
        ("#### 5\n#### 7", "hashes", 7),  # the last counts
        ("#### 5 #### 7", "hashes", 7),  # ... on one line, too
        ("#### 5\n####", "hashes", 5),  # an empty one is none
        ("#### Step 1: 5 eggs\n18", "hashes", None),  # a heading
        ("#### 1 2 3 18", "hashes", None),  # naming many earns nothing
        ("### 18", "hashes", None),
        ("##### 18", "hashes", None),
        ("####18", "hashes", 18),
        ("\\boxed{18}", "hashes", None),
        ("The answer is \\boxed{18}.", "boxed", 18),
        ("\\boxed{5}, no: \\boxed{7}", "boxed", 7),
        ("\\boxed{\\frac{3}{4}}", "boxed", Fraction(3, 4)),  # braces in braces
        ("\\boxed{\\text{18 eggs}}", "boxed", 18),
        ("\\boxed{\\boxed{5}}", "boxed", 5),
        ("\\boxed{18\\sqrt{2}}", "boxed", None),  # a product, and no number with a unit
        ("\\boxed{18\\}", "boxed", None),  # never closed: the brace is escaped
        ("\\boxed{18} and \\boxed{1", "boxed", 18),  # cut off
        ("#### 18", "boxed", None),
    ],
)
def test_the_last_answer_in_the_asked_form(text: str, form: str, value: int | None) -> None:
    assert answer_in(text, form) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 18.", 18),
        ("It costs $1,080.", 1080),
        ("20 - 18 is 2", 2),
        ("so 20-18", 18),  # a difference, no negative number
        ("it is -5", -5),
        ("there are 5 1/2 cups", Fraction(11, 2)),
        ("\\boxed{18} of the 20", 18),  # an answer in a form goes before the last number
        ("#### Step 2: 18", 18),
        ("so \\fbox{18}", 18),  # whatever the command
        ("m2 has no number", None),
        ("none", None),
        ("", None),
    ],
)
def test_leniently_the_last_number_counts(text: str, value: int | None) -> None:
    assert lenient_answer(text, "hashes") == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(1080), "1080"), (Fraction(-5), "-5"), (Fraction(1, 2), "0.5"), (Fraction(1, 3), "1/3")],
)
def test_written(value: Fraction, text: str) -> None:
    assert written(value) == text
    assert whole(text) == value


@pytest.mark.parametrize(
    "unit",
    [
        "\\boxed{",
        "{",
        "####",
        "#### ",
        "####\n",
        "1,",
        "1 ",
        "1/",
        "9",
        "1,111",
        "\\frac{",
        "\\frac ",
        "-",
        " ",
        "$",
        "*",
    ],
)
def test_a_hostile_text_takes_no_time(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    start = time.process_time()
    for form in ("hashes", "boxed"):
        answer_in(text, form)  # type: ignore[arg-type]
        lenient_answer(text, form)  # type: ignore[arg-type]
    assert time.process_time() - start < 2.0  # quadratic time would be minutes; measured: at most 0.1
