"""Which profile `--profile auto` stands for on this machine. Imports torch only where there may be a CUDA device."""

from __future__ import annotations

from pathlib import Path

from core.errors import UserError
from core.spec import RunSpec
from grpoctl.specs import Loaded

AUTO, TINY, FULL = "auto", "tiny", "full"
HEADROOM = 1.6  # weights x this: adapters, activations and KV cache of a small batch (an estimate, not a measurement)


def choose(full: Loaded) -> tuple[str, str]:
    """(profile, why) for a spec loaded under `full`: tiny without CUDA, full where the device can hold the model.

    Raises UserError on a CUDA machine that cannot run `full`: a toy by surprise would be worse than a question.
    """
    memory = _cuda_memory()
    if memory is None:
        if TINY in full.profiles:
            return TINY, "no CUDA device"
        return FULL, "the spec has no tiny profile"
    at_hand = _weights(full.spec)
    if at_hand is None:
        raise UserError(
            f"the model {full.spec.model.source!r} is not on this machine; download it first, "
            f"give model.source=DIRECTORY, or choose a profile ({', '.join(full.profiles)})"
        )
    if at_hand * HEADROOM > memory:
        raise UserError(
            f"{full.spec.model.source!r} needs about {at_hand * HEADROOM / 2**30:.0f} GiB, the CUDA device has "
            f"{memory / 2**30:.0f} GiB free; choose a profile ({', '.join(full.profiles)})"
        )
    return FULL, "a CUDA device with room for the model"


def _cuda_memory() -> int | None:
    """Free bytes of the first CUDA device; None where there is none."""
    if not Path("/proc/driver/nvidia").exists() and not Path("/dev/dxg").exists():
        return None
    import torch

    return int(torch.cuda.mem_get_info(0)[0]) if torch.cuda.is_available() else None


def _weights(spec: RunSpec) -> int | None:
    """Bytes of the model's weight files on this machine; None where they are not here."""
    source = spec.model.source
    if source.startswith("builtin:"):
        return 2**22
    folder = Path(source)
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache

        config = try_to_load_from_cache(source, "config.json")
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) or None
