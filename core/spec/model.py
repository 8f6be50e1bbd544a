"""Which weights are trained, in which precision, and through which adapter."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from core.spec.part import Part, Positive, PositiveInt

Dropout = Annotated[float, Field(ge=0, lt=1)]


class LoraSpec(Part):
    """LoRA adapter; names follow peft's LoraConfig."""

    r: PositiveInt
    lora_alpha: Positive
    lora_dropout: Dropout = 0.0
    target_modules: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class ModelSpec(Part):
    """`source` is `builtin:tiny`, a local directory or a hub id; `lora: null` trains every weight."""

    source: Annotated[str, Field(min_length=1)]
    dtype: Literal["float32", "bfloat16"] = "float32"
    lora: LoraSpec | None = None
    gradient_checkpointing: bool = False
