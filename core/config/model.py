"""Which weights are trained, in which precision, and through which adapter."""

from __future__ import annotations

from typing import Annotated, Any, Literal, assert_never

from pydantic import Field, model_validator

from core.config.part import Part, Positive, PositiveInt, refusal

Dtype = Literal["float32", "bfloat16"]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class LoraSpec(Part):
    """LoRA adapter; names follow peft's LoraConfig."""

    r: PositiveInt
    lora_alpha: Positive
    lora_dropout: Dropout = 0.0
    target_modules: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class ModelSpec(Part):
    """`source` is `builtin:tiny`, a local directory, a GGUF file or a hub id.

    `lora: null` trains every weight, or those that one of the `trainable` patterns names (`model.layers.29.*`).
    """

    source: Annotated[str, Field(min_length=1)]
    revision: str | None = None  # of a hub id: a commit, tag or branch
    trust_remote_code: bool = False
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: core.models.precision, before a run is recorded
    mixed_precision: Literal["no", "bf16"] = "no"  # bf16: autocast over the weights as they are
    load_in_4bit: Literal["never", "auto", "always"] = (
        "never"  # auto: where memory asks for it and bitsandbytes is there
    )
    lora: LoraSpec | None = None
    trainable: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    gradient_checkpointing: bool = False

    @property
    def computes_in(self) -> Dtype:
        """The precision its products are taken in: what rounding is to be expected from. 4-bit weights use bfloat16.

        Of an `auto` that is still open the coarser one: its limits accuse nobody.
        """
        if self.load_in_4bit == "always":
            return "bfloat16"
        match self.mixed_precision:
            case "bf16":
                return "bfloat16"
            case "no":
                return "bfloat16" if self.dtype == "auto" else self.dtype
            case _:
                assert_never(self.mixed_precision)

    @property
    def itemsize(self) -> int:
        """Bytes of a weight that is not quantised; of an `auto` that is still open those of float32."""
        match self.dtype:
            case "bfloat16":
                return 2
            case "float32" | "auto":
                return 4
            case _:
                assert_never(self.dtype)

    @property
    def needs_float32(self) -> bool:
        """Whether `auto` is float32 on any device: the built-in model is too small to gain from another, and weights
        that are trained themselves lose small updates in bfloat16: what is below a 512th of a weight is rounded away.
        """
        return _needs_float32(self.source, self.lora)

    @model_validator(mode="before")
    @classmethod
    def _auto_that_no_device_decides(cls, value: Any) -> Any:
        """`auto` as float32 where it can be nothing else, so that such a spec is the same on every machine."""
        if not isinstance(value, dict) or value.get("dtype", "auto") != "auto":
            return value
        return {**value, "dtype": "float32"} if _needs_float32(value.get("source"), value.get("lora")) else value

    @model_validator(mode="after")
    def _one_way_to_train(self) -> ModelSpec:
        if self.lora is not None and self.trainable is not None:
            raise refusal("trainable", "got patterns and an adapter; allowed: trainable with lora: null, or null")
        if self.lora is None and self.load_in_4bit == "always":
            raise refusal("load_in_4bit", "got always without an adapter: 4-bit weights cannot be trained; give lora")
        return self


def _needs_float32(source: object, lora: object) -> bool:
    return lora is None or (isinstance(source, str) and source.startswith("builtin:"))
