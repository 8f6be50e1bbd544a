"""How many groups of stored picks are live, along the likeness of a query's candidates: the task's generator alone.

    python benchmarks/selection_likeness.py [--seeds 20] [--queries 640]

A group is live where the rewards (hard_plus_soft) of the picks that are kept differ: the best 3 or 5 by reward.
Mixed: right and wrong among all stored picks, before any choice. Positive: some stored pick is right. `left`, `right`:
stored picks of a query without duplicates, and the share that is right; both are fixed by documents 001 and 004.
The baselines are exact accuracies over the held-out queries. Document 001 has 4 live groups of 640 at top 3 and top 5.
"""

from __future__ import annotations

import argparse
import math
from statistics import fmean, stdev

from core.config.task import ExampleSelectionTaskSpec
from core.tasks.selection.task import ExampleSelectionTask

LIKENESS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
COLUMNS = ("live at top 3", "live at top 5", "mixed", "positive", "left", "right", "random", "nearest", "best")


def measured(likeness: float, seed: int, queries: int) -> list[float]:
    """The numbers of COLUMNS for one world."""
    spec = {"name": "example-selection", "data_seed": seed, "train_prompts": queries, "world": {"likeness": likeness}}
    task = ExampleSelectionTask(ExampleSelectionTaskSpec.model_validate(spec))
    examples = task.examples("train")
    stored = [task.stored(example) for example in examples]
    owners = [example for example, group in zip(examples, stored, strict=True) for _ in group]
    outcomes = iter(task.score(owners, [picks for group in stored for picks in group]))
    groups = [[next(outcomes) for _ in group] for group in stored]
    rewards = [sorted((outcome.reward for outcome in group), reverse=True) for group in groups]
    right = [[outcome.parts["correct"] for outcome in group] for group in groups]
    baselines = task.baselines_at(shots=2)
    return [
        *(float(sum(group[0] > group[kept - 1] for group in rewards)) for kept in (3, 5)),
        fmean(min(group) < max(group) for group in right),
        fmean(max(group) for group in right),
        fmean(map(len, groups)),
        fmean(value for group in right for value in group),
        *(baselines[name] for name in ("random", "nearest", "best")),
    ]


def main() -> None:
    """Print a row of means over the seeds for each likeness, the live groups with their standard deviation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--queries", type=int, default=640)
    given = parser.parse_args()
    print(f"| likeness | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for likeness in LIKENESS:
        columns = list(zip(*(measured(likeness, seed, given.queries) for seed in range(given.seeds)), strict=True))
        live = [f"{fmean(of):.2f} (sd {stdev(of) if len(of) > 1 else math.nan:.2f})" for of in columns[:2]]
        print(f"| {likeness} | {' | '.join([*live, *(f'{fmean(of):.4f}' for of in columns[2:])])} |", flush=True)


if __name__ == "__main__":
    main()
