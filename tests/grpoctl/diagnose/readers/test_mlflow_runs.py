"""Runs in a real MLflow store: ours as the mirror writes them, TRL's as its callback does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.errors import NotFoundError, SpecError, StorageError
from core.health.case import settings_of
from grpoctl.config import load, plain
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.mlflow_runs import READER
from grpoctl.diagnose.readers.trainer_state import READER as TRAINER_STATE
from grpoctl.runs.run_dir import Home
from grpoctl.tracking import payload
from grpoctl.tracking.store import open_client

TRL = Path(__file__).parents[3] / "data" / "trl" / "lr-x100.json"
ARGUMENTS = {
    "num_generations": "8", "generation_batch_size": "32", "steps_per_generation": "1", "beta": "0.0",
    "gradient_accumulation_steps": "1", "learning_rate": "0.03", "scale_rewards": "group", "bf16": "False",
    "fp16": "False", "lr_scheduler_type": "SchedulerType.CONSTANT", "max_steps": "40", "loss_type": "dapo",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with three runs: `trl`, `ours`, and `odd` with repeated, infinite and missing values."""
    home = Home(path=tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        client = open_client(home)
        experiment = client.create_experiment("study")
        entries = json.loads(TRL.read_text())["log_history"]
        add(client, experiment, "trl", {"params": ARGUMENTS}, [(e["step"], e) for e in entries])
        spec = load("p31", profile="tiny", overrides=["num_generations=4"]).spec
        told = {"params": payload.params(plain(spec)), "tags": {"grpoctl.run_id": "p31-1", "grpoctl.experiment": "p31"}}
        add(client, experiment, "ours", told, [(1, {"reward/mean": 0.25, "groups/dead": 0.5})])
        odd = [
            (1, {"loss": 0.5}),
            (2, {"loss": 0.4}),
            (2, {"loss": 0.3}),
            (3, {"loss": math.inf, "grad_norm": math.nan}),
        ]
        add(client, experiment, "odd", {}, [*odd, (3, {"train_loss": 0.4, "total_flos": 0.0})])
        yield home.mlflow_store


def add(client: Any, experiment: str, name: str, told: Mapping[str, Any], points: list[tuple[int, Any]]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    run = client.create_run(experiment, run_name=name).info.run_id
    numbers = [(step, key, value) for step, row in points for key, value in row.items() if key != "step"]
    client.log_batch(
        run,
        metrics=[Metric(key, float(value), 1000 + at, step) for at, (step, key, value) in enumerate(numbers)][:1000],
        params=[Param(key, value) for key, value in list(told.get("params", {}).items())[:100]],
        tags=[RunTag(key, value) for key, value in told.get("tags", {}).items()],
    )
    rest = list(told.get("params", {}).items())[100:]
    client.log_batch(run, params=[Param(key, value) for key, value in rest])
    client.set_terminated(run)


def asked(store: Path, run: str) -> Source:
    return Source(name=f"mlflow:sqlite:///{store}#{run}", path=None)


def test_a_run_of_trl_reads_as_its_trainer_state_does(store: Path) -> None:
    read = READER.read(asked(store, "trl"))
    theirs = TRAINER_STATE.read(Source(name=str(TRL), path=TRL))
    assert read.case.rows == theirs.case.rows
    known = read.case.settings
    assert (known.num_generations, known.prompts_per_step, known.learning_rate, known.beta) == (8, 4, 0.03, 0.0)
    assert (known.scale_rewards, known.dtype, known.lr_scheduler_type, known.max_steps) == (
        "group", "float32", "constant", 40
    )  # fmt: skip
    assert (read.kind, read.case.averaged_over, known.first_update_lr) == ("mlflow", 1, 0.03)


def test_a_run_of_ours_has_its_spec_again(store: Path) -> None:
    read = READER.read(asked(store, "ours"))
    spec = load("p31", profile="tiny", overrides=["num_generations=4"]).spec
    assert read.case.settings == settings_of(spec)
    assert read.case.rows == [{"step": 1.0, "reward/mean": 0.25, "groups/dead": 0.5}]
    assert read.spec == "p31"
    assert any("grpoctl diagnose p31-1" in note for note in read.notes)


def test_repeated_steps_infinities_and_totals(store: Path) -> None:
    read = READER.read(asked(store, "odd"))
    assert read.case.rows == [
        {"step": 1.0, "update": 1.0, "loss": 0.5},
        {"step": 2.0, "update": 1.0, "loss": 0.3},
        {"step": 3.0, "update": 1.0, "loss": None, "grad_norm": None},
    ]
    assert any(note.startswith("1 steps are there more than once") for note in read.notes)
    assert any("not those of a GRPO trainer" in note for note in read.notes)


def test_a_run_is_found_in_the_store_of_the_environment(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    assert len(READER.read(Source(name="mlflow:trl", path=None)).case.rows) == 40


def test_a_file_with_several_runs_names_them(store: Path) -> None:
    file = Source(name=str(store), path=store)
    assert READER.knows(file)
    with pytest.raises(NotFoundError, match=r"3 runs in .*\(odd\).*\(ours\).*\(trl\)"):
        READER.read(file)


def test_what_is_not_there_is_one_line(store: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no run 'nope' in .*; there are"):
        READER.read(asked(store, "nope"))
    with pytest.raises(NotFoundError, match="no such file"):
        READER.read(asked(tmp_path / "gone.db", "trl"))
    assert not (tmp_path / "gone.db").exists()  # reading creates nothing
    (tmp_path / "other.db").write_bytes(b"SQLite format 3\0 and no more")
    with pytest.raises(NotFoundError, match="no MLflow store"):
        READER.read(Source(name="other.db", path=tmp_path / "other.db"))
    with pytest.raises(SpecError, match="expected mlflow:RUN_ID"):
        READER.read(Source(name="mlflow:", path=None))


def test_a_server_that_does_not_answer_is_one_line_without_its_password() -> None:
    with pytest.raises(StorageError) as caught:
        READER.read(Source(name="mlflow:http://me:secret@127.0.0.1:1/#run", path=None))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_mlruns_folder_is_read_where_it_has_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "mlruns"
    run = folder / "0" / ("a" * 32)
    for name in ("artifacts", "metrics", "params", "tags"):
        (run / name).mkdir(parents=True)
    (folder / "0" / "meta.yaml").write_text(
        f"artifact_location: {folder}/0\nexperiment_id: '0'\nlifecycle_stage: active\nname: Default\n"
    )
    (run / "meta.yaml").write_text(
        f"artifact_uri: {run}/artifacts\nend_time: 2\nentry_point_name: ''\nexperiment_id: '0'\n"
        f"lifecycle_stage: active\nrun_id: {'a' * 32}\nrun_uuid: {'a' * 32}\nrun_name: old\nsource_name: ''\n"
        "source_type: 4\nsource_version: ''\nstart_time: 1\nstatus: 3\ntags: []\nuser_id: me\n"
    )
    (run / "metrics" / "loss").write_text("1 0.5 1\n2 0.25 2\n")
    asked_for = Source(name=str(folder), path=folder)
    assert READER.knows(asked_for)
    assert [row["loss"] for row in READER.read(asked_for).case.rows] == [0.5, 0.25]
