"""Which profile `--profile auto` stands for on this machine. Imports torch only where there may be a CUDA device."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from core.config import ModelSpec, RunSpec
from core.errors import SpecError, UserError
from core.models import catalogue, precision
from core.models.sources import local
from grpoctl.config import Loaded, Revisions, load
from grpoctl.resources.machine import free_cuda_memory

AUTO, TINY, MEDIUM, FULL = "auto", "tiny", "medium", "full"


def full_of(name: str, overrides: Sequence[str], revisions: Revisions | None = None) -> Loaded:
    """An experiment under `full`, which `auto` is chosen by.

    Overrides that are invalid under `full` may be valid under what is chosen: they are then left out. Raises SpecError
    where `full` is what would be taken.
    """
    try:
        return load(name, overrides=overrides, revisions=revisions)
    except SpecError:
        with suppress(UserError):
            plain = load(name, revisions=revisions)
            if choose(plain)[0] != FULL:
                return plain
        raise


def resolve(option: str, full: Callable[[], Loaded]) -> tuple[str, str]:
    """(profile, why) for what `--profile` says: that profile, or for `auto` the one that `choose` takes.

    Raises UserError as `choose` does, and what loading `full` raises.
    """
    if option != AUTO:
        return option, "as asked"
    profile, why = choose(full())
    return profile, f"{AUTO}: {why}"


def resolve_or_full(option: str, full: Callable[[], Loaded]) -> tuple[str, str]:
    """As `resolve`, for what only looks: where nothing could be chosen, `full` and why not."""
    if option != AUTO:
        return option, "as asked"
    loaded = full()
    try:
        return resolve(option, lambda: loaded)
    except UserError as error:
        return FULL, f"{AUTO} takes none: {error}"


def choose(full: Loaded) -> tuple[str, str]:
    """(profile, why) for a spec loaded under `full`: tiny without CUDA, full where the device can hold the model.

    Raises UserError on a CUDA machine that cannot run `full`: a toy by surprise would be worse than a question.
    """
    memory = free_cuda_memory()
    if memory is None:
        if TINY in full.profiles:
            return TINY, "no CUDA device"
        return FULL, "the spec has no tiny profile"
    if full.spec.model is None:
        return FULL, "a CUDA device, and a policy without a model to hold"
    source, held = full.spec.model.source, _weights(full.spec)
    if held.count is None:
        download = "" if source.startswith((".", "/", "~")) else f" (hf download {source})"
        raise UserError(
            f"the model {source!r} is not on this machine; download it first{download}, give model.source=DIRECTORY, "
            f"or {_choice(full)}"
        )
    quantised = _in_4bit(full.spec, held, memory)
    needed = precision.lora_run_bytes(held.count, held.itemsize, quantised=quantised)
    how = " in 4 bits" if quantised else ""
    if needed > memory:
        raise UserError(
            f"{source!r} needs about {needed / 2**30:.0f} GiB{how}, the CUDA device has {memory / 2**30:.0f} GiB free; "
            f"{_choice(full)}"
        )
    return FULL, f"a CUDA device with room for the model{how}"


def _choice(full: Loaded) -> str:
    """The profiles there are, and what the middle one is for."""
    question = f"choose a profile ({', '.join(full.profiles)})"
    return f"{question}; {MEDIUM} is for one GPU of 24 GB" if MEDIUM in full.profiles else question


def _in_4bit(spec: RunSpec, held: precision.WeightsSize, memory: int) -> bool:
    room = precision.DeviceRoom(free=memory, bitsandbytes=precision.has_bitsandbytes())
    return precision.use_4bit(
        spec.language_model.load_in_4bit, lora=spec.language_model.lora is not None, weights=held, room=room
    )


def _weights(spec: RunSpec) -> precision.WeightsSize:
    """The model's weights, counted in its files on this machine; a count of None where they are not here."""
    itemsize = 4 if precision.resolve_dtype(spec.language_model).dtype == "float32" else 2
    return precision.WeightsSize(count=parameter_count(spec.language_model), itemsize=itemsize)


def parameter_count(model: ModelSpec) -> int | None:
    """How many weights the files of a model have; None where none are on this machine."""
    if model.source.startswith("builtin:"):
        return 2**20
    file = Path(os.path.expanduser(model.source))
    if file.is_file():
        from core.models.sources.gguf_file import read_content

        return read_content(file).parameters
    folder = catalogue.local_folder(model.source, model.revision)
    if folder is None:
        return None
    size = sum(file.stat().st_size for file in local.weight_files(folder) if file.is_file())
    return (
        local.count_parameters(folder) or -(-size // 2) or None
    )  # files without a count: two bytes a weight, as published
