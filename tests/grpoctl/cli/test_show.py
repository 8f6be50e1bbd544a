"""`grpoctl show`: experiments with what a profile and overrides change, runs by name or path, and their samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.tasks.workflow_dsl.task import WorkflowDslTask
from grpoctl.config import load, spec_sha
from grpoctl.files import replace_json
from grpoctl.runs import profile
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl


def test_show_an_experiment_with_what_a_profile_and_overrides_change(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded()
    document = grpoctl("show", "P31", "--profile", "tiny", "beta=0.5", "--json").document
    spec = load("p31", profile="tiny", overrides=["beta=0.5"]).spec
    assert (document["experiment"], document["revision"], document["profile"]) == ("p31", spec.revision, "tiny")
    assert document["spec_sha"] == spec_sha(spec)
    assert document["changed"]["model.source"] == ["Qwen/Qwen2.5-7B-Instruct", "builtin:tiny"]
    assert document["changed"]["stages.grpo.beta"] == [0.005, 0.5]
    assert document["spec"]["stages"]["grpo"]["num_generations"] == 8
    assert [entry["run_id"] for entry in document["runs"]] == [run.id]
    words = grpoctl("show", "p31", "--profile", "tiny").out
    assert "builtin:tiny" in words
    assert run.id in words


@pytest.mark.parametrize("ended", ["COMPLETED", "FAILED", "INTERRUPTED"])
def test_show_a_run_that_ended(grpoctl: Grpoctl, recorded: Recorded, ended: str) -> None:
    run = recorded(ended=ended)
    document = grpoctl("show", run.id, "--json").document
    assert (document["run_id"], document["status"], document["final"]["eval/reward"]) == (run.id, ended, 0.6)
    words = grpoctl("show", run.id).out
    assert "0.500 -> 0.600" in words
    assert "+0.100 ± 0.028" in words  # sqrt(0.01^2 + 0.01^2) = 0.01414, times 1.96
    assert ("as told" in words) == (ended != "COMPLETED")  # why it ended, where that is not that it was done


def test_a_run_is_found_by_path_also_where_it_was_moved(grpoctl: Grpoctl, recorded: Recorded, tmp_path: Path) -> None:
    run = recorded()
    moved = tmp_path / "moved"
    run.path.rename(moved)
    assert grpoctl("show", "./moved", "--json").document["run_id"] == run.id
    assert grpoctl("show", str(moved), "--samples").code == 0


def test_a_runs_directory_is_where_it_is_now(grpoctl: Grpoctl, recorded: Recorded, tmp_path: Path) -> None:
    """The result names the place where it was run."""
    run = recorded()
    replace_json(run.result, {**json.loads(run.result.read_text()), "run_dir": str(run.path)})
    moved = tmp_path / "moved"
    run.path.rename(moved)
    assert grpoctl("show", "./moved", "--json").document["run_dir"] == str(moved)
    assert str(run.path) not in grpoctl("show", "./moved").out


def test_a_task_without_tables_of_its_own_shows_the_last_step(
    grpoctl: Grpoctl, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(WorkflowDslTask, "tables")
    run = recorded()
    (table,) = grpoctl("show", run.id, "--samples", "--json").document["tables"]
    assert [(row[1], row[2]) for row in table["rows"]] == [
        ("Custom -> Programmer", "0.000"),
        ("Custom -> Programmer", "0.100"),
    ]
    assert "Custom -> Programmer" in grpoctl("show", run.id, "--samples").out


def test_the_samples_of_a_step_the_worst_first(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded()
    whole = grpoctl("show", run.id, "--step", "2", "--json").document
    assert (whole["run_id"], whole["step"]) == (run.id, 2)
    assert [sample["reward"] for sample in whole["samples"]] == [0.0, 0.1]
    (worst,) = grpoctl("show", run.id, "--step", "2", "--worst", "1", "--json").document["samples"]
    assert worst["reward"] == 0.0
    assert grpoctl("show", run.id, "--worst", "1", "--json").document["step"] == 3  # the last step
    assert "Custom -> Programmer" in grpoctl("show", run.id, "--step", "2").out


def test_a_step_without_samples_says_which_have_some(grpoctl: Grpoctl, recorded: Recorded) -> None:
    said = grpoctl("show", recorded().id, "--step", "9")
    assert (said.code, said.out) == (2, "")
    assert "1 to 3" in said.err


def test_a_missing_reward_comes_before_the_worst(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded()
    run.samples.write_text(run.samples.read_text().replace('"reward": 0.1', '"reward": null'))
    samples = grpoctl("show", run.id, "--step", "2", "--worst", "2", "--json").document["samples"]
    assert [sample["reward"] for sample in samples] == [None, 0.0]
    assert "missing" in grpoctl("show", run.id, "--step", "2").out


@pytest.mark.parametrize("free", [None, 10**15])
@pytest.mark.parametrize("command", [("show", "p31"), ("show", "lr-study"), ("check", "p31", "-p", "auto")])
def test_what_is_shown_is_what_would_run(
    grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch, free: int | None, command: tuple[str, ...]
) -> None:
    """The one rule, whoever asks; here by what `run --dry-run` says it would take."""
    monkeypatch.setattr(profile, "free_cuda_memory", lambda: free)
    monkeypatch.setattr(profile, "parameter_count", lambda model: 1)  # the model is at hand
    would = grpoctl("run", "p31", "--dry-run", "--json").document["profile"]
    assert would == ("tiny" if free is None else "full")
    assert grpoctl(*command, "--json").document["profile"] == would


def test_what_cannot_be_run_can_be_shown(grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA machine without room for `full`: `run` asks which profile, `show` shows the spec as it is written."""
    monkeypatch.setattr(profile, "free_cuda_memory", lambda: 1)
    monkeypatch.setattr(profile, "parameter_count", lambda model: 10**9)
    assert grpoctl("run", "p31", "--dry-run").code == 2
    said = grpoctl("show", "p31")
    assert (said.code, "profile: full (auto takes none: " in said.out) == (0, True)


@pytest.mark.parametrize(
    "extra", [("beta=0",), ("nosuch=0",), ("-p", "full"), ("beta=0", "--step", "2"), ("-p", "tiny", "--samples"),
              ("--samples", "--step", "2"), ("--samples", "--worst", "1"), ("--csv", "--step", "2")],
)  # fmt: skip
def test_what_changes_nothing_of_a_run_that_was_run_is_refused(
    grpoctl: Grpoctl, recorded: Recorded, extra: tuple[str, ...]
) -> None:
    said = grpoctl("show", recorded().id, *extra)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    named = "--profile" if extra[0] == "-p" else extra[0]
    assert said.err.startswith("error: got ")
    assert named in said.err
