"""Where the store is, what of it may be shown, and that it is created once and whole."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from core.errors import StorageError
from grpoctl.runs.run_dir import Home
from grpoctl.tracking.store import artifact_location, check_store, open_client, sqlite_file, store_name, store_uri
from grpoctl.tracking.writer import RunWriter
from tests.grpoctl.tracking.stored import runs_of

ROOT = Path(__file__).resolve().parents[3]


def test_the_home_has_its_own_store(tmp_path: Path) -> None:
    home = Home(path=tmp_path)
    assert store_uri(home) == f"sqlite:///{tmp_path}/mlflow.db"
    assert artifact_location(home) == f"file://{tmp_path}/mlartifacts"


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_variable_names_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blank: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", blank)
    assert store_uri(Home(path=tmp_path)).startswith("sqlite")


def test_a_named_store_is_used_and_its_password_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:hunter2@mlflow.example.org")
    home = Home(path=tmp_path)
    assert store_uri(home) == "https://me:hunter2@mlflow.example.org"
    assert store_name(home) == "https://***@mlflow.example.org"
    assert artifact_location(home) is None  # the server's business


@pytest.mark.parametrize(
    ("uri", "file"),
    [
        ("sqlite:////a/b.db", "/a/b.db"),
        ("sqlite:////a%20b/c%3Fd.db?timeout=5", "/a b/c?d.db"),
        ("sqlite+pysqlite:////a.db", "/a.db"),
        ("sqlite:///:memory:", None),
        ("sqlite://", None),
        ("postgresql://u@h/db", None),
        ("http://h:5000", None),
    ],
)
def test_the_file_of_a_sqlite_store(uri: str, file: str | None) -> None:
    assert sqlite_file(uri) == (Path(file) if file else None)


def test_odd_characters_in_the_path(tmp_path: Path, store_template: Home) -> None:
    home = Home(path=tmp_path / "a b#c%20d?e数")
    home.path.mkdir()
    shutil.copy(store_template.mlflow_store, home.mlflow_store)
    shutil.copy(store_template.mlflow_version, home.mlflow_version)
    assert check_store(home).state == "ok"
    assert sqlite_file(store_uri(home)) == home.mlflow_store


def test_looking_creates_nothing(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    assert (check_store(home).state, runs_of(home)) == ("absent", [])
    assert not home.path.exists()


def test_a_damaged_store_is_said_in_one_line(home: Home) -> None:
    home.mlflow_store.write_bytes(b"no database " * 1000)
    check = check_store(home)
    assert check.state == "unreachable"
    assert "not a database" in str(check.error)
    assert "\n" not in str(check.error)


def test_a_place_that_cannot_be_written() -> None:
    with pytest.raises(StorageError, match="cannot create"):
        open_client(Home(path=Path("/dev/null/home")))


def revision_of(file: Path) -> str:
    with closing(sqlite3.connect(file)) as store:
        return str(store.execute("select version_num from alembic_version").fetchone()[0])


def create_store_of_revision(home: Home, revision: str) -> None:
    from alembic import command
    from mlflow.store.db import utils

    engine = utils.create_sqlalchemy_engine(store_uri(home))
    utils.InitialBase.metadata.create_all(engine)
    command.upgrade(utils._get_alembic_config(store_uri(home)), revision)
    engine.dispose()


@pytest.mark.process
def test_an_older_store_is_migrated_and_a_copy_kept(home: Home, run: Any) -> None:
    home.mlflow_store.unlink()
    create_store_of_revision(home, "1971f2d9a75b")  # four revisions before MLflow 3.17's
    home.mlflow_version.write_text("3.15.0")
    RunWriter(run.dir, open_client(home)).catch_up()
    assert [stored.name for stored in runs_of(home)] == [run.dir.id]
    assert revision_of(home.mlflow_store) != "1971f2d9a75b"
    assert revision_of(home.path / "mlflow.db.before-migration") == "1971f2d9a75b"
    assert home.mlflow_version.read_text() == version("mlflow")


@pytest.mark.process
def test_a_store_that_cannot_be_migrated_is_left_as_it_was(home: Home) -> None:
    with closing(sqlite3.connect(home.mlflow_store)) as store, store:
        store.execute("update alembic_version set version_num = 'of-the-future'")
    home.mlflow_version.write_text("99.0")
    with pytest.raises(StorageError, match=r"^[^\n]+cannot be migrated[^\n]+of-the-future[^\n]+$"):
        open_client(home)
    assert revision_of(home.mlflow_store) == "of-the-future"


OPENER = """
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from grpoctl.runs.run_dir import Home
from grpoctl.tracking.store import open_client
home = Home(path=Path(sys.argv[1]))
client = open_client(home)
print(len(client.search_experiments()), flush=True)
"""


@pytest.mark.process
@pytest.mark.slow
def test_three_processes_open_a_fresh_store_together(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENER, str(tmp_path / "home")]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(3)]
    answers = [(process.communicate(), process.returncode) for process in processes]
    assert [(out.strip(), code) for (out, _), code in answers] == [("1", 0)] * 3, answers
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["mlflow.db", "mlflow.lock", "mlflow.version"]


def test_the_artifacts_of_a_home_that_was_moved_or_copied_are_in_it(home: Home, run: Any, tmp_path: Path) -> None:
    RunWriter(run.dir, open_client(home)).catch_up()
    (stored,) = runs_of(home)
    copy = Home(path=tmp_path / "a%20copy_" / ".grpoctl")
    shutil.copytree(home.path, copy.path)
    (followed,) = runs_of(copy)
    where = f"{stored.mlflow_run_id}/artifacts"
    assert stored.artifact_uri == f"{home.mlflow_artifacts.as_uri()}/{where}"
    assert followed.artifact_uri == f"{copy.mlflow_artifacts.as_uri()}/{where}"
    assert {one.artifact_location for one in open_client(copy).search_experiments() if one.name != "Default"} == {
        copy.mlflow_artifacts.as_uri()
    }
    assert runs_of(home) == [stored]  # the one that it was copied from keeps its own


def test_a_place_for_artifacts_that_somebody_chose_stays(home: Home) -> None:
    client = open_client(home)
    chosen = {"a": "s3://bucket/mlartifacts", "b": "file:///mnt/mlartifacts-of-mine", "c": "file:///data/mlartifacts/7"}
    for name, address in chosen.items():
        client.create_experiment(name, artifact_location=address)
    found = {one.name: one.artifact_location for one in open_client(home).search_experiments()}
    assert {name: found[name] for name in chosen} == chosen
