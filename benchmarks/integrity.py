"""How far recorded log-probs lie from a clean forward's, sound and with the fault, by precision and temperature.

    python benchmarks/integrity.py                        the built-in model
    python benchmarks/integrity.py small                  SmolLM2-135M-Instruct (minutes)
    python benchmarks/integrity.py tiny --faults          when each fault is found, and when it could be
    python benchmarks/integrity.py tiny --healthy 10      sound bf16 runs of 100 steps, 10 seeds of each precision

What the threshold of rollout integrity is chosen by (core.health.rules.integrity, docs/algorithms.md): a sound sampler
must stay below it in every row of this table, the fault above. The adapter is moved away from zero first, since a fresh
one adds nothing, and rounding of nothing is nothing.

The two other tables are of runs, judged by their own noise as well (core.health.own_noise). A fault is to be found
within two measured steps of the first on which its own gap is three times the run's noise. KEY=VALUE changes the runs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch

from core.assemble import assemble, build_policy, open_checkpoints
from core.config import RunSpec
from core.health.finding import Row
from core.health.own_noise import CANARY_COLUMNS, GROUP_COLUMNS, noise_factor, noise_of, times
from core.health.rules.integrity import max_gap, noise_integrity, rollout_integrity
from core.policies.base import ENTROPY, Sampling
from core.policies.lm.causal_lm import update_mode
from core.randomness import TRAIN, RowKey
from core.tasks import registry
from core.training.metrics import integrity_metrics
from core.training.trainer import drive
from grpoctl.config import load

PRECISIONS = {
    "fp32": ["model.dtype=float32"],
    "bf16 weights": ["model.dtype=bfloat16"],
    "bf16 autocast": ["model.dtype=float32", "model.mixed_precision=bf16"],
}
TEMPERATURES = (1.0, 0.6, 0.3, 0.15)
PROMPTS, K = 4, 8


def gaps(spec: RunSpec, *, faulty: bool) -> list[tuple[float, float]]:
    """(mean, largest) gap of one rollout at each temperature."""
    policy = build_policy(spec)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in policy.trainable().values():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    prompts, found = registry.build(spec.task).examples("eval")[:PROMPTS], []
    rows = list(range(PROMPTS * K))
    for temperature in TEMPERATURES:
        if faulty:
            update_mode(policy._policy.model, checkpointing=True)  # type: ignore[attr-defined]  # as an update leaves it
        how = Sampling(temperature=temperature, max_completion_length=spec.max_completion_length)
        rollout = policy.sample(prompts, K, how, [RowKey(0, TRAIN, 1, 0, row) for row in rows])
        with torch.no_grad():
            clean = policy.score(rollout, rows, wants=frozenset({ENTROPY}), weights="current")
        seen = integrity_metrics(rollout, rows, clean)
        found.append((seen["rollout/logprob_gap"], seen["rollout/logprob_gap_max"]))
    return found


def main(profile: str) -> None:
    """Print the table."""
    print(f"profile {profile}: mean gap (largest token) in nats over {PROMPTS * K} rows, threshold of the mean")
    for name, overrides in PRECISIONS.items():
        for faults in ([], ["faults=[rollout-in-train-mode]"]):
            spec = load("p31", profile=profile, overrides=[*overrides, *faults]).spec
            measured = gaps(spec, faulty=bool(faults))
            print(f"{name}, {'fault' if faults else 'sound'}", *_cells(spec, measured), sep="\n    ")


def _cells(spec: RunSpec, measured: Sequence[tuple[float, float]]) -> list[str]:
    return [
        f"T={temperature:<5g} {mean:10.3g} ({most:.3g})   at most {max_gap(spec.computes_in, temperature):.3g}"
        for temperature, (mean, most) in zip(TEMPERATURES, measured, strict=True)
    ]


FAULTS = ("stale-sampler-weights", "stale-prefix", "wrong-adapter", "rollout-in-train-mode")
WARN = ("guards.rollout_integrity=warn", "guards.collapse=off", "evaluation.eval_steps=1000")


class Rows:
    """The rows of a run, kept."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def step_done(self, row: Row, samples: Sequence[Mapping[str, object]], timings: Mapping[str, float]) -> None:
        """One more."""
        self.rows.append(row)


def rows_of(profile: str, overrides: Sequence[str]) -> tuple[RunSpec, list[Row]]:
    """What a run of p31 records."""
    spec, kept = load("p31", profile=profile, overrides=overrides).spec, Rows()
    with tempfile.TemporaryDirectory() as folder:
        drive(assemble(spec, open_checkpoints(spec, Path(folder))).steps(), kept)
    return spec, kept.rows


def found_at(spec: RunSpec, rows: Sequence[Row]) -> int | None:
    """The step on which the live guard would have ended the run."""
    for at, row in enumerate(rows):
        if rollout_integrity(row, dtype=spec.computes_in) or noise_integrity(rows[: at + 1]):
            return int(row["step"] or 0)
    return None


def could_be_at(spec: RunSpec, rows: Sequence[Row]) -> int | None:
    """The first step whose group or canary has a gap of three times the run's noise."""
    factor = noise_factor(spec.guards) or 1.0
    noise = noise_of(rows[0], spec.computes_in, factor)
    assert noise is not None
    for row in rows:
        gap, detectable = (row.get(name) or 0.0 for name in GROUP_COLUMNS)
        of_group = factor * gap / detectable if detectable else 0.0
        if max(of_group, (row.get(CANARY_COLUMNS[0]) or 0.0) / noise.largest) >= 3:
            return int(row["step"] or 0)
    return None


def largest(rows: Sequence[Row], columns: tuple[str, str]) -> float:
    """The largest average of two gaps in a row in units of what is still noise."""
    values = [0.0, *(value for row in rows if (value := times(row, *columns)) is not None)]
    return max(((one + other) / 2 for one, other in pairwise(values)), default=0.0)


def detection(profile: str, steps: int, overrides: Sequence[str]) -> None:
    """Print when each fault is found in each precision."""
    print("precision | fault | noise (mean) | detectable at first | three times the noise at step | found at step")
    for name, precision in PRECISIONS.items():
        for fault in FAULTS:
            more = [*precision, *WARN, f"faults=[{fault}]", f"stages.grpo.max_steps={steps}", *overrides]
            spec, rows = rows_of(profile, more)
            noise, mean, detectable = (
                rows[0]["rollout/noise"],
                rows[0]["rollout/noise_mean"],
                next(row[GROUP_COLUMNS[1]] for row in rows if GROUP_COLUMNS[1] in row),
            )
            print(
                f"{name} | {fault} | {noise:.2g} ({mean:.2g}) | {detectable:.2g} | {could_be_at(spec, rows)} | "
                f"{found_at(spec, rows)}",
                flush=True,
            )


def healthy(profile: str, steps: int, seeds: int, overrides: Sequence[str]) -> None:
    """Print what the guard says of sound runs in bf16, and how near they come to it."""
    print("precision | seed | steps | stopped at | largest group | largest canary, in units of the limit")
    for name in ("bf16 weights", "bf16 autocast"):
        for seed in range(seeds):
            more = [*PRECISIONS[name], *WARN[1:], f"seed={seed}", f"stages.grpo.max_steps={steps}", *overrides]
            spec, rows = rows_of(profile, ["guards.rollout_integrity=warn", *more])
            near = f"{largest(rows, GROUP_COLUMNS):.2f} | {largest(rows, CANARY_COLUMNS):.2f}"
            print(f"{name} | {seed} | {rows[-1]['step']} | {found_at(spec, rows)} | {near}", flush=True)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("profile", nargs="?", default="tiny")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--healthy", type=int, default=0, metavar="SEEDS")
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    asked = arguments()
    torch.set_num_threads(1)
    if asked.faults:
        detection(asked.profile, asked.steps, asked.overrides)
    elif asked.healthy:
        healthy(asked.profile, asked.steps, asked.healthy, asked.overrides)
    else:
        main(asked.profile)
