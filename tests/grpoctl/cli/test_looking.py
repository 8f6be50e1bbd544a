"""The commands that look: what they say of runs that ended, run, died or are damaged. They change nothing but a status
that was untrue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from core.models import precision
from grpoctl.cli.doctor import examination
from grpoctl.config import load, spec_sha
from grpoctl.runs import profile
from grpoctl.runs.run_dir import Home
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl


def test_without_arguments_the_help_is_shown(grpoctl: Grpoctl) -> None:
    said = grpoctl()
    assert said.code == 2
    assert said.out == grpoctl("--help").out
    for command in ("run", "ls", "show", "validate", "check", "compare", "ui", "doctor", "sync"):
        assert f"\n  {command} " in said.out


def test_ls_lists_experiments_sweeps_and_runs(grpoctl: Grpoctl, recorded: Recorded, home: Home) -> None:
    first, second = recorded(seed=0), recorded(seed=1, ended="COLLAPSED")
    document = grpoctl("ls", "--json").document
    assert document.keys() == {"schema", "home", "experiments", "sweeps", "studies", "runs"}
    assert document["home"] == str(home.path)
    assert {"p30", "p30-sound", "p31"} <= {entry["name"] for entry in document["experiments"]}
    runs = [(entry["run_id"], entry["status"], entry["step"], entry["eval/reward"]) for entry in document["runs"]]
    assert runs == [(second.id, "COLLAPSED", 3, 0.6), (first.id, "COMPLETED", 3, 0.6)]
    words = grpoctl("ls").out
    assert words.index("Experiments") < words.index("Sweeps") < words.index("Runs")
    assert first.id in words


def test_a_run_whose_process_died_is_interrupted_at_its_last_step(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(steps=3, ended="RUNNING")
    (entry,) = grpoctl("ls", "--json").document["runs"]
    assert (entry["status"], entry["step"]) == ("INTERRUPTED", 3)
    assert '"INTERRUPTED"' in run.status.read_text()


def test_a_run_that_is_held_is_left_alone(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    with run.hold():
        (entry,) = grpoctl("ls", "--json").document["runs"]
        shown = grpoctl("show", run.id, "--json").document
    assert entry["status"] == shown["status"] == "RUNNING"
    assert shown["metrics"]["reward/mean"] == 0.3


@pytest.mark.parametrize("name", ["status.json", "provenance.json", "result.json"])
def test_a_damaged_run_does_not_hide_the_others(grpoctl: Grpoctl, recorded: Recorded, name: str) -> None:
    sound, damaged = recorded(seed=0), recorded(seed=1)
    (damaged.path / name).write_text('{"schema": 1, ')
    listed = {entry["run_id"]: entry["status"] for entry in grpoctl("ls", "--json").document["runs"]}
    assert listed == {sound.id: "COMPLETED", damaged.id: "DAMAGED"}
    assert grpoctl("ls").code == grpoctl("show", "p31").code == 0
    assert sound.id in [entry["run_id"] for entry in grpoctl("show", "p31", "--json").document["runs"]]


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


def test_a_dtype_of_auto_is_settled_and_said_before_a_run_has_a_name(grpoctl: Grpoctl) -> None:
    fastest = "bfloat16" if precision.machine_facts().bfloat16 else "float32"
    asked = ("run", "p31", "--dry-run", "--profile", "small", "--json")
    said, stated = (grpoctl(*asked, f"model.dtype={dtype}") for dtype in ("auto", fastest))
    assert said.document == stated.document  # the same run, whoever chose
    assert said.document["spec"]["model"]["dtype"] == fastest
    assert said.err.count(f"dtype {fastest} (auto: this ") == 1
    assert len(said.err.splitlines()) == 1
    assert "dtype" not in stated.err
    assert "dtype" not in grpoctl(*asked, "model.dtype=auto", "model.lora=null").err  # it could be nothing else


def test_a_dry_run_resolves_and_writes_nothing(grpoctl: Grpoctl, home: Home) -> None:
    document = grpoctl("run", "p31", "--dry-run", "--profile", "tiny", "--seeds", "4,2", "--json").document
    assert document["dry_run"]
    assert [run["seed"] for run in document["runs"]] == [4, 2]
    spec = load("p31", profile="tiny").spec
    assert (document["spec_sha"], document["experiment"]) == (spec_sha(spec), "p31")
    spent = grpoctl("run", "p31", "--dry-run", "--profile", "tiny", "budget.tokens=5000").out
    assert "steps x 16 completions until 5000 tokens are spent" in spent
    words = grpoctl("run", "p31", "--dry-run", "--profile", "tiny").out
    assert f"p31-tiny-s0-{spec_sha(spec)[:8]}-N" in words
    assert "96 steps x 16 completions" in words
    assert not home.path.exists()


def test_resuming_what_has_ended_gives_its_result(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="STOPPED_EARLY")
    said = grpoctl("run", "p31", "--resume", "--profile", "tiny", "--json")
    assert said.code == 0
    assert said.document["run_id"] == run.id
    assert "nothing to resume" in said.err


def test_resuming_a_guards_stop_has_its_exit_code(grpoctl: Grpoctl, recorded: Recorded) -> None:
    recorded(ended="COLLAPSED")
    assert grpoctl("run", "p31", "--resume", "--profile", "tiny").code == 4


def test_resuming_a_run_that_is_held_is_refused(grpoctl: Grpoctl, recorded: Recorded) -> None:
    run = recorded(ended="RUNNING")
    with run.hold():
        said = grpoctl("run", "p31", "--resume", "--profile", "tiny", "--json")
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert run.id in line


def test_doctor_says_what_is_wrong_and_goes_on(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOCTL_HOME", str(home.path / "deep" / "down"))
    assert {check["name"]: check["ok"] for check in examination()}["home"]
    assert not home.path.exists()
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("GRPOCTL_HOME", str(file))
    checks = {check["name"]: check for check in examination()}
    assert not checks["home"]["ok"]
    assert "Not a directory" in checks["home"]["detail"]
    assert checks["python"]["ok"]
    assert "model cache" in checks


def test_doctor_looks_at_every_model_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "home"))
    for name in ("builtin-tiny-1", "gguf-2-float32", "gguf-2-float32.work-3"):  # the last is not made yet
        (tmp_path / "grpoctl" / name).mkdir(parents=True)
    (cache,) = [check for check in examination() if check["name"] == "model cache"]
    names = "builtin-tiny-1, gguf-2-float32"
    assert cache["detail"].endswith(f"({names}; damaged, made again when used: {names})")  # without checksums


def test_ui_says_what_it_would_start(grpoctl: Grpoctl) -> None:
    (line,) = grpoctl("ui", "--dry-run", "--port", "5005").out.splitlines()
    assert "-m mlflow ui --host 127.0.0.1 --port 5005" in line


@pytest.mark.parametrize("named", [None, "postgresql://u:s3cret@h/runs"])
def test_what_ui_would_start_can_be_pasted_whole(
    grpoctl: Grpoctl, home: Home, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    """On a narrow terminal too, with the environment that says which store; its password stays in the shell's own."""
    monkeypatch.setenv("COLUMNS", "40")
    if named is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", named)
    (line,) = grpoctl("ui", "--dry-run").out.splitlines()
    assert "s3cret" not in line
    words, _, rest = line.partition(f"{sys.executable} ")
    assert rest == "-P -m mlflow ui --host 127.0.0.1 --port 5000"
    printed = subprocess.run(["sh", "-c", f"{words}env"], capture_output=True, text=True, check=True).stdout
    assert f"MLFLOW_BACKEND_STORE_URI={named or f'sqlite:///{home.mlflow_store}'}" in printed.splitlines()


@pytest.mark.parametrize("free", [None, 10**15])
@pytest.mark.parametrize("command", [("show", "p31"), ("show", "lr-study"), ("check", "p31", "-p", "auto")])
def test_what_is_shown_is_what_would_run(
    grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch, free: int | None, command: tuple[str, ...]
) -> None:
    """The one rule, whoever asks; here by what `run --dry-run` says it would take."""
    monkeypatch.setattr(profile, "_cuda_memory", lambda: free)
    monkeypatch.setattr(profile, "_count", lambda model: 1)  # the model is at hand
    would = grpoctl("run", "p31", "--dry-run", "--json").document["profile"]
    assert would == ("tiny" if free is None else "full")
    assert grpoctl(*command, "--json").document["profile"] == would


def test_what_cannot_be_run_can_be_shown(grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA machine without room for `full`: `run` asks which profile, `show` shows the spec as it is written."""
    monkeypatch.setattr(profile, "_cuda_memory", lambda: 1)
    monkeypatch.setattr(profile, "_count", lambda model: 10**9)
    assert grpoctl("run", "p31", "--dry-run").code == 2
    said = grpoctl("show", "p31")
    assert (said.code, "profile: full (auto takes none: " in said.out) == (0, True)
