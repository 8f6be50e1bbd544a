"""What a case answers once, and what it forgets when it is changed."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType

from core.health.case import Case
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.learning_rate import too_large


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
