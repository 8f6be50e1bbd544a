"""A study on PostgreSQL and runs in an MLflow server on PostgreSQL: both away in mid-sweep, and away at its end."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from core.errors import StorageError
from grpoctl.children import python_module
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import TrialStatus
from grpoctl.runs.study_dir import StudyDir, studies
from grpoctl.sweeps import storage
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import TrialRecord
from grpoctl.sweeps.storage import BEHIND, StudyStorage
from tests.end_to_end.cli import Cli, Zygote, eventually, rows_of
from tests.services import workload
from tests.services.daemons import Daemon, free_port, listens, open_folder
from tests.services.postgresql import PASSWORD, PostgreSQL, installed
from tests.services.workload import LIMIT, ended, study_in

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(installed() is None, reason="no PostgreSQL: apt-get install postgresql"),
]

TRIALS = 8
ARGUMENTS = ("sweep", workload.NAME, "--parallel", "1", "--trials", str(TRIALS), "--json")


class Tracking:
    """MLflow's own server, with its runs in PostgreSQL."""

    def __init__(self, folder: Path, store: str) -> None:
        self._folder, self._store, self._port = folder, store, free_port()
        self._daemon: Daemon | None = None

    @property
    def uri(self) -> str:
        """What a user sets MLFLOW_TRACKING_URI to."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = python_module(
            "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port), "--workers", "1",
            "--artifacts-destination", str(self._folder / "artifacts"),
        )  # fmt: skip
        environment = {
            "MLFLOW_BACKEND_STORE_URI": self._store, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }  # fmt: skip
        daemon = Daemon(command, self._folder / "mlflow.log", environment)
        self._daemon = daemon
        eventually(lambda: daemon.alive() and listens(self._port), "the MLflow server listens")

    def stop(self) -> None:
        """Away: nobody listens at its port any more."""
        if self._daemon is not None:
            self._daemon.end()
        self._daemon = None


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    """A server that has just been made."""
    with open_folder("postgresql") as folder:
        made = PostgreSQL(folder)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="module")
def tracking(server: PostgreSQL, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracking]:
    """An MLflow server on it."""
    made = Tracking(tmp_path_factory.mktemp("mlflow"), server.make("mlflow"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def user(tmp_path: Path, zygote: Zygote) -> Cli:
    """Somebody who has written the sweep."""
    workload.write(tmp_path / "user")
    return Cli(folder=tmp_path / "user", zygote=zygote)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    made = Zygote(tmp_path_factory.mktemp("zygote"))
    yield made
    made.close()


def document(study: StudyDir) -> dict[str, Any]:
    """Its sweep.json; empty before there is one."""
    if not study.state.exists():
        return {}
    found: dict[str, Any] = json.loads(study.state.read_text(encoding="utf-8"))
    return found


def reached(found: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on where a study is kept."""
    keys = ("number", "params", "status", "score", "interval", "values", "statuses", "completions", "tokens", "curve")
    trials = [{key: trial[key] for key in keys} for trial in found["trials"]]
    best = {key: value for key, value in found["best"].items() if key != "runs"}
    return {"trials": trials, "ranking": found["ranking"], "best": best, "findings": found["findings"]}


def in_optuna(name: str, url: str) -> list[tuple[Any, ...]]:
    """The trials as somebody reads them who has Optuna alone."""
    found = optuna.load_study(study_name=name, storage=url)
    keys = ("number", "status", "seeds", "values", "attempts", "message")  # not the runs' folders
    return [
        (one.state, one.values, one.params, one.intermediate_values, {key: one.user_attrs[key] for key in keys})
        for one in found.trials
    ]


def ended_trials(study: StudyDir) -> int:
    return sum(trial["status"] != "RUNNING" for trial in document(study).get("trials", ()))


def mirrored_run(run: RunDir) -> bool:
    """True when the run has rows in MLflow."""
    return run.mlflow.exists() and bool(json.loads(run.mlflow.read_text()).get("synced_step"))


def mirrored(study: StudyDir) -> bool:
    """True when a run of the study has rows in MLflow."""
    return any(map(mirrored_run, study.runs()))


def take_away_in_turn(server: PostgreSQL, tracking: Tracking, study: Callable[[], StudyDir]) -> None:
    """The database crashes and comes back, then MLflow's server: each away until a trial has ended without it."""
    server.stop(crash=True)
    eventually(lambda: BEHIND in document(study()), "the sweep has noticed that its database is away", LIMIT)
    at = ended_trials(study())
    eventually(lambda: ended_trials(study()) > at, "the sweep goes on without it", LIMIT)
    server.start()
    eventually(lambda: BEHIND not in document(study()), "the database has everything again", LIMIT)
    tracking.stop()
    at = ended_trials(study())
    eventually(lambda: ended_trials(study()) > at, "the sweep goes on without MLflow", LIMIT)
    tracking.start()
    begun_before = {run.id for run in study().runs()}
    eventually(
        lambda: any(run.id not in begun_before and mirrored_run(run) for run in study().runs()),
        "a run that began later is in MLflow",
        LIMIT,
    )


def points_in_files(study: StudyDir) -> Counter[tuple[str, str, str]]:
    """(run, metric, step) of every number in the runs' rows."""
    return Counter(
        (run.id, key, str(row["step"]))
        for run in study.runs()
        for row in rows_of(run.metrics)
        for key, value in row.items()
        if key != "step" and value is not None
    )


def points_in_mlflow(server: PostgreSQL, study: StudyDir) -> Counter[tuple[str, str, str]]:
    """(run, metric, step) of every row in MLflow's table of the study's runs, one that is there twice counted twice."""
    statement = "SELECT r.name, m.key, m.step FROM metrics m JOIN runs r USING (run_uuid)"
    ids = {run.id for run in study.runs()}
    return Counter((name, key, step) for name, key, step in server.query(statement, "mlflow") if name in ids)


def files_with(secret: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_nothing_is_lost_while_the_servers_are_away_in_mid_sweep_and_at_its_end(
    server: PostgreSQL, tracking: Tracking, user: Cli
) -> None:
    lone = user.with_environment(GRPOCTL_HOME=str(user.folder / "in-sqlite"), MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    plain = ended(lone.start(*ARGUMENTS), Home(path=user.folder / "in-sqlite"))
    assert plain.returncode == 0, plain.stderr
    in_sqlite = study_in(Home(path=user.folder / "in-sqlite"))

    url = server.make("studies")
    served = user.with_environment(MLFLOW_TRACKING_URI=tracking.uri)
    hold = user.folder / "hold"
    slowly = served.with_environment(**{workload.PACE: "0.2", workload.HOLD: str(hold)})
    started = slowly.start(*ARGUMENTS, "--storage", url)

    def study() -> StudyDir:
        return study_in(served.home)

    eventually(lambda: ended_trials(study()) >= 1 and mirrored(study()), "a trial has ended, and is in MLflow", LIMIT)
    take_away_in_turn(server, tracking, study)
    hold.touch()
    server.stop()
    tracking.stop()
    assert ended_trials(study()) < TRIALS, "the sweep was too short for this test"
    hold.unlink()
    done = ended(started, served.home)

    assert done.returncode == 0, done.stderr  # what is away costs a note, not the sweep
    said = done.document[BEHIND]
    assert url.partition("@")[2] in said
    assert any("MLflow is behind" in line and "grpoctl sync" in line for line in done.errors)
    assert reached(done.document) == reached(plain.document)

    server.start()
    tracking.start()
    synced = served.with_environment(GRPOCTL_STORAGE=url).run("sync")
    assert synced.returncode == 0, synced.stderr
    again = served.with_environment(GRPOCTL_STORAGE=url).run("sync", "--json")  # nothing is written twice
    assert {run["outcome"] for run in again.document["runs"]} == {"unchanged"}
    assert BEHIND not in document(study())
    assert in_optuna(study().id, url) == in_optuna(in_sqlite.id, f"sqlite:///{in_sqlite.storage}")
    points, rows = points_in_mlflow(server, study()), points_in_files(study())
    assert rows - points == Counter()  # nothing is lost
    beside = points - rows  # what is known at the end of a run only: its best evaluation, its score
    assert {name for _, name, _ in beside}.isdisjoint({name for _, name, _ in rows})
    assert set(beside.values()) == {1}  # nothing is there twice
    assert {run.id.removeprefix(study().id): run.metrics.read_bytes() for run in study().runs()} == {
        run.id.removeprefix(in_sqlite.id): run.metrics.read_bytes() for run in in_sqlite.runs()
    }
    assert files_with(PASSWORD, user.folder) == []
    assert files_with(url.partition("@")[0], user.folder) == []  # as it is written in a URL


def test_a_sweep_that_cannot_reach_its_database_says_so_before_it_begins(server: PostgreSQL, user: Cli) -> None:
    url = server.url("nosuch")
    refused = user.run(*ARGUMENTS, "--storage", url)
    assert refused.returncode == 3
    (line,) = refused.stderr.splitlines()
    assert '"nosuch" does not exist' in line
    assert PASSWORD not in line
    assert studies(user.home) == []


def test_a_sweep_does_not_hang_with_a_server_that_is_silent(
    server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped server takes connections and says nothing: the sweep goes on, and asks again once it answers."""
    monkeypatch.setattr(storage, "ANSWER", 1.0)
    url = server.make("silent")
    sweep = SweepSpec.model_validate(
        {"name": "s", "title": "t", "experiment": "p31", "axes": {"stages.grpo.num_generations": [2, 4]}}
    )
    study = StudyStorage.open(url, "s-1", sweep, create=True)
    trials = [
        TrialRecord(number=n, params={"stages.grpo.num_generations": k}, seeds=(0,), status=TrialStatus.RUNNING)
        for n, k in enumerate((2, 4))
    ]
    study.project(trials[:1])
    server.pause()
    try:
        begun = time.monotonic()
        for _ in range(3):
            with pytest.raises(StorageError, match="no answer") as refused:
                study.project(trials)
        assert time.monotonic() - begun < 3.0  # the first waits, the others know
        assert PASSWORD not in str(refused.value)
    finally:
        server.wake()

    def answered() -> bool:
        try:
            study.project(trials)
        except StorageError:
            return False
        return True

    eventually(answered, "the server answers again")
    study.close()
    there = optuna.load_study(study_name="s-1", storage=url)
    assert [one.user_attrs["number"] for one in there.trials] == [0, 1]
