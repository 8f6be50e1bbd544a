"""What of a model is trained: a LoRA adapter through peft, every weight, or the weights that patterns name."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from core.errors import SpecError
from core.randomness import INIT, RowKey, seeded
from core.spec import LoraSpec


def with_lora(model: Any, lora: LoraSpec, *, seed: int) -> Any:
    """The model with a fresh adapter, the base frozen; the adapter's start belongs to the seed.

    Raises SpecError where no module of the model has one of the target names.
    """
    from peft import LoraConfig, get_peft_model  # importing peft costs a second: full fine-tuning does not pay it

    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.lora_alpha,
        lora_dropout=lora.lora_dropout,
        target_modules=list(lora.target_modules),
        task_type="CAUSAL_LM",
    )
    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    missing = [target for target in lora.target_modules if target not in names]
    if missing:
        raise SpecError(f"got {missing[0]!r}, this model has no module of that name", key="model.lora.target_modules")
    with seeded(RowKey(seed, INIT, 0, 0, 0)), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name that 5.23 deprecates
        return get_peft_model(model, config)


def train_only(model: Any, patterns: Sequence[str]) -> Any:
    """The model with all weights frozen but those whose name one of the patterns (`model.layers.29.*`) matches.

    Raises SpecError for a pattern that matches nothing: a frozen backbone by a slip of the pen would train nothing.
    """
    owned = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in owned):
            raise SpecError(_matches_nothing(pattern, model), key="model.trainable")
    for name, parameter in owned.items():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))
    return model


def frozen_copy(model: Any) -> dict[str, Tensor]:
    """Copies of the weights that will be trained, by name: with them the model is its own reference."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


@contextmanager
def standing_at(model: Any, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """The model with these weights in the place of its own; afterwards it has its own again, to the bit.

    For a forward without gradients. What is frozen is shared, so a reference costs no more than what moves.
    """
    held = [(parameter, weights[name]) for name, parameter in model.named_parameters() if name in weights]
    own = [parameter.data for parameter, _ in held]
    try:
        for parameter, weight in held:
            parameter.data = weight
        yield
    finally:
        for (parameter, _), data in zip(held, own, strict=True):
            parameter.data = data


def foldable(model: Any) -> list[Any]:
    """The LoRA layers of a PEFT model whose adapter may be merged; empty where not every adapter layer may be.

    Only plain LoRA on fp32 linear layers: bf16 weights would round the adapter away, a variant may need what only
    PEFT's own forward passes on, and a weight that two modules share would carry the adapter into the other one.
    """
    if getattr(model, "peft_config", None) is None:
        return []
    from peft import PeftModel  # importing peft costs a second: a model without an adapter does not pay it
    from peft.tuners.lora import Linear
    from peft.tuners.tuners_utils import BaseTunerLayer

    if not isinstance(model, PeftModel) or model.active_peft_config.is_prompt_learning:
        return []
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    return layers if all(type(layer) is Linear and _plain(layer, owners) for layer in layers) else []


def _matches_nothing(pattern: str, model: Any) -> str:
    """What to say of a pattern: under which other name its weight goes, or which names are near."""
    first = {id(weight): name for name, weight in model.named_parameters()}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if fnmatchcase(name, pattern):
            return f"got {pattern!r}: in this model {name} is the same weight as {first[id(weight)]}; name that one"
    names = list(first.values())
    parts = [name.split(".") for name in names]
    modules = dict.fromkeys(".".join(part[:n]) for part in parts for n in range(1, len(part)))
    near = get_close_matches(pattern.rstrip("*").rstrip("."), [*modules, *names], n=1)
    meant = f"did you mean {near[0] if near[0] in first.values() else f'{near[0]}.*'!r}? " if near else ""
    return f"got {pattern!r}, which no weight of this model is called; {meant}its weights are {names[0]} to {names[-1]}"


def _plain(layer: Any, owners: Counter[int]) -> bool:
    weight = layer.get_base_layer().weight
    unusual = layer.disable_adapters or layer.merged or layer.lora_variant or any(layer.lora_bias.values())
    return not unusual and weight.dtype == torch.float32 and owners[id(weight)] == 1
