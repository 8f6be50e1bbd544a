"""What `grpoctl sweep` does around its driver: whom it asks to stop, where the database is, what is said of it."""

from __future__ import annotations

import dataclasses
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.errors import StorageError
from grpoctl import console
from grpoctl.analysis.sweeps.document import read_study
from grpoctl.analysis.sweeps.report import head
from grpoctl.cli import sweep_session
from grpoctl.cli.sweep_session import SweepRequest, drive_to_end, masked_argv, opened_study
from grpoctl.files import replace_json
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps import driver
from grpoctl.sweeps.driver import Driver, Plan
from grpoctl.sweeps.loading import load_sweep
from grpoctl.sweeps.state import TrialRecord, read_book
from grpoctl.sweeps.storage import StudyStorage
from grpoctl.sweeps.study import kept_in, make_up_all
from tests.grpoctl.sweeps.paper import PaperExecutor

SWEEP = """\
name: mine
title: Four points
experiment: p31
settings: {evaluation.eval_steps: 1}
axes: {stages.grpo.num_generations: [2, 4], stages.grpo.beta: [0, 0.01]}
sampler: grid
seeds: [0]
budget: {completions: 32, generation_batch_size: 16}
"""


class Interrupted(PaperExecutor):
    """Ctrl-C while it works, and again while it closes."""

    def events(self, timeout: float) -> list[object]:  # type: ignore[override]
        raise KeyboardInterrupt

    def close(self) -> None:
        super().close()
        raise KeyboardInterrupt


class Silent:
    """Shows nothing."""

    def update(self, document: object, running: object) -> None: ...

    def note(self, text: str) -> None: ...


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepRequest:
    """The sweep, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.yaml").write_text(SWEEP, encoding="utf-8")
    return SweepRequest(name="mine", profile="tiny", json=True)


def test_a_word_to_an_earlier_driver_is_not_obeyed_and_one_to_this_driver_is(home: Home, asked: SweepRequest) -> None:
    with opened_study(asked, home) as opened:
        study = opened.study
        assert study.is_held()
    replace_json(study.control, {"schema": 1, "stop": True})
    with opened_study(SweepRequest(name="mine", profile="tiny", json=True, resume=True), home):
        assert not study.control.exists()  # from here on `--stop` finds the study held: what it writes must stay


def test_a_second_ctrl_c_does_not_keep_the_study_from_saying_how_it_ended(home: Home, asked: SweepRequest) -> None:
    with opened_study(asked, home) as opened:
        storage = StudyStorage.open(opened.study.storage, opened.study.id, opened.sweep, create=True)
        plan = Plan(sweep=opened.sweep, study=opened.study, total=4, lag=None)
        driver = Driver(plan, book=opened.book, storage=storage, executor=Interrupted(), progress=Silent())
        drive_to_end(driver, Interrupted())
        storage.close()
    assert '"status": "INTERRUPTED", "message": "interrupted;' in opened.study.state.read_text(encoding="utf-8")


class Moving(PaperExecutor):
    """Somebody moves the folder of the database away once two trials have ended."""

    def __init__(self, folder: Path, study: StudyDir) -> None:
        super().__init__()
        self._folder, self._study = folder, study

    def events(self, timeout: float) -> list[Any]:
        ended = sum(trial.status.ended for trial in read_book(self._study.state).trials.values())
        if ended == 2 and self._folder.exists():
            self._folder.rename(f"{self._folder}.away")
        return super().events(timeout)


@pytest.mark.parametrize("way", ["resume", "sync"])
def test_a_database_that_was_away_as_the_sweep_ended_is_made_up_for(
    home: Home,
    asked: SweepRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    way: str,
) -> None:
    monkeypatch.setattr(driver, "draw", lambda document, folder: [])
    monkeypatch.setenv("GRPOCTL_HOME", str(home.path))
    folder = tmp_path / "database"
    folder.mkdir()
    asked = dataclasses.replace(asked, storage=f"sqlite:///{folder}/all.db", json=False)
    with opened_study(asked, home) as opened:
        study, book = opened.study, opened.book
        storage = sweep_session.open_storage(asked, opened)
        plan = Plan(sweep=opened.sweep, study=study, total=4, lag=None)
        executor = Moving(folder, study)
        drive_to_end(Driver(plan, book=book, storage=storage, executor=executor, progress=Silent()), executor)
        storage.close()
    again = dataclasses.replace(asked, name=study.id, profile="auto", storage=None, resume=True)

    def make_up() -> None:
        if way == "resume":
            assert sweep_session.run(again)[0] == 0
        else:
            assert [bool(error) for error in make_up_all(home).values()] == [folder.with_name("database.away").exists()]

    def behind() -> bool:
        """Whether the study says so: in its file, and in its verdict."""
        capsys.readouterr()
        console.print_sections(head(read_study(study)))
        said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Database  WARNING")]
        assert bool(said) == ("database_behind" in read_study(study))
        return bool(said)

    assert read_study(study)["status"] == "COMPLETED"
    assert behind()
    before = study.state.read_bytes()
    make_up()  # it is away still
    assert behind()
    assert study.state.read_bytes() == before
    Path(f"{folder}.away").rename(folder)
    states = [state for state, _ in in_database(folder / "all.db")]
    assert len(states) < 4 or "RUNNING" in states
    make_up()
    assert not behind()
    scores = [(trial["score"]) for trial in read_study(study)["trials"]]
    assert in_database(folder / "all.db") == [("COMPLETE", score) for score in scores]
    assert make_up_all(home) == {}


def in_database(file: Path) -> list[tuple[str, float | None]]:
    """State and value of each trial that Optuna knows, by number."""
    with closing(sqlite3.connect(file)) as database:
        return database.execute(
            "select state, value from trials left join trial_values using (trial_id) order by number"
        ).fetchall()


def test_a_study_whose_driver_was_killed_is_told_to_its_own_database_by_sync(home: Home, asked: SweepRequest) -> None:
    with opened_study(asked, home) as opened:
        opened.book.trials[0] = TrialRecord(number=0, params={"stages.grpo.beta": 0.0}, seeds=(0,))
        opened.book.save()
        assert make_up_all(home) == {}  # it is driven
    assert make_up_all(home) == {opened.study.id: ""}
    assert in_database(opened.study.storage) == [("RUNNING", None)]


@pytest.mark.parametrize("form", ["--storage {}", "--storage={}"])
def test_workers_are_not_told_the_password(form: str) -> None:
    url = "postgresql://me@corp:ge/heim@host/db"
    argv = ("grpoctl", "sweep", "mine", *form.format(url).split())
    shown = masked_argv(SweepRequest(name="mine", storage=url, argv=argv))
    assert shown[:3] == ["grpoctl", "sweep", "mine"]
    assert "heim" not in " ".join(shown)
    assert "host/db" in shown[-1]
    assert masked_argv(SweepRequest(name="mine", argv=argv[:3])) == list(argv[:3])


@pytest.mark.parametrize("text", ['{"schema": 1, "trials": []}', '{"schema": 1, "study": "x", "trials": [], "lag": 1}'])
def test_a_book_without_its_header_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text, encoding="utf-8")
    with pytest.raises(StorageError, match="damaged"):
        read_book(tmp_path / "sweep.json")


def test_a_study_is_gone_on_with_in_the_database_it_was_begun_in(tmp_path: Path) -> None:
    study = StudyDir(path=tmp_path / "moved" / "mine-tiny-12345678-1")
    assert kept_in(study, {"storage": "sqlite:////data/other.db"}) == "sqlite:////data/other.db"
    assert kept_in(study, {"storage": "/where/it/was/mine-tiny-12345678-1/study.db"}) == study.storage


@pytest.mark.parametrize(("cores", "profile", "workers"), [(2, "tiny", 2), (64, "tiny", 4), (64, "full", 1)])
def test_how_many_workers_there_are_where_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, cores: int, profile: str, workers: int
) -> None:
    monkeypatch.setattr(sweep_session, "usable_cores", lambda: cores)
    sweep = load_sweep("collapse-study", profile=profile).spec
    assert len(sweep_session.Workers().slots(sweep)) == workers
    assert len(sweep_session.Workers(parallel=7).slots(sweep)) == 7


def test_a_study_keeps_what_it_was_asked_for_with(home: Home, asked: SweepRequest) -> None:
    """So that what is advised after it repeats that; more trials asked for later are of the same command."""
    request = dataclasses.replace(asked, overrides=("dual_clip=3", "max_hours=2"), trials=3)
    with opened_study(request, home) as opened:
        kept = opened.book.header["asked"]
    assert kept == {"name": asked.name, "overrides": ["dual_clip=3", "max_hours=2"], "seeds": None, "trials": 3}
    more = dataclasses.replace(asked, name=str(opened.study.path), trials=4, resume=True)
    with opened_study(more, home) as opened:
        assert opened.book.header["asked"] == {**kept, "trials": 4}
