"""The same experiment by grpoctl's own trainer and by TRL's (`trainer.kind: trl`): how far apart is what they reach?

    python benchmarks/two_trainers.py --seeds 10 --json OUT

p31 at its profile tiny, all its steps, one run of each trainer for each seed. Stated beforehand: the two are the same
where the 90 % interval of the mean difference in final eval/reward, paired by seed, lies within +-0.05. The two sample
with other generators, so single runs differ as two seeds do. Needs trl. Written after each pair: all take an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from core.health.statistics import t_interval

MARGIN, LEVEL = 0.05, 0.90
SETTINGS = ("evaluation.eval_steps=96", "guards.collapse=warn")  # only the ends are compared


def run(kind: str, seed: int, home: Path) -> dict[str, Any]:
    """The result of a run."""
    command = [sys.executable, "-m", "grpoctl.app", "run", "p31", "-p", "tiny", "--json", f"seed={seed}", *SETTINGS]
    environment = {**os.environ, "GRPOCTL_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*command, f"trainer.kind={kind}"], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{kind}, seed {seed}: exit code {done.returncode}: {done.stderr[-500:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def summary(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Means, and the interval of the paired difference."""
    differences = [row["trl"] - row["grpoctl"] for row in rows]
    known: dict[str, Any] = {
        "seeds": len(rows),
        "grpoctl": fmean(row["grpoctl"] for row in rows),
        "trl": fmean(row["trl"] for row in rows),
        "difference": fmean(differences),
    }
    if len(rows) > 1:
        low, high = t_interval(known["difference"], [(variance(differences) / len(rows), len(rows) - 1)], LEVEL)
        known |= {"interval": [low, high], "within": low > -MARGIN and high < MARGIN}
    return known


def main(argv: Sequence[str] | None = None) -> None:
    """Run, and write what came out so far after each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--home", type=Path, default=Path("two-trainers"))
    parser.add_argument("--json", type=Path, default=None)
    asked = parser.parse_args(argv)
    rows: list[dict[str, float]] = []
    for seed in range(asked.seeds):
        results = {kind: run(kind, seed, asked.home) for kind in ("grpoctl", "trl")}
        rows.append({"seed": seed, **{kind: result["final"]["eval/reward"] for kind, result in results.items()}})
        found = {"schema": 1, "what": "two_trainers", "margin": MARGIN, "level": LEVEL, "rows": rows, **summary(rows)}
        print(json.dumps(rows[-1]), json.dumps(summary(rows)), flush=True)
        if asked.json is not None:
            asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
