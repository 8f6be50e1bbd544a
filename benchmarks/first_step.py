"""The first step of g10 on a real model, by grpoctl's own trainer and by TRL's (`trainer.kind: trl`), in float32.

    python benchmarks/first_step.py --gsm8k FOLDER [--json OUT]

SmolLM2-135M-Instruct under g10's profile small without its supervised stage, on GSM8K's questions, with an adapter at
its start, with one that was moved away from it (there the KL has a gradient), and with all weights. The same batch for
both: what ours sampled. A model this small hardly ever answers right before it was taught to, and groups of equal
rewards have no gradient, so the reward is how many different words a completion has. FOLDER has train.jsonl and
test.jsonl. Needs trl; minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from benchmarks.trl_step.first import first_step, theirs
from core.config import RunSpec
from grpoctl.config import load, plain

REWARD = f"{Path(__file__).parent / 'trl_step' / 'reward.py'}:variety"
COMMON = (
    "trainer.kind=trl", "stages.supervised=null", "stages.grpo.max_steps=1", "num_generations=4",
    "stages.grpo.max_completion_length=32",
    "evaluation.slice_by=null",
)  # fmt: skip
CASES = {
    "LoRA r=16 at its start": (),
    "LoRA r=16 moved, beta 0.1": ("beta=0.1",),
    "all weights": ("model.lora=null",),
}


def spec_of(gsm8k: Path, overrides: Sequence[str], *, profile: str = "small") -> RunSpec:
    """g10 with the questions of the folder, and a reward that differs inside groups."""
    tree = plain(load("g10", profile=profile, overrides=[*COMMON, *overrides]).spec)
    tree["task"] = {
        "name": "custom",
        "data": {"path": str(gsm8k / "train.jsonl"), "max_rows": 64},
        "prompt": "{question}",
        "train_prompts": 32,
        "eval_prompts": 2,
        "rewards": [{"function": REWARD}],
    }
    return RunSpec.model_validate(tree)


def compared(name: str, spec: RunSpec, folder: Path) -> dict[str, Any]:
    """Loss and norm of the gradient of both, and how far apart the weights are after the update."""
    from_moved = "moved" in name
    first = first_step(spec, folder, from_moved=from_moved)
    logs, trainer, _ = theirs(spec, first, folder, from_moved=from_moved)
    now = {key: one.detach() for key, one in trainer.model.named_parameters() if one.requires_grad}
    change = torch.cat([(first.after[key] - weight).flatten() for key, weight in first.before.items()])
    apart = torch.cat([(now[key] - first.after[key]).flatten() for key in first.before])
    return {
        "case": name,
        "tokens": int(first.rollout.mask_NT.sum()),
        "dead_groups": first.row["groups/dead"],
        "loss": [first.row["loss"], logs["loss"]],
        "grad_norm": [first.row["grad_norm"], logs["grad_norm"]],
        "update_apart": float(apart.norm() / change.norm()),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Compare, and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--profile", default="small", help="small: SmolLM2; tiny: the built-in model, seconds")
    parser.add_argument("--json", type=Path, default=None)
    asked = parser.parse_args(argv)
    rows = []
    for name, overrides in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compared(name, spec_of(asked.gsm8k, overrides, profile=asked.profile), Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
        if asked.json is not None:
            found = {"schema": 1, "what": "first_step", "profile": asked.profile, "rows": rows}
            asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
