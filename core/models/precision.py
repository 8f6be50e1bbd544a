"""`model.dtype: auto` -> the dtype that is fastest here and still sound: a decision over facts.

What is here: the decision, asking this machine (only that imports torch), and saying it. Not here: which models take
float32 on every machine (core.spec.model), and when a run's spec is settled (grpoctl.runs.dtype).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.spec import Dtype, ModelSpec

CUDA = (8, 0)  # compute capability: from Ampere on products in bfloat16 have hardware of their own
# What torch.cpu.get_capabilities calls it. Not torch.ops.mkldnn._is_mkldnn_bf16_supported: that is true of any CPU with
# AVX-512, where bfloat16 is emulated and slower than float32. ARM's has not been measured.
CPU = ("amx_bf16", "avx512_bf16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a machine has: the compute capability of its CUDA device (None: there is none), what its CPU can do."""

    capability: tuple[int, int] | None = None
    cpu: Mapping[str, object] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """What models run on there, in words."""
        return "CPU" if self.capability is None else "GPU"

    @property
    def bfloat16(self) -> bool:
        """Whether that has hardware for bfloat16."""
        if self.capability is not None:
            return self.capability >= CUDA
        return any(self.cpu.get(name) is True for name in CPU)


Ask = Callable[[], Facts]


def here(*, cuda: bool = True) -> Facts:
    """The facts of this machine, as torch tells them; without `cuda` those of its CPU."""
    import torch

    if cuda and torch.cuda.is_available():
        return Facts(capability=torch.cuda.get_device_capability())
    ask = getattr(torch.cpu, "get_capabilities", None)  # an older torch does not say, and may only emulate
    if ask is None or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return Facts()
    return Facts(cpu=ask())


def fastest_dtype(model: ModelSpec, facts: Facts) -> Dtype:
    """bfloat16 where the device has hardware for it and the weights may be rounded, else float32."""
    return "bfloat16" if facts.bfloat16 and not model.needs_float32 else "float32"


def settled(model: ModelSpec, ask: Ask = here) -> ModelSpec:
    """The model with a dtype that is one: `auto` as the fastest of what `ask` says. Any other is left as it is."""
    if model.dtype != "auto":
        return model
    facts = Facts() if model.needs_float32 else ask()
    return model.model_copy(update={"dtype": fastest_dtype(model, facts)})


def why(facts: Facts) -> str:
    """One short line: what `auto` stands for, and why."""
    if facts.bfloat16:
        return f"dtype bfloat16 (auto: this {facts.device} has it)"
    return f"dtype float32 (auto: this {facts.device} has no hardware for bfloat16)"
