"""Live groups, counted from means over groups that a log prints: by hand, on drawn groups, and where nothing fits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.algorithms.advantages import advantages
from core.config import AdvantageSpec
from core.health.case import Case, Settings
from core.health.finding import Row
from core.health.live_count import LiveCount, largest_levels, live_count, live_std

KNOWN = Settings(groups_per_row=640, group_sizes=(3, 5))
TABLE = ((0.0063, 0.0072), (0.0062, 0.0090), (0.0062, 0.0090))  # document 001: Adv Std, Adv Max of three epochs


def rows(table: tuple[tuple[float, float], ...], std: str = "group_std", largest: str = "group_max") -> list[Row]:
    return [
        {"step": step, f"advantage/{std}": value, f"advantage/{largest}": most}
        for step, (value, most) in enumerate(table, 1)
    ]


def count(table: tuple[tuple[float, float], ...], **settings: Any) -> LiveCount | None:
    return live_count(Case(rows=rows(table), settings=replace(KNOWN, **settings)))


@pytest.mark.parametrize(
    ("size", "ddof", "signed", "levels"),
    [
        # One of K against the rest: share 1 / K, std sqrt(p (1 - p) K / (K - 1)).
        (3, 1, False, [2 / math.sqrt(3)]),  # 1.1547
        (5, 1, False, [4 / math.sqrt(5), math.sqrt(6 / 5)]),  # 1.789; 0.6 / sqrt(0.24 x 5 / 4) = 1.095
        (5, 0, False, [2.0, math.sqrt(1.5)]),
        (4, 1, False, [1.5, math.sqrt(3) / 2]),
        (2, 1, False, [math.sqrt(0.5)]),
        (3, 1, True, [2 / math.sqrt(3), 1 / math.sqrt(3)]),  # two right of three: 1/3 above the mean
    ],
)
def test_the_largest_advantage_of_a_group_with_two_levels(
    size: int, ddof: int, signed: bool, levels: list[float]
) -> None:
    assert list(largest_levels(size, ddof, signed=signed).values()) == pytest.approx(levels)


def test_a_live_std_is_1_where_both_divisors_are_one() -> None:
    assert live_std(5, 1, 1) == live_std(3, 0, 0) == 1.0
    assert live_std(5, 0, 1) == pytest.approx(math.sqrt(5 / 4))


def test_document_001_has_four_live_groups_of_640() -> None:
    found = count(TABLE)
    assert found is not None
    assert (found.least, found.most, found.groups, found.rows, found.exact) == (4, 4, 640, 3, True)
    assert found.sizes == (3, 5)
    sums = "; ".join(found.arithmetic)
    assert "4 / 640 = 0.00625" in sums
    assert "(4 x 1.155) / 640 = 0.00722" in sums
    assert "(2 x 1.789 + 2 x 1.095) / 640 = 0.00901" in sums


def test_the_chance_of_an_accident_by_hand() -> None:
    # ddof 1, sizes 3 and 5. Std: two printed values, each with room for 1e-4 (and a thousandth of itself for eps).
    std = (640 * (1e-4 + 6.3e-6)) * (640 * (1e-4 + 6.2e-6))
    # Max of 4 live: one value of size 3 between 4 x 1 / 640 and 4 x 1.1547 / 640; five of size 5 up to 4 x 1.789 / 640.
    room3, room5 = 4 * (2 / math.sqrt(3) - 1) / 640, 4 * (4 / math.sqrt(5) - 1) / 640
    most = [(1e-4 + value / 1000) * (1 / room3 + 5 / room5) for value in (0.0072, 0.0090)]
    found = count(TABLE, ddof=1)
    assert found is not None
    assert found.chance == pytest.approx(std * most[0] * most[1], rel=1e-6)
    assert found.chance < 1e-3


def test_two_live_of_a_hundred_groups_of_four() -> None:
    # 2 / 100 = 0.0200; (1.5 + 0.866) / 100 = 0.02366: one with 1 of 4 odd, one with 2 of 4.
    found = live_count(
        Case(rows=rows(((0.0200, 0.0237),)), settings=Settings(groups_per_row=100, num_generations=4, ddof=1))
    )
    assert found is not None
    assert (found.words, found.exact, found.sizes) == ("2 of 100 groups", True, (4,))
    assert "(1 x 1.5 + 1 x 0.866) / 100 = 0.0237" in found.arithmetic[1]


@pytest.mark.parametrize(
    ("table", "settings", "expected"),
    [
        # 0.0215 x 100 = 2.15 groups (0.0002 more of them for eps): no number of groups prints that
        (((0.0215, 0.0237),), {"groups_per_row": 100, "group_sizes": (4,), "ddof": 1}, None),
        # the std fits 2, and no two groups of four have 0.0260: 2 x 1.5 = 3, 1.5 + 0.866 = 2.37, 1.73
        (((0.0200, 0.0260),), {"groups_per_row": 100, "group_sizes": (4,), "ddof": 1}, (2, 2, False)),
        # every number fits: 62 or 63 of 10,000 print 0.0062 or 0.0063, and so does anything else
        (((0.0062, 0.0072),), {"groups_per_row": 10_000, "group_sizes": (3,), "ddof": 1}, (62, 62, False)),
        # the kept sizes are not known: epoch 1 does not fit groups of five
        (TABLE, {"group_sizes": None, "num_generations": 5, "ddof": 1}, (4, 4, False)),
        (TABLE, {"groups_per_row": None}, None),
        (TABLE, {"group_sizes": None}, None),
        (TABLE, {"reshaped": True}, None),
    ],
)
def test_what_is_not_certain(
    table: tuple[tuple[float, float], ...], settings: dict[str, Any], expected: tuple[int, int, bool] | None
) -> None:
    found = count(table, **settings)
    assert (None if found is None else (found.least, found.most, found.exact)) == expected


def test_the_std_of_all_advantages_is_a_mean_over_groups_where_a_step_has_one() -> None:
    one, several = replace(KNOWN, prompts_per_step=1), replace(KNOWN, prompts_per_step=4)
    table = rows(TABLE, "std_all", "max_abs")
    found = live_count(Case(rows=table, settings=one))
    assert found is not None
    assert (found.words, found.exact) == ("4 of 640 groups", True)
    assert live_count(Case(rows=table, settings=several)) is None  # between q and sqrt(q)
    assert live_count(Case(rows=table, settings=KNOWN)) is None


@pytest.mark.parametrize("live", [2, 5, 9])
@pytest.mark.parametrize("ddof", [0, 1])
def test_drawn_groups_are_counted_as_they_are(live: int, ddof: int) -> None:
    draw, groups = np.random.default_rng(7), 500
    rewards = np.ones((groups, 5))
    for group in range(live):
        rewards[group, : int(draw.integers(1, 5))] = 0.0
    how = AdvantageSpec.model_validate({"ddof": ddof, "std_floor": 0.1, "eps": 1e-8})
    made = advantages(rewards, how)
    std, most = made.std(-1, ddof=1).mean(), abs(made).max(-1).mean()
    known = Settings(groups_per_row=groups, num_generations=5, ddof=ddof)
    found = live_count(Case(rows=rows(((round(float(std), 5), round(float(most), 5)),)), settings=known))
    assert found is not None
    assert (found.least, found.most, found.exact) == (live, live, True)


def test_rows_of_one_group_each_are_counted_together() -> None:
    table = ((1.0, 1.1547005),) * 2 + ((0.0, 0.0),) * 38
    found = count(table, groups_per_row=None, prompts_per_step=1, ddof=1)
    assert found is not None
    assert (found.words, found.rows) == ("2 of 40 groups", 1)
