"""What a case answers once, what it forgets when it is changed, and numbers that no training computes in."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType

import pytest

from core.health.case import Case, Sample, Settings, bounded, huge, settings_of
from core.health.examine import examine, facts
from core.health.finding import Row
from core.health.rules.learning_rate import too_large
from grpoctl.config import load
from tests.bandit import PACKAGE, bandit_spec


def test_a_question_is_asked_once_of_a_case() -> None:
    asked: list[Case] = []

    def rows(case: Case) -> int | None:
        asked.append(case)
        return len(case.rows) or None

    case, empty = Case(rows=[{"step": 1}]), Case(rows=[])
    assert [case.once(rows), case.once(rows), empty.once(rows), empty.once(rows)] == [1, 1, None, None]
    assert asked == [case, empty]
    assert replace(case, rows=[]).once(rows) is None  # another case: nothing is taken over
    assert case == Case(rows=[{"step": 1}])  # what was asked makes no difference


def test_a_kl_is_a_token_s_of_text_and_a_factor_s_of_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGE)
    text = load("p31", profile="tiny").spec
    assert settings_of(text).per_factor == Settings().per_factor == "nats a token"  # a log's policy is a language model
    assert settings_of(bandit_spec()).per_factor == "nats a factor"


def test_rules_share_what_is_said_of_the_rate() -> None:
    calls: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is too_large.__code__:
            calls.append(event)

    # A limit that is broken for good, and rewards: policy-collapse and reward-sign ask for the rate too.
    sound: Row = {"completions/valid": 0.8, "reward/mean": 0.5, "update": 1, "learning_rate": 1e-4}
    gone: Row = {**sound, "completions/valid": 0.0, "reward/mean": 0.0}
    rows = [{"step": step, **(sound if step < 20 else gone)} for step in range(1, 41)]
    sys.setprofile(watch)
    try:
        found = examine(Case(rows=rows))
    finally:
        sys.setprofile(None)
    assert "policy-collapse" in [one.id for one in found]
    assert len(calls) == 1


def test_what_is_huge_is_recorded_and_no_number() -> None:
    rows: list[Row] = [{"step": 1e200, "loss": -1e100, "kl": 9e99, "entropy": None}]
    case = Case(rows=rows, samples=(Sample(step=1, reward=1e308, advantage=0.5),))
    assert huge(case) == 2
    assert bounded(case).rows == [{"step": 1e200, "loss": None, "kl": 9e99, "entropy": None}]
    assert bounded(case).samples == (Sample(step=1, reward=None, advantage=0.5),)


def test_a_case_without_is_the_very_same() -> None:
    case = Case(rows=[{"step": 1, "loss": 3e38, "kl": float("nan")}])
    assert bounded(case) is case


def test_every_rule_and_fact_bears_them() -> None:
    """Sums of squares of 1e155 overflow, and so does a sum of 1e308 and -1e308 as Python adds them."""
    for size in (1e155, 1e308):
        rows: list[Row] = [
            {
                "step": step,
                "update": 1,
                "completions/valid": 1.0,
                **dict.fromkeys(
                    ("reward/mean", "reward/std", "loss", "grad_norm", "kl", "entropy", "advantage/std", "eval/reward"),
                    size * (-1) ** step,
                ),
            }
            for step in range(1, 41)
        ]
        samples = tuple(Sample(step=step, group="a", reward=size, advantage=-size) for step in range(1, 41))
        ids = {one.id for one in examine(Case(rows=rows, samples=samples))}
        assert {"numerical", "lost-rewards"} <= ids
        assert "reward/first" not in facts(Case(rows=rows, samples=samples))


def test_what_a_log_states_of_another_kind_than_its_field_is_left_out() -> None:
    known = {
        "learning_rate": "LEARNING_RATE", "num_generations": 8.0, "beta": True, "temperature": 1, "optimizer": "adamw",
        "lr_scheduler_type": 3, "dynamic_sampling": False, "offline": "no", "ddof": 0.5, "nothing": 1.0, "top_p": None,
        "group_sizes": (3, 5),
    }  # fmt: skip
    told = {"num_generations": 8.0, "temperature": 1, "optimizer": "adamw", "dynamic_sampling": False}
    assert Settings.stated(known) == Settings(**told, group_sizes=(3, 5))  # type: ignore[arg-type]
