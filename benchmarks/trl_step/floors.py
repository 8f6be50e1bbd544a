"""The least time that a step can take on a device, from the model's shape: by memory traffic, and by arithmetic.

Pure; `copy_rate` and `product_rate` measure the device. Biases and norms are left out: less than a thousandth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.trl_step.watch import Watch

BF16 = 2  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A Qwen2 model's; the names are those of its transformers configuration, shortened."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool  # whether the embedding is the head

    @property
    def products(self) -> int:
        """Weights that every token is multiplied with: all but an embedding of its own, of which it reads one row."""
        attention = 2 * self.hidden**2 + 2 * self.hidden * (self.hidden // self.heads) * self.kv_heads
        return self.layers * (attention + 3 * self.hidden * self.intermediate) + self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.products + (0 if self.tied else self.vocabulary * self.hidden)

    def config(self) -> dict[str, Any]:
        """As transformers writes it."""
        return {
            "model_type": "qwen2",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": 4096,
        }


SHAPES = {
    "Qwen2.5-0.5B": Shape(
        hidden=896, intermediate=4864, layers=24, heads=14, kv_heads=2, vocabulary=151_936, tied=True
    ),
    "Qwen2.5-7B": Shape(
        hidden=3584, intermediate=18_944, layers=28, heads=28, kv_heads=4, vocabulary=152_064, tied=False
    ),
}


def decoding_floor(shape: Shape, tokens: int, bandwidth: float) -> float:
    """Seconds: each of `tokens` tokens of a batch reads every weight in bf16 once, at `bandwidth` bytes a second."""
    return tokens * shape.products * BF16 / bandwidth


def arithmetic_floor(shape: Shape, tokens: int, rate: float, *, passes: int = 1) -> float:
    """Seconds: two operations for each weight and token in each pass, at `rate` operations a second."""
    return passes * 2 * shape.products * tokens / rate


def tokens_of_step(groups: int, size: int, prompt: int, new: int) -> int:
    """Tokens that a step must run once in each pass: every prompt once, every completion."""
    return groups * (prompt + size * new)


def passes_of_step(*, beta: float) -> int:
    """Sampling, forward, backward (to activations: the weights under an adapter have no gradient), the reference."""
    return 3 + (beta > 0)


def copy_rate(device: str, size: int = 2**30) -> float:
    """Bytes a second that the device moves while it copies: each is read, and written."""
    import torch

    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _best(lambda: target.copy_(source), cuda=device == "cuda")


def product_rate(device: str, side: int = 8192) -> float:
    """Operations a second of a large bf16 product on the device."""
    import torch

    a = torch.randn(side, side, dtype=torch.bfloat16, device=device)
    return 2 * side**3 / _best(lambda: a @ a, cuda=device == "cuda")


def _best(work: Callable[[], object], times: int = 20, *, cuda: bool) -> float:
    """The least seconds of so many times, one to warm up."""
    found = []
    for _ in range(times + 1):
        watch = Watch(cuda=cuda)
        work()
        found.append(watch.read()[0])
    return min(found[1:])
