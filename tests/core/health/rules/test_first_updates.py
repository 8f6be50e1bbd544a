"""A rate that moves a weight by its own size, with what it did, without, and where nobody knows."""

from __future__ import annotations

import dataclasses
import random

import pytest

from core.health.case import Case, Sample, Settings
from core.health.finding import Row
from core.health.rules.first_updates import destructive_rate
from core.health.rules.learning_rate import learning_rate

RATE = 0.03  # 1.5 times the 0.02 that weights begin with
KNOWN = Settings(prompts_per_step=4)
SOUND: Row = {
    "update": 1, "completions/length": 3.0, "completions/truncated": 0.0, "entropy": 1.7, "reward/mean": 0.19,
    "reward/std": 0.05, "learning_rate": RATE, "grad_norm": 1.0,
}  # fmt: skip
ENDLESS: Row = {"completions/truncated": 1.0, "completions/length": 4.0, "entropy": 1.0, "reward/mean": 0.2}
WORTHLESS: Row = {"reward/mean": 0.0}


def run(*changes: Row, steps: int = 20, settings: Settings = KNOWN) -> Case:
    """A run whose first rows are changed so, the last change holding to the end."""
    rows = [{"step": step, **SOUND, **changes[min(step, len(changes)) - 1]} for step in range(1, steps + 1)]
    return Case(rows=rows, settings=settings)


def said(case: Case) -> str:
    """The severity of what is said, "" for nothing."""
    return "".join(found.severity for found in learning_rate(case))


@pytest.mark.parametrize("change", [ENDLESS, WORTHLESS])
def test_one_kind_of_harm_is_enough_for_a_warning(change: Row) -> None:
    # One row before, 19 after: curves alone prove nothing (p = 2 / 20), and one kind of column is not enough for them.
    (found,) = learning_rate(run({}, change))
    assert (found.severity, found.confidence, found.suggest) == ("warning", "moderate", ("learning_rate=0.003",))
    assert found.evidence["update_over_weight"] == pytest.approx(1.5)
    assert all(fact in found.summary for fact in ("1.5 times", "(0.02)", "1 update"))


def test_two_kinds_are_an_error() -> None:
    gone = {**WORTHLESS, "completions/truncated": 1.0}
    (found,) = learning_rate(run({}, gone))
    assert (found.severity, found.confidence) == ("error", "moderate")
    assert "too few to prove it" not in found.summary
    slow = {"learning_rate": 9e-3}
    assert said(run({**slow}, {**slow, **gone})) == "warning"  # 0.45 of a weight: the curves stand alone
    assert said(run({}, gone, settings=Settings(prompts_per_step=1))) == "warning"  # its one prompt may have been easy


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"entropy": 0.1},  # surer, and no worse
        {"reward/mean": 0.1},  # 1.8 of the completions' deviations: prompts differ
        {**ENDLESS, "reward/mean": 0.8},  # longer, and learned
        {**WORTHLESS, "kl": 1e-5},  # the KL says that nothing moved
    ],
)
def test_a_rate_alone_is_nothing(change: Row) -> None:
    assert said(run({}, change)) == ""


@pytest.mark.parametrize("rate", [1e-4, 2e-3, 9e-3])
def test_rates_that_adapters_have(rate: float) -> None:
    assert said(run({"learning_rate": rate}, {**WORTHLESS, "learning_rate": rate})) == ""


def test_only_where_adam_moves_weights_and_prompts_are_known() -> None:
    for settings in (Settings(), Settings(prompts_per_step=3), dataclasses.replace(KNOWN, optimizer="sgd")):
        assert destructive_rate(run({}, WORTHLESS, settings=settings)) is None
    fused = dataclasses.replace(KNOWN, optimizer="adamw_torch_fused")
    assert destructive_rate(run({}, WORTHLESS, settings=fused)) is not None
    told = tuple(Sample(step=1, row=row, group=f"prompt {row // 2}") for row in range(8))  # four prompts
    assert destructive_rate(dataclasses.replace(run({}, WORTHLESS, settings=Settings()), samples=told)) is not None
    assert destructive_rate(dataclasses.replace(run({}, WORTHLESS), averaged_over=10)) is None


def test_the_rate_of_the_settings_where_rows_have_none() -> None:
    rows = [{k: v for k, v in row.items() if k != "learning_rate"} for row in run({}, WORTHLESS).rows]
    known = dataclasses.replace(KNOWN, learning_rate=RATE)
    assert destructive_rate(Case(rows=rows, settings=known)) is not None
    assert destructive_rate(Case(rows=rows, settings=dataclasses.replace(known, warmup_steps=5))) is None
    assert destructive_rate(Case(rows=rows, settings=KNOWN)) is None


def test_what_comes_later_or_goes_away_is_not_its_doing() -> None:
    assert destructive_rate(run({}, {}, {}, WORTHLESS)) is None  # three of the five after the first update
    assert destructive_rate(run({}, *[WORTHLESS] * 15, {})) is None  # 15 of 19: less than four fifths
    assert destructive_rate(run({}, *[WORTHLESS] * 16, {})) is not None
    assert destructive_rate(run({}, {}, WORTHLESS)) is not None  # four of the five
    assert destructive_rate(run({}, WORTHLESS, steps=5)) is None  # four rows since


def test_steps_that_vary_by_themselves_are_hardly_taken_for_it() -> None:
    # 300 runs of 40 steps in which nothing changes, four prompts a step, half of which never end and earn nothing.
    found = [one for seed in range(300) if (one := destructive_rate(noisy(seed))) is not None]
    assert sum(one.worse for one in found) <= 2  # 3 of 2,000


def noisy(seed: int) -> Case:
    """Steps that all have one law."""
    draw = random.Random(seed)
    rows: list[Row] = []
    for step in range(1, 41):
        lost = sum(draw.random() < 0.5 for _ in range(4)) / 4
        change = {"completions/truncated": lost, "reward/mean": (1 - lost) * 0.4, "reward/std": 0.3}
        change |= {"entropy": draw.lognormvariate(-1, 0.5), "completions/length": draw.lognormvariate(4, 0.5)}
        rows.append({"step": step, **SOUND, **change})
    return Case(rows=rows, settings=KNOWN)
