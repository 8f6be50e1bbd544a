"""How far recorded log-probs lie from a clean forward's, sound and with the fault, by precision and temperature.

    python benchmarks/integrity.py                 the built-in model
    python benchmarks/integrity.py small           SmolLM2-135M-Instruct (minutes)

What the threshold of rollout integrity is chosen by (core.health.rules.integrity, docs/algorithms.md): a sound sampler
must stay below it in every row of this table, the fault above. The adapter is moved away from zero first, since a fresh
one adds nothing, and rounding of nothing is nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from core.assemble import build_policy
from core.config import RunSpec
from core.health.rules.integrity import max_gap
from core.policies.base import ENTROPY, Sampling
from core.policies.lm.causal_lm import update_mode
from core.randomness import TRAIN, RowKey
from core.tasks import registry
from core.training.metrics import integrity_metrics
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


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tiny")
