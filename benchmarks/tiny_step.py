"""Where the time of a step of an experiment on the built-in model goes, from the timings the run itself records.

    python benchmarks/tiny_step.py            p31 (16 rollouts a step)
    python benchmarks/tiny_step.py p30-sound max_steps=40

Prints, over the steps without evaluation: milliseconds per step by part (median) and the trainer's own share, which is
what is left of a step besides sampling, scoring and learning.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from core.assemble import assemble, open_checkpoints
from core.training.requests import Evaluated
from core.training.trainer import drive
from grpoctl.config import load

PARTS = ("sample", "score", "learn")


class Timings:
    """Keeps the timings of every step."""

    def __init__(self) -> None:
        self.steps: list[Mapping[str, float]] = []

    def step_done(
        self,
        row: Mapping[str, float | None],
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: Evaluated | None = None,
    ) -> None:
        """One finished step; the evaluation before the first is none."""
        if row["step"]:
            self.steps.append(timings)


def main(name: str, overrides: Sequence[str]) -> None:
    """Run and print the table."""
    spec = load(name, profile="tiny", overrides=overrides).spec
    timings = Timings()
    with tempfile.TemporaryDirectory() as folder:
        drive(assemble(spec, open_checkpoints(spec, Path(folder))).steps(), timings)
    plain = [step for step in timings.steps if "evaluate" not in step and "learn" in step]
    rollouts = next(iter(spec.stages.values())).rows_per_step
    print(f"{name}: {rollouts} rollouts a step, {len(plain)} steps with an update")
    for part in PARTS:
        print(f"{part:>10} {1e3 * median(step.get(part, 0.0) for step in plain):8.1f} ms")
    shares = [1 - sum(step.get(part, 0.0) for part in PARTS) / step["total"] for step in plain]
    print(f"{'total':>10} {1e3 * median(step['total'] for step in plain):8.1f} ms")
    print(f"{'trainer':>10} {100 * median(shares):8.1f} % of the step")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "p31", sys.argv[2:])
