"""What is known of a spec's model without loading it: its shapes, and whether its weights are here. No torch."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config import ModelSpec
from core.errors import ModelError
from core.health.before.resources.shapes import PUBLISHED, Shape, from_config
from core.models import catalogue

CONFIG = "config.json"
_KEYS = {  # a GGUF file's names for what a config.json says
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "intermediate_size": "feed_forward_length",
    "head_dim": "attention.key_length",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A model by its shapes. `whence`: what says so; `folder`: its weights on this machine, None where not here."""

    source: str
    shape: Shape
    whence: str
    folder: Path | None

    @property
    def at_hand(self) -> bool:
        """Whether it can be loaded without downloading anything; the built-in one is built where it is not there."""
        return self.folder is not None or self.source.startswith("builtin:")


def known(spec: ModelSpec) -> Known:
    """Raises ModelError where nothing on this machine says what the model is like."""
    source, file = spec.source, Path(os.path.expanduser(spec.source))
    if file.is_file():
        return Known(source=source, shape=_from_gguf(file), whence=f"{file.name} itself", folder=file.parent)
    folder = catalogue.local_folder(source, spec.revision)
    config = _config(folder, spec)
    if config is not None:
        return Known(source=source, shape=from_config(_read(config), source), whence=CONFIG, folder=folder)
    if source in PUBLISHED:
        return Known(source=source, shape=PUBLISHED[source], whence="its published shapes", folder=folder)
    if source.startswith(("builtin:", ".", "/", "~")):
        raise ModelError(
            f"got model.source {source!r}, and there is no {CONFIG}; allowed: builtin:tiny, a model's folder"
        )
    raise ModelError(
        f"the shapes of {source!r} are not known here: download its configuration (hf download {source} {CONFIG}), "
        "or give a local directory as model.source"
    )


def _config(folder: Path | None, spec: ModelSpec) -> Path | None:
    """The model's config.json, also where the hub's cache holds nothing else of it."""
    if folder is not None:
        return folder / CONFIG if (folder / CONFIG).is_file() else None
    if spec.source.startswith((".", "/", "~", "builtin:")):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(spec.source, CONFIG, revision=spec.revision)
    return Path(found) if isinstance(found, str) else None


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}: {error}; download the model again") from error
    if not isinstance(found, dict):
        raise ModelError(f"{file} is no model's configuration: it holds no mapping; download the model again")
    nested = found.get("text_config")  # of a model that also sees
    return {**found, **nested} if isinstance(nested, dict) else found


def _from_gguf(file: Path) -> Shape:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer")}
        names = {tensor.name: tensor.shape for tensor in reader.tensors}
        family = str(fields["general.architecture"])
        config = {ours: fields.get(f"{family}.{theirs}") for ours, theirs in _KEYS.items()}
        vocabulary = int(max(names["token_embd.weight"]))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelError(f"{file} is not a whole GGUF file ({error}); download it again") from error
    tied = "output.weight" not in names
    return from_config(
        {**config, "vocab_size": vocabulary, "model_type": family, "tie_word_embeddings": tied}, str(file)
    )
