"""What a run leaves, in the forms that peft and transformers read: written, put back on its base, merged into it.

Not here: where base weights come from (sources), the model card and which files a run has (grpoctl.runs).
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from core.errors import ModelError, StorageError
from core.models.bars import quiet

ADAPTER = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def save(model: Any, folder: Path) -> None:
    """A PEFT model's adapter alone, another model whole, in safetensors. The base of an adapter is named by its path
    or hub id, as it was loaded. Raises StorageError.
    """
    # `auto` would ask the hub whether an embedding grew; ours never do.
    words = {} if getattr(model, "peft_config", None) is None else {"save_embedding_layers": False}
    try:
        with quiet():
            model.save_pretrained(folder, **words)
    except SafetensorError as error:  # so it tells of a disk that refuses
        raise StorageError(f"cannot write {folder}: {_line(error)}; free some space") from error


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds a PEFT adapter."""
    return (folder / ADAPTER).is_file()


def base_of(folder: Path) -> str:
    """The path or hub id of the model that an adapter is for. Raises ModelError where it does not say."""
    try:
        base = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"cannot read {folder / ADAPTER}: {_line(error)}; export the adapter again") from error
    if not isinstance(base, str) or not base:
        raise ModelError(f"{folder / ADAPTER} names no base model; set base_model_name_or_path in it")
    return base


def with_adapter(model: Any, folder: Path) -> Any:
    """The model under the adapter of a folder, in eval mode, nothing of it trainable.

    Raises ModelError where the adapter is damaged or is another model's.
    """
    from peft import PeftModel  # importing peft costs a second: a model without an adapter does not pay it

    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ModelError(f"{folder} has no {ADAPTER_WEIGHTS}; export the adapter again")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            adapted = PeftModel.from_pretrained(model, str(folder))
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the adapter in {folder} does not fit its base model: {_line(error)}") from error
    missing = [str(one.message) for one in said if "missing adapter keys" in str(one.message).lower()]
    if missing:
        raise ModelError(f"the adapter in {folder} lacks weights: {missing[0].splitlines()[0]}; export it again")
    return adapted.eval()


def merge(adapted: Any) -> Any:
    """The plain model with the adapter added into its weights; the PEFT model is used up.

    Raises ModelError for a base in 4 or 8 bits: what is added would be rounded away.
    """
    if quantised(adapted):
        raise ModelError(
            "cannot merge an adapter into 4-bit weights: rounding to 4 bits would lose it; leave it an adapter, or "
            "load the base with model.load_in_4bit=never"
        )
    if shared := _shared(adapted):
        raise ModelError(
            f"cannot merge an adapter on {shared}: it shares its weight with another layer, which would be changed "
            "too; leave it an adapter"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:  # weights that are not finite
        raise ModelError(f"cannot merge the adapter: {_line(error)}") from error


def quantised(model: Any) -> bool:
    """Whether the weights are held in 4 or 8 bits."""
    return bool(getattr(model, "is_loaded_in_4bit", False) or getattr(model, "is_loaded_in_8bit", False))


def _shared(adapted: Any) -> str | None:
    """The first layer under an adapter whose weight another layer has too (tied embeddings)."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    owners = Counter(id(p) for module in adapted.modules() for p in module.parameters(recurse=False))
    layers = {name: module for name, module in adapted.named_modules() if isinstance(module, BaseTunerLayer)}
    return next((name for name, one in layers.items() if owners[id(one.get_base_layer().weight)] > 1), None)


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return " ".join(text.splitlines()[0].split()).rstrip(".") if text else type(error).__name__
