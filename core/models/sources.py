"""Where weights come from: `builtin:tiny`, a local directory, or a hub id (cached or reachable)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.errors import ModelError
from core.models import tiny
from core.spec import ModelSpec

TINY = "builtin:tiny"


def load(spec: ModelSpec, pairs: Callable[[], Sequence[tuple[str, str]]]) -> tuple[Any, Any]:
    """(model in eval mode on its device, left-padding tokenizer). `pairs` are what the built-in model is warmed up on.

    Raises ModelError naming the source and what would help.
    """
    if spec.source == TINY:
        model, tokenizer = tiny.load(pairs())
        return model.to(dtype=getattr(torch, spec.dtype)).eval(), tokenizer
    if spec.source.startswith("builtin:"):
        raise ModelError(f"got model {spec.source!r}; the built-in models are: {TINY}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(spec.source, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(spec.source, dtype=getattr(torch, spec.dtype))
    except (OSError, ValueError) as error:
        kind = "directory" if Path(spec.source).is_dir() else "model"
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"cannot load {kind} {spec.source!r}: {reason}; give a local directory as model.source, "
            "make the hub reachable, or use --profile tiny"
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer
