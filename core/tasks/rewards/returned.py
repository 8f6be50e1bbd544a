"""What a reward function returned -> one number for each row, None where it does not apply.

What is here: which values are accepted. What is not: what becomes of rows without a value (judge).
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Set, Sized
from dataclasses import dataclass
from itertools import islice

LARGEST = 1e30  # in size: rewards are weighted, added, squared and then float32, which ends at 3.4e38


class UnusableError(Exception):
    """What was returned is no list of one value for each row: what it is, and what is allowed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Returned:
    """`values` of the rows; those in `refused` (row -> why) have None, and are lost."""

    values: list[float | None]
    refused: dict[int, str]


def numbers_of(returned: object, rows: int) -> Returned:
    """The values of a list, a tuple, an array, a tensor or a generator of numbers; bools are 0 and 1.

    Raises UnusableError where it is none of these, or where their number is not `rows`.
    """
    wanted = f"allowed: a list of a number or None for each of the {rows} completion(s)"
    if isinstance(returned, (str, bytes, Mapping, Set)) or not isinstance(returned, Iterable):
        raise UnusableError(f"returned {_described(returned)}; {wanted}")
    found = list(islice(returned, rows + 1))  # a generator may never end
    if len(found) != rows:
        count = str(len(returned)) if isinstance(returned, Sized) else f"{len(found)}{'+' if len(found) > rows else ''}"
        raise UnusableError(f"returned {count} value(s); {wanted}")
    values: list[float | None] = []
    refused: dict[int, str] = {}
    for row, value in enumerate(found):
        number, why = _number(value)
        values.append(number)
        if why:
            refused[row] = f"returned {why}; allowed: a finite number, or None where the reward does not apply"
    return Returned(values=values, refused=refused)


def _number(value: object) -> tuple[float | None, str]:
    """The value as a float, or None and why it is refused; None itself is fine."""
    if value is None:
        return None, ""
    if isinstance(value, (str, bytes)):  # float("1.5") would be taken silently
        return None, _described(value)
    try:
        number = float(value)  # type: ignore[arg-type]  # numpy's and torch's scalars too
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None, _described(value)
    if math.isfinite(number) and abs(number) > LARGEST:
        return None, f"{number}, beyond {LARGEST:.0e}"
    return (number, "") if math.isfinite(number) else (None, str(number))


def _described(value: object) -> str:
    return f"{type(value).__name__} {reprlib.repr(value)}"
