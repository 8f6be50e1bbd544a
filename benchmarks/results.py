"""The outcome of experiments over their seeds, as the table of docs/results.md.

    for s in 0 1 2; do grpoctl run p31 --profile small --seed $s; done
    python benchmarks/results.py small [EXPERIMENT ...]

Reads the runs of the home that the current directory has (GRPOCTL_HOME); trains nothing. A row is an experiment with
its overrides; of several runs of one seed the newest counts. Intervals are 95 % t intervals over seeds.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.health.statistics import clipped, mean_interval
from grpoctl.config import read_resolved
from grpoctl.files import read_json, read_rows
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.wording import label

COLUMNS = (
    "experiment", "seeds", "ended", "eval/reward: start", "before GRPO", "final", "gain by GRPO", "eval/valid",
    "dead groups", "all invalid after an update", "after none", "minutes",
)  # fmt: skip


def results(profile: str, names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """label -> the newest result of each seed."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for run in reversed(Home.locate().runs()):  # the newest last
        result = read_json(run.result)
        if result is None or result["profile"] != profile or (names and result["experiment"] not in names):
            continue
        found.setdefault(label(result), {})[int(result["seed"])] = result
    return {name: list(by_seed.values()) for name, by_seed in sorted(found.items())}


def rows(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[list[str]]:
    """One row of cells for each label."""
    for name, runs in found.items():
        final = [run["final"] for run in runs]
        before = [before_grpo(run) for run in runs]
        gains = [
            run["final"]["eval/reward"] - start
            for run, start in zip(runs, before, strict=True)
            if start is not None and "eval/reward" in run["final"]
        ]
        ended = Counter(str(run["status"]) for run in runs)
        yield [
            name,
            ", ".join(str(run["seed"]) for run in runs),
            ", ".join(f"{count} {status}" for status, count in ended.items()),
            _estimate([run["start"][key] for run in runs if (key := "eval/reward") in run["start"]]),
            _estimate([start for start in before if start is not None]),
            _estimate([one[key] for one in final if (key := "eval/reward") in one]),
            _estimate(gains, signed=True),
            _estimate([one[key] for one in final if (key := "eval/valid") in one]),
            _estimate([one[key] for one in final if (key := "groups/dead") in one]),
            _counts(final, "collapsed_after_update", "followed_updates"),
            _counts(final, "collapsed_after_skip", "followed_skips"),
            f"{sum(run['seconds'] for run in runs) / len(runs) / 60:.1f}",
        ]


def before_grpo(run: Mapping[str, Any]) -> float | None:
    """The evaluation that the last stage started from; None where it was unsound, or the run had ended before."""
    directory = RunDir(path=Path(run["run_dir"]))
    last, rows = len(read_resolved(directory.spec).stages) - 1, read_rows(directory.metrics)
    if not any(row.get("stage") == last for row in rows):
        return None
    return [row for row in rows if row.get("stage", -1) < last and "eval/valid" in row][-1].get("eval/reward")


def _estimate(values: Sequence[float], *, signed: bool = False) -> str:
    if not values:
        return "-"
    found = mean_interval(values)
    sign = "+" if signed else ""
    low, high = clipped(found.interval, -1.0 if signed else 0.0, 1.0) if found.interval else (None, None)
    span = "" if low is None else f" [{low:{sign}.3f}, {high:{sign}.3f}]"  # of shares, and of rewards in [0, 1]
    return f"{found.mean:{sign}.3f}{span}"


def _counts(final: Sequence[Mapping[str, float]], part: str, whole: str) -> str:
    return f"{sum(one.get(part, 0) for one in final):.0f}/{sum(one.get(whole, 0) for one in final):.0f}"


if __name__ == "__main__":
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for cells in rows(results(sys.argv[1], sys.argv[2:])):
        print(f"| {' | '.join(cells)} |")
