"""The context a rollout runs in: clean mode, with a LoRA adapter added into the weights while tokens are drawn.

A LoRA layer is three small products and a sum for every token; added into the weights it costs nothing. That moves
log-probs by rounding only (fp32: some 1e-7 nats), and it is done nowhere else: scoring and learning run the adapter as
it is, so that the integrity check compares two different ways through the model.
Not here: which adapters fold (core.models.adapters); the injected fault, which samples in the mode and with the layers
it finds (core.policies.faulty).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from core.models.adapters import foldable
from core.policies.lm.modes import clean_mode


class SamplingContext(Protocol):
    """Something that makes a model ready to be sampled from, gives what to call, and restores what it found."""

    def __call__(self, model: Any, /) -> AbstractContextManager[Any]: ...


@contextmanager
def folded_mode(model: Any) -> Iterator[Any]:
    """What to draw from, in clean mode: the model with its adapter in its weights where that folds, else `model`."""
    with clean_mode(model), folded(model) as drawn_from:
        yield drawn_from


@contextmanager
def unfolded_mode(model: Any) -> Iterator[Any]:
    """What to draw from, in clean mode: the model as it is, its adapter a product of its own."""
    with clean_mode(model):
        yield model


@contextmanager
def folded(model: Any) -> Iterator[Any]:
    """The model under a PEFT model, its adapter merged into its weights; afterwards every weight has its old bits.

    Gives `model` as it is where merging could change more than rounding (see `foldable`). Subtracting the adapter again
    would leave rounding behind in the base weights, so the weights that were there are put back instead.
    """
    # Under autocast a merged weight is rounded as a whole, and most of a small adapter would be rounded away.
    layers = [] if torch.is_autocast_enabled(model.device.type) else foldable(model)
    if not layers:
        yield model
        return
    weights = [layer.get_base_layer().weight for layer in layers]
    kept = [weight.data for weight in weights]
    try:
        for layer, weight in zip(layers, weights, strict=True):
            weight.data = weight.data.clone()
            with torch.no_grad():
                layer.merge()
        yield model.get_base_model()
    finally:
        for layer, weight, data in zip(layers, weights, kept, strict=True):
            weight.data = data
            layer.merged_adapters.clear()
