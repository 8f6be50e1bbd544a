"""The five faults of document 003's public code, planted in short runs of the policy `restoration`, and sound runs.

    OMP_NUM_THREADS=1 python benchmarks/restoration_faults.py FOLDER [--seeds 0-9]

Runs of 12 steps on patches of 32 x 32, two at a time, kept in FOLDER: what has ended is not run again, only diagnosed
again. Exit code 1 where a fault is found as itself in less than nine of ten runs, or a sound run has an error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.faults import GUARDS, Judged, Planted, all_judged, line, passes, seeds_of
from core.config.run import IN_A_RESTORATION

SPEC = """
name: restoration-faults
title: A small restoration run, each rollout learned from twice
policy: {kind: restoration, width: 8, blocks: [1, 1, 1, 1], refinement: 1}
task: {name: restoration, patch: 32, train_prompts: 48, eval_prompts: 6}
stages:
  grpo:
    max_steps: 12
    num_generations: 4
    prompts_per_step: 2
    num_iterations: 2
    max_completion_length: 12
    learning_rate: 1.0e-3
    loss_weights: {supervised: 0.5, consistency: 0.1, penalty: 0.01}
    loss_rows: best
evaluation: {eval_steps: 4, num_generations_eval: 1, temperature: 0}
checkpoints: {save_steps: 12}
profiles: {tiny: {}}
"""
FAULTS = (*IN_A_RESTORATION, "clip-before-backward", "frozen-log-probs")


def planted(spec: Path) -> list[Planted]:
    """Each fault, and none."""
    runs = [
        Planted(name=name, ids=frozenset({name}), overrides=(*GUARDS, f"faults=[{name}]"), experiment=str(spec))
        for name in FAULTS
    ]
    return [*runs, Planted(name="healthy", ids=frozenset(), overrides=GUARDS, experiment=str(spec))]


def main() -> int:
    """Run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=seeds_of, default=range(10))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    spec = asked.folder / "restoration-faults.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    runs = planted(spec)
    judged: dict[str, list[Judged]] = {one.name: [] for one in runs}
    for one in all_judged([(run, seed) for seed in asked.seeds for run in runs], asked.folder):
        judged[one.name].append(one)
        print(f"{one.name}, seed {one.seed}: {', '.join(f.id for f in one.findings) or '-'}", file=sys.stderr)
    print("| planted | found as itself | first | what else was said, in how many runs |\n|---|---|---|---|")
    for run in runs:
        print(line(run, judged[run.name]))
    return 0 if all(passes(run, judged[run.name]) for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
