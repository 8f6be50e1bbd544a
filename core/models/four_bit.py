"""Whether base weights are loaded in 4 bits: a decision over facts. Imports no torch; no GPU is asked here.

Not here: loading itself (core.models.opening), and what a whole run takes (core.health.foresight).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal, assert_never

from core.errors import SpecError

BESIDE = 0.6  # of the bytes of the weights: adapters, activations and KV cache of a small batch (an estimate)
# Bytes of a weight in nf4, of a model as large as those that need it: 4 bits and a float32 scale for each 64 of them
# are 0.5625; a seventh of Qwen2.5-7B and of 1.5B are embeddings, which stay in 2 bytes: 0.5625 * 6/7 + 2 / 7 = 0.77.
NF4 = 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """What this machine has: free bytes of its CUDA device (None: there is none), and whether bitsandbytes is here."""

    free: int | None
    bitsandbytes: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """How many weights a model has (None: not known), and bytes of each where they are not quantised."""

    count: int | None
    itemsize: int


def in_4bit(wish: Literal["never", "auto", "always"], *, lora: bool, weights: Weights, room: Room) -> bool:
    """Whether to load in 4 bits. auto: only where the weights do not fit otherwise, and it can be done.

    Raises SpecError where 4 bits are demanded and cannot be had.
    """
    match wish:
        case "always":
            _demanded(room)
            return True
        case "never":
            return False
        case "auto":
            if not lora or not room.bitsandbytes or room.free is None or weights.count is None:
                return False
            return needed(weights.count, weights.itemsize) > room.free
        case _:
            assert_never(wish)


def needed(count: int, itemsize: int, *, quantised: bool = False) -> int:
    """Bytes that a run with LoRA takes on its device, estimated from its weights. Quantised computes in bfloat16."""
    return round(count * (NF4 + 2 * BESIDE if quantised else itemsize * (1 + BESIDE)))


def has_bitsandbytes() -> bool:
    """Whether bitsandbytes is installed; importing it is not tried."""
    return importlib.util.find_spec("bitsandbytes") is not None


def _demanded(room: Room) -> None:
    if not room.bitsandbytes:
        raise SpecError(
            "got always, and bitsandbytes is not installed; pip install bitsandbytes, or set never or auto",
            key="model.load_in_4bit",
        )
    if room.free is None:
        raise SpecError("got always, and there is no CUDA device; set never or auto", key="model.load_in_4bit")
