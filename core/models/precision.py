"""In which precision weights are loaded here: `model.dtype: auto`, and whether in 4 bits. Decisions over facts.

What is here: the decisions, asking this machine (only that imports torch), and saying what came out. Not here: which
models take float32 on every machine (core.config.policy), when a run's spec is settled (grpoctl.runs.dtype), loading
itself (core.models.loading), and what a whole run takes (core.health.before).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

from core.config import Dtype, ModelSpec
from core.errors import SpecError

BF16_CAPABILITY = (8, 0)  # compute capability: from Ampere on products in bfloat16 have hardware of their own
# What torch.cpu.get_capabilities calls it. Not torch.ops.mkldnn._is_mkldnn_bf16_supported: that is true of any CPU with
# AVX-512, where bfloat16 is emulated and slower than float32. ARM's has not been measured.
BF16_CPU_FLAGS = ("amx_bf16", "avx512_bf16")
BESIDE = 0.6  # of the bytes of the weights: adapters, activations and KV cache of a small batch (an estimate)
# Bytes of a weight in nf4, of a model as large as those that need it: 4 bits and a float32 scale for each 64 of them
# are 0.5625; a seventh of Qwen2.5-7B and of 1.5B are embeddings, which stay in 2 bytes: 0.5625 * 6/7 + 2 / 7 = 0.77.
NF4_BYTES = 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFacts:
    """What a machine has: the compute capability of its CUDA device (None: there is none), what its CPU can do."""

    capability: tuple[int, int] | None = None
    cpu: Mapping[str, object] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """What models run on there, in words."""
        return "CPU" if self.capability is None else "GPU"

    @property
    def bfloat16(self) -> bool:
        """True when that has hardware for bfloat16."""
        if self.capability is not None:
            return self.capability >= BF16_CAPABILITY
        return any(self.cpu.get(name) is True for name in BF16_CPU_FLAGS)


AskMachine = Callable[[], MachineFacts]


def machine_facts(*, cuda: bool = True) -> MachineFacts:
    """The facts of this machine, as torch tells them; without `cuda` those of its CPU."""
    import torch

    if cuda and torch.cuda.is_available():
        return MachineFacts(capability=torch.cuda.get_device_capability())
    ask = getattr(torch.cpu, "get_capabilities", None)  # an older torch does not say, and may only emulate
    if ask is None or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return MachineFacts()
    return MachineFacts(cpu=ask())


def fastest_dtype(model: ModelSpec, facts: MachineFacts) -> Dtype:
    """bfloat16 where the device has hardware for it and the weights may be rounded, else float32."""
    return "bfloat16" if facts.bfloat16 and not model.needs_float32 else "float32"


def resolve_dtype(model: ModelSpec, ask: AskMachine = machine_facts) -> ModelSpec:
    """The model with a dtype that is one: `auto` as the fastest of what `ask` says. Any other is left as it is."""
    if model.dtype != "auto":
        return model
    facts = MachineFacts() if model.needs_float32 else ask()
    return model.model_copy(update={"dtype": fastest_dtype(model, facts)})


def explain_dtype(facts: MachineFacts) -> str:
    """One short line: what `auto` stands for, and why."""
    if facts.bfloat16:
        return f"dtype bfloat16 (auto: this {facts.device} has it)"
    return f"dtype float32 (auto: this {facts.device} has no hardware for bfloat16)"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRoom:
    """What this machine has: free bytes of its CUDA device (None: there is none), and whether bitsandbytes is here."""

    free: int | None
    bitsandbytes: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsSize:
    """How many weights a model has (None: not known), and bytes of each where they are not quantised."""

    count: int | None
    itemsize: int


def device_room() -> DeviceRoom:
    """What this machine has for weights."""
    import torch

    free = int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None
    return DeviceRoom(free=free, bitsandbytes=has_bitsandbytes())


def use_4bit(wish: Literal["never", "auto", "always"], *, lora: bool, weights: WeightsSize, room: DeviceRoom) -> bool:
    """True when weights are to be loaded in 4 bits. auto: only where they do not fit otherwise, and it can be done.

    Raises SpecError where 4 bits are demanded and cannot be had.
    """
    match wish:
        case "always":
            _check_4bit_possible(room)
            return True
        case "never":
            return False
        case "auto":
            if not lora or not room.bitsandbytes or room.free is None or weights.count is None:
                return False
            return lora_run_bytes(weights.count, weights.itemsize) > room.free
        case _:
            assert_never(wish)


def lora_run_bytes(count: int, itemsize: int, *, quantised: bool = False) -> int:
    """Bytes that a run with LoRA takes on its device, estimated from its weights. Quantised computes in bfloat16."""
    return round(count * (NF4_BYTES + 2 * BESIDE if quantised else itemsize * (1 + BESIDE)))


def has_bitsandbytes() -> bool:
    """True when bitsandbytes is installed; importing it is not tried."""
    return importlib.util.find_spec("bitsandbytes") is not None


def _check_4bit_possible(room: DeviceRoom) -> None:
    if not room.bitsandbytes:
        raise SpecError(
            "got always, and bitsandbytes is not installed; pip install bitsandbytes, or set never or auto",
            key="model.load_in_4bit",
        )
    if room.free is None:
        raise SpecError("got always, and there is no CUDA device; set never or auto", key="model.load_in_4bit")
