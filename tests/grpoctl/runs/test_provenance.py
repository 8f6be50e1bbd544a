"""Where a run came from, and what must never be written down."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from core.config import ExampleSelectionTaskSpec, RestorationTaskSpec
from grpoctl.config import load
from grpoctl.files import read_json
from grpoctl.runs import provenance
from grpoctl.runs.provenance import AskedGit, git_state, record, start, versions
from grpoctl.runs.run_dir import Home, RunDir


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "a.txt")
    git(folder, "commit", "-m", "first")
    return folder


@pytest.mark.process
def test_a_clean_repository(repository: Path) -> None:
    (repository / "untracked.txt").write_text("no code of the commit")
    state = git_state(repository)
    assert state == {
        "commit": git(repository, "rev-parse", "HEAD"), "dirty": False, "diff": "", "diff_cut": False, "remote": None,
    }  # fmt: skip


@pytest.mark.process
def test_a_dirty_repository_with_a_secret_in_its_remote(repository: Path) -> None:
    git(repository, "remote", "add", "origin", "https://me:hunter2@host/x.git")
    (repository / "sub").mkdir()
    (repository / "a.txt").write_text("two\n")
    state = git_state(repository / "sub")
    assert state is not None
    assert state["dirty"] is True
    assert "-one\n+two" in state["diff"]
    assert state["remote"] == "https://***@host/x.git"


@pytest.mark.process
def test_asking_writes_nothing_into_the_repository(repository: Path) -> None:
    os.utime(repository / "a.txt", (1, 1))  # git would look at it again, and note that it is as before
    index = (repository / ".git" / "index").read_bytes()
    state = git_state(repository)
    assert state is not None
    assert (state["dirty"], state["diff"]) == (False, "")
    assert (repository / ".git" / "index").read_bytes() == index


@pytest.mark.process
def test_a_huge_diff_is_cut(repository: Path) -> None:
    (repository / "a.txt").write_text("0123456789\n" * 40_000)  # 440,000 bytes
    state = git_state(repository)
    assert state is not None
    assert len(state["diff"]) == provenance.DIFF_LIMIT
    assert (state["diff_cut"], state["dirty"]) == (True, True)


@pytest.mark.process
def test_nothing_to_say_outside_a_repository_or_before_its_first_commit(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    git(tmp_path, "init")
    assert git_state(tmp_path) is None


def test_without_git(repository_less: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository_less))
    assert git_state(repository_less) is None


@pytest.fixture
def repository_less(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.process
@pytest.mark.parametrize("script", ["exec sleep 30", "echo abc; exec sleep 30", "exec >&-; exec sleep 30"])
def test_a_git_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (tmp_path / "git").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    begun = time.monotonic()
    assert git_state(tmp_path, seconds=0.3) is None
    assert time.monotonic() - begun < 3


def record_in(folder: Path, run: RunDir, argv: list[str]) -> int:
    with AskedGit(folder) as git:
        return record(run, argv, git)


def test_attempts_are_added_and_secrets_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    monkeypatch.setenv("PATH", "")
    run = Home(path=tmp_path).create_run("a")
    argv = ["grpoctl", "run", "p31", "--store", "http://me:hunter2@host/"]
    start(run, {"experiment": "p31", "spec_sha": "abc"})
    assert record_in(tmp_path, run, argv) == 1
    assert record_in(tmp_path, run, [*argv, "--resume"]) == 2
    document = read_json(run.provenance)
    assert document is not None
    assert (document["experiment"], document["spec_sha"]) == ("p31", "abc")
    assert [attempt["argv"][-1] for attempt in document["attempts"]] == ["http://***@host/", "--resume"]
    assert set(document["attempts"][0]) == {
        "started", "argv", "hostname", "pid", "python", "executable", "platform", "versions", "git",
    }  # fmt: skip
    assert "hunter2" not in run.provenance.read_text()


def test_the_newest_attempt_says_where_its_weights_came_from(tmp_path: Path) -> None:
    run = Home(path=tmp_path / "home").create_run("x")
    start(run, {"run_id": "x"})
    record_in(tmp_path, run, ["grpoctl"])
    provenance.note_model(run, {"source": "builtin:tiny", "kind": "builtin"})
    record_in(tmp_path, run, ["grpoctl"])
    first, second = (read_json(run.provenance) or {})["attempts"]
    assert first["model"] == {"source": "builtin:tiny", "kind": "builtin"}
    assert "model" not in second  # it has not loaded one yet


def test_a_pause_is_of_the_attempt_before_the_newest(tmp_path: Path) -> None:
    run = Home(path=tmp_path / "home").create_run("x")
    start(run, {"run_id": "x"})
    read = []
    for place in ("here", None, "there"):
        record_in(tmp_path, run, ["grpoctl"])
        read.append(provenance.paused_on(run))
        if place is not None:  # else it was killed
            provenance.note_pause(run, place)
    record_in(tmp_path, run, ["grpoctl"])
    assert [*read, provenance.paused_on(run)] == [None, "here", None, "there"]


def test_versions_name_what_is_missing() -> None:
    found = versions(["pydantic", "no-such-package"])
    assert found["no-such-package"] is None
    assert found["pydantic"] is not None


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
    record_in(run.path, run, [])
    assert provenance.record_inputs(run, custom()) == []
    expected = {str(tmp_path / "rows.jsonl"): sha("rows"), str(tmp_path / "r.py"): sha("function")}
    document = read_json(run.provenance)
    assert document is not None
    assert document["inputs"] == expected
    assert "inputs" not in document["attempts"][0]


def test_a_resumed_run_says_what_has_changed(run: RunDir, tmp_path: Path) -> None:
    record_in(run.path, run, [])
    provenance.record_inputs(run, custom())
    (tmp_path / "rows.jsonl").write_text("others")
    (tmp_path / "r.py").unlink()
    record_in(run.path, run, [])
    first, second = provenance.record_inputs(run, custom())
    assert first.startswith(
        f"{tmp_path / 'r.py'} has changed since this run began ({sha('function')[:12]} -> not there)"
    )
    assert f"({sha('rows')[:12]} -> {sha('others')[:12]})" in second
    document = read_json(run.provenance)
    assert document is not None
    assert document["inputs"][str(tmp_path / "rows.jsonl")] == sha("rows")  # what it began with
    assert document["attempts"][1]["inputs"][str(tmp_path / "rows.jsonl")] == sha("others")


def test_a_task_without_files_has_none(run: RunDir) -> None:
    record_in(run.path, run, [])
    assert provenance.record_inputs(run, load("p31").spec) == []
    assert "inputs" not in (read_json(run.provenance) or {})


def test_a_dataset_of_the_hub_is_known_by_its_revision() -> None:
    found = provenance.inputs_of(custom(hub="owner/set", revision="abc"))
    assert found["hub:owner/set[train]"] == {"config": None, "split": "train", "revision": "abc"}


def test_pictures_are_known_by_their_content(tmp_path: Path) -> None:
    for name in ("b.jpg", "a.PNG", "notes.txt"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    spec = load("p31").spec

    def inputs(folder: Path | None) -> dict[str, object]:
        task = RestorationTaskSpec(name="restoration", pictures=None if folder is None else str(folder))
        return provenance.inputs_of(spec.model_copy(update={"task": task}))

    assert inputs(tmp_path) == {str(tmp_path / name): sha(name) for name in ("a.PNG", "b.jpg")}
    assert inputs(tmp_path / "gone") == inputs(None) == {}


def test_scored_picks_and_their_embeddings_are_known_by_their_content(tmp_path: Path) -> None:
    names = {name: str(tmp_path / name) for name in ("path", "query_embeddings", "candidate_embeddings")}
    for file in names.values():
        Path(file).write_text(Path(file).name, encoding="utf-8")
    spec = load("p31").spec
    picks = ExampleSelectionTaskSpec.model_validate({"name": "example-selection", "data": names})
    inputs = provenance.inputs_of(spec.model_copy(update={"task": picks}))
    assert inputs == {file: sha(name) for name, file in names.items()}
    generated = ExampleSelectionTaskSpec(name="example-selection")
    assert provenance.inputs_of(spec.model_copy(update={"task": generated})) == {}
