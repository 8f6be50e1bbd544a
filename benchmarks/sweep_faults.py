"""A sweep that is killed at random moments, against the same sweep left alone: the same trials, values and ranking?

    python benchmarks/sweep_faults.py [--kills 20] [--seed 0] [--adaptive] [--json]

`--adaptive` is a sweep with `allocation: adaptive`, whose runs pause and are gone on with. Each kill is a SIGKILL to
the driver, to one of its workers, or to all of them at once; after one that hit the driver the sweep is gone on with by
--resume. Then the two studies are compared: sweep.json without times and attempts (its jobs and what the search
believes too), the metrics of every run byte by byte, and what Optuna's database holds. Exit code 1 where anything
differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SWEEP = """\
name: fault-study
title: A small sweep to be killed
experiment: p31
settings: {evaluation.eval_steps: 1, task.eval_prompts: 4, checkpoints.save_steps: 2}
axes:
  stages.grpo.num_generations: [2, 4, 8]
  stages.grpo.learning_rate: {low: 1.0e-5, high: 2.0e-2, log: true}
seeds: [0, 1]
budget: {completions: COMPLETIONS, generation_batch_size: 16}
trials: 8
"""
PRUNED = "pruner: {name: patient-median, patience: 2, warmup: 0.2, min_trials: 2}\n"
ADAPTIVE = "allocation: adaptive\n"
COMPLETIONS = {PRUNED: 80, ADAPTIVE: 240}  # of a run; with 80 an adaptive study is over before the twentieth kill
COMPARED = ("number", "params", "status", "score", "interval", "seeds", "values", "statuses", "completions", "curve")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A working directory with the sweep's file and a home of its own."""

    path: Path

    @property
    def study(self) -> Path:
        """The directory of its only study."""
        (found,) = (entry for entry in (self.path / ".grpoctl" / "sweeps").iterdir() if entry.is_dir())
        return found

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """The sweep, in a session of its own."""
        command = [sys.executable, "-P", "-m", "grpoctl.app", "sweep", "fault-study", "--profile", "tiny"]
        root = str(Path(__file__).resolve().parents[1])
        return subprocess.Popen(
            [*command, "--parallel", "2", "--quiet", *options],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": root, "GRPOCTL_HOME": str(self.path / ".grpoctl")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )


def place(folder: Path, more: str) -> Place:
    """A folder with the sweep in it, and these keys of it."""
    (folder / "sweeps").mkdir(parents=True)
    text = SWEEP.replace("COMPLETIONS", str(COMPLETIONS[more])) + more
    (folder / "sweeps" / "fault-study.yaml").write_text(text, encoding="utf-8")
    return Place(path=folder)


def children(pid: int) -> list[int]:
    """The workers of a driver."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(words[1]) == pid and b"executors.worker" in command:
                found.append(int(entry.name))
    return found


def written(where: Place) -> int:
    """Rows that the runs of the study have, however long that took: a slow machine is killed at the same moments."""
    return sum(path.read_bytes().count(b"\n") for path in where.path.glob(".grpoctl/sweeps/*/runs/*/metrics.jsonl"))


def victims(driver: int, dice: random.Random) -> tuple[str, list[int]]:
    """Who is killed this time."""
    workers = children(driver)
    kind = dice.choice(["driver", "worker", "all"])
    if kind == "worker" and workers:
        return kind, [dice.choice(workers)]
    return ("all", [driver, *workers]) if kind == "all" else ("driver", [driver])


def torment(where: Place, kills: int, dice: random.Random) -> dict[str, int]:
    """Run the sweep to its end while it is killed; how often whom."""
    done = {"driver": 0, "worker": 0, "all": 0}
    process = where.start()
    for _ in range(kills):
        wanted, soon = written(where) + dice.randrange(6), dice.uniform(0.0, 2.0)
        while written(where) < wanted and process.poll() is None:
            time.sleep(0.02)
        due = time.monotonic() + soon
        while time.monotonic() < due and process.poll() is None:
            time.sleep(0.02)
        if process.poll() is not None:
            break
        kind, pids = victims(process.pid, dice)
        done[kind] += 1
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if kind != "worker":
            process.wait()
            process = where.start("--resume")
    process.wait()
    if any(trial["status"] == "FAILED" for trial in document(where)["trials"]):
        where.start("--resume", "--retry-failed").wait()
    return done


def document(where: Place) -> dict[str, Any]:
    """Its sweep.json."""
    found: dict[str, Any] = json.loads((where.study / "sweep.json").read_text(encoding="utf-8"))
    return found


def differences(left: Place, right: Place) -> Iterator[str]:
    """What is not the same in two studies of the sweep."""
    one, other = document(left), document(right)
    for key in ("status", "ranking", "indistinguishable", "importances", "jobs", "search"):
        if one.get(key) != other.get(key):
            yield f"{key}: {one.get(key)} and {other.get(key)}"
    for a, b in zip(one["trials"], other["trials"], strict=False):
        yield from (f"trial {a['number']}, {key}: {a[key]} and {b[key]}" for key in COMPARED if a[key] != b[key])
    if len(one["trials"]) != len(other["trials"]):
        yield f"{len(one['trials'])} and {len(other['trials'])} trials"
    metrics = [{run.name: (run / "metrics.jsonl").read_bytes() for run in runs(place)} for place in (left, right)]
    for name in sorted(metrics[0].keys() | metrics[1].keys()):
        if metrics[0].get(name) != metrics[1].get(name):
            yield f"{name}: other metrics"
    if stored(left) != stored(right):
        yield f"the database: {stored(left)} and {stored(right)}"


def runs(where: Place) -> list[Path]:
    """The run directories that stand for something."""
    return [path for path in (where.study / "runs").iterdir() if ".damaged-" not in path.name]


def stored(where: Place) -> list[object]:
    """What Optuna knows of each trial, the newest where one was retried."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(study_name=where.study.name, storage=f"sqlite:///{where.study / 'study.db'}")
    newest = {trial.user_attrs["number"]: trial for trial in study.trials}
    return [(n, t.state.name, t.values, t.params, t.intermediate_values) for n, t in sorted(newest.items())]


def main() -> int:
    """Run both and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--adaptive", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        more = ADAPTIVE if asked.adaptive else PRUNED
        alone, harassed = place(Path(folder) / "alone", more), place(Path(folder) / "harassed", more)
        alone.start().wait()
        done = torment(harassed, asked.kills, random.Random(asked.seed))
        found = list(differences(alone, harassed))
        attempts = [trial["attempts"] for trial in document(harassed)["trials"]]
        statuses = [trial["status"] for trial in document(alone)["trials"]]
        jobs = len(document(alone).get("jobs") or ())
    result = {"kills": done, "jobs": jobs, "attempts": attempts, "statuses": statuses, "differences": found}
    print(json.dumps(result) if asked.json else "\n".join(f"{key}: {value}" for key, value in result.items()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
