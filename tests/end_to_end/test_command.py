"""A script that knows nothing of grpoctl as the trainer of runs and sweeps."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.end_to_end.cli import Cli, eventually, rows_of, step_of

pytestmark = pytest.mark.process

SCRIPT = """
import argparse, json, os, pathlib, subprocess, sys, time
parser = argparse.ArgumentParser()
for name in ("lr", "k", "steps", "note", "out", "mode"):
    parser.add_argument("--" + name)
a = parser.parse_args()
out = pathlib.Path(a.out)
out.joinpath("seen.json").write_text(json.dumps(vars(a)))
if a.mode == "hang":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    out.joinpath("pids").write_text(f"{os.getpid()} {child.pid}")
for step in range(1, int(a.steps) + 1):
    value = float(a.lr) * step
    print(f"step: {step} - reward: {value:.4f} - kl: {step / 1000}", flush=True)
    if step % 4 == 0:
        print(f"step: {step} - eval_reward: {value:.4f}", flush=True)
if a.mode == "hang":
    time.sleep(600)
if a.mode == "fail":
    sys.exit("out of luck")
"""
SPEC = """
name: mine
title: A script of my own
trainer:
  kind: command
  command: >-
    python3 train.py --lr {learning_rate} --k {num_generations} --steps {max_steps} --note '{note}'
    --out {run_dir} --mode {mode}
  params: {note: plain, mode: end}
  grace: 0.5
stages:
  grpo: {num_generations: 4, prompts_per_step: 2, max_steps: 8, learning_rate: 0.01}
profiles:
  tiny: {}
"""
NOTES = ['it\'s "quoted"', "two\nlines", "é 漢 $HOME `id` ; *", " spaces  inside "]
SWEEP = f"""
name: mine-sweep
revision: 1
title: Every value arrives
experiment: mine
axes:
  stages.grpo.learning_rate: [0.01, 0.02]
  trainer.params.note: {json.dumps(NOTES[:2])}
sampler: grid
seeds: [0]
metric: eval/reward
budget: {{completions: 64}}
profiles:
  tiny: {{}}
"""


@pytest.fixture
def user(lone: Cli) -> Cli:
    for folder, name, text in (("experiments", "mine", SPEC), ("sweeps", "mine-sweep", SWEEP)):
        (lone.folder / folder).mkdir(parents=True, exist_ok=True)
        (lone.folder / folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    (lone.folder / "train.py").write_text(SCRIPT)
    return lone


def gone(pids: list[int]) -> bool:
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return False
    return True


def test_a_run_is_recorded_as_others_are(user: Cli) -> None:
    done = user.run("run", "mine", "-p", "tiny", "--json", f"trainer.params.note={json.dumps(NOTES[2])}")
    assert done.returncode == 0, done.stderr
    run = user.only_run
    seen = json.loads((run.path / "seen.json").read_text())
    assert {**seen, "out": ""} == {"lr": "0.01", "k": "4", "steps": "8", "note": NOTES[2], "out": "", "mode": "end"}
    rows = rows_of(run.metrics)
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert [row["completions"] for row in rows] == [8 * step for step in range(1, 9)]
    assert [row["reward/mean"] for row in rows] == pytest.approx([0.01 * step for step in range(1, 9)])
    assert [row.get("eval/reward") for row in rows] == [None, None, None, 0.04, None, None, None, 0.08]
    result = done.document
    assert (result["status"], result["trainer"], result["final"]["eval/reward"]) == ("COMPLETED", "command", 0.08)
    shown = user.run("show", run.id)
    assert "nothing vouches" in " ".join(shown.stdout.split())
    assert user.run("diagnose", run.id).returncode == 0


def test_what_a_failing_program_said_is_the_message(user: Cli) -> None:
    done = user.run("run", "mine", "-p", "tiny", "--json", "trainer.params.mode=fail")
    assert done.returncode == 3
    assert "out of luck" in done.document["message"]
    assert "exit code 1" in done.document["message"]


def test_nothing_that_can_be_read_is_an_error(user: Cli) -> None:
    (user.folder / "train.py").write_text("print('hello')")
    done = user.run("run", "mine", "-p", "tiny", "--json")
    assert (done.returncode, done.document["status"]) == (3, "FAILED")
    assert "no metrics" in done.document["message"]


def test_a_hanging_program_is_ended_with_its_children_by_ctrl_c_and_by_a_kill(user: Cli) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        before = {run.path for run in user.home.runs()} if user.home.path.exists() else set()
        started = user.start("run", "mine", "-p", "tiny", "--quiet", "trainer.params.mode=hang")
        found = eventually(
            lambda before=before: [run for run in user.home.runs() if run.path not in before and step_of(run) >= 7],
            "its steps are there",
        )
        pids = [int(pid) for pid in (found[0].path / "pids").read_text().split()]
        assert not gone(pids)
        started.send(number)
        started.wait()
        eventually(lambda pids=pids: gone(pids), "script and child are gone")
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def test_a_sweep_over_the_script(user: Cli) -> None:
    done = user.run("sweep", "mine-sweep", "-p", "tiny", "--json")
    assert done.returncode == 0, done.stderr
    document = done.document
    assert [trial["status"] for trial in document["trials"]] == ["COMPLETED"] * 4
    runs = sorted((user.home.path / "sweeps").glob("*/runs/*/seen.json"))
    seen = [json.loads(path.read_text()) for path in runs]
    assert [(one["lr"], one["note"]) for one in seen] == [(lr, note) for lr in ("0.01", "0.02") for note in NOTES[:2]]
    assert document["best"]["params"]["stages.grpo.learning_rate"] == 0.02
    assert "Traceback" not in user.run("show", document["study"]).stdout


@pytest.mark.parametrize(
    ("override", "facts"),
    [
        ("trainer.command='t {learning_rte}'", ["trainer.command", "learning_rate"]),
        ('trainer.command="t \'x"', ["trainer.command", "quotation"]),
        ("trainer.grace=-1", ["trainer.grace", "> 0"]),
    ],
)
def test_one_line_for_what_cannot_run(user: Cli, override: str, facts: list[str]) -> None:
    done = user.run("run", "mine", "-p", "tiny", override)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert [fact for fact in facts if fact not in line] == []
    assert not user.home.path.exists() or not user.home.runs()
