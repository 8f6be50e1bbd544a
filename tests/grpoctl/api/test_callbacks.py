"""What watches a run from Python: which callbacks are called with which row, and what ends a run."""

from __future__ import annotations

from typing import Any

import pytest

import grpoctl
from core.errors import UserError
from core.training.outcome import Ending
from grpoctl.api import LoadedRun, LoadedStudy, LoadedTrial
from grpoctl.api.callbacks import Row, SweepCallback, Watched, checked, tell_end
from grpoctl.executors.hooks import Hooks
from grpoctl.runs.run_dir import Home

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


@pytest.mark.parametrize("blank", ["", " \n"])
def test_an_end_without_a_reason_says_so(blank: str) -> None:
    for callback in (lambda row: blank, Noting(blank)):
        ending = Watched(Hooks(), checked(callback)).ending(STEP)
        message = "a callback (on_step) ended it and did not say why"
        assert ending == Ending(status="STOPPED_EARLY", message=message)


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


class Ends:
    """Notes what a sweep tells it, and ends it after a trial where it `says` so."""

    def __init__(self, says: str | None = None) -> None:
        self.calls: list[tuple[str, str]] = []
        self.says = says

    def on_run(self, run: LoadedRun) -> None:
        self.calls.append(("run", f"{run.id[-8:]} {run.status}"))

    def on_trial(self, trial: LoadedTrial) -> str | None:
        self.calls.append(("trial", f"{trial.number} {trial.status}"))
        return self.says

    def on_end(self, study: LoadedStudy) -> None:
        self.calls.append(("end", study.status))


def swept(home: Home, callbacks: SweepCallback | list[SweepCallback]) -> LoadedStudy:
    """Two trials of one seed, one step each, in this process."""
    return grpoctl.sweep(
        "lr-study", {"budget.completions": 16, "eval_prompts": 4}, profile="tiny", trials=2, seeds=[0],
        inline=True, quiet=True, home=home.path, callbacks=callbacks,
    )  # fmt: skip


def test_a_sweep_tells_of_runs_trials_and_its_end(home: Home) -> None:
    ends, runs = Ends(), list[LoadedRun]()
    study = swept(home, [ends, runs.append])
    assert study.status == "COMPLETED"
    assert ends.calls == [
        ("run", "t0000-s0 COMPLETED"), ("trial", "0 COMPLETED"),
        ("run", "t0001-s0 COMPLETED"), ("trial", "1 COMPLETED"), ("end", "COMPLETED"),
    ]  # fmt: skip
    assert [run.id for run in runs] == [run.id for trial in study.trials for run in trial.runs]


def test_a_text_ends_the_sweep_and_what_is_raised_comes_out(home: Home) -> None:
    ends = Ends("enough")
    study = swept(home, ends)
    assert (study.status, len(study.trials), ends.calls[-1]) == ("STOPPED", 1, ("end", "STOPPED"))
    assert "enough" in study.document["message"]

    def fails(run: LoadedRun) -> None:
        raise ZeroDivisionError(run.id)

    with pytest.raises(ZeroDivisionError, match="t0000-s0"):
        swept(home, [fails])
    ended = grpoctl.load("lr-study", "study", home=home.path)
    assert (ended.status, "ZeroDivisionError" in ended.document["message"]) == ("INTERRUPTED", True)


def test_a_callback_of_runs_is_no_callback_of_sweeps(home: Home) -> None:
    with pytest.raises(UserError, match=r"on_evaluation.*on_run"):
        swept(home, Noting())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="on_trial"):
        swept(home, 3)  # type: ignore[arg-type]
