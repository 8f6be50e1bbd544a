"""`grpoctl sweep` as its user meets it: from the command line, interrupted, killed, twice at once, on a full disk."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from grpoctl.runs.study_dir import StudyDir, studies
from tests.end_to_end.cli import Cli, Done, eventually, rows_of
from tests.end_to_end.scenarios import without_mlflow

pytestmark = pytest.mark.process

SWEEP = """\
name: small-study
title: A sweep of a few seconds
experiment: p31
settings: {evaluation.eval_steps: 1, task.eval_prompts: 2, checkpoints.save_steps: 1}
axes:
  stages.grpo.num_generations: [2, 4]
  stages.grpo.learning_rate: [1.0e-5, 2.0e-3]
sampler: random
pruner: {name: patient-median, patience: 1, warmup: 0.5, min_trials: 1}
seeds: [0, 1]
budget: {completions: 16, generation_batch_size: 8}
trials: 3
"""
SMALL = ("sweep", "small-study", "--profile", "tiny", "--json")
INLINE = (*SMALL, "--inline")


def with_sweep(cli: Cli, text: str = SWEEP) -> Cli:
    """The user, who has written that sweep."""
    folder = cli.folder / "sweeps"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small-study.yaml").write_text(text, encoding="utf-8")
    return cli


def study_of(cli: Cli) -> StudyDir:
    """The one study there is; one that is not there before it was begun."""
    return next(iter(studies(cli.home)), StudyDir(path=cli.home.path / "sweeps" / "none yet"))


def document(study: StudyDir) -> dict[str, Any]:
    """Its sweep.json; empty before there is one."""
    try:
        found: dict[str, Any] = json.loads(study.state.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def told(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What of a study must not depend on how it came about."""
    keys = ("number", "params", "status", "score", "interval", "values", "statuses", "completions", "tokens", "curve")
    return [{key: trial[key] for key in keys} for trial in found["trials"]]


def metrics(study: StudyDir) -> dict[str, bytes]:
    """The rows of each run."""
    return {run.id.removeprefix(study.id): run.metrics.read_bytes() for run in study.runs()}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, zygote: Any) -> tuple[Cli, Done]:
    """The sweep left alone, in one process."""
    cli = with_sweep(without_mlflow(tmp_path_factory.mktemp("sweep") / "user", zygote))
    return cli, cli.run(*INLINE)


def test_a_sweep_says_what_the_contract_says(ended: tuple[Cli, Done]) -> None:
    cli, done = ended
    assert done.returncode == 0, done.stderr
    found = done.document
    assert found.keys() >= {"schema", "study", "status", "trials", "best", "importances", "findings"}
    trial = {"number", "params", "status", "score", "interval", "seeds", "attempts", "runs"}
    assert all(one.keys() >= trial for one in found["trials"])
    assert (found["status"], len(found["trials"])) == ("COMPLETED", 3)
    assert found == document(study_of(cli))
    shown = cli.run("show", "small-study", "--json")
    assert shown.document == found
    assert found["best"]["score"] == max(one["score"] for one in found["trials"] if one["status"] == "COMPLETED")
    for one in found["trials"]:
        assert {Path(run).name for run in one["runs"]} <= {
            f"{found['study']}-t{one['number']:04d}-s{s}" for s in (0, 1)
        }
        for run in one["runs"]:
            rows = rows_of(Path(run) / "metrics.jsonl")
            assert rows[-1]["completions"] <= 16


STAGED = """\
name: small-study
title: Supervised steps, which spend nothing, before GRPO
experiment: staged
settings:
  evaluation.eval_steps: 2
  task.eval_prompts: 2
  task.train_prompts: 8
  stages.supervised.epochs: 0.5
  stages.blended.epochs: 0.5
axes: {stages.full.learning_rate: [1.0e-5, 2.0e-3]}
sampler: grid
pruner: none
seeds: [3, 1]
budget: {completions: 24}
"""


def curve_of_rows(trial: dict[str, Any], budget: int) -> list[list[float]]:
    """What the trial's curve must be: of each run, in the order of its seeds, every evaluation after the start."""
    return [
        [seed, row["completions"] / budget, row["eval/reward"]]
        for seed, run in zip(trial["seeds"], trial["runs"], strict=True)
        for row in rows_of(Path(run) / "metrics.jsonl")
        if row["step"] > 0 and "eval/reward" in row
    ]


def test_each_point_of_a_curve_is_a_row_of_its_run(ended: tuple[Cli, Done]) -> None:
    for trial in ended[1].document["trials"]:
        assert trial["curve"] == curve_of_rows(trial, 16)


def test_evaluations_of_stages_that_spend_nothing_replace_no_others(tmp_path: Path, zygote: Any) -> None:
    """Seed 1's supervised evaluations, at share 0, come after seed 3's end, at share 1, in all that is kept of them."""
    cli = with_sweep(without_mlflow(tmp_path / "user", zygote), STAGED)
    done = cli.run(*INLINE)
    assert done.returncode == 0, done.stderr
    for trial in done.document["trials"]:
        assert trial["curve"] == curve_of_rows(trial, 24)
        assert {(seed, share) for seed, share, _ in trial["curve"]} >= {(3, 0.0), (3, 1.0), (1, 0.0), (1, 1.0)}
        final = [json.loads((Path(run) / "result.json").read_text())["final"]["eval/reward"] for run in trial["runs"]]
        assert [value for _, share, value in trial["curve"] if share == 1.0] == final == trial["values"]


def test_show_csv_has_a_line_for_each_trial(ended: tuple[Cli, Done]) -> None:
    cli, done = ended
    lines = list(csv.DictReader(io.StringIO(cli.run("show", "small-study", "--csv").stdout)))
    assert [int(line["number"]) for line in lines] == [0, 1, 2]
    assert [float(line["score"]) for line in lines] == [trial["score"] for trial in done.document["trials"]]


def test_ls_lists_the_study_and_not_its_runs(ended: tuple[Cli, Done]) -> None:
    cli, done = ended
    found = cli.run("ls", "--json").document
    assert [study["study"] for study in found["studies"]] == [done.document["study"]]
    assert found["runs"] == []


def test_the_winner_becomes_an_experiment_that_runs(ended: tuple[Cli, Done]) -> None:
    cli, done = ended
    made = cli.run("promote", "small-study", "--as", "my-grpo")
    assert made.returncode == 0, made.stderr
    again = cli.run("promote", "small-study", "--as", "my-grpo")
    assert (again.returncode, len(again.errors)) == (2, 1)
    assert cli.run("validate", "my-grpo").returncode == 0
    run = cli.run("run", "my-grpo", "--profile", "tiny", "--json", "--quiet")
    assert run.returncode == 0, run.stderr
    best = done.document["trials"][done.document["best"]["number"]]
    assert run.document["final"]["eval/reward"] == pytest.approx(best["values"][0], abs=1e-12)


def test_the_winner_is_confirmed_on_seeds_that_the_study_did_not_use(ended: tuple[Cli, Done]) -> None:
    cli, done = ended
    best = done.document["best"]["number"]
    words = ("promote", "small-study", "--as", "confirmed", "--quiet", "--confirm")
    one = cli.run(*words, "1", "--json")
    assert one.returncode == 0, one.stderr
    first = one.document["confirm"]
    assert (first["seeds"], first["interval"], first["inside"]) == ([2], None, None)
    both = cli.run(*words, "2", "--json")  # goes on with what there is
    confirm = both.document["confirm"]
    assert (confirm["asked"], confirm["seeds"], confirm["statuses"]) == (2, [2, 3], ["COMPLETED"] * 2)
    assert confirm["runs"][0] == first["runs"][0]
    assert confirm["values"][0] == first["values"][0]
    assert confirm["mean"] == pytest.approx(sum(confirm["values"]) / 2)
    assert confirm["observed_bias"] == pytest.approx(done.document["trials"][best]["score"] - confirm["mean"])
    low, high = confirm["interval"]
    assert low <= confirm["mean"] <= high
    assert "fresh seeds" in confirm["interval_kind"]
    ordinary = cli.run("show", Path(confirm["runs"][1]).name, "--json").document
    assert (ordinary["experiment"], ordinary["seed"]) == ("confirmed", 3)
    assert cli.run(*words, "2", "--json").document == both.document  # nothing is run again
    assert "2 fresh seeds" in cli.run(*words, "2").stdout
    with study_of(cli).hold_for_confirmation():  # somebody else is at it
        busy = cli.run(*words, "3")
    assert (busy.returncode, len(busy.errors)) == (2, 1)
    file = cli.folder / "experiments" / "confirmed.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("learning_rate: ", "learning_rate: 3"), encoding="utf-8")
    changed = cli.run(*words, "2")
    assert (changed.returncode, len(changed.errors)) == (2, 1)
    assert "confirmed.yaml" in changed.stderr


@pytest.mark.slow  # four workers import torch; a driver that is killed again and again is in test_driver.py
def test_a_worker_and_the_driver_are_killed_and_nothing_is_lost(tmp_path: Path, ended: tuple[Cli, Done]) -> None:
    cli, _ = ended
    user = with_sweep(without_mlflow(tmp_path / "user", cli.zygote))
    started = user.start(*SMALL, "--parallel", "2", "--quiet")
    eventually(lambda: [run for run in study_of(user).runs() if rows_of(run.metrics)], "a run has begun")
    os.kill(workers(started.pid)[0], signal.SIGKILL)
    eventually(lambda: document(study_of(user)).get("failures"), "the death was noticed")
    os.kill(started.pid, signal.SIGKILL)
    assert started.wait().returncode == -signal.SIGKILL
    eventually(lambda: not any(run.is_held() for run in study_of(user).runs()), "the workers ended with their parent")
    assert user.run("show", "small-study").stdout.count("INTERRUPTED") >= 1
    resumed = user.run(*SMALL, "--parallel", "2", "--resume", "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert len(studies(user.home)) == 1
    # Inline learns from the trial before, two workers from the one before that: a random sampler chooses the same.
    assert [trial["params"] for trial in resumed.document["trials"]] == [
        t["params"] for t in ended[1].document["trials"]
    ]
    assert all(trial["status"] in ("COMPLETED", "PRUNED") for trial in resumed.document["trials"])
    alone = metrics(study_of(cli))
    both = metrics(study_of(user))
    for name in alone.keys() & both.keys():
        shorter, longer = sorted((alone[name], both[name]), key=len)  # one of them may have been pruned
        assert longer.startswith(shorter)


def workers(pid: int) -> list[int]:
    """The worker processes of a driver."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"grpoctl.executors.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_ctrl_c_and_going_on_is_the_sweep_left_alone(tmp_path: Path, ended: tuple[Cli, Done]) -> None:
    cli, done = ended
    user = with_sweep(without_mlflow(tmp_path / "user", cli.zygote))
    started = user.start(*INLINE)
    eventually(lambda: [run for run in study_of(user).runs() if len(rows_of(run.metrics)) > 1], "a run has stepped")
    twice = user.run(*INLINE)
    assert (twice.returncode, twice.stdout, len(twice.errors)) == (2, "", 1)
    assert study_of(user).id in twice.errors[0]
    one_run = user.run("stop", study_of(user).runs()[0].id)  # the driver would begin it again
    assert (one_run.returncode, len(one_run.errors)) == (2, 1)
    assert f"grpoctl stop {study_of(user).id}" in one_run.errors[0]
    os.kill(started.pid, signal.SIGINT)
    stopped = started.wait()
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.document["status"] == "INTERRUPTED"
    assert "INTERRUPTED" in {trial["status"] for trial in stopped.document["trials"]}
    resumed = user.run(*INLINE, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert told(resumed.document) == told(done.document)
    assert metrics(study_of(user)) == metrics(study_of(cli))
    again = user.run(*INLINE, "--resume")
    assert told(again.document) == told(done.document)
    assert len(studies(user.home)) == 1


def test_a_study_that_is_asked_to_stop_ends_with_what_is_under_way(tmp_path: Path, ended: tuple[Cli, Done]) -> None:
    user = with_sweep(without_mlflow(tmp_path / "user", ended[0].zygote))
    started = user.start(*INLINE, "trials=4", "pruner=none")
    eventually(lambda: [run for run in study_of(user).runs() if rows_of(run.metrics)], "a run has begun")
    assert user.run("sweep", "small-study", "--stop").returncode == 0
    stopped = started.wait()
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.document["status"] == "STOPPED"
    assert {trial["status"] for trial in stopped.document["trials"]} == {"COMPLETED"}
    assert len(stopped.document["trials"]) < 4
    nobody = user.run("sweep", "small-study", "--stop")
    assert (nobody.returncode, len(nobody.errors)) == (2, 1)


def test_a_full_disk_stops_the_sweep_and_costs_nothing(tmp_path: Path, ended: tuple[Cli, Done]) -> None:
    cli, done = ended
    user = with_sweep(without_mlflow(tmp_path / "user", cli.zygote))
    full = user.run(*INLINE, fsize=116_500)  # room for the study.db of 112 KiB, not for an optimizer of 115
    assert full.returncode == 3
    assert "Traceback" not in full.stderr
    assert "--resume" in full.errors[-1]
    resumed = user.run(*INLINE, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert told(resumed.document) == told(done.document)
    assert {trial["attempts"] for trial in resumed.document["trials"]} == {1}


def test_a_plan_and_the_trials_to_come_write_nothing(tmp_path: Path, ended: tuple[Cli, Done]) -> None:
    user = with_sweep(without_mlflow(tmp_path / "user", ended[0].zygote))
    plan = user.run(*SMALL, "--dry-run").document
    assert (plan["trials"], plan["runs"], plan["completions"], plan["hours"]) == (3, 6, 96, None)
    storage = ("--storage", "sqlite://u:hunter22@nohost/x", "--dry-run")
    told = user.run("sweep", "small-study", "--profile", "tiny", *storage)
    assert "start it: grpoctl sweep small-study --profile tiny --storage 'sqlite://u:***@nohost/x'" in told.stdout
    assert "hunter22" not in told.stdout + told.stderr
    missing = user.run("sweep", "small-study", "--profile", "tiny", "--storage", "mysql://u:hunter22@h/x", "--dry-run")
    assert (missing.returncode, len(missing.errors)) == (2, 1)
    assert "not installed" in missing.errors[0]
    trials = user.run(*SMALL, "--print-trials").document["trials"]
    assert [trial["params"] for trial in trials] == [trial["params"] for trial in ended[1].document["trials"]]
    assert not user.home.path.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--inline", "--parallel", "2"), "--inline"),
        (("--per-gpu", "2"), "--gpus"),
        (("--gpus", "zero"), "zero"),
        (("--storage", "nosuch://x"), "nosuch"),
        (("--detach", "--storage", "nosuch://x"), "nosuch"),
        (("nosuch.key=1",), "nosuch"),
        (("--profile", "nosuch"), "nosuch"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    tmp_path: Path, ended: tuple[Cli, Done], options: tuple[str, ...], said: str
) -> None:
    user = with_sweep(without_mlflow(tmp_path / "user", ended[0].zygote))
    done = user.run("sweep", "small-study", "--profile", "tiny", *options)
    assert (done.returncode, done.stdout, len(done.errors)) == (2, "", 1)
    assert said in done.errors[0]
    assert studies(user.home) == []
