"""The database follows the records, whatever it missed; in real SQLite files."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import event

from core.errors import StorageError, UserError
from grpoctl.runs.status import TrialStatus
from grpoctl.sweeps import storage
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Point, TrialRecord
from grpoctl.sweeps.storage import StudyStorage

NAME = "lr-study-tiny-0a1b2c3d-1"
AXES = {
    "stages.grpo.num_generations": [2, 4, 8],
    "stages.grpo.learning_rate": {"low": 1e-4, "high": 2e-3, "log": True},
    "stages.grpo.kl_estimator": {"values": ["k2", "k3"], "when": {"stages.grpo.num_generations": [8]}},
    "faults": [[], ["rollout-in-train-mode"]],
}


def sweep(**more: Any) -> SweepSpec:
    space = {} if "candidates" in more or "ladder" in more else {"axes": AXES}
    return SweepSpec.model_validate({"name": "lr-study", "title": "t", "experiment": "p31", **space, **more})


def trial(number: int, status: str = "RUNNING", **more: Any) -> TrialRecord:
    params = {"stages.grpo.num_generations": 4, "stages.grpo.learning_rate": 3e-4, "faults": []}
    return TrialRecord(
        number=number, params=more.pop("params", params), seeds=(0, 1), status=TrialStatus(status), **more
    )


def points(*found: tuple[int, float, float]) -> tuple[Point, ...]:
    return tuple(Point(*one) for one in found)


def ended(number: int, status: str = "COMPLETED", score: float | None = 0.5, **more: Any) -> TrialRecord:
    curve = points((0, 0.5, 0.3), (0, 1.0, 0.4), (1, 0.0, 0.1), (1, 0.5, 0.35))
    more = {"runs": ("a", "b"), "values": (0.5, 0.5), "seconds": 60.0, **more}
    return trial(number, status, score=score, curve=curve, **more)


def study(path: Path, name: str = NAME) -> optuna.Study:
    """The study as anybody else reads it."""
    return optuna.load_study(study_name=name, storage=f"sqlite:///{path}")


def seen(path: Path, name: str = NAME) -> list[tuple[Any, ...]]:
    """(our number, state, value, steps) of every trial, in the database's order."""
    return [
        (one.user_attrs["number"], one.state.name, one.values and one.values[0], sorted(one.intermediate_values))
        for one in study(path, name).trials
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with Optuna's tables and an empty study: making the tables takes most of a second."""
    path = tmp_path_factory.mktemp("empty") / "study.db"
    StudyStorage.open(path, NAME, sweep(), create=True, sweep_sha="0a1b").close()
    return path


@pytest.fixture
def opened(file: Path, empty: Path) -> Iterator[StudyStorage]:
    shutil.copy(empty, file)
    there = StudyStorage.open(file, NAME, sweep(), create=False, sweep_sha="0a1b")
    event.listen(there._storage.engine, "checkout", lambda one, *_: one.execute("PRAGMA synchronous = OFF"))
    yield there
    there.close()


def test_a_reader_of_optuna_studies_finds_names_values_and_curves(file: Path, opened: StudyStorage) -> None:
    conditional = {
        "stages.grpo.num_generations": 8, "stages.grpo.learning_rate": 1e-3, "stages.grpo.kl_estimator": "k3",
        "faults": ["rollout-in-train-mode"],
    }  # fmt: skip
    opened.project([ended(0), trial(1, params=conditional, curve=points((0, 0.5, 0.1)))])
    there = study(file)
    assert there.user_attrs == {"sweep": "lr-study", "metric": "eval/reward", "sweep_sha": "0a1b"}
    assert (there.direction.name, there.metric_names) == ("MAXIMIZE", ["eval/reward"])
    first, second = there.trials
    assert first.params == {"num_generations": 4, "learning_rate": 3e-4, "faults": "[]"}
    assert second.params["kl_estimator"] == "k3"
    assert second.params["faults"] == '["rollout-in-train-mode"]'
    assert first.distributions["num_generations"].choices == (2, 4, 8)
    assert (first.value, first.intermediate_values) == (0.5, {500: 0.3, 1000: 0.4, 1500: 0.35})
    assert (second.state.name, second.intermediate_values) == ("RUNNING", {500: 0.1})
    assert first.user_attrs == {
        "number": 0, "status": "COMPLETED", "seeds": [0, 1], "values": [0.5, 0.5], "runs": ["a", "b"], "attempts": 1,
        "message": "",
    }  # fmt: skip
    assert first.datetime_start is not None
    assert first.datetime_complete is not None
    assert (first.datetime_complete - first.datetime_start).total_seconds() == pytest.approx(60)
    assert there.best_trial.number == 0


@pytest.mark.parametrize(
    ("status", "score", "state", "value"),
    [
        ("COMPLETED", 0.5, "COMPLETE", 0.5),
        ("COLLAPSED", 0.1, "COMPLETE", 0.1),
        ("INVALID_ROLLOUT", 0.0, "COMPLETE", 0.0),
        ("PRUNED", None, "PRUNED", 0.35),  # its last report, as Optuna itself does it
        ("FAILED", None, "FAIL", None),
        ("INTERRUPTED", None, "RUNNING", None),
        ("RUNNING", None, "RUNNING", None),
    ],
)
def test_each_status_is_told(
    file: Path, opened: StudyStorage, status: str, score: float | None, state: str, value: float | None
) -> None:
    opened.project([trial(0)])
    opened.project([ended(0, status, score, message="why"), ended(1, status, score, message="why")])
    row = (state, value, [500, 1000, 1500])
    assert seen(file) == [(0, *row), (1, *row)]  # one that was asked for before, and one that is new
    for one in study(file).trials:
        assert (one.user_attrs["status"], one.user_attrs["message"]) == (status, "why")


def test_minimised_values_stand_as_they_are(file: Path) -> None:
    there = StudyStorage.open(file, NAME, sweep(direction="minimize"), create=True)
    there.project([ended(0, score=0.7), ended(1, score=0.2)])
    assert study(file).direction.name == "MINIMIZE"
    assert study(file).best_trial.number == 1


def growth() -> list[list[TrialRecord]]:
    """The records of a study, ask by ask and tell by tell."""
    half = trial(1, curve=points((0, 0.5, 0.3)))
    done = ended(0, runs=())
    return [
        [trial(0)],
        [trial(0), trial(1)],
        [done, half],
        [done, ended(1, "PRUNED", None, runs=())],
        [done, ended(1, "PRUNED", None, runs=()), ended(2, "FAILED", None)],
    ]


END = [
    (0, "COMPLETE", 0.5, [500, 1000, 1500]),
    (1, "PRUNED", 0.35, [500, 1000, 1500]),
    (2, "FAIL", None, [500, 1000, 1500]),
]


def test_step_by_step_or_all_at_once_or_twice(file: Path, opened: StudyStorage) -> None:
    for records in growth():
        opened.project(records)
        opened.project(records)
    assert seen(file) == END
    late = StudyStorage.open(file.with_name("late.db"), NAME, sweep(), create=False)
    late.project(growth()[-1])
    assert seen(file.with_name("late.db")) == END


class Stopped(BaseException):
    """The process was killed here."""


WRITES = ("create_new_trial", "set_trial_user_attr", "set_trial_intermediate_value", "set_trial_state_values")


def test_killed_after_any_write_it_is_made_up_for(file: Path, opened: StudyStorage) -> None:
    """The driver is stopped after its 1st, 2nd, ... write; a new one projects the same records and goes on."""
    for stop in range(1, 200):
        killed = fresh(opened, f"stop-{stop}", stop)
        try:
            for records in growth():
                killed.project(records)
        except Stopped:
            resumed = StudyStorage(opened._storage, killed._study_id, sweep(), "here")
            resumed.project(growth()[-1])
            assert seen(file, f"stop-{stop}") == END
        else:
            assert stop > 15  # every write was reached
            assert seen(file, f"stop-{stop}") == END
            return
    pytest.fail("it never came to its end")


def fresh(opened: StudyStorage, name: str, stop: int) -> StudyStorage:
    """A new study in the same file, on a storage that is killed after so many writes."""
    study_id = opened._storage.create_new_study([optuna.study.StudyDirection.MAXIMIZE], name)
    storage, count = copy.copy(opened._storage), itertools.count(1)

    def counted(write: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            done = write(*given, **named)
            if next(count) == stop:
                raise Stopped
            return done

        return call

    for write in WRITES:
        setattr(storage, write, counted(getattr(opened._storage, write)))
    return StudyStorage(storage, study_id, sweep(), "here")


def test_what_did_not_change_costs_nothing(file: Path, opened: StudyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [ended(number) for number in range(3)]
    begun = {"curve": points((0, 0.5, 0.1))}
    opened.project([*records, trial(3, **begun)])
    calls: list[str] = []
    for name in (*WRITES, "get_all_trials"):
        monkeypatch.setattr(opened._storage, name, lambda *_, name=name: calls.append(name))
    opened.project([*(ended(number) for number in range(3)), trial(3, **begun)])  # equal ones, not the same
    assert calls == []
    opened.project([*records, trial(3, curve=points((0, 0.5, 0.1), (0, 1.0, 0.2)))])
    assert calls == ["set_trial_intermediate_value"]
    assert len(study(file).trials) == 4


def test_a_retried_trial_is_added_anew_under_its_own_number(file: Path, opened: StudyStorage) -> None:
    opened.project([ended(0), ended(1, "FAILED", None)])
    opened.project([ended(0), trial(1, attempts=2), trial(2)])
    opened.project([ended(0), ended(1, attempts=2), trial(2)])
    found = [(0, "COMPLETE"), (1, "FAIL"), (1, "COMPLETE"), (2, "RUNNING")]
    assert [row[:2] for row in seen(file)] == found
    again = StudyStorage.open(file, NAME, sweep(), create=False, sweep_sha="0a1b")
    again.project([ended(0), ended(1, attempts=2), trial(2)])  # a new process takes the newest of a number
    assert [row[:2] for row in seen(file)] == found


def test_an_existing_study_is_not_begun_again_and_a_missing_one_is_made(file: Path, opened: StudyStorage) -> None:
    with pytest.raises(UserError, match=f"has a study {NAME} already"):
        StudyStorage.open(file, NAME, sweep(), create=True)
    opened.project([ended(0)])
    other = StudyStorage.open(file, "other", sweep(), create=True)
    other.project([ended(0), ended(1)])
    assert (len(study(file).trials), len(study(file, "other").trials)) == (1, 2)
    file.unlink()
    again = StudyStorage.open(file, NAME, sweep(), create=False, sweep_sha="0a1b")
    again.project([ended(0)])
    assert [row[:3] for row in seen(file)] == [(0, "COMPLETE", 0.5)]


@pytest.mark.parametrize("given", [{"sweep_sha": "ffff"}, {"direction": "minimize"}])
def test_a_study_of_another_sweep_is_refused(file: Path, opened: StudyStorage, given: Mapping[str, str]) -> None:
    other = sweep(**{key: value for key, value in given.items() if key == "direction"})
    with pytest.raises(UserError, match="is of another sweep"):
        StudyStorage.open(file, NAME, other, create=False, sweep_sha=given.get("sweep_sha", "0a1b"))


def test_named_points_are_one_choice_among_names(file: Path) -> None:
    candidates = {"baseline": {}, "lr-high": {"stages.grpo.learning_rate": 1e-3}}
    there = StudyStorage.open(file, NAME, sweep(candidates=candidates), create=True)
    there.project([ended(n, name=name, params=params) for n, (name, params) in enumerate(candidates.items())])
    trials = study(file).trials
    assert [one.params for one in trials] == [{"candidate": "baseline"}, {"candidate": "lr-high"}]
    assert trials[1].user_attrs["settings"] == {"stages.grpo.learning_rate": 1e-3}
    rungs = StudyStorage.open(file, "ladder", sweep(ladder=[{"name": "A", "experiment": "p31"}]), create=True)
    rungs.project([ended(0, name="A", params={"experiment": "p31"})])
    assert study(file, "ladder").trials[0].params == {"rung": "A"}


def test_a_full_disk_is_one_clear_line_and_is_made_up_for(file: Path, opened: StudyStorage) -> None:
    opened.project([trial(0)])
    pages = file.stat().st_size // 4096
    limit = [pages]
    event.listen(opened._storage.engine, "checkout", lambda one, *_: one.execute(f"PRAGMA max_page_count = {limit[0]}"))
    with pytest.raises(StorageError) as caught:
        opened.project([trial(0, message="x" * 100_000)])
    assert str(caught.value) == (
        f"the study's database {file}: database or disk is full; free some space, then continue with --resume"
    )
    limit[0] = 100_000
    opened.project([ended(0)])
    assert [row[:2] for row in seen(file)] == [(0, "COMPLETE")]


def test_a_write_that_arrived_though_it_was_refused_is_not_made_twice(
    file: Path, opened: StudyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke after the commit."""
    create = opened._storage.create_new_trial

    def breaking(*given: Any) -> int:
        create(*given)
        raise optuna.exceptions.StorageInternalError("connection lost")

    opened.project([trial(0)])
    with monkeypatch.context() as patched:
        patched.setattr(opened._storage, "create_new_trial", breaking)
        with pytest.raises(StorageError, match="connection lost"):
            opened.project([trial(0), trial(1)])
    opened.project([trial(0), ended(1)])
    assert [row[:2] for row in seen(file)] == [(0, "RUNNING"), (1, "COMPLETE")]


def test_a_locked_database_is_one_clear_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PATIENCE", 0)
    there = StudyStorage.open(file, NAME, sweep(), create=True)
    there.project([trial(0)])
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="database is locked; another process writes to it") as caught:
        there.project([ended(0)])
    assert "\n" not in str(caught.value)
    holder.execute("ROLLBACK")
    holder.close()
    there.project([ended(0)])
    assert [row[:2] for row in seen(file)] == [(0, "COMPLETE")]


def test_only_a_studys_own_file_does_without_the_disks_word(file: Path, opened: StudyStorage) -> None:
    """PRAGMA synchronous: 0 is OFF, 2 is FULL. A database that somebody names may hold studies of others."""
    named = StudyStorage.open(f"sqlite:///{file}", NAME, sweep(), create=False, sweep_sha="0a1b")
    for study, level in ((opened, 0), (named, 2)):
        with study._storage.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == level
    named.close()


def test_a_damaged_file_says_what_to_do(file: Path) -> None:
    file.write_bytes(b"not a database at all" * 200)
    with pytest.raises(StorageError, match="file is not a database; move it away"):
        StudyStorage.open(file, NAME, sweep(), create=False)


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("sqlite:////nowhere/there/study.db", StorageError, "cannot lock|unable to open"),
        ("nonsense://user:secret@host/db", UserError, "nonsense"),
        ("mysql+nodriver://user:secret@host/db", UserError, "nodriver"),
    ],
)
def test_urls_that_lead_nowhere(url: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        StudyStorage.open(url, NAME, sweep(), create=True)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_of_another_home_are_known(file: Path) -> None:
    assert StudyStorage.highest(file, "small-tiny-12345678") == 0
    for name in ("small-tiny-12345678-2", "small-tiny-12345678-10", "small-tiny-12345678-x", "other-11"):
        StudyStorage.open(file, name, sweep(), create=True).close()
    assert StudyStorage.highest(file, "small-tiny-12345678") == 10


def test_a_folder_with_strange_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a b{c} %20 ü"
    folder.mkdir()
    there = StudyStorage.open(folder / "study.db", NAME, sweep(), create=True)
    there.project([ended(0)])
    there.close()
    assert (folder / "study.db").stat().st_size > 0


@pytest.mark.process
def test_processes_that_open_a_fresh_file_at_once_all_get_it(file: Path) -> None:
    """Without the lock most of them fail: Optuna makes its tables one by one."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        assert pool.map(_opens, [str(file)] * 8, chunksize=1) == ["opened"] * 8
    assert seen(file) == []


def _opens(path: str) -> str:
    StudyStorage.open(Path(path), NAME, sweep(), create=False).close()
    return "opened"


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    """It takes connections and never answers, as a host does whose database is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u:PW77@127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout=2"
        begun = time.monotonic()
        with pytest.raises(StorageError, match="timeout") as refused:
            StudyStorage.open(url, NAME, sweep(), create=True)
    assert 1.5 < time.monotonic() - begun < 8.0  # what the URL says counts, not the 10 seconds that are ours
    assert "PW77" not in str(refused.value)
