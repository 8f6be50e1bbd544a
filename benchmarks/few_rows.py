"""Products of few rows with weights that come from memory: x W', as a linear layer does it, and W x.

    python benchmarks/few_rows.py [THREADS]

SmolLM2-135M's shapes, as many layers in turn as do not fit into a cache. Prints microseconds a product, medians.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import linear

SHAPES = {"q, k, v": (1008, 576), "o": (576, 576), "gate, up": (3072, 576), "down": (576, 1536), "head": (49152, 576)}
ROWS = (1, 4, 8, 16, 32, 64, 128)
BYTES = 2**26  # of the weights that are gone through in turn
ROUNDS = 7


def main(threads: int) -> None:
    """Print a table for each dtype."""
    torch.set_num_threads(threads)
    for dtype in (torch.bfloat16, torch.float32):
        print(f"\n{dtype}, {threads} threads: x W' / W x, microseconds\n")
        print("| rows | " + " | ".join(SHAPES) + " |")
        print("|---" * (1 + len(SHAPES)) + "|")
        weights = {name: _weights(shape, dtype) for name, shape in SHAPES.items()}
        for rows in ROWS:
            cells = [_cell(weights[name], rows) for name in SHAPES]
            print(f"| {rows} | " + " | ".join(cells) + " |", flush=True)


def _weights(shape: tuple[int, int], dtype: torch.dtype) -> list[Tensor]:
    layers = max(1, BYTES // (shape[0] * shape[1] * dtype.itemsize))
    return [torch.randn(shape).to(dtype) for _ in range(layers)]


def _cell(weights: Sequence[Tensor], rows: int) -> str:
    x = torch.randn(rows, weights[0].shape[1]).to(weights[0].dtype)
    x_t = x.t().contiguous()
    usual = _seconds(lambda: [linear(x, weight) for weight in weights]) / len(weights)
    other = _seconds(lambda: [weight @ x_t for weight in weights]) / len(weights)
    return f"{usual * 1e6:.0f} / {other * 1e6:.0f}"


def _seconds(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return median(seconds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
