"""What a run reads besides its spec, by content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from grpoctl.config import load
from grpoctl.files import read_json
from grpoctl.runs import inputs, provenance
from grpoctl.runs.run_dir import RunDir

REWARDS = "[{function: ./r.py:f}, {function: 'package.module:g'}]"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run that has just begun, in a folder with its data and rewards."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("rows")
    (tmp_path / "r.py").write_text("function")
    folder = tmp_path / "run"
    folder.mkdir()
    run = RunDir(path=folder)
    provenance.start(run, {})
    return run


def custom(**data: Any) -> Any:
    written = ", ".join(f"{key}: {value}" for key, value in (data or {"path": "rows.jsonl"}).items())
    return load(
        "p31",
        overrides=["task.name=custom", f"task.data={{{written}}}", "task.prompt='{q}'", f"task.rewards={REWARDS}"],
    ).spec


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_files_are_known_by_their_content(run: RunDir, tmp_path: Path) -> None:
    provenance.record(run, [])
    assert inputs.record(run, custom()) == []
    expected = {str(tmp_path / "rows.jsonl"): sha("rows"), str(tmp_path / "r.py"): sha("function")}
    document = read_json(run.provenance)
    assert document is not None
    assert document["inputs"] == expected
    assert "inputs" not in document["attempts"][0]


def test_a_resumed_run_says_what_has_changed(run: RunDir, tmp_path: Path) -> None:
    provenance.record(run, [])
    inputs.record(run, custom())
    (tmp_path / "rows.jsonl").write_text("others")
    (tmp_path / "r.py").unlink()
    provenance.record(run, [])
    first, second = inputs.record(run, custom())
    assert first.startswith(
        f"{tmp_path / 'r.py'} has changed since this run began ({sha('function')[:12]} -> not there)"
    )
    assert f"({sha('rows')[:12]} -> {sha('others')[:12]})" in second
    document = read_json(run.provenance)
    assert document is not None
    assert document["inputs"][str(tmp_path / "rows.jsonl")] == sha("rows")  # what it began with
    assert document["attempts"][1]["inputs"][str(tmp_path / "rows.jsonl")] == sha("others")


def test_a_task_without_files_has_none(run: RunDir) -> None:
    provenance.record(run, [])
    assert inputs.record(run, load("p31").spec) == []
    assert "inputs" not in (read_json(run.provenance) or {})


def test_a_dataset_of_the_hub_is_known_by_its_revision() -> None:
    found = inputs.inputs_of(custom(hub="owner/set", revision="abc"))
    assert found["hub:owner/set[train]"] == {"config": None, "split": "train", "revision": "abc"}
