"""Every experiment of the pointer selector over seeds, and p40 beside p49 along the likeness of a query's candidates.

    OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.selector_results [--seeds 5] [--part axis]

Held-out accuracies are exact expectations of the generator. Intervals are 95 % t intervals over seeds; differences
are paired by seed. Two processes of one thread each.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

EXPERIMENTS = (
    "p40", "p40-ranks", "p41", "p42", "p43", "p44", "p45", "p45-5-8", "p45-5-6-8", "p46", "p47", "p48", "p48-short",
    "p48-plan1", "p49",
)  # fmt: skip
LIKENESS = (0.0, 0.5, 0.9, 0.99, 0.9999)


def one(job: tuple[str, float, int, str]) -> dict[str, Any]:
    """A run's numbers: accuracy at the end of each stage, and what the documents count of its GRPO."""
    import torch

    from core.assemble import assemble, open_checkpoints
    from core.training.trainer import drive
    from grpoctl.config import load

    torch.set_num_threads(1)
    name, likeness, seed, profile = job
    overrides = [f"task.world.likeness={likeness}", f"task.data_seed={seed}"]
    spec = load(name, profile=profile, seed=seed, overrides=overrides).spec
    rows: list[dict[str, Any]] = []

    class Rows:
        def step_done(self, row: Any, samples: Any, timings: Any, evaluated: Any = None) -> None:
            rows.append(dict(row))

    started = time.process_time()
    with TemporaryDirectory() as folder:
        trainer = assemble(spec, open_checkpoints(spec, Path(folder)))
        drive(trainer.steps(), Rows())
    evaluated = [row for row in rows if row.get("eval/reward") is not None]
    kinds = [stage.kind for stage in spec.stages.values()]
    ends = {
        f"{kind}{kinds[:number].count(kind) or ''}": [row for row in evaluated if row.get("stage") == number][-1]
        for number, kind in enumerate(kinds)
        if any(row.get("stage") == number for row in evaluated)
    }
    learned = [row for row in rows if row.get("advantage/group_std") is not None]
    shots = {key: evaluated[-1][key] for key in evaluated[-1] if key.startswith("eval/rewards/accuracy_")}
    return {
        "experiment": name,
        "likeness": likeness,
        "seed": seed,
        "start": evaluated[0]["eval/reward"],
        "ends": {kind: row["eval/reward"] for kind, row in ends.items()},
        "final": evaluated[-1]["eval/reward"],
        "shots": shots,
        "baselines": {name: reached["eval/reward"] for name, reached in trainer.task.baselines().items()},
        "group_std": fmean(row["advantage/group_std"] for row in learned) if learned else None,
        "group_max": fmean(row["advantage/group_max"] for row in learned) if learned else None,
        "live": 1 - fmean(row["groups/dead"] for row in learned) if learned else None,
        "beta_end": next((row["beta"] for row in reversed(rows) if row.get("beta") is not None), None),
        "kl_whole": fmean(row["kl/whole"] for row in learned if row.get("kl/whole") is not None)
        if any(row.get("kl/whole") is not None for row in learned)
        else None,
        "seconds": time.process_time() - started,
    }


def kl_sources() -> None:
    """Print p40's `kl/whole` (`full`, over 640 queries, weights as RCE left them) with RCE and dropout apart."""
    import torch

    from core.assemble import assemble, open_checkpoints
    from core.training.trainer import drive
    from grpoctl.config import load

    torch.set_num_threads(1)
    print("| RCE | dropout in the update | mean | median | 90 % quantile |\n|---|---|---|---|---|")
    for rce, dropout in ((True, True), (True, False), (False, True)):
        still = ["stages.grpo.epochs=1", "stages.grpo.learning_rate=1e-15", *([] if rce else ["stages.rce.epochs=1"])]
        spec = load("p40", seed=0, overrides=still if rce else [*still, "stages.rce.learning_rate=1e-15"]).spec
        values: list[float] = []

        with TemporaryDirectory() as folder:
            trainer = assemble(spec, open_checkpoints(spec, Path(folder)))
            network: Any = trainer.policy.network  # type: ignore[attr-defined]

            class Values:
                def step_done(
                    self, row: Any, samples: Any, timings: Any, evaluated: Any = None, *, network: Any = network
                ) -> None:
                    if row.get("kl/whole") is None:
                        return
                    if not dropout:  # noqa: B023 - called within this turn
                        network.dropout.p = network.attention.dropout = 0.0
                    values.append(row["kl/whole"])  # noqa: B023

            drive(trainer.steps(), Values())
        drawn = torch.tensor(values[1:])  # the first has dropout in any case
        print(
            f"| {'5 epochs' if rce else 'none'} | {'.5' if dropout else 'none'} | {drawn.mean():.3g} | "
            f"{drawn.median():.3g} | {drawn.quantile(0.9):.3g} |",
            flush=True,
        )


def interval(values: list[float]) -> str:
    """Mean and its 95 % t interval over seeds."""
    from core.health.statistics import mean_interval

    estimate = mean_interval(values)
    if estimate.interval is None:
        return f"{estimate.mean:.3f}"
    low, high = estimate.interval
    return f"{estimate.mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def table(results: list[dict[str, Any]], keys: list[tuple[str, float]]) -> str:
    """A Markdown row for each (experiment, likeness)."""
    lines = [
        "| experiment | likeness | live groups | Adv Std | supervised | final | gain of the last stage | random | "
        "nearest | best possible | 1, 3, 4 shots |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, likeness in keys:
        runs = [run for run in results if (run["experiment"], run["likeness"]) == (name, likeness)]
        if not runs:
            continue
        gains = [run["final"] - list(run["ends"].values())[-2] for run in runs if len(run["ends"]) > 1]
        live = "-" if runs[0]["live"] is None else f"{fmean(run['live'] for run in runs):.3f}"
        std = "-" if runs[0]["group_std"] is None else f"{fmean(run['group_std'] for run in runs):.4f}"
        baselines = [run["baselines"] for run in runs]
        random, nearest, best = (fmean(one[key] for one in baselines) for key in ("random", "nearest", "best_possible"))
        shots = ", ".join(f"{fmean(run['shots'][f'eval/rewards/accuracy_{n}'] for run in runs):.3f}" for n in (1, 3, 4))
        lines.append(
            f"| {name} | {likeness:g} | {live} | {std} | {fmean(run['ends']['sft'] for run in runs):.3f} | "
            f"{fmean(run['final'] for run in runs):.3f} | {interval(gains) if gains else '-'} | "
            f"{random:.3f} | {nearest:.3f} | {best:.3f} | {shots} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--part", choices=("axis", "all", "kl"), default="all")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.part == "kl":
        kl_sources()
        return
    keys = [(name, likeness) for likeness in LIKENESS for name in ("p40", "p49")]
    if arguments.part == "all":
        keys += [(name, likeness) for likeness in reversed(LIKENESS) for name in EXPERIMENTS]
    keys = list(dict.fromkeys(keys))
    jobs = [(name, likeness, seed, arguments.profile) for name, likeness in keys for seed in range(arguments.seeds)]
    started = time.monotonic()
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(one, jobs))
    print(table(results, keys))
    for likeness in LIKENESS:
        by = {
            name: {
                run["seed"]: run["final"] for run in results if (run["experiment"], run["likeness"]) == (name, likeness)
            }
            for name in ("p40", "p49")
        }
        gaps = [by["p49"][seed] - by["p40"][seed] for seed in by["p40"]]
        print(f"p49 - p40 at likeness {likeness:g}: {interval(gaps)}")
    spent = time.monotonic() - started
    print(f"{len(jobs)} runs in {spent:.0f} s, {sum(run['seconds'] for run in results):.0f} CPU s in steps")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
