"""LoRA adapters through peft: put on a model, or every weight left trainable."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from typing import Any

import torch

from core.errors import SpecError
from core.policies.base import RowKey
from core.rollout.uniforms import INIT, seeded
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


def frozen_copy(model: Any) -> Any:
    """A second copy of the weights that never moves: the reference of a fully fine-tuned model."""
    reference = copy.deepcopy(model)
    reference.requires_grad_(False)
    return reference.eval()


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


def _plain(layer: Any, owners: Counter[int]) -> bool:
    weight = layer.get_base_layer().weight
    unusual = layer.disable_adapters or layer.merged or layer.lora_variant or any(layer.lora_bias.values())
    return not unusual and weight.dtype == torch.float32 and owners[id(weight)] == 1
