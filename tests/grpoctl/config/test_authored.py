"""Relative paths in specs: from the file they stand in, else from here; in overrides from here."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config import RunSpec
from grpoctl.config import Library, Revisions, dump, load, read_resolved
from grpoctl.config.authored import read_authored

SPEC = """
name: mine
extends: p31
task:
  name: custom
  data: {path: ../data/rows.jsonl}
  eval_data: {path: rows.csv}
  prompt: "{q}"
  rewards:
    - {function: ../rewards.py:right}
    - {function: ./near.py:right, name: near}
    - {function: package.module:right, name: module}
    - {function: ~/mine.py:right, name: home}
profiles:
  tiny:
    task: {test_data: {path: ./test.jsonl}, rewards: [{function: tiny.py:right}]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, with the spec above in experiments/; the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "mine.yaml").write_text(SPEC)
    return tmp_path


def functions(spec: RunSpec) -> list[str]:
    return [reward.function for reward in spec.task.rewards]  # type: ignore[union-attr]


def test_paths_count_from_their_file(project: Path) -> None:
    spec = load("mine").spec
    assert spec.task.data.path == str(project / "data" / "rows.jsonl")  # type: ignore[union-attr]
    assert spec.task.eval_data.path == str(project / "experiments" / "rows.csv")  # type: ignore[union-attr]
    assert functions(spec) == [
        f"{project}/rewards.py:right",
        f"{project}/experiments/near.py:right",
        "package.module:right",
        f"{project}/home/mine.py:right",
    ]


def test_a_folder_of_pictures_is_a_path(project: Path) -> None:
    (project / "experiments" / "mine.yaml").write_text(
        "name: mine\nextends: p31\ntask: {name: restoration, pictures: photos}\n"
    )
    layer = read_authored(project / "experiments" / "mine.yaml", Library()).layer
    assert layer.tree["task"]["pictures"] == str(project / "experiments" / "photos")  # type: ignore[index, call-overload]


def test_embeddings_are_paths_too(project: Path) -> None:
    files = "{path: x.json, query_embeddings: q.npy, candidate_embeddings: /there/c.npy}"
    (project / "experiments" / "picks.yaml").write_text(
        f"name: picks\nextends: p31\ntask: {{name: example-selection, data: {files}}}\n"
    )
    layer = read_authored(project / "experiments" / "picks.yaml", Library()).layer
    assert layer.tree["task"]["data"] == {  # type: ignore[index, call-overload]
        "path": str(project / "experiments" / "x.json"),
        "query_embeddings": str(project / "experiments" / "q.npy"),
        "candidate_embeddings": "/there/c.npy",
    }


def test_those_of_a_profile_too(project: Path) -> None:
    spec = load("mine", profile="tiny").spec
    assert spec.task.test_data.path == str(project / "experiments" / "test.jsonl")  # type: ignore[union-attr]
    assert functions(spec) == [f"{project}/experiments/tiny.py:right"]


def test_where_only_the_current_folder_has_the_file_it_is_that_one(project: Path) -> None:
    (project / "near.py").touch()
    assert functions(load("mine").spec)[1] == f"{project}/near.py:right"
    (project / "experiments" / "near.py").touch()  # the file's own neighbour comes first
    assert functions(load("mine").spec)[1] == f"{project}/experiments/near.py:right"


def test_overrides_count_from_here(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    overrides = ["task.data.path=x.csv", "task.rewards=[{function: ../r.py:f}]", "model.source=./weights"]
    spec = load(project / "experiments" / "mine.yaml", overrides=overrides).spec
    assert spec.task.data.path == str(project / "below" / "x.csv")  # type: ignore[union-attr]
    assert functions(spec) == [f"{project}/r.py:f"]
    assert spec.model.source == str(project / "below" / "weights")
    assert load("p31", overrides=["model.source=owner/model"]).spec.model.source == "owner/model"


def test_the_same_spec_from_wherever_it_is_loaded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = load("mine").spec
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    assert load(project / "experiments" / "mine.yaml").spec == here
    assert load("../experiments/mine.yaml").spec == here


def test_what_is_recorded_finds_its_files_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, revisions = load("mine"), Revisions(project / "home" / "revisions")
    assert revisions.recorded_as(loaded.spec, loaded.authored).label == "mine@1"
    (project / "spec.yaml").write_text(dump(loaded.spec))
    monkeypatch.chdir("/")
    assert read_resolved(project / "spec.yaml") == loaded.spec
    assert load("mine@1", revisions=revisions).spec == loaded.spec


def test_what_is_no_path_stays_what_it_is(project: Path) -> None:
    assert load("p31").spec.model.source == "Qwen/Qwen2.5-7B-Instruct"
    (project / "experiments" / "other.yaml").write_text("name: other\nextends: p31\ntask: {name: gsm8k, path: data}\n")
    assert load("other").spec.task.path == str(project / "experiments" / "data")  # type: ignore[union-attr]
    (project / "experiments" / "other.yaml").write_text("name: other\nextends: p31\ntask: {name: gsm8k}\n")
    assert load("other").spec.task.path is None  # type: ignore[union-attr]


RESTATES = """
name: again
extends: p31
stages:
  grpo:
    num_generations: 8
    prompts_per_step: 4
    learning_rate: 2.0e-6
"""


def test_what_a_file_sets_as_its_parents_have_it_is_restated(project: Path) -> None:
    file = project / "experiments" / "again.yaml"
    file.write_text(RESTATES)
    loaded = load("again")
    assert loaded.restated == {"stages.grpo.num_generations": 8, "stages.grpo.learning_rate": 2e-6}
    assert load("again", overrides=["num_generations=4"]).restated == {"stages.grpo.learning_rate": 2e-6}
    # Named anew, a method sets aside what was said of its axes: then the same value has to be said again.
    file.write_text(RESTATES + "    method: gtpo\n    epsilon_high: 0.28\n")
    assert load("p36").restated == {}
    assert "stages.grpo.epsilon_high" not in load("again").restated
