"""Our GRPO step beside TRL's on a CUDA device: Qwen2.5 shapes with random weights, bf16, LoRA, no hub.

    python benchmarks/gpu.py [--shapes Qwen2.5-0.5B Qwen2.5-7B] [--steps 10] [--json PATH]
    python benchmarks/gpu.py --ours-alone                                        without TRL: no equality, no ratio
    python benchmarks/gpu.py --without-memory                                    no peaks, as `make gpu` runs it
    python benchmarks/gpu.py --rehearse --new-tokens 8 --groups 2 --steps 1      on any CPU: does it run?

First the loss and gradient of one batch are compared, then tokens of recorded steps with those of steps run anew, and
counted where a step waits for the device. Beside each time stands what it can at least be: decoding by memory traffic
(every weight once for each token of the batch, at the measured copy bandwidth), a step by arithmetic (at the measured
rate of a large product). Without a CUDA device it says so and measures nothing. TRL generates with transformers here,
without vLLM. `make gpu` runs this as two of its parts (benchmarks/gpu_check).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from benchmarks.trl_step.equality import equality
from benchmarks.trl_step.facts import facts
from benchmarks.trl_step.floors import (
    SHAPES,
    Shape,
    arithmetic_floor,
    copy_rate,
    decoding_floor,
    passes_of_step,
    product_rate,
    tokens_of_step,
)
from benchmarks.trl_step.on_device import agreement, waits
from benchmarks.trl_step.ours import Ours, close, own_trainer
from benchmarks.trl_step.peak import both_peaks
from benchmarks.trl_step.report import memory_lines, table
from benchmarks.trl_step.rows import headline, taken_in_turn
from benchmarks.trl_step.setting import Own, Setting, questions, write_questions
from benchmarks.trl_step.weights import random_model, tokenizer_of

OURS, THEIRS = "bfloat16", "bf16 weights"
CHECKED = "Qwen2.5-0.5B"  # the shape whose loss and gradient are compared, in fp32
REHEARSED = "a rehearsal's"
TINY = Shape(hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, vocabulary=258, tied=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What the device was measured to do: bytes and operations a second."""

    bandwidth: float
    arithmetic: float


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 1 where the two tools do not take the same step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--prompt-tokens", type=int, default=165)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--without-memory", action="store_true", help="measure no peaks: a process less for each tool")
    parser.add_argument("--ours-alone", action="store_true", help="measure our step only; needs no TRL")
    parser.add_argument("--rehearse", action="store_true", help="a tiny shape on the CPU: does this program run?")
    asked = parser.parse_args(argv)
    device = "cpu" if asked.rehearse else "cuda"
    whole: dict[str, Any] = {"schema": 1, "what": "gpu", "cuda": torch.cuda.is_available(), **facts(), "shapes": {}}
    if device == "cuda" and not whole["cuda"]:
        print("no CUDA device here: nothing was measured")
    else:
        large = {} if device == "cuda" else {"size": 2**20, "side": 256}
        rates = Rates(
            bandwidth=copy_rate(device, large.get("size", 2**30)),
            arithmetic=product_rate(device, large.get("side", 8192)),
        )
        print(f"copies {rates.bandwidth / 1e9:.0f} GB/s, products {rates.arithmetic / 1e12:.2f} TFLOP/s (bf16)")
        for name in asked.shapes if device == "cuda" else [REHEARSED]:
            found = _measured(
                name, _setting(asked), asked.steps, rates, alone=asked.ours_alone, peaks=not asked.without_memory
            )
            if found is None:
                print(
                    "error: the two tools do not take the same step, so that their times say nothing", file=sys.stderr
                )
                return 1
            whole["shapes"][name] = found
    if asked.json is not None:
        asked.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


def _setting(asked: argparse.Namespace) -> Setting:
    return Setting(
        prompt_tokens=asked.prompt_tokens,
        new_tokens=asked.new_tokens,
        beta=asked.beta,
        groups=asked.groups,
        threads=torch.get_num_threads(),
        cuda=not asked.rehearse,
    )


def _measured(
    name: str, setting: Setting, steps: int, rates: Rates, *, alone: bool, peaks: bool
) -> dict[str, Any] | None:
    """Everything of one shape, printed as it comes; None where the steps are not the same.

    `alone`: nothing of TRL, and of ours only the step as every run takes it, so that large weights are loaded once.
    `peaks`: each tool's peak memory too, unless `alone`.
    """
    shape = TINY if name == REHEARSED else SHAPES[name]
    with tempfile.TemporaryDirectory() as own:
        folder = Path(own)
        model = random_model(shape.config(), folder / "model", dtype=torch.bfloat16)
        data = write_questions(questions(tokenizer_of(model), setting), folder)
        if name in (CHECKED, REHEARSED) and not alone:
            same = equality(setting, model, data)
            print(same.line(), flush=True)
            if not same.holds:
                return None
        alike = None if alone else agreement(setting, OURS, model, data)
        print("" if alike is None else alike.line(), flush=True)
        waited = _waits(setting, model, data) if setting.cuda and not alone else Counter[str]()
        print("\n".join(f"in one step the CPU waits {count} x at {place}" for place, count in waited.most_common()))
        owns = [Own(dtype=OURS), *([] if alone else [Own(dtype=OURS, without=("recorded_steps",))])]
        run = taken_in_turn(setting, None if alone else THEIRS, owns, model, steps)
        best = headline([run])
        print("\n".join([name, "", *table([run], [] if best is None else [best])]))
        floors = floors_of(shape, setting, rates)
        decoding = run.ours[0].part("sample")
        print(f"sampling {decoding:.3f} s, decoding takes at least {floors['decoding']:.3f} s by memory traffic")
        print(f"step {run.ours[0].seconds:.3f} s, at least {floors['step']:.3f} s by arithmetic", flush=True)
        memory = None if alone or not peaks else both_peaks(setting, model, theirs=THEIRS, ours=OURS)
        print("\n".join(memory_lines([] if memory is None else [memory])), flush=True)
    return {
        "run": run.as_json(),
        "floors": floors,
        "rates": asdict(rates),
        "memory": memory,
        "agreement": None if alike is None else asdict(alike),
        "waits": dict(waited),
    }


def _waits(setting: Setting, model: Path, data: Path) -> Counter[str]:
    """Of a step that is not the first."""
    trainer = own_trainer(setting, Own(dtype=OURS), model, data)
    ours = Ours(trainer, setting)
    ours.step()
    found = waits(ours.step)
    close(trainer)
    return found


def floors_of(shape: Shape, setting: Setting, rates: Rates) -> dict[str, float]:
    """Seconds that decoding (without the prompts' pass before it) and the whole step take at least."""
    tokens = tokens_of_step(setting.groups, setting.size, setting.prompt_tokens, setting.new_tokens)
    passes = passes_of_step(beta=setting.beta)
    return {
        "decoding": decoding_floor(shape, setting.new_tokens, rates.bandwidth),
        "step": arithmetic_floor(shape, tokens, rates.arithmetic, passes=passes),
    }


if __name__ == "__main__":
    sys.exit(main())
