"""A step table -> what a run reached."""

from __future__ import annotations

import pytest

from core.health.finding import Row
from core.health.rules.gains import Gain
from core.training.outcome import baselines, check_expectations, outcome, run_metrics, trends

UNKNOWN = Gain(start=None, end=None)


def gain(value: float, half: float | None) -> Gain:
    interval = None if half is None else (value - half, value + half)
    return Gain(start=0.5, end=0.5 + value, gain=value, interval=interval)


def step(number: int, update: int, valid: float, **more: float | None) -> Row:
    return {
        "step": number,
        "update": update,
        "completions/valid": valid,
        "completions": 8 * number,
        "tokens": 100 * number,
        **more,
    }


TABLE: list[Row] = [
    {"step": 0, "completions": 0, "tokens": 0, "eval/reward": 0.4, "eval/valid": 0.8},
    step(1, 1, 0.5, loss=1.0),
    step(2, 0, 0.0, **{"eval/reward": 0.7, "eval/valid": 0.9}),  # collapsed after an update
    step(3, 1, 0.0, loss=3.0),  # collapsed after a skip
    step(4, 1, 0.0, loss=None),  # after an update
    step(5, 0, 0.5, **{"eval/reward": 0.7, "eval/valid": 1.0}),  # after an update
    step(6, 1, 0.5),  # after a skip; followed by nothing
    step(7, 0, 0.25, **{"eval/reward": 0.6, "eval/valid": 0.7}),
]


def test_run_metrics_are_counts_over_the_table() -> None:
    assert run_metrics(TABLE) == {
        "steps": 7,
        "updates": 4,
        "collapsed_steps": 3,
        "followed_updates": 4,  # after 1, 3, 4, 6
        "collapsed_after_update": 2,  # 2 and 4
        "followed_skips": 2,  # after 2 and 5
        "collapsed_after_skip": 1,  # 3
        "collapse_rate": 0.5,
    }
    assert "collapse_rate" not in run_metrics(TABLE[:2])  # no update was followed by a step: nothing to divide by


def test_what_was_reached() -> None:
    got = outcome(TABLE)
    assert got.start == {"eval/reward": 0.4, "eval/valid": 0.8}
    assert got.best == {"step": 2, "eval/reward": 0.7, "eval/valid": 0.9}  # the first of equal ones
    assert (got.final["eval/reward"], got.final["eval/valid"]) == (0.6, 0.7)  # the last evaluation, not a mean
    assert got.final["completions/valid"] == pytest.approx(1.75 / 7)
    assert got.final["loss"] == pytest.approx(2.0)  # of the two steps that have one
    assert (got.final["completions"], got.final["tokens"]) == (56, 700)  # counters: the last, not a mean
    assert got.final["collapse_rate"] == 0.5


def test_step_metrics_at_the_end_are_means_over_the_last_ten() -> None:
    rows = [step(i, 1, 0.0 if i <= 5 else 1.0) for i in range(1, 16)]
    assert outcome(rows).final["completions/valid"] == 1.0


def test_of_nothing_nothing_was_reached() -> None:
    nothing = {"completions": 0, "tokens": 0}
    got = outcome([])
    assert (got.start, got.final, got.best) == ({}, nothing, {})
    before = outcome(TABLE[:1])
    assert (before.final, before.best["step"]) == (nothing, 0)


def test_what_is_not_counted_was_not_spent() -> None:
    final = outcome([{"step": 1, "completions": 8}]).final
    assert (final["completions"], "tokens" in final) == (8, False)


def test_what_was_spent_on_supervised_steps_is_nothing() -> None:
    rows: list[Row] = [{"step": 0, "completions": 0, "tokens": 0}, {"step": 1, "completions": 0, "tokens": 0}]
    assert (outcome(rows).final["completions"], outcome(rows).final["tokens"]) == (0, 0)


@pytest.mark.parametrize(
    ("expectation", "observed", "met"),
    [
        ("eval/reward > 0.5", 0.6, True),
        ("eval/reward > 0.6", 0.6, False),
        ("collapse_rate <= 0.5", 0.5, True),
        ("kl < 1", None, None),  # never observed
    ],
)
def test_expectations(expectation: str, observed: float | None, met: bool | None) -> None:
    final = {"eval/reward": 0.6, "collapse_rate": 0.5}
    (found,) = check_expectations([expectation], final, UNKNOWN, {})
    assert found == {"expectation": expectation, "observed": observed, "met": met}


@pytest.mark.parametrize(
    ("expectation", "observed", "met"),
    [
        ("eval/reward gain > 0", 0.3, True),
        ("eval/reward gain of supervised > 0", 0.32, True),
        ("eval/reward gain of grpo > 0", 0.02, False),  # its interval has 0 in it
        ("eval/reward gain of full > 0", -0.02, False),
        ("eval/reward gain of blind > 0", 0.5, None),  # nothing says how much of it is noise
        ("eval/reward gain of later > 0", None, None),  # the run did not come so far
    ],
)
def test_expectations_of_gains(expectation: str, observed: float | None, met: bool | None) -> None:
    stages = {
        "supervised": gain(0.32, 0.05), "grpo": gain(0.02, 0.05), "full": gain(-0.02, None), "blind": gain(0.5, None),
        "later": UNKNOWN,
    }  # fmt: skip
    (found,) = check_expectations([expectation], {"eval/reward": 0.9}, gain(0.3, 0.05), stages)
    assert (found["observed"], found["met"]) == (observed, met)


def evaluated(number: int, stage: int, reward: float, first: float) -> Row:
    """A step of a stage, evaluated: two picks, and the accuracy of the first."""
    return {"step": number, "stage": stage, "eval/reward": reward, "eval/rewards/accuracy_1": first, "eval/valid": 1.0}


STAGED: list[Row] = [
    {
        "step": 0,
        "eval/reward": 0.1,
        "eval/rewards/accuracy_1": 0.05,
        "baseline/random": 0.2,
        "baseline/random.accuracy_1": 0.15,
        "baseline/random.accuracy_4": 0.3,  # which no evaluation of this run has
        "baseline/nearest": 0.4,
    },
    evaluated(1, 0, 0.3, 0.25),
    evaluated(2, 0, 0.35, 0.3),
    {"step": 3, "stage": 1},
    evaluated(4, 1, 0.6, 0.5),
    evaluated(5, 2, 0.9, 0.1),  # a supervised stage after others
    evaluated(6, 2, 0.5, 0.45),
]


def test_a_run_stands_beside_its_tasks_baselines_in_the_metrics_that_both_have() -> None:
    reached = baselines(STAGED, ["sft", "grpo", "sft"])
    assert list(reached) == ["start", "supervised", "final", "best", "random", "nearest"]
    assert {name: tuple(of.values()) for name, of in reached.items()} == {
        "start": (0.1, 0.05),
        "supervised": (0.35, 0.3),
        "final": (0.5, 0.45),
        "best": (0.9, 0.1),
        "random": (0.2, 0.15),
        "nearest": (0.4,),
    }
    assert set(reached["random"]) == {"eval/reward", "eval/rewards/accuracy_1"}


def test_what_a_run_does_not_have_stands_beside_no_baseline() -> None:
    assert "supervised" not in baselines(STAGED, ["rce", "grpo", "sft"])
    assert set(baselines(STAGED[:1], ["sft"])) == {"start", "random", "nearest"}
    assert "best" not in baselines(STAGED[:3], ["sft"])  # the last one is
    assert baselines(TABLE, ["grpo"]) == {}
    assert baselines([], ["grpo"]) == {}


def test_a_trend_is_the_change_of_the_line_through_a_stage() -> None:
    # Stage 0 falls from 5 by 1 a step, exactly; stage 1 goes 0 1 0 1 ...: a change of 0.09 at most, and noise.
    falling: list[Row] = [{"step": n, "stage": 0, "loss": 5.0 - n} for n in range(1, 21)]
    flat: list[Row] = [{"step": n, "stage": 1, "loss": float(n % 2)} for n in range(21, 61)]
    along = trends([{"step": 0, "loss": 99.0}, *falling, *flat], ["first", "second"])

    def checked(text: str) -> dict[str, object]:
        return check_expectations([text], {"loss": 0.5}, UNKNOWN, {}, along)[0]

    fell = checked("loss trend of first < 0")
    assert (fell["observed"], fell["met"]) == (pytest.approx(-19.0), True)
    assert checked("loss trend of first > 0")["met"] is False
    level = checked("loss trend of second > 0")
    assert abs(float(str(level["observed"]))) < 0.1
    assert level["met"] is not True
    low, high = level["interval"]  # type: ignore[misc]
    assert low < 0 < high
    assert checked("loss trend < 0")["interval"] is not None  # of all steps
    assert (checked("kl trend > 0")["observed"], checked("kl trend > 0")["met"]) == (None, None)
