"""How far recorded log-probs lie from a clean forward's, sound and with the fault, by precision and temperature.

    python benchmarks/integrity.py                        the built-in model
    python benchmarks/integrity.py small                  SmolLM2-135M-Instruct (minutes)
    python benchmarks/integrity.py tiny --faults          when each fault is found, and when it could be
    python benchmarks/integrity.py tiny --healthy 10      sound runs of 100 steps, 10 seeds of each precision
    python benchmarks/integrity.py small --cost           the canary's share of a step of p31's profile

What the threshold of rollout integrity is chosen by (core.health.rules.integrity, docs/algorithms.md): a sound sampler
must stay below it in every row of this table, the fault above. The adapter is moved away from zero first, since a fresh
one adds nothing, and rounding of nothing is nothing.

The two other tables are of runs, judged by their own noise as well (core.health.own_noise). A fault is to be found
within two measured steps of the first on which its own gap is three times the run's noise. KEY=VALUE changes the runs;
those of a large model are cut short (CHEAP), except for the cost, which is of the profile's own steps.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from core.assemble import assemble, build_policy, open_checkpoints
from core.config import RunSpec
from core.health.case import case_of
from core.health.examine import examine
from core.health.finding import Row
from core.health.own_noise import CANARY, CANARY_COLUMNS, GROUP_COLUMNS, noise_factor, times
from core.health.rules.integrity import max_gap, noise_integrity, rollout_integrity
from core.policies.base import ENTROPY, Rollout, Sampling, Scores, Weights
from core.policies.lm import causal_lm
from core.policies.lm.causal_lm import CausalLMPolicy, update_mode
from core.randomness import TRAIN, RowKey
from core.tasks import registry
from core.training.metrics import integrity_metrics
from core.training.requests import Evaluated
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
# Steps of two or three seconds on one thread. Few of its groups would teach anything: the supervised loss beside theirs
# moves the weights on every step.
CHEAP = {
    "small": (
        *("stages.supervised.max_steps=8", "stages.supervised.prompts_per_step=4"),
        *("stages.supervised.max_completion_length=24", "stages.grpo.max_completion_length=16"),
        *("stages.grpo.prompts_per_step=1", "stages.grpo.num_generations=4", "stages.grpo.supervised_weight=1.0"),
        *("task.eval_prompts=16", "evaluation.num_generations_eval=1"),
    )
}
INTEGRITY = frozenset({"rollout-integrity", "rollout-mode", "scoring-noise", "stale-sampler"})


class Rows:
    """The rows of a run, kept."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def step_done(
        self,
        row: Row,
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: Evaluated | None = None,
    ) -> None:
        """One more."""
        self.rows.append(row)


def rows_of(profile: str, overrides: Sequence[str]) -> tuple[RunSpec, list[Row]]:
    """What a cheap run of p31 records; of two overrides of one key the later counts."""
    last = {pair.partition("=")[0]: pair for pair in (*CHEAP.get(profile, ()), *overrides)}
    spec, kept = load("p31", profile=profile, overrides=list(last.values())).spec, Rows()
    with tempfile.TemporaryDirectory() as folder:
        drive(assemble(spec, open_checkpoints(spec, Path(folder))).steps(), kept)
    return spec, kept.rows


def found_at(spec: RunSpec, rows: Sequence[Row]) -> int | None:
    """The step on which the live guard would have ended the run."""
    for at, row in enumerate(rows):
        if rollout_integrity(row, dtype=spec.computes_in) or noise_integrity(rows[: at + 1]):
            return int(row["step"] or 0)
    return None


def times_the_noise(spec: RunSpec, row: Row) -> float:
    """A step's larger gap, its group's or its canary's, in units of the run's noise for as many effective tokens."""
    factor = noise_factor(spec.guards) or 1.0
    of_group, of_canary = (times(row, *columns) or 0.0 for columns in (GROUP_COLUMNS, CANARY_COLUMNS))
    return max(factor * of_group, CANARY * factor * of_canary)


def could_be_at(spec: RunSpec, rows: Sequence[Row]) -> int | None:
    """The first step whose group or canary has a gap of three times the run's noise."""
    return next((int(row["step"] or 0) for row in rows if times_the_noise(spec, row) >= 3), None)


def largest(rows: Sequence[Row], columns: tuple[str, str]) -> float:
    """The largest average of two gaps in a row in units of what is still noise."""
    values = [0.0, *(value for row in rows if (value := times(row, *columns)) is not None)]
    return max(((one + other) / 2 for one, other in pairwise(values)), default=0.0)


def detection(profile: str, steps: int, precisions: Sequence[str], overrides: Sequence[str]) -> None:
    """Print when each fault is found in each precision; steps count from the first that samples."""
    print("precision | fault | noise (mean) | detectable | largest gap in noises | three times at step | found at step")
    for name in precisions:
        for fault in FAULTS:
            more = [*PRECISIONS[name], *WARN, f"faults=[{fault}]", f"stages.grpo.max_steps={steps}", *overrides]
            spec, rows = rows_of(profile, more)
            sampled = [row for row in rows if "rollout/logprob_gap" in row]
            before = int(sampled[0]["step"] or 0) - 1
            could, stop = (
                None if at is None else at - before for at in (could_be_at(spec, rows), found_at(spec, rows))
            )
            detectable = [row[GROUP_COLUMNS[1]] or 0.0 for row in sampled]
            print(
                f"{name} | {fault} | {rows[0]['rollout/noise']:.2g} ({rows[0]['rollout/noise_mean']:.2g}) | "
                f"{min(detectable):.2g} to {max(detectable):.2g} | "
                f"{max(times_the_noise(spec, row) for row in sampled):.3g} | {could} | {stop}",
                flush=True,
            )


def healthy(profile: str, steps: int, seeds: int, precisions: Sequence[str], overrides: Sequence[str]) -> None:
    """Print what the guard and the diagnosis say of sound runs, and how near they come to it."""
    print(
        "precision | seed | steps, updates | stopped at | findings | largest group, canary in their limits (one step)"
    )
    for name in precisions:
        for seed in range(seeds):
            more = [*PRECISIONS[name], *WARN, f"seed={seed}", f"stages.grpo.max_steps={steps}", *overrides]
            spec, rows = rows_of(profile, more)
            sampled = [row for row in rows if "rollout/logprob_gap" in row]
            findings = [finding.id for finding in examine(case_of(spec, rows)) if finding.id in INTEGRITY]
            near = [
                f"{largest(rows, columns):.2f} ({max(times(row, *columns) or 0.0 for row in rows):.2f})"
                for columns in (GROUP_COLUMNS, CANARY_COLUMNS)
            ]
            print(
                f"{name} | {spec.seed} | {len(sampled)}, {sum(int(row['update'] or 0) for row in sampled)} | "
                f"{found_at(spec, rows)} | {findings} | {' | '.join(near)}",
                flush=True,
            )


class CanaryClock:
    """What the canary adds to each step of a run, in seconds; the run asks it on every step.

    The sampler's part is timed; the trainer's is the group's forward with the canary less the same without it, in turns
    the one first and the other, and the second of them is taken off the step.
    """

    def __init__(self, policy: CausalLMPolicy) -> None:
        self.steps: list[tuple[float, float, float, bool]] = []  # the step without it, its parts, whether it updated
        self._score = policy.score
        self._sampler_logprobs = causal_lm.sampler_logprobs  # type: ignore[attr-defined]
        self._sampler = self._trainer = self._again = 0.0
        policy.canary_every = 1
        policy.score = self._scored  # type: ignore[method-assign]
        causal_lm.sampler_logprobs = self._sampled  # type: ignore[attr-defined]

    def _sampled(self, model: Any, rollout: Rollout, temperature: float) -> Tensor:
        began = time.perf_counter()
        logprobs = self._sampler_logprobs(model, rollout, temperature)
        self._sampler = time.perf_counter() - began
        return logprobs

    def _scored(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        if rollout.canary_T is None or rollout.drawn_NT is not None:  # nothing recorded: the canary was joined to it
            return self._score(rollout, rows, wants=wants, weights=weights)
        seconds: dict[int, float] = {}
        scores: dict[int, Scores] = {}
        for part in (rows, rows[:-1]) if len(self.steps) % 2 else (rows[:-1], rows):
            began = time.perf_counter()
            scores[len(part)] = self._score(rollout, part, wants=wants, weights=weights)
            seconds[len(part)] = time.perf_counter() - began
        self._again = seconds[len(rows) - 1]
        self._trainer = seconds[len(rows)] - self._again
        return scores[len(rows)]

    def step_done(
        self,
        row: Row,
        samples: Sequence[Mapping[str, object]],
        timings: Mapping[str, float],
        evaluated: Evaluated | None = None,
    ) -> None:
        """A step, unless it was evaluated or the canary was not in it."""
        if self._sampler and "evaluate" not in timings:
            rest = timings["total"] - self._sampler - self._trainer - self._again
            self.steps.append((rest, self._sampler, self._trainer, bool(row["update"])))
        self._sampler = self._trainer = self._again = 0.0


def cost(profile: str, steps: int, overrides: Sequence[str]) -> None:
    """Print the canary's share of a step of the profile, asked on every step and as often as it is due."""
    more = ["evaluation.eval_steps=1000", f"stages.grpo.max_steps={steps}", *overrides]
    spec = load("p31", profile=profile, overrides=more).spec
    with tempfile.TemporaryDirectory() as folder:
        trainer = assemble(spec, open_checkpoints(spec, Path(folder)))
        assert isinstance(trainer.policy, CausalLMPolicy)
        every, clock = trainer.policy.canary_every, CanaryClock(trainer.policy)
        drive(trainer.steps(), clock)
    print(f"{torch.get_num_threads()} threads, due on every {every} steps")
    print(
        "steps | ms of a step without it, median (mean) | sampler's part | trainer's part | % on every step | when due"
    )
    for name, chosen in (("all", clock.steps), ("with an update", [step for step in clock.steps if step[3]])):
        rest, sampler, trainers = ([1000 * float(step[at]) for step in chosen] for at in range(3))
        share = 100 * (median(sampler) + median(trainers)) / median(rest)
        of_means = 100 * (fmean(sampler) + fmean(trainers)) / fmean(rest)
        print(
            f"{len(chosen)} {name} | {median(rest):.1f} ({fmean(rest):.1f}) | {median(sampler):.1f} | "
            f"{median(trainers):.1f} | {share:.1f} ({of_means:.1f}) | {share / every:.1f} ({of_means / every:.1f})"
        )


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("profile", nargs="?", default="tiny")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--healthy", type=int, default=0, metavar="SEEDS")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--precisions", nargs="+", choices=list(PRECISIONS), default=list(PRECISIONS))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    asked = arguments()
    torch.set_num_threads(asked.threads)
    if asked.faults:
        detection(asked.profile, asked.steps, asked.precisions, asked.overrides)
    elif asked.cost:
        cost(asked.profile, asked.steps, asked.overrides)
    elif asked.healthy:
        healthy(asked.profile, asked.steps, asked.healthy, asked.precisions, asked.overrides)
    else:
        main(asked.profile)
