"""Counter-based randomness: what a row draws depends on its key alone.

Not on which rows share its batch, not on what was drawn before, not on the process: so a resumed run draws what the
undisturbed one would have drawn. Every use of randomness has a purpose number of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

TRAIN, EVALUATE, INIT, DROPOUT, ORDER, PREVIEW, CHOICE, PROBE = range(8)


class RowKey(NamedTuple):
    """Names one row's randomness: every uniform a row draws is a pure function of its key and a counter."""

    seed: int
    purpose: int
    step: int
    attempt: int
    row: int


def uniforms(keys: Sequence[RowKey], count: int) -> Tensor:
    """`count` float64 uniforms in [0, 1) for each key: (N,) keys -> (N, count)."""
    rows = [np.random.Generator(np.random.Philox(np.random.SeedSequence(key))).random(count) for key in keys]
    return torch.from_numpy(np.stack(rows))


def permutation(key: RowKey, count: int) -> list[int]:
    """A permutation of range(count) that belongs to the key."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
    return [int(index) for index in generator.permutation(count)]


@contextmanager
def seeded(key: RowKey) -> Iterator[None]:
    """Torch's global generators seeded by the key inside, and as they were afterwards.

    For what only draws from the global generator: dropout and the initialisation of adapters.
    """
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1)
    with torch.random.fork_rng():
        # Not torch.manual_seed: where a machine has no GPU, that notes the call for one that may come, with its stack.
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        yield
