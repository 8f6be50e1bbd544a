"""Document 003's experiments over seeds: PSNR and SSIM on held-out pictures, the three symptoms, and what GRPO adds.

    OMP_NUM_THREADS=1 .venv/bin/python -m benchmarks.restoration_results [--seeds 3] [--json FILE] [NAME ...]

A run is repeated with another seed of the policy and of its pictures (`task.data_seed`). Intervals are 95 % t intervals
over seeds; differences are paired by seed. Two processes of one thread each.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, pvariance
from tempfile import TemporaryDirectory
from typing import Any

# Those of a family begin with the same stage, so one run of a seed goes on where another one's first stage ended: as a
# resumed run it is the same to the last bit.
FAMILIES = (("p52", "p52-supervised", "p50", "p53", "p54", "p56"), ("p51", "p51-supervised"), ("p55",))
EXPERIMENTS = tuple(sorted(name for family in FAMILIES for name in family))
PAIRS = (("p51", "p51-supervised"), ("p52", "p52-supervised"), ("p56", "p52"))
SYMPTOMS = ("policy/loss", "losses/supervised", "losses/consistency")


def family(job: tuple[tuple[str, ...], int, str]) -> list[dict[str, Any]]:
    """The numbers of these experiments' runs of one seed; only the first goes through the stage that all begin with."""
    import torch

    torch.set_num_threads(1)
    names, seed, profile = job
    begun: list[Any] = []
    return [one(name, seed, profile, begun) for name in names]


def one(name: str, seed: int, profile: str, begun: list[Any]) -> dict[str, Any]:
    """A run's numbers: its evaluations, thirds of its losses, and where the variance of its advantages comes from.

    `begun` is what stood where the first stage of the family's first run ended: snapshot, rows, samples.
    """
    from core.assemble import assemble, open_checkpoints
    from core.training.trainer import drive
    from grpoctl.config import load

    spec = load(name, profile=profile, seed=seed, overrides=[f"task.data_seed={seed}"]).spec
    restart, table, samples_before = begun or (None, [], [])
    rows: list[dict[str, Any]] = list(table)
    drawn: list[dict[str, Any]] = list(samples_before)
    first = next(iter(spec.stages.values()))

    class Rows:
        def step_done(self, row: Any, samples: Any, timings: Any, evaluated: Any = None) -> None:
            rows.append(dict(row))
            drawn.extend(samples)
            if not begun and row["step"] == first.max_steps:
                begun.extend((trainer.snapshot(), list(rows), list(drawn)))

    started = time.process_time()
    with TemporaryDirectory() as folder:
        trainer = assemble(spec, open_checkpoints(spec, Path(folder)), restart=restart, table=table)
        ending = drive(trainer.steps(), Rows())
    evaluated = [row for row in rows if row.get("eval/reward") is not None]
    learned = [row for row in rows if row["step"] and row.get("weight/policy")]
    return {
        "experiment": name,
        "seed": seed,
        "ended": ending.status,
        "degraded": {key.partition(".")[2] or "reward": rows[0][key] for key in rows[0] if key.startswith("baseline/")},
        "evaluations": [
            {"step": row["step"], **{key: row[key] for key in row if key.startswith("eval/")}} for row in evaluated
        ],
        "thirds": {name: thirds([row[name] for row in learned if row.get(name) is not None]) for name in SYMPTOMS},
        "advantage": {
            key: fmean(row[f"advantage/{key}"] for row in learned if row.get(f"advantage/{key}") is not None)
            for key in ("mean", "std", "max_abs")
        }
        if learned
        else {},
        "between": between({row["step"] for row in learned}, drawn),
        "seconds": time.process_time() - started,
    }


def thirds(values: Sequence[float]) -> list[float]:
    """The means of the first, the second and the last third; none of fewer than three values."""
    size = len(values) // 3
    return [fmean(values[at * size : (at + 1) * size]) for at in range(3)] if size else []


def between(steps: set[int], samples: Sequence[dict[str, Any]]) -> float | None:
    """The share of the advantages' variance between groups: how hard a picture is, and no choice of factors."""
    groups: dict[tuple[int, str], list[float]] = defaultdict(list)
    for sample in samples:
        if sample["step"] in steps:
            groups[sample["step"], sample["prompt_id"]].append(sample["advantage"])
    every = [value for group in groups.values() for value in group]
    if len(groups) < 2 or not (whole := pvariance(every)):
        return None
    return pvariance([fmean(group) for group in groups.values() for _ in group]) / whole


def interval(values: Sequence[float], digits: int = 2) -> str:
    """Mean and its 95 % t interval over seeds."""
    from core.health.statistics import mean_interval

    estimate = mean_interval(list(values))
    if estimate.interval is None:
        return f"{estimate.mean:.{digits}f}"
    low, high = estimate.interval
    return f"{estimate.mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(results: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """A Markdown row for each experiment."""
    lines = [
        "| experiment | ended | degraded, dB | at first | final PSNR, dB | final SSIM | final on noise 25, dB | "
        "mean advantage | std of advantages | between pictures |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        runs = [run for run in results if run["experiment"] == name]
        if not runs:
            continue
        ends = [run["evaluations"][-1] for run in runs]
        learned = [run for run in runs if run["advantage"]]
        cells = [
            name,
            ", ".join(sorted({run["ended"] for run in runs})),
            f"{fmean(run['degraded']['psnr'] for run in runs):.2f}",
            f"{fmean(run['evaluations'][0]['eval/psnr'] for run in runs):.2f}",
            interval([end["eval/psnr"] for end in ends]),
            interval([end["eval/ssim"] for end in ends], 3),
            interval([end["eval/psnr/noise-25"] for end in ends]),
            interval([run["advantage"]["mean"] for run in learned]) if learned else "-",
            interval([run["advantage"]["std"] for run in learned]) if learned else "-",
            f"{fmean(run['between'] for run in learned):.2f}" if learned else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def symptoms(results: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """A Markdown row for each experiment: losses over the first and the last third of the steps with GRPO in them."""
    lines = ["| experiment | " + " | ".join(SYMPTOMS) + " |", "|---|" + "---|" * len(SYMPTOMS)]
    for name in names:
        runs = [run for run in results if run["experiment"] == name]
        cells = []
        for metric in SYMPTOMS:
            known = [run["thirds"][metric] for run in runs if run["thirds"][metric]]
            change = interval([of[2] - of[0] for of in known], 4) if known else "-"
            cells.append(f"{fmean(of[0] for of in known):.4f}, last third {change} more" if known else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--profile", default="tiny")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = arguments.names or EXPERIMENTS
    families = [tuple(name for name in family if name in names) for family in FAMILIES]
    jobs = [(chosen, seed, arguments.profile) for seed in range(arguments.seeds) for chosen in families if chosen]
    started = time.monotonic()
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as pool:
        results = [result for of_family in pool.map(family, jobs) for result in of_family]
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(table(results, names))
    print()
    print(symptoms(results, names))
    print()
    for name, other in PAIRS:
        if name in names and other in names:
            of = {run["seed"]: run["evaluations"][-1] for run in results if run["experiment"] == name}
            without = {run["seed"]: run["evaluations"][-1] for run in results if run["experiment"] == other}
            gaps = {key: [of[seed][key] - without[seed][key] for seed in of] for key in ("eval/psnr", "eval/ssim")}
            print(f"{name} - {other}: {interval(gaps['eval/psnr'], 3)} dB, SSIM {interval(gaps['eval/ssim'], 4)}")
    spent = time.monotonic() - started
    print(f"{len(results)} runs in {spent:.0f} s, {sum(run['seconds'] for run in results):.0f} CPU s in steps")


if __name__ == "__main__":
    main()
