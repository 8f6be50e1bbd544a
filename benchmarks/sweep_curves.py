"""Are a sweep's curves the rows of the runs they name? Runs sweeps for real and compares every point.

`python benchmarks/sweep_curves.py [NAME ...] [--trials N] [--completions N]`: each shipped sweep (or those named) on
`tiny`, cut to a few trials and a small budget, and in the end a sweep over `staged`. Exits 1 where a point differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpoctl.analysis.sweeps.budget import unit_of
from grpoctl.config import Library, shipped_folder

OVER_STAGED = """\
name: over-staged
title: The last stage's rate, after a supervised and a blended stage
experiment: staged
settings: {evaluation.eval_steps: 4}
axes: {stages.full.learning_rate: [1.0e-5, 2.0e-3]}
sampler: grid
seeds: [2, 0, 1]
budget: {completions: 216}
"""


def main() -> int:
    """Print one line per sweep; 1 where a point is not its run's row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--completions", type=int, default=128)
    asked = parser.parse_args()
    shipped = sorted(Library(user=Path("no-such-folder"), shipped=shipped_folder("sweeps"), kind="sweep").files())
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sweeps").mkdir()
        (Path(folder) / "sweeps" / "over-staged.yaml").write_text(OVER_STAGED, encoding="utf-8")
        for name in asked.names or [*shipped, "over-staged"]:
            document = sweep(Path(folder), name, asked.trials, asked.completions)
            points = sum(len(trial["curve"]) for trial in document["trials"])
            odd = [text for trial in document["trials"] for text in differences(document, trial)]
            print(f"{name:20} {len(document['trials']):2} trials {points:4} points {len(odd):3} differ", flush=True)
            print(*odd, sep="\n", end="\n" if odd else "")
            wrong += len(odd)
    return int(wrong > 0)


def sweep(folder: Path, name: str, trials: int, completions: int) -> Mapping[str, Any]:
    """The document of a small study of that sweep."""
    command = [
        str(Path(sys.executable).with_name("grpoctl")),
        "sweep",
        name,
        "--profile",
        "tiny",
        "--json",
        "--trials",
        str(trials),
    ]
    small = [] if name in ("baseline", "epochs-study", "over-staged") else [f"budget.completions={completions}"]
    where = {**os.environ, "GRPOCTL_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *small], cwd=folder, env=where, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: exit code {done.returncode}\n{done.stderr}")
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def differences(document: Mapping[str, Any], trial: Mapping[str, Any]) -> list[str]:
    """What of the trial's curve is not its runs' evaluations after the start, point by point."""
    unit, budget = unit_of(document)
    expected = []
    for run in trial["runs"]:
        seed = int(run.rsplit("-s", 1)[1])
        for line in (Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["step"] > 0 and row.get(document["metric"]) is not None and "eval/reward" in row:
                expected.append([seed, min(1.0, row[unit] / budget), row[document["metric"]]])
    found = [list(point) for point in trial["curve"]]
    if found == expected:
        return []
    return [f"  trial {trial['number']}: {one}" for one in [*found, *expected] if (one in found) != (one in expected)]


if __name__ == "__main__":
    sys.exit(main())
