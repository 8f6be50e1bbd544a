"""A trial ended, or a changed copy added, while the study runs: on paper."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from core.errors import SpecError, UserError
from grpoctl.config import read_resolved
from grpoctl.executors.base import Event
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import studies
from grpoctl.sweeps.candidates import is_point
from grpoctl.sweeps.edits import request_clone, request_end
from grpoctl.sweeps.study import Terms, reopened
from tests.grpoctl.sweeps import test_adaptive as adaptive
from tests.grpoctl.sweeps import test_driver as fixed
from tests.grpoctl.sweeps.paper import Killed, PaperExecutor
from tests.grpoctl.sweeps.test_driver import document, home, in_optuna

__all__ = ["home"]  # a fixture

RATE = "stages.grpo.learning_rate"


@pytest.fixture(autouse=True)
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver looks at what is asked of it after every event."""
    monkeypatch.setattr("grpoctl.sweeps.driver.LOOK", 0.0)


def once(run_part: str, step: int, ask: Callable[[Home], object]) -> Any:
    """What happens to runs: nothing, but before that step of that run somebody asks for something, once."""
    asked: list[bool] = []

    def accident(run: RunDir, at: int) -> Event | None:
        if run_part in run.id and at == step and not asked:
            asked.append(True)
            ask(run.home)
        return None

    return accident


def stop(number: int) -> Callable[[Home], object]:
    return lambda home: request_end(studies(home)[0], number)


def clone(number: int, *overrides: str) -> Callable[[Home], object]:
    return lambda home: request_clone(studies(home)[0], number, overrides)


def test_a_stopped_trial_ends_at_its_next_evaluation_and_is_not_ranked(home: Home) -> None:
    study = fixed.drive(home, PaperExecutor(accident=once("t0001-s0", 2, stop(1))))
    found = document(study)
    trial = found["trials"][1]
    assert (trial["status"], trial["message"], trial["stopped"]) == (
        "PRUNED",
        "stopped by sweep-edit",
        trial["message"],
    )
    assert max(share for _, share, _ in trial["curve"]) < 1
    assert 1 not in found["ranking"]
    assert [edit["stop_trial"] for edit in found["edits"]] == [1]
    assert len(found["trials"]) == 10
    assert in_optuna(study)[1][1] == "PRUNED"


def test_a_study_that_is_resumed_knows_that_a_trial_was_stopped(home: Home) -> None:
    left_alone = None
    for every in (9, 13, 400):
        with suppress(Killed):
            accident = once("t0001-s0", 2, stop(1)) if every == 9 else lambda run, step: None
            left_alone = fixed.drive(home, PaperExecutor(stop_after=every, accident=accident), resume=every > 9)
    assert left_alone is not None
    found = document(left_alone)
    assert (found["trials"][1]["status"], found["trials"][1]["stopped"]) == ("PRUNED", "stopped by sweep-edit")
    assert len(found["edits"]) == 1
    assert found["status"] == "COMPLETED"


def test_a_clone_is_one_trial_more_with_its_own_setting(home: Home) -> None:
    study = fixed.drive(home, PaperExecutor(accident=once("t0002-s0", 2, clone(0, "learning_rate=0.5"))))
    found = document(study)
    assert (found["total"], len(found["trials"])) == (11, 11)
    copy = next(trial for trial in found["trials"] if trial.get("origin"))
    assert copy["origin"] == {"clone": 0, "changed": {RATE: 0.5}}
    assert copy["params"] == {**found["trials"][0]["params"], RATE: 0.5}
    assert copy["status"] in ("COMPLETED", "PRUNED")
    spec = read_resolved(study.run(copy["number"], 0).spec)
    stage: Any = spec.stages["grpo"]
    assert stage.learning_rate == 0.5
    assert spec.budget is not None
    assert spec.budget.completions == 80
    # beside the axes, whose rate ends at 1e-2: Optuna learns nothing from it, and the study shows it
    assert in_optuna(study)[copy["number"]][3] == {}


def test_a_clone_on_the_axes_is_learned_from_like_any_other(home: Home) -> None:
    study = fixed.drive(home, PaperExecutor(accident=once("t0002-s0", 2, clone(0, "learning_rate=1e-3"))))
    copy = next(trial for trial in document(study)["trials"] if trial.get("origin"))
    assert in_optuna(study)[copy["number"]][3]["learning_rate"] == 1e-3


@pytest.mark.parametrize("kind", [fixed, adaptive])
def test_a_clone_of_a_study_that_has_ended_is_run_when_it_is_gone_on_with(home: Home, kind: Any) -> None:
    study = kind.drive(home, PaperExecutor())
    before = document(study)
    request_clone(study, 0, ["learning_rate=0.5"])
    with pytest.raises(UserError, match="already"):
        request_clone(study, 0, ["learning_rate=0.5"])
    assert not reopened(study, Terms(slots=1)).over
    kind.drive(home, PaperExecutor(), resume=True)
    found = document(study)
    copy = next(trial for trial in found["trials"] if trial.get("origin"))
    assert (before["status"], found["status"], copy["params"][RATE]) == ("COMPLETED", "COMPLETED", 0.5)
    assert copy["status"] in ("COMPLETED", "PRUNED")
    assert len(found["trials"]) == len(before["trials"]) + 1
    assert reopened(study, Terms(slots=1)).over


def test_a_clone_in_an_adaptive_study_is_begun_next(home: Home) -> None:
    study = adaptive.drive(home, PaperExecutor(accident=once("t0001-s0", 2, clone(0, "learning_rate=1e-2"))))
    found = document(study)
    copy = next(trial for trial in found["trials"] if trial.get("origin"))
    jobs = [place for place, job in enumerate(found["jobs"]) if job["trial"] == copy["number"]]
    assert jobs
    assert jobs[0] <= found["edits"][0]["trials"] + 4  # the jobs that were under way come before it
    assert found["total"] == 9
    assert sum(job["share"] - job["from"] for job in found["jobs"]) > 16  # it brings its share of the budget


def test_a_stopped_trial_of_an_adaptive_study_gets_no_more_jobs(home: Home) -> None:
    study = adaptive.drive(home, PaperExecutor(accident=once("t0001-s0", 1, stop(1))))
    found = document(study)
    assert found["trials"][1]["status"] == "PRUNED"
    last = max(place for place, job in enumerate(found["jobs"]) if job["trial"] == 1)
    assert last < 8 < len(found["jobs"])
    assert found["search"]["choice"] != 1


@pytest.mark.parametrize(
    ("overrides", "error", "fact"),
    [
        ((), UserError, "--clone 0"),
        (("nosuch=1",), SpecError, "nosuch"),
        (("learning_rate=-1",), SpecError, "learning_rate"),
        (("task.operator_cost=0.5",), SpecError, "eval/reward"),
    ],
)
def test_what_is_no_clone_is_refused_and_nothing_is_asked_for(
    home: Home, overrides: tuple[str, ...], error: type[Exception], fact: str
) -> None:
    study = fixed.drive(home, PaperExecutor(), trials=1)
    with pytest.raises(error) as caught:
        request_clone(study, 0, overrides)
    assert fact in str(caught.value) + str(getattr(caught.value, "key", ""))
    assert not study.edits.exists()


def test_a_copy_that_is_there_already_and_trials_that_are_not_are_refused(home: Home) -> None:
    study = fixed.drive(home, PaperExecutor(), trials=1)
    params = document(study)["trials"][0]["params"]
    with pytest.raises(UserError, match="trial 0"):
        request_clone(study, 0, [f"learning_rate={params[RATE]}"])
    with pytest.raises(UserError, match="no trial 7"):
        request_end(study, 7)
    with pytest.raises(UserError, match="COMPLETED"):
        request_end(study, 0)


def test_what_is_a_point_of_the_axes(home: Home) -> None:
    sweep = fixed.loaded(fixed.SWEEP)
    key = "stages.grpo.num_generations"
    assert is_point(sweep, {key: 4, RATE: 1e-6})
    assert not is_point(sweep, {key: 3, RATE: 1e-4})
    assert not is_point(sweep, {key: 4, RATE: 0.5})
    assert not is_point(sweep, {key: 4})
    assert not is_point(sweep, {key: 4, RATE: 1e-4, "stages.grpo.beta": 0.1})
