"""Means and intervals over prompts, each against numbers worked out on paper."""

from __future__ import annotations

import math

import pytest

from grpoctl.analysis.evaluation import Scored, quantity, summary

NAN = math.nan


def test_the_completions_of_a_prompt_are_averaged_first() -> None:
    # prompt means 0.5 (of 1, 0, 0.5) and 0.2 (of one): mean 0.35, not the 0.425 of all four
    found = quantity([(0, 1.0), (0, 0.0), (0, 0.5), (1, 0.2)])
    assert found.mean == pytest.approx(0.35)
    assert found.prompts == 2
    # sd of 0.5 and 0.2 = 0.3 / sqrt(2); se = 0.3 / 2; t(0.975, 1) = 12.7062: 0.35 -+ 1.90593
    assert found.se == pytest.approx(0.15)
    assert (found.low, found.high) == (pytest.approx(-1.555931, abs=1e-6), pytest.approx(2.255931, abs=1e-6))


def test_missing_rewards_are_left_out_not_zero() -> None:
    found = quantity([(0, 0.4), (0, NAN), (1, NAN), (2, 0.6)])
    assert (found.mean, found.prompts) == (pytest.approx(0.5), 2)
    assert quantity([(0, NAN)]) == quantity([])
    assert quantity([]).mean is None


def test_yes_or_no_answers_have_wilsons_interval() -> None:
    # 2 of 10, Wilson: centre (0.2 + 1.92073 / 10) / 1.384146 = 0.283260, half 0.226583 (z^2 = 3.841459)
    found = quantity([(n, float(n < 2)) for n in range(10)])
    assert (found.low, found.high) == (pytest.approx(0.056682, abs=1e-5), pytest.approx(0.509838, abs=1e-5))


@pytest.mark.parametrize(("value", "low", "high"), [(0.0, 0.0, 0.277533), (1.0, 0.722467, 1.0)])
@pytest.mark.parametrize("k", [1, 8])
def test_where_all_agree_each_prompt_counts_once(value: float, low: float, high: float, k: int) -> None:
    # 10 of 10: 1 / (1 + 3.841459 / 10) = 0.722467, whether each was asked once or eight times
    found = quantity([(n, value) for n in range(10) for _ in range(k)])
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))


def width(values: list[tuple[int, float]]) -> float:
    found = quantity(values)
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


def test_answers_that_repeat_themselves_are_worth_no_more_than_one() -> None:
    once = [(n, float(n % 2)) for n in range(20)]
    assert width([pair for pair in once for _ in range(4)]) == pytest.approx(width(once))
    # 20 prompts with two answers each that have nothing to do with their prompt (00, 01, 10, 11 equally often) are
    # worth 40: p (1-p) / se^2 x n / (n-1) = 0.25 x 20 x 19 / 2.5 x 20 / 19
    mixed = [(n, float(bit)) for n in range(20) for bit in divmod(n % 4, 2)]
    assert width(mixed) == pytest.approx(width([(n, float(n % 2)) for n in range(40)]))


def test_one_prompt_has_no_t_interval() -> None:
    found = quantity([(0, 0.5), (0, 0.7)])
    assert (found.mean, found.se, found.low, found.high) == (pytest.approx(0.6), None, None, None)


def test_prompts_of_a_cluster_are_not_independent() -> None:
    """Patches of two pictures, 0.1 and 0.3, 0.5 and 0.7: se 0.2 with one degree of freedom, 0.4 -+ 12.7062 * 0.2."""
    values = [(0, 0.1), (1, 0.3), (2, 0.5), (3, 0.7)]
    found = quantity(values, clusters={0: "a", 1: "a", 2: "b", 3: "b"})
    assert (found.mean, found.se) == (pytest.approx(0.4), pytest.approx(0.2))
    assert (found.low, found.high) == (pytest.approx(-2.14124, abs=1e-5), pytest.approx(2.94124, abs=1e-5))
    assert (found.prompts, found.clusters) == (4, 2)
    alone = quantity(values, clusters=dict.fromkeys(range(4), "a"))
    assert (alone.se, alone.low, alone.clusters) == (None, None, 1)
    rows = [Scored(prompt=n, reward=value, valid=True, cluster="ab"[n // 2]) for n, value in values]
    assert summary(rows)["reward"]["se"] == pytest.approx(0.2)
    assert summary(rows)["valid"]["low"] == pytest.approx(1 / (1 + 3.841459 / 2), abs=1e-6)  # two pictures, all right


def test_a_summary_has_parts_and_slices() -> None:
    rows = [
        Scored(prompt=0, reward=1.0, valid=True, parts={"exact": 1.0}, slice="math", length=3),
        Scored(prompt=0, reward=0.0, valid=True, parts={"exact": 0.0}, slice="math", length=5, truncated=True),
        Scored(prompt=1, reward=NAN, valid=False, parts={"exact": NAN, "style": 0.25}, slice="qa", length=4),
    ]
    found = summary(rows)
    assert found["reward"]["mean"] == 0.5
    assert found["valid"]["mean"] == 0.5  # prompts 1 and 0
    assert {name: part["mean"] for name, part in found["parts"].items()} == {"exact": 0.5, "style": 0.25}
    assert {name: part["mean"] for name, part in found["slices"].items()} == {"math": 0.5, "qa": None}
    assert (found["missing"], found["length"], found["truncated"]) == (1, 4.0, pytest.approx(1 / 3))


def test_an_interval_of_rewards_stays_within_what_is_possible() -> None:
    """0.9, 1 and 1: mean 0.967, sd 0.0577, half an interval 4.303 x 0.0333 = 0.143: 1.11 is no reward."""
    values = [(0, 0.9), (1, 1.0), (2, 1.0)]
    found = quantity(values, (0.0, 1.0))
    assert (found.low, found.high) == (pytest.approx(0.8232, abs=1e-4), 1.0)
    assert (quantity(values).high or 0) > 1.1  # rewards of your own may be anything
    rows = [Scored(prompt=n, reward=value, valid=True) for n, value in values]
    assert summary(rows, (0.0, 1.0))["reward"]["high"] == 1.0


def test_what_is_measured_is_there_for_all_and_for_each_slice() -> None:
    rows = [
        Scored(prompt=number, reward=0.5, valid=True, measured={"psnr": psnr}, slice=name)
        for number, (psnr, name) in enumerate([(20.0, "noise"), (24.0, "noise"), (31.0, "blur")])
    ]
    measured = summary(rows)["measured"]
    assert {name: of["mean"] for name, of in measured.items()} == {"psnr": 25.0, "psnr/blur": 31.0, "psnr/noise": 22.0}
    assert measured["psnr/noise"]["prompts"] == 2
    assert summary([Scored(prompt=0, reward=0.5, valid=True)])["measured"] == {}
