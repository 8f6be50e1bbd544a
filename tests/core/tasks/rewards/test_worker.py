"""What a reward function may return."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from core.tasks.rewards.worker import NotFound, UnusableError, check_reference, numbers_of, resolve


@pytest.mark.parametrize(
    ("returned", "values"),
    [
        ([1.0, 0.5, None], [1.0, 0.5, None]),
        ((1, 0, 2), [1.0, 0.0, 2.0]),
        ([True, False, None], [1.0, 0.0, None]),
        (np.array([0.25, 0.5, 1.0]), [0.25, 0.5, 1.0]),
        ([np.float32(0.5), np.int64(3), np.bool_(True)], [0.5, 3.0, 1.0]),
        (torch.tensor([0.5, 1.0, -1.0], requires_grad=True), [0.5, 1.0, -1.0]),
        ([torch.tensor(0.5), torch.tensor([2.0]), 0], [0.5, 2.0, 0.0]),
        (pd.Series([1, 2, 3], index=[7, 8, 9]), [1.0, 2.0, 3.0]),
        ((x / 2 for x in (1, 2, 3)), [0.5, 1.0, 1.5]),
        ([Decimal("0.5"), Fraction(1, 4), -1], [0.5, 0.25, -1.0]),
        ({0: 1.0, 1: 2.0, 2: 3.0}.values(), [1.0, 2.0, 3.0]),
    ],
)
def test_a_number_or_none_for_each_row(returned: Any, values: list[float | None]) -> None:
    found = numbers_of(returned, 3)
    assert (found.values, found.refused) == (values, {})
    assert all(value is None or type(value) is float for value in found.values)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (-1e31, "-1e+31, beyond 1e+30"),  # finite, but its square and its float32 may not be
        (np.float64("nan"), "nan"),
        ("1.0", "str '1.0'"),
        (b"1", "bytes b'1'"),
        (1j, "complex 1j"),
        ([1.0], "list [1.0]"),
        ({}, "dict {}"),
        (10**400, "int 1000"),
        (torch.ones(2), "Tensor"),
        (np.ones(2), "ndarray"),
        (max, "builtin_function_or_method"),
    ],
)
def test_one_bad_value_costs_its_row_alone(value: Any, named: str) -> None:
    found = numbers_of([1.0, value, None], 3)
    assert found.values == [1.0, None, None]
    assert list(found.refused) == [1]
    assert f"returned {named}" in found.refused[1]
    assert "allowed: a finite number, or None" in found.refused[1]
    assert len(found.refused[1]) < 200


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (None, "returned NoneType None"),
        (1.0, "returned float 1.0"),
        ("abc", "returned str 'abc'"),  # three characters for three rows
        (b"abc", "returned bytes"),
        ({0: 1.0, 1: 1.0, 2: 1.0}, "returned dict"),
        ({1.0, 2.0, 3.0}, "returned set"),
        (np.float64(1.0), "returned float64"),
        ([], "returned 0 value(s)"),
        ([1.0, 2.0], "returned 2 value(s)"),
        ([1.0] * 64, "returned 64 value(s)"),
        (itertools.repeat(1.0), "returned 4+ value(s)"),  # for ever
        (iter([1.0]), "returned 1 value(s)"),
    ],
)
def test_what_is_no_list_of_that_many(returned: Any, named: str) -> None:
    with pytest.raises(UnusableError) as caught:
        numbers_of(returned, 3)
    assert named in str(caught.value)
    assert "allowed: a list of a number or None for each of the 3 completion(s)" in str(caught.value)


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(UnusableError) as caught:
        numbers_of("y" * 10_000_000, 3)
    assert len(str(caught.value)) < 200


MODULE = """
raise SystemExit("imported")
import json as js
from math import sqrt, floor as down
if js:
    A, (B, C) = 1, (2, 3)
else:
    D: int = 4
try:
    import nothing
except ImportError as error:
    nothing = None
for E in (): pass
def f():
    inside = 1
class G: pass
async def h(): pass
"""


@pytest.mark.parametrize("name", ["js", "sqrt", "down", "A", "B", "C", "D", "E", "nothing", "f", "G", "h"])
def test_a_name_at_the_top_of_a_file_is_there(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    check_reference(f"./mine.py:{name}", tmp_path)
    check_reference(f"mine:{name}", tmp_path)  # neither runs it


@pytest.mark.parametrize(
    ("reference", "facts"),
    [
        ("./mine.py:inside", ["mine.py", "inside"]),
        ("./mine.py:ff", ["did you mean f?"]),
        ("./mine.py:floor", ["floor"]),
        ("./none.py:f", ["none.py", "mine.py"]),
        ("./bad.py:f", ["bad.py", "line 1"]),
        ("mine:g", ["mine.py", "has no g"]),
        ("nomodule:f", ["nomodule", "neither installed"]),
        ("json.nothing:f", ["json.nothing", "of"]),
        ("mine.deeper:f", ["mine.deeper"]),
    ],
)
def test_a_reference_to_nothing(reference: str, facts: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "bad.py").write_text("def f(:\n")
    with pytest.raises(NotFound) as caught:
        check_reference(reference, tmp_path)
    assert [fact for fact in facts if fact not in str(caught.value)] == []


@pytest.mark.parametrize("reference", ["stars.py:f", "lazy.py:f", "math:sqrt", "pack.inner:f", "json:dumps"])
def test_what_reading_cannot_tell_is_left_to_the_import(reference: str, tmp_path: Path) -> None:
    (tmp_path / "stars.py").write_text("from os import *\n")
    (tmp_path / "lazy.py").write_text("def __getattr__(name): ...\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "inner.py").write_text("def f(): ...\n")
    check_reference(reference, tmp_path)


def test_a_class_is_taken_where_one_is_meant(tmp_path: Path) -> None:
    (tmp_path / "classes_here.py").write_text("class Env: ...\n")
    assert resolve("./classes_here.py:Env", tmp_path, classes=True).__name__ == "Env"
    with pytest.raises(NotFound):
        resolve("./classes_here.py:Env", tmp_path)
