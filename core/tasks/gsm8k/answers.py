r"""Text -> the number it answers with: `#### 18`, `\boxed{18}`, or just the last number.

An answer *in a form* is one number and at most a unit after it: `$1,080.00`, `-3 %`, `\frac{3}{4}`, `18 eggs per day.`,
`x = 18`. A list of numbers is no answer, so a model cannot earn anything by naming many. Of several answers in a form
the last counts. Everything here is linear in the text's length.
Not here: what an answer earns (core.tasks.gsm8k.task).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, assert_never, get_args

Form = Literal["hashes", "boxed"]

_LONGEST = 40  # characters of a number: int() of a hostile digit string is slow, then an error
_HASHES = re.compile(r"(?<!#)####(?!#)[ \t]*((?:(?!####)[^\n])*)")
_BRACES = re.compile(r"\\boxed[ \t]*\{|\\[{}]|[{}]")
_PLAIN = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,]*\d)|\d+(?:\.\d+)?|\.\d+"
# A mixed number, a fraction, or a plain number. Of `a/b` both are plain; `18/hour` is 18.
_UNSIGNED = rf"\d+ +\d+/\d+|(?:{_PLAIN})(?: ?/ ?\d+(?:\.\d+)?)?"
_WHOLE = re.compile(rf"[-+]? ?({_UNSIGNED})(?P<unit>.*)", re.DOTALL | re.ASCII)
_LOOSE = re.compile(rf"(?:(?<![\w)])-)?(?<![\w^])(?:{_UNSIGNED})", re.ASCII)
# What may not follow an answer: another number (the 2 of `m^2`, `m2` and `m^{2}` is none), an exponent, a range.
_MORE = re.compile(r"^ ?(?:\^ ?-?\d|[eE][-+]?\d|[.,:/*x-] ?\d)|(?<![A-Za-z^\d])\d")
_FRACTION = re.compile(r"\\[dtc]?frac *(?:\{([^{}]*)\} *\{([^{}]*)\}|(\d) *(\d))")
_NOISE = re.compile(r"\\(?:left|right|displaystyle|[!,;:()\[\]])|[$€£¥`]|(?<![\d*])\*+|\*+(?![\d*])")
_COMMAND = re.compile(r"(?<=[A-Za-z])(?=\{)")  # between a command that is left and what it holds: 18\sqrt{2} is not 18
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|boxed) *(?=\{)")


def answer_in(text: str, form: Form) -> Fraction | None:
    r"""The last answer of `text` in the asked form, `#### N` or `\boxed{N}`; None where there is none."""
    places: Sequence[str]
    match form:
        case "hashes":
            places = _HASHES.findall(text)
        case "boxed":
            places = _boxes(text)
        case _:
            assert_never(form)
    return next((found for place in reversed(places) if (found := whole(place)) is not None), None)


def lenient_answer(text: str, form: Form) -> Fraction | None:
    """The answer in the asked form, else in another one, else the last number of the text; None without a number.

    So whatever counts exactly counts leniently.
    """
    for one in (form, *(other for other in get_args(Form) if other != form)):
        if (found := answer_in(text, one)) is not None:
            return found
    numbers = _LOOSE.findall(_plain(text))
    return _value(numbers[-1]) if numbers else None


def whole(text: str) -> Fraction | None:
    """The number that is all of `text` but for currency signs, a unit and LaTeX around it; None for anything else."""
    plain = _plain(text).strip()
    if "=" in plain:  # 2 + 3 = 5, x = 5
        plain = plain.rpartition("=")[2].strip()
    found = _WHOLE.fullmatch(plain)
    if found is None or _MORE.search(found["unit"]):
        return None
    return _value(plain[: found.start("unit")])


def _value(text: str) -> Fraction | None:
    """The value of `-1,080.50`, `3/4` or `1 1/2`; None for what has no value or more than 40 characters."""
    if len(text) > _LONGEST:
        return None
    negative, unsigned = text.lstrip().startswith("-"), text.lstrip(" +-").replace(",", "")
    first, _, divisor = unsigned.partition("/")
    try:
        parts = [Fraction(part) for part in first.split()]
        if len(parts) == 2:  # a mixed number
            value = parts[0] + parts[1] / Fraction(divisor.strip())
        else:
            value = parts[0] / Fraction(divisor.strip() or 1)
    except (ValueError, ZeroDivisionError, IndexError):
        return None
    return -value if negative else value


def written(value: Fraction) -> str:
    """The number as one writes it: `1080`, `0.5`, `1/3`."""
    if value.denominator == 1:
        return str(value.numerator)
    exact = f"{float(value):.10f}".rstrip("0")
    return exact if Fraction(exact) == value else f"{value.numerator}/{value.denominator}"


def _boxes(text: str) -> Sequence[str]:
    r"""What stands in each closed `\boxed{...}`, in the order they close; braces inside are matched."""
    opened: list[int | None] = []
    found = []
    for brace in _BRACES.finditer(text):
        token = brace.group()
        if token.startswith("\\boxed"):
            opened.append(brace.end())
        elif token == "{":
            opened.append(None)
        elif token == "}" and opened and (start := opened.pop()) is not None:
            found.append(text[start : brace.start()])
    return found


def _plain(text: str) -> str:
    """The text without LaTeX's and Markdown's dressing: `\\$1{,}080\\text{ eggs}` -> `1,080 eggs`."""
    text = text.replace("\u2212", "-").replace("\u00a0", " ").replace("{,}", ",").replace("~", " ")
    text = text.replace("\\%", "%").replace("\\$", "$").replace("\\ ", " ")
    text = _FRACTION.sub(lambda f: f" {f[1] or f[3]}/{f[2] or f[4]}", _NOISE.sub("", _WRAPPER.sub("", text)))
    text = _COMMAND.sub(" ", text)
    return re.sub(r"[ \t]+", " ", text.replace("{", "").replace("}", ""))
