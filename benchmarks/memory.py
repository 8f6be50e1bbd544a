"""How well memory is foretold: `grpoctl check --resources`'s estimates beside what its probe measures, phase by phase.

    python benchmarks/memory.py                       the built-in model
    python benchmarks/memory.py FOLDER [CASE]...      a model in a folder (SmolLM2-135M-Instruct), all cases or these

Prints for each case and phase the estimate at the probe's own lengths, the peak that was measured, and the difference.
"""

from __future__ import annotations

import sys

from core.health.before.resources.memory import Place, Tokens, phases
from grpoctl.config import load
from grpoctl.resources.model import known_model
from grpoctl.resources.probe import measure

SHORT = ["max_completion_length=32", "num_generations=4"]
CASES = {
    "K=4, 32 tokens": SHORT,
    "no KL": [*SHORT, "beta=0"],
    "two micro-batches": [*SHORT, "gradient_accumulation_steps=2"],
    "checkpointing": [*SHORT, "model.gradient_checkpointing=true"],
    "bfloat16": [*SHORT, "model.dtype=bfloat16"],
    "autocast": [*SHORT, "model.mixed_precision=bf16"],
    "dropout": [*SHORT, "model.lora.lora_dropout=0.05"],
    "every linear layer": [
        *SHORT,
        "model.lora.target_modules=[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]",
    ],
    "all weights": [*SHORT, "model.lora=null"],
    "the last two blocks": [*SHORT, "model.lora=null", "model.trainable=['model.layers.28.*', 'model.layers.29.*']"],
}
TINY, MIB = "builtin:tiny", 2**20


def main(source: str, wanted: list[str]) -> None:
    """Run the cases and print a line for each phase."""
    print(f"{'case':<22} {'phase':<8} {'estimated':>10} {'measured':>10} {'difference':>10}")
    for name, overrides in CASES.items():
        if (wanted and name not in wanted) or (source == TINY and "blocks" in name):
            continue
        spec = load("p31", profile="tiny", overrides=[*overrides, f"model.source={source}"]).spec
        probe = measure(spec, 4)
        if probe.why is not None:
            print(f"{name:<22} {probe.why}")
            continue
        step = probe.step("grpo", full=True)
        tokens = Tokens(prompt=step["prompt_tokens"], answer=0)
        for phase in phases(spec, known_model(spec.language_model).shape, tokens, Place(device="cpu", memory=2**40)):
            if phase.stage:
                found = step["peaks"][phase.name]
                off = phase.bytes / found - 1
                print(
                    f"{name:<22} {phase.name:<8} {phase.bytes / MIB:>7.0f} MiB {found / MIB:>6.0f} MiB {off:>+10.0%}",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else TINY, sys.argv[2:])
