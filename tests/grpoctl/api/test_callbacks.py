"""What watches a run from Python: which callbacks are called with which row, and what ends a run."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import UserError
from core.training.outcome import Ending
from grpoctl.api.callbacks import Row, Watched, checked, tell_end
from grpoctl.executors.hooks import Hooks

START: Row = {"step": 0, "eval/reward": 0.5}
STEP: Row = {"step": 1, "reward/mean": 0.1}
EVALUATED: Row = {"step": 2, "reward/mean": 0.2, "eval/reward": 0.6}


class Noting:
    """Notes what it is called with."""

    def __init__(self, says: str | None = None) -> None:
        self.calls: list[tuple[str, object]] = []
        self.says = says

    def on_step(self, row: Row) -> str | None:
        self.calls.append(("step", row["step"]))
        return self.says

    def on_evaluation(self, row: Row) -> str | None:
        self.calls.append(("evaluation", row["step"]))
        return None

    def on_end(self, run: object) -> None:
        self.calls.append(("end", run))


def test_steps_evaluations_and_the_end_are_told_apart() -> None:
    noting, rows = Noting(), list[Row]()
    watched = Watched(Hooks(), checked([noting, rows.append]))
    for row in (START, STEP, EVALUATED):
        assert watched.ending(row) is None
    run: Any = object()
    tell_end([noting, rows.append], run)
    assert noting.calls == [("evaluation", 0), ("step", 1), ("step", 2), ("evaluation", 2), ("end", run)]
    assert rows == [STEP, EVALUATED]  # a function is called after training steps


def test_the_first_text_ends_the_run_and_every_callback_sees_the_row() -> None:
    first, second = Noting("enough"), Noting("too much")
    watched = Watched(Hooks(), checked((first, second)))
    assert watched.ending(START) is None
    assert watched.ending(STEP) == Ending(status="STOPPED_EARLY", message="enough")
    assert second.calls == [("evaluation", 0), ("step", 1)]


def test_what_a_callback_raises_is_kept() -> None:
    def fails(row: Row) -> None:
        raise ZeroDivisionError

    watched = Watched(Hooks(), checked(fails))
    with pytest.raises(ZeroDivisionError):
        watched.ending(STEP)
    assert isinstance(watched.error, ZeroDivisionError)


def test_an_answer_that_is_no_text_is_refused() -> None:
    watched = Watched(Hooks(), checked(lambda row: True))  # type: ignore[arg-type,return-value]
    with pytest.raises(UserError, match="got True from on_step"):
        watched.ending(STEP)


class Misspelt:
    def on_eval(self, row: Row) -> None: ...


@pytest.mark.parametrize(
    ("callback", "says"),
    [(Misspelt(), "did you mean on_evaluation"), (Noting, "the class Noting"), (3, "got 3"), ("text", "got 't'")],
)
def test_a_callback_that_would_never_be_called_is_refused(callback: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        checked(callback)
