"""LoRA adapters through peft: put on a model, or every weight left trainable."""

from __future__ import annotations

import copy
import warnings
from typing import Any

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
