"""Saving `folded_adapter`: rows are drawn from weights with the LoRA adapter added in.

A LoRA layer is three small products and a sum for every token; added into the weights it costs nothing. Equal up to
rounding (float32: some 1e-7 nats). It is done nowhere else: scoring and learning run the adapter as it is, so that the
integrity check compares two different ways through the model.
Not here: the injected fault, which samples in the mode and with the layers it finds (core.faults).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from core.policies.lm.modes import clean_mode


@contextmanager
def folded_sampling(model: Any) -> Iterator[Any]:
    """What to draw from, in clean mode: the model with its adapter in its weights where that folds, else `model`."""
    with clean_mode(model), folded_adapter(model) as drawn_from:
        yield drawn_from


@contextmanager
def folded_adapter(model: Any) -> Iterator[Any]:
    """The model under a PEFT model, its adapter merged into its weights; afterwards every weight has its old bits.

    Gives `model` as it is where merging could change more than rounding (see `foldable_layers`). Subtracting the
    adapter again would leave rounding behind in the base weights, so the weights that were there are put back instead.
    """
    # Under autocast a merged weight is rounded as a whole, and most of a small adapter would be rounded away.
    layers = [] if torch.is_autocast_enabled(model.device.type) else foldable_layers(model)
    if not layers:
        yield model
        return
    weights = [layer.get_base_layer().weight for layer in layers]
    originals = [weight.data for weight in weights]
    try:
        for layer, weight in zip(layers, weights, strict=True):
            weight.data = weight.data.clone()
            with torch.no_grad():
                layer.merge()
        yield model.get_base_model()
    finally:
        for layer, weight, data in zip(layers, weights, originals, strict=True):
            weight.data = data
            layer.merged_adapters.clear()


def foldable_layers(model: Any) -> list[Any]:
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
    return layers if all(type(layer) is Linear and _takes_merging(layer, owners) for layer in layers) else []


def _takes_merging(layer: Any, owners: Counter[int]) -> bool:
    weight = layer.get_base_layer().weight
    unusual = layer.disable_adapters or layer.merged or layer.lora_variant or any(layer.lora_bias.values())
    return not unusual and weight.dtype == torch.float32 and owners[id(weight)] == 1
