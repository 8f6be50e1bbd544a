"""The truth about studies whose driver is gone, and about the runs inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import StorageError
from grpoctl.files import replace_json
from grpoctl.runs import liveness, status
from grpoctl.runs.liveness import DRIVER_DIED, NEVER_BEGAN, study_ended, study_status, unfinished_runs
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status, StatusRecord
from grpoctl.runs.study_dir import StudyDir, create_study


@pytest.fixture
def study(tmp_path: Path) -> StudyDir:
    """A study that has its spec and nothing else."""
    made = create_study(Home(path=tmp_path / ".grpoctl"), "demo-tiny-1a2b3c4d")
    made.spec.write_text("name: demo\n")
    return made


def say(study: StudyDir, state: str, *trials: dict[str, Any], message: str = "") -> None:
    replace_json(study.state, {"schema": 1, "status": state, "message": message, "trials": list(trials)})


def trial(number: int, state: str) -> dict[str, Any]:
    return {"number": number, "status": state, "seeds": [0, 1]}


def running(study: StudyDir, number: int, seed: int) -> RunDir:
    run = study.run(number, seed)
    run.path.mkdir(parents=True)
    run.spec.write_text("name: p31\n")
    status.write(run.status, StatusRecord(status=Status.RUNNING, pid=1, started=1.0))
    return run


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("said", ["COMPLETED", "STOPPED", "FAILED", "INTERRUPTED"])
def test_an_ending_stands(study: StudyDir, said: str, held: bool) -> None:
    say(study, said, message="why")
    if held:
        with study.hold():
            assert study_status(study) == (said, "why")
            assert study_ended(study)
    assert study_status(study) == (said, "why")
    assert study_ended(study)


def test_a_study_that_says_running_and_is_driven_by_nobody_is_interrupted(study: StudyDir) -> None:
    say(study, "RUNNING")
    before = study.state.read_bytes()
    with study.hold():
        assert study_status(study) == ("RUNNING", "")
        assert not study_ended(study)
    assert study_status(study) == ("INTERRUPTED", DRIVER_DIED)
    assert study_ended(study)
    assert study.state.read_bytes() == before  # only a driver writes there


def test_a_study_without_a_book_is_running_where_it_is_driven(study: StudyDir) -> None:
    with study.hold():
        assert study_status(study) == ("RUNNING", "")
    assert study_status(study) == ("INTERRUPTED", NEVER_BEGAN)


def test_a_driver_that_ends_between_the_two_looks_is_not_said_to_have_died(
    study: StudyDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(study, "RUNNING")

    def ends_now(_: StudyDir) -> bool:
        say(study, "COMPLETED")
        return False

    monkeypatch.setattr(StudyDir, "is_held", ends_now)
    assert study_status(study) == ("COMPLETED", "")


def test_a_damaged_book_is_an_error_and_the_lock_alone_says_whether_it_ended(study: StudyDir) -> None:
    study.state.write_text("{")
    with pytest.raises(StorageError, match=r"sweep\.json"):
        study_status(study)
    assert study_ended(study)
    with study.hold():
        assert not study_ended(study)


def test_only_runs_of_trials_without_an_end_of_their_own_are_looked_at(study: StudyDir) -> None:
    states = ["COMPLETED", "RUNNING", "INTERRUPTED", "FAILED", "PRUNED", "COLLAPSED", "RUNNING"]
    say(study, "RUNNING", *(trial(number, state) for number, state in enumerate(states)))
    runs = {number: running(study, number, 0) for number in range(6)}  # the seventh's directory is not there yet
    assert unfinished_runs(study) == [runs[1], runs[2], runs[3]]
    study.state.write_text("{")
    assert unfinished_runs(study) == list(runs.values())


def test_a_run_inside_a_study_whose_worker_died_is_interrupted(study: StudyDir) -> None:
    say(study, "RUNNING", trial(0, "RUNNING"), trial(1, "FAILED"))
    dead, alive, failed = running(study, 0, 0), running(study, 0, 1), running(study, 1, 0)
    with study.hold(), alive.hold():
        assert liveness.reconcile(study.home) == [dead, failed]
    stands = [str(found.status) if (found := status.read(run.status)) else "" for run in (dead, alive, failed)]
    assert stands == ["INTERRUPTED", "RUNNING", "INTERRUPTED"]


def test_a_run_that_was_moved_aside_is_none_of_the_studys(study: StudyDir) -> None:
    run = running(study, 0, 0)
    aside = running(study, 1, 0)
    aside.path.rename(aside.path.with_name(f"{aside.id}.damaged-1"))
    assert study.runs() == [run]
