"""Our sampling beside transformers' `generate` on copies: same weights, adapter, prompts, number of tokens, threads.

    python benchmarks/decode.py                                    SmolLM2-135M, 4 prompts of 165 tokens, K=8, fp32
    python benchmarks/decode.py --dtype bfloat16 --prompt-tokens 57 --without shared_prefill --without inverse_cdf
    python benchmarks/decode.py --quick --json OUT                 a tiny random model, seconds

First both decode greedily and the tokens are compared; in fp32 a difference is the exit code 1. Then they sample in
turn, every row to its full length. `generate` gets the PEFT model as it is, ours is what a run does with its defaults,
texts included. Seconds are those of the clock; CPU seconds are less moved by what else runs on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from core.tasks.text import prompt_of, text_example

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor

from benchmarks.trl_step.equality import moved
from benchmarks.trl_step.facts import facts
from benchmarks.trl_step.weights import TINY_LLAMA, random_model
from core.config import LoraSpec, ModelSpec
from core.models import adapters, loading
from core.policies.base import Rollout, Sampling
from core.policies.lm.causal_lm import CausalLMPolicy, clean_mode
from core.policies.savings import Savings
from core.randomness import RowKey
from core.tasks.base import Example

SOURCE = "HuggingFaceTB/SmolLM2-135M-Instruct"
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
TEXT = "the sum of all digits is written after the word answer and no one said how it was found in the end"
NEVER = torch.tensor([-1])  # the end token of rows that shall have their full length
GENERATE, OURS = "generate", "ours"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What both sides decode."""

    dtype: str = "float32"
    prompts: int = 4
    prompt_tokens: int = 165
    size: int = 8
    new_tokens: int = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Took:
    """Seconds of one rollout."""

    clock: float
    cpu: float


def policy_of(source: str, dtype: str) -> CausalLMPolicy:
    """The model under an adapter that says something, as a run has it."""
    spec = ModelSpec.model_validate({"source": source, "dtype": dtype})
    model, tokenizer = loading.load(spec, list)
    lora = LoraSpec(r=16, lora_alpha=32.0, lora_dropout=0.0, target_modules=TARGETS)
    policy = CausalLMPolicy(adapters.with_lora(model, lora, seed=0), tokenizer)
    policy.load(moved(policy.state()))
    return policy


def examples(tokenizer: Any, count: int, tokens: int) -> list[Example]:
    """Prompts of as many words as fit into so many tokens, each beginning with another word."""

    def text(first: int, words: int) -> str:
        return " ".join(islice(cycle(TEXT.split()), first, first + words))

    def fits(words: int) -> bool:
        rows = tokenizer([text(first, words) for first in range(count)], add_special_tokens=False)["input_ids"]
        return max(len(row) for row in rows) <= tokens

    words = max((words for words in range(1, tokens + 1) if fits(words)), default=1)
    return [text_example(id=str(first), prompt=text(first, words), plain=True) for first in range(count)]


class Contest:
    """One model, and the two ways to sample from it."""

    def __init__(self, policy: CausalLMPolicy, shape: Shape) -> None:
        self.policy, self.shape = policy, shape
        self.prompts = examples(policy.tokenizer, shape.prompts, shape.prompt_tokens)
        rows = [policy.tokenizer(prompt_of(one).text, add_special_tokens=False)["input_ids"] for one in self.prompts]
        self.width = max(len(row) for row in rows)
        pad = policy.tokenizer.pad_token_id
        self.ids = torch.tensor([[pad] * (self.width - len(row)) + row for row in rows])
        self.mask = torch.tensor([[0] * (self.width - len(row)) + [1] * len(row) for row in rows])
        policy.end_ids = NEVER

    def generate(self, **how: Any) -> Tensor:
        """The new tokens of `generate`, (rows, tokens); every row has its full length."""
        n, model = self.shape.new_tokens, self.policy.model
        fixed = {"min_new_tokens": n, "max_new_tokens": n, "pad_token_id": self.policy.tokenizer.pad_token_id}
        with clean_mode(model):
            found: Tensor = model.generate(input_ids=self.ids, attention_mask=self.mask, **fixed, **how)
        return found[:, self.width :]

    def ours(self, savings: Savings, **how: Any) -> Rollout:
        """Our rollout, every row at its full length."""
        self.policy.savings = savings
        keys = [RowKey(0, 0, 0, 0, row) for row in range(self.shape.prompts * self.shape.size)]
        sampling = Sampling(**{"temperature": 1.0, "max_completion_length": self.shape.new_tokens, **how})
        return self.policy.sample(self.prompts, self.shape.size, sampling, keys)

    def greedy_agreement(self) -> float:
        """The share of the tokens that are the same where both take the likeliest, over all K copies."""
        theirs = self.generate(do_sample=False, num_return_sequences=1, eos_token_id=None)
        ours = self.ours(Savings(), top_k=1).actions["ids"]
        return float((ours == theirs.repeat_interleave(self.shape.size, 0)).float().mean())

    def ways(self, without: Sequence[str]) -> dict[str, Callable[[], object]]:
        """What is timed, by name."""
        copies = {
            "do_sample": True,
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "num_return_sequences": self.shape.size,
        }
        ours = {OURS: Savings(), **{f"ours without {name}": Savings().without(name) for name in without}}
        return {
            GENERATE: partial(self.generate, **copies),
            **{name: partial(self.ours, savings) for name, savings in ours.items()},
        }


def taken_in_turn(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[Took]]:
    """The times of every way in each round; the first round, which warms up, is left out."""
    found: dict[str, list[Took]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            clock, cpu = time.perf_counter(), time.process_time()
            way()
            found[name].append(Took(clock=time.perf_counter() - clock, cpu=time.process_time() - cpu))
    return {name: took[1:] for name, took in found.items()}


def summed_up(found: Mapping[str, Sequence[Took]], tokens: int) -> dict[str, dict[str, Any]]:
    """Of every way the medians, tokens per second, how many times `generate`'s speed that is, and all samples."""
    base = {clock: median(getattr(took, clock) for took in found[GENERATE]) for clock in ("clock", "cpu")}
    result = {}
    for name, samples in found.items():
        seconds, cpu = median(took.clock for took in samples), median(took.cpu for took in samples)
        result[name] = {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "tokens_per_second": tokens / seconds,
            "speed": base["clock"] / seconds,
            "cpu_speed": base["cpu"] / cpu,
            "samples": [asdict(took) for took in samples],
        }
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 1 where greedy tokens differ in fp32."""
    asked = _asked(argv)
    torch.set_num_threads(asked.threads)
    shape = Shape(**{name: getattr(asked, name) for name in Shape.__dataclass_fields__})
    with tempfile.TemporaryDirectory() as folder:
        source = str(random_model(TINY_LLAMA, Path(folder))) if asked.quick else asked.source
        contest = Contest(policy_of(source, shape.dtype), shape)
    agreement = contest.greedy_agreement()
    print(f"{shape.dtype}, prompts of {contest.width}: greedy tokens that are the same: {agreement:.4%}", flush=True)
    tokens = shape.prompts * shape.size * shape.new_tokens
    ways = summed_up(taken_in_turn(contest.ways(asked.without), asked.rounds), tokens)
    for name, row in ways.items():
        print(
            f"{name:>32} {row['seconds']:8.2f} s {row['tokens_per_second']:9.1f} tokens/s {row['speed']:6.2f}x"
            f"    CPU {row['cpu_seconds']:8.2f} s {row['cpu_speed']:6.2f}x"
        )
    if asked.json is not None:
        same = {"shape": asdict(shape), "width": contest.width, "threads": asked.threads, "greedy_agreement": agreement}
        model = "a tiny random llama" if asked.quick else asked.source
        whole = {"schema": 1, "what": "decode", **facts(), "model": model, **same, "ways": ways}
        asked.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return int(shape.dtype == "float32" and agreement < 1)


def _asked(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=SOURCE, help="model.source")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default=Shape().dtype)
    for name in ("prompts", "prompt_tokens", "size", "new_tokens"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Shape(), name))
    parser.add_argument("--without", nargs="+", action="extend", default=[], metavar="NAME", help="a saving, measured")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, after one that is left out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tiny random model: does it run?")
    parser.add_argument("--json", type=Path, default=None)
    asked = parser.parse_args(argv)
    try:
        Savings().without(*asked.without)
    except ValueError as error:
        parser.error(str(error))
    return asked


if __name__ == "__main__":
    sys.exit(main())
