"""A folder of model files as a model and a tokenizer that fit each other, or one line that says why not.

Not here: where the folder is (core.models.loading), whether 4 bits are needed (core.models.four_bit).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, PreTrainedTokenizerFast

from core.errors import ModelError
from core.models import four_bit
from core.models.bars import quiet
from core.models.sources import builtin, local
from core.models.sources.base import Origin
from core.spec import ModelSpec

NF4 = "4-bit (nf4, bitsandbytes), products in bfloat16"
# Whatever transformers raises over a folder that it cannot use: files are the user's, and may say anything.
UNFIT = (OSError, ValueError, TypeError, LookupError, AttributeError, ImportError, RuntimeError, ArithmeticError,
         AssertionError, SafetensorError, StrictDataclassError)  # fmt: skip


def opened(folder: Path, spec: ModelSpec) -> tuple[Any, Any, bool]:
    """(model in eval mode on its device, left-padding tokenizer, whether in 4 bits).

    Raises ModelError where they cannot be read, or do not fit each other; SpecError for 4 bits that cannot be had.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        _quick_and_exact()
    held = four_bit.Weights(count=local.parameters(folder), itemsize=getattr(torch, spec.dtype).itemsize)
    quantised = four_bit.in_4bit(spec.load_in_4bit, lora=spec.lora is not None, weights=held, room=room())
    how: dict[str, Any] = {"dtype": getattr(torch, spec.dtype)}
    if quantised:
        config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        how = {"dtype": torch.bfloat16, "quantization_config": config, "device_map": {"": torch.cuda.current_device()}}
    try:
        with quiet():
            kind = PreTrainedTokenizerFast if builtin.speaks(folder) else AutoTokenizer
            tokenizer = kind.from_pretrained(
                folder, padding_side="left", local_files_only=True, trust_remote_code=spec.trust_remote_code
            )
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                output_loading_info=True,
                local_files_only=True,
                trust_remote_code=spec.trust_remote_code,
                **how,
            )
    except UNFIT as error:
        raise ModelError(_reason(error, spec, folder)) from error
    _same_weights(report, spec)
    _fit(model, tokenizer, spec)
    model.name_or_path = model.config._name_or_path = _name(folder, spec)
    return (model if quantised else model.to(device)).eval(), tokenizer, quantised


def _quick_and_exact() -> None:
    """How this process computes on a GPU."""
    # cuDNN's attention, the first choice on newer GPUs, plans anew for each shape, and micro-batches seldom share one.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Or parts of a long sum, such as the head's gradient over the vocabulary, are added in bfloat16.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def room() -> four_bit.Room:
    """What this machine has, for the decision on 4 bits."""
    free = int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None
    return four_bit.Room(free=free, bitsandbytes=four_bit.has_bitsandbytes())


def as_4bit(origin: Origin) -> Origin:
    """The origin of weights that were rounded to 4 bits while they were loaded."""
    return replace(origin, quantised=f"{origin.quantised}, then {NF4}" if origin.quantised else NF4)


def _name(folder: Path, spec: ModelSpec) -> str:
    """What an adapter of this model names as its base: the hub id where the files are the hub's, else the folder."""
    return spec.source if folder.parent.name == "snapshots" else str(folder)


def _same_weights(report: dict[str, Any], spec: ModelSpec) -> None:
    """A weight that was not in the files would be drawn at random, and trained on as if it had been."""
    absent = sorted(report.get("missing_keys") or ())
    other = sorted(str(one[0]) for one in report.get("mismatched_keys") or ())
    if absent or other:
        kind, first = ("lack", absent[0]) if absent else ("have another shape of", other[0])
        raise ModelError(
            f"the weights of {spec.source!r} {kind} {first} ({len(absent) + len(other)} such); its files do not belong "
            "together: download the model again"
        )


def _fit(model: Any, tokenizer: Any, spec: ModelSpec) -> None:
    """Ends with the model's own end where the tokenizer has none that it knows, and pads with the end likewise.

    transformers adds a token of its own where a tokenizer states none, and that one has no weights. Raises ModelError
    where no end is left.
    """
    known = model.get_input_embeddings().weight.shape[0]
    if not _within(tokenizer.eos_token_id, known):
        ends = model.generation_config.eos_token_id
        end = next((one for one in (ends if isinstance(ends, list) else [ends]) if _within(one, known)), None)
        if end is None:
            raise ModelError(
                f"{spec.source!r} has no end-of-text token among the {known} that its weights know, so no completion "
                "would end; set eos_token in its tokenizer_config.json"
            )
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    if not _within(tokenizer.pad_token_id, known):
        tokenizer.pad_token = tokenizer.eos_token


def _within(token: int | None, known: int) -> bool:
    return token is not None and token < known


def _reason(error: BaseException, spec: ModelSpec, folder: Path) -> str:
    said = " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split()).rstrip(".")
    if "trust_remote_code" in str(error):
        return (
            f"{spec.source!r} brings Python code of its own, which is not run unasked; read it in {folder}, then set "
            "model.trust_remote_code=true, or take another model"
        )
    return f"cannot load the model {spec.source!r} from {folder}: {said[:300]}; download it again, or give another"
