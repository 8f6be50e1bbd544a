"""Is a gain credited to the stage that made it? Runs the task that `grpoctl new` writes, for real, on the profile tiny.

`python benchmarks/attribution.py [--seeds 5] [--controls 20]`: the stages' gains of each seed must add up to the run's;
and a GRPO stage with a learning rate of 0, which gains nothing, must be told so in every control. Exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CLOSE = 1e-9
COMMAND = str(Path(sys.executable).with_name("grpoctl"))


def main() -> int:
    """Print a line per run; 1 where a gain is not its stage's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--controls", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        grpoctl(Path(folder), "new", "my-task")
        odd = 0
        for result in runs(Path(folder), asked.seeds):
            stages = {name: entry["gain"] for name, entry in result["stages"].items()}
            apart = abs(sum(stages.values()) - result["gain"]["gain"])
            each = ", ".join(f"{name} {gain:+.3f}" for name, gain in stages.items())
            print(
                f"seed {result['seed']:2}: {each}; run {result['gain']['gain']:+.3f}; apart by {apart:.1e}", flush=True
            )
            odd += apart > CLOSE
        told = [
            one["evidence"]["stage"]
            for result in runs(Path(folder), asked.controls, "stages.grpo.learning_rate=0")
            for one in result["findings"]
            if one["id"] == "no-gain"
        ]
        print(f"learning rate 0: {told.count('grpo')} of {asked.controls} GRPO stages told that they add nothing")
    return int(odd > 0 or told.count("grpo") < asked.controls)


def runs(folder: Path, count: int, *overrides: str) -> Sequence[Mapping[str, Any]]:
    """The results of so many seeds."""
    seeds = ",".join(map(str, range(count)))
    done = grpoctl(folder, "run", "my-task", "--profile", "tiny", "--seeds", seeds, "--json", *overrides)
    found: Sequence[Mapping[str, Any]] = json.loads(done)["runs"]
    return found


def grpoctl(folder: Path, *words: str) -> str:
    """What the command prints. Ends this program where it fails."""
    where = {**os.environ, "GRPOCTL_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([COMMAND, *words], cwd=folder, env=where, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"grpoctl {' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
