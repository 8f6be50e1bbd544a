"""Finding one run in a store that somebody else wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import NotFoundError, StorageError
from grpoctl.runs.run_dir import Home
from grpoctl.tracking.reading import is_store, read_run
from grpoctl.tracking.store import open_client
from tests.logs import Logged


def logged(home: Home, *names: str) -> list[str]:
    client = open_client(home)
    runs = [client.create_run("0", run_name=name).info.run_id for name in names]
    for run in runs:
        client.log_metric(run, "loss", 0.5, timestamp=2, step=1)
        client.log_metric(run, "loss", 0.75, timestamp=1, step=1)
        client.log_metric(run, "loss", 0.25, timestamp=3, step=0)
    return runs


def uri(home: Home) -> str:
    return f"sqlite:///{home.mlflow_store}"


def test_a_run_by_id_beginning_name_or_as_the_only_one(home: Home) -> None:
    (only,) = logged(home, "first")
    for wanted in (only, only[:8], "first", None):
        run = read_run(uri(home), wanted)
        assert (run.run_id, run.name, run.experiment, run.status) == (only, "first", "Default", "RUNNING")
        assert run.history == {"loss": [(0, 0.25), (1, 0.75), (1, 0.5)]}  # by step, then by when it was logged


def test_a_name_that_two_runs_have_is_refused(home: Home) -> None:
    ids = logged(home, "twin", "twin")
    with pytest.raises(NotFoundError, match="2 runs in") as caught:
        read_run(uri(home), "twin")
    assert all(run in str(caught.value) for run in ids)


def test_an_empty_store_and_no_store(home: Home, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="has no runs"):
        read_run(uri(home), None)
    assert is_store(home.mlflow_store)
    assert not is_store(tmp_path / "gone.db")
    assert not (tmp_path / "gone.db").exists()


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_folder_that_is_not_there_is_not_created(form: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such store"):
        read_run(form.format(tmp_path / "gone"), "abc")
    assert not (tmp_path / "gone").exists()


def test_a_damaged_experiment_is_not_logged(tmp_path: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").touch()
    with pytest.raises((NotFoundError, StorageError)):
        read_run((tmp_path / "mlruns").as_uri(), None)
    assert logged.records == []
