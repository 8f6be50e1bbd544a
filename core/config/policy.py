"""What is trained: the kind of policy, what every kind states about itself, and the model of a language model's policy.

A model's settings: which weights are trained, in which precision, and through which adapter. Nothing heavy is imported.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, assert_never

from pydantic import Field, PlainValidator, SerializeAsAny, field_validator, model_validator
from pydantic_core import PydanticCustomError

from core import plugins
from core.config.part import LATE, Part, Positive, PositiveInt, refusal
from core.errors import SpecError

Dtype = Literal["float32", "bfloat16"]
# Parameters of transformers' apply_chat_template: a prompt is always a conversation's text with the answer's beginning.
OF_RENDERING = frozenset({
    "conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt",
    "continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict",
    "return_assistant_tokens_mask", "tokenizer_kwargs", "processor_kwargs",
})  # fmt: skip
Dropout = Annotated[float, Field(ge=0, lt=1)]
ALL_LINEAR = "all-linear"


class LoraSpec(Part):
    """LoRA adapter; names follow peft's LoraConfig. `all-linear` is every linear layer but the output head."""

    r: PositiveInt
    lora_alpha: Positive
    lora_dropout: Dropout = 0.0
    target_modules: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]

    @property
    def all_linear(self) -> bool:
        """Whether it is on every linear layer but the output head, whatever they are called."""
        return self.target_modules == (ALL_LINEAR,)

    @property
    def targets(self) -> str | list[str]:
        """The modules as peft takes them: a list is of names, so `all-linear` is a text."""
        return ALL_LINEAR if self.all_linear else list(self.target_modules)

    @field_validator("target_modules", mode="before")
    @classmethod
    def _all_linear_is_one_of_a_list(cls, value: Any) -> Any:
        return (ALL_LINEAR,) if value == ALL_LINEAR else value

    @model_validator(mode="after")
    def _all_linear_stands_alone(self) -> LoraSpec:
        if ALL_LINEAR in self.target_modules and not self.all_linear:
            names = ", ".join(self.target_modules)
            raise refusal("target_modules", f"got {names}; allowed: {ALL_LINEAR} alone, or names of modules")
        return self


class ModelSpec(Part):
    """`source` is `builtin:tiny`, a local directory, a GGUF file or a hub id.

    `lora: null` trains every weight, or those that one of the `trainable` patterns names (`model.layers.29.*`).
    `chat_template_kwargs` are handed to the chat template wherever a prompt goes through it (`enable_thinking: false`).
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
    chat_template_kwargs: Annotated[dict[str, bool | int | float | str], LATE] = Field(default_factory=dict)

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
    def _template_variables_are_its_own(self) -> ModelSpec:
        for name in self.chat_template_kwargs:
            if not name.isidentifier() or name in OF_RENDERING:
                problem = (
                    "which says how a prompt is rendered" if name in OF_RENDERING else "which is no variable's name"
                )
                raise refusal("chat_template_kwargs", f"got {name!r}, {problem}; allowed: variables of the template")
        return self

    @model_validator(mode="after")
    def _one_way_to_train(self) -> ModelSpec:
        if self.lora is not None and self.trainable is not None:
            raise refusal("trainable", "got patterns and an adapter; allowed: trainable with lora: null, or null")
        if self.lora is None and self.load_in_4bit == "always":
            raise refusal("load_in_4bit", "got always without an adapter: 4-bit weights cannot be trained; give lora")
        return self


def _needs_float32(source: object, lora: object) -> bool:
    return lora is None or (isinstance(source, str) and source.startswith("builtin:"))


LM, POINTER, RESTORATION, EXTERNAL = "lm", "pointer", "restoration", "external"
BUILT_IN = (LM, POINTER, RESTORATION, EXTERNAL)


class PolicyConfig(Part):
    """The base of every kind of policy's settings. A subclass fixes `kind: Literal["its-name"]`.

    Class attributes say what training may ask of the policy:
    output: what its outputs are; a task of the same word can score them.
    tokens: its factors are tokens of a text that ends by itself or is cut off; lengths and truncation are recorded.
    entropies: it gives the entropy of each factor where asked.
    density: its log-probs are of continuous actions, so they may be above 0 and its entropies below.
    greedy: asked for the likeliest (a temperature of 0) it gives that; else it can only draw.
    tempered: its draws can be at another temperature than 1.
    keeps: it can keep the weights of an epoch's beginning, and have its reference set anew after a supervised stage.
    syncs: its reference can follow it (`sync_ref_model`).
    losses: names of further differentiable losses that it gives for each row; stages weigh them (`loss_weights`).
    """

    kind: str

    output: ClassVar[str]
    tokens: ClassVar[bool] = False
    entropies: ClassVar[bool] = False
    density: ClassVar[bool] = False
    greedy: ClassVar[bool] = False
    tempered: ClassVar[bool] = True
    keeps: ClassVar[bool] = False
    syncs: ClassVar[bool] = False
    losses: ClassVar[frozenset[str]] = frozenset()

    @property
    def factor(self) -> str:
        """What sentences call one factor of its outputs, where a log-prob or a KL is given for each."""
        return "token" if self.tokens else "factor"

    @property
    def computes_in(self) -> Dtype:
        """The precision of its forwards: what rounding is to be expected between sampler and trainer."""
        return "float32"

    @property
    def update_dropout(self) -> float:
        """The dropout of an update's forward, which sampling does not have."""
        return 0.0

    @property
    def untrained(self) -> tuple[str, str] | None:
        """(key, problem) where a run would train from nothing what is only ever fine-tuned; a spec may say so."""
        return None


class LmPolicyConfig(PolicyConfig):
    """A causal language model; which one is said under the key `model`."""

    kind: Literal["lm"] = "lm"

    output: ClassVar[str] = "text"
    tokens: ClassVar[bool] = True
    entropies: ClassVar[bool] = True
    greedy: ClassVar[bool] = True
    syncs: ClassVar[bool] = True


class PointerConfig(PolicyConfig):
    """A pointer network that picks examples for a query out of its candidates (core.policies.pointer)."""

    kind: Literal["pointer"]
    width: PositiveInt = 512  # of the embeddings
    hidden: PositiveInt = 256
    picks: Annotated[int, Field(ge=1, le=4)] = 2  # of an output, without replacement
    shots: Annotated[int, Field(ge=1, le=4)] = 4  # picks of a greedy evaluation, the best first
    dropout: Dropout = 0.5
    attention_dropout: Dropout = 0.1
    cosine_temperature: Positive = 0.1  # logits are cosines over it
    frozen: bool = False  # the shared projection and the two maps stay; attention and norm are trained

    output: ClassVar[str] = "picks"
    entropies: ClassVar[bool] = True
    greedy: ClassVar[bool] = True
    keeps: ClassVar[bool] = True
    syncs: ClassVar[bool] = True

    @property
    def update_dropout(self) -> float:
        """The larger of the two."""
        return max(self.dropout, self.attention_dropout)

    @model_validator(mode="after")
    def _greedy_gives_no_less(self) -> PointerConfig:
        if self.shots < self.picks:
            raise refusal("shots", f"got {self.shots}; allowed: at least picks = {self.picks}")
        return self


class ConvLora(Part):
    """LoRA on convolutions; names follow peft's LoraConfig. Which convolutions, the policy knows."""

    r: PositiveInt = 4
    lora_alpha: Positive = 8.0


ORIGINAL_WIDTH = 48  # of document 003's network, whose learning rates fine-tune it
Levels = Annotated[tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt], Field(strict=False)]


class RestorationConfig(PolicyConfig):
    """A picture-restoring network whose twelve gates are drawn from Beta distributions (core.policies.restoration).

    With `lora`, only the adapters on the 1x1 convolutions of its attentions and the heads that give the Beta
    distributions are trained; without, every weight.
    """

    kind: Literal["restoration"]
    width: PositiveInt = ORIGINAL_WIDTH  # channels at full size; twice as many at each halving
    blocks: Levels = (4, 6, 6, 8)  # transformer blocks at full size, 1/2, 1/4 and 1/8
    refinement: PositiveInt = 4  # blocks after the decoder
    heads: Levels = (1, 2, 4, 8)  # of the attentions at each size
    expansion: Positive = 2.66  # of the feed-forward layers
    weights: Annotated[str, Field(min_length=1)] | None = None  # a safetensors file to start from
    lora: ConvLora | None = None

    output: ClassVar[str] = "image"
    entropies: ClassVar[bool] = True
    density: ClassVar[bool] = True
    greedy: ClassVar[bool] = True
    tempered: ClassVar[bool] = False
    keeps: ClassVar[bool] = True
    syncs: ClassVar[bool] = True
    losses: ClassVar[frozenset[str]] = frozenset({"supervised", "consistency", "penalty"})

    @property
    def untrained(self) -> tuple[str, str] | None:
        """The original's size from random weights: the document's learning rates would not move it in its epochs."""
        if self.width < ORIGINAL_WIDTH or self.weights is not None:
            return None
        why = f"is null at a width of {self.width}, and the documents' learning rates fine-tune a trained network"
        return "weights", f"{why}; give policy.weights, or the profile tiny or small"

    @model_validator(mode="after")
    def _widths_are_divisible(self) -> RestorationConfig:
        if self.width % 2:
            raise refusal("width", f"got {self.width}; allowed: an even number, which is halved on the way down")
        for level, heads in enumerate(self.heads):
            if (width := self.width << level) % heads:
                raise refusal(
                    "heads", f"got {heads} heads for {width} channels at 1/{1 << level} size; allowed: a divisor"
                )
        return self

    @model_validator(mode="after")
    def _weights_are_no_pickle(self) -> RestorationConfig:
        if self.weights is not None and not self.weights.endswith(".safetensors"):
            why = "other formats may run code when they are read"
            raise refusal("weights", f"got {self.weights}; allowed: a .safetensors file ({why})")
        return self


class ExternalPolicyConfig(PolicyConfig):
    """Whatever a command trains (`trainer.kind: command`): nothing is known of it."""

    kind: Literal["external"]

    output: ClassVar[str] = "external"
    tokens: ClassVar[bool] = True  # what is said of lengths is about tokens


def policy_config(kind: str) -> type[PolicyConfig] | None:
    """The settings' class of a kind of policy, built-in or added by a package; None for an unknown kind.

    Raises SpecError where an added one cannot be imported, or is not a policy's.
    """
    if kind == LM:
        return LmPolicyConfig
    if kind == POINTER:
        return PointerConfig
    if kind == RESTORATION:
        return RestorationConfig
    if kind == EXTERNAL:
        return ExternalPolicyConfig
    return plugins.config_class("grpoctl.policies", kind, BUILT_IN, PolicyConfig, "output")


def policy_kinds() -> list[str]:
    """The kinds of policy that are installed, the built-in ones first."""
    return plugins.names("grpoctl.policies", BUILT_IN)


def _by_kind(value: Any) -> PolicyConfig:
    """The settings as the class that their `kind` names."""
    if isinstance(value, PolicyConfig):
        return value
    if not isinstance(value, dict):
        raise PydanticCustomError("mapping", "a mapping is needed")
    kind = value.get("kind", LM)
    try:
        config = policy_config(str(kind))
        allowed = policy_kinds() if config is None else []
    except SpecError as error:
        raise refusal("kind", error.message) from None
    if config is None:
        raise refusal("kind", f"got {kind!r}; allowed: one of {', '.join(allowed)}{plugins.MAY_LACK}")
    return config.model_validate(value)


AnyPolicy = Annotated[SerializeAsAny[PolicyConfig], PlainValidator(_by_kind)]
