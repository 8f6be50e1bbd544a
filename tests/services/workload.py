"""A sweep that takes its time on any machine: its reward waits, as one does that asks a judge, and is always the same.

What happens to servers and nodes meanwhile must find it under way on an idle machine, and must not take for ever on a
busy one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir, studies
from tests.end_to_end.cli import Done, Started, eventually

PACE = "PACE"  # seconds that a call of the reward takes; none where it is not set
HOLD = "HOLD"  # a file: while it is there, no reward is given
SLOW = "SLOW"  # a file: while it is there, a call takes four seconds more
REWARD = """\
import os
import time


def score(completions, row, **kwargs):
    time.sleep(float(os.environ.get("PACE", "0")))
    while os.path.exists(os.environ.get("HOLD", "")):
        time.sleep(0.1)
    until = time.monotonic() + 4
    while os.path.exists(os.environ.get("SLOW", "")) and time.monotonic() < until:
        time.sleep(0.1)
    return [(len(text) * 7 + number) % 5 / 4 for text, number in zip(completions, row)]
"""
EXPERIMENT = """\
name: paced
title: A run that takes its time
model: {source: builtin:tiny}
task:
  name: custom
  data: {path: ../rows.jsonl}
  train_prompts: 8
  eval_prompts: 2
  prompt: "{question}"
  rewards: [{function: ../paced.py:score}]
evaluation: {eval_steps: 4}
checkpoints: {save_steps: 4}
stages:
  grpo: {max_steps: 24, prompts_per_step: 2, num_generations: 2, max_completion_length: 8, learning_rate: 1.0e-4}
"""
SWEEP = """\
name: paced-study
title: A sweep whose servers and nodes come and go
experiment: paced
axes:
  stages.grpo.num_generations: [2, 4]
  stages.grpo.learning_rate: {low: 1.0e-5, high: 2.0e-3, log: true}
sampler: tpe
pruner: {name: patient-median, patience: 3, warmup: 0.5, min_trials: 4}
seeds: [0, 1]
budget: {completions: 192, generation_batch_size: 8}
trials: 6
"""
NAME = "paced-study"
LIMIT = 480.0  # seconds that a sweep here may take on a busy machine


def write(folder: Path) -> None:
    """Put the sweep and all it takes into a user's folder."""
    rows = [{"question": f"{number} + 1 =", "row": number} for number in range(10)]
    texts = {
        "rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "paced.py": REWARD,
        "experiments/paced.yaml": EXPERIMENT,
        "sweeps/paced-study.yaml": SWEEP,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def study_in(home: Home) -> StudyDir:
    """The one study there is; one that is not there before it was begun."""
    return next(iter(studies(home)), StudyDir(path=home.path / "sweeps" / "none yet"))


def over(home: Home) -> bool:
    """True when the sweep has ended."""
    state = study_in(home).state
    return state.exists() and json.loads(state.read_text(encoding="utf-8"))["status"] != "RUNNING"


def ended(started: Started, home: Home) -> Done:
    """A sweep once it has ended, which may take longer than one looks at a single command."""
    eventually(lambda: over(home), "the sweep has ended", LIMIT)
    return started.wait()


def meanwhile(home: Home, holds: Callable[[], Any], what: str) -> Any:
    """What `holds` gives as soon as it is true, while the sweep goes on; fails at once where the sweep ends before."""

    def found() -> Any:
        late = over(home)  # before looking: what came true with the sweep's end is then seen
        got = holds()
        assert got or not late, f"the sweep ended before it came true: {what}"
        return got

    return eventually(found, what, LIMIT)
