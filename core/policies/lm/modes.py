"""The one context in which a model samples or is scored cleanly, and what an update's forward needs instead.

`transformers` drops the KV cache without an error when a model samples in train mode with gradient checkpointing on:
each decoding step then sees only the last token. That is what happened to P30. So nothing here is left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from core.policies.lm.fast.fused_layers import checkpoint_contexts


class SamplingContext(Protocol):
    """Something that makes a model ready to be sampled from, gives what to call, and restores the mode it came in."""

    def __call__(self, model: Any, /) -> AbstractContextManager[Any]: ...


@contextmanager
def plain_sampling(model: Any) -> Iterator[Any]:
    """What to draw from, in clean mode: the model as it is, its adapter a product of its own."""
    with clean_mode(model):
        yield model


@contextmanager
def clean_mode(model: Any) -> Iterator[None]:
    """Eval mode (dropout off), gradient checkpointing off, KV cache on, no gradients; restores what it found."""
    was_training, was_checkpointing = model.training, _checkpointing(model)
    cached = model.config.use_cache
    model.eval()
    if was_checkpointing:
        (getattr(model, "activation_checkpointing_disable", None) or model.gradient_checkpointing_disable)()
    model.config.use_cache = True
    try:
        with torch.no_grad():
            yield
    finally:
        model.config.use_cache = cached
        if was_checkpointing:
            enable_checkpointing(model)
        model.train(was_training)


def _checkpointing(model: Any) -> bool:
    """True when any layer recomputes its activations in backward."""
    # Switching it on sets it on the layer itself. Asking a module for what it lacks costs ten times as much.
    return any(vars(module).get("gradient_checkpointing", False) for module in model.modules())


def enable_checkpointing(model: Any) -> None:
    """Recompute activations in backward instead of keeping them; the cache is of no use in such a forward.

    What a forward runs its layers in is entered again for them (core.policies.lm.fast.fused_layers).
    """
    how = {"use_reentrant": False, "context_fn": checkpoint_contexts}
    # Renamed in transformers 5.23; the old name warns at every call.
    enable = getattr(model, "activation_checkpointing_enable", None)
    if enable is not None:
        enable(activation_checkpointing_kwargs=how)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)


def update_mode(model: Any, *, checkpointing: bool) -> None:
    """Train mode, checkpointing as asked, LEFT SO: backward recomputes layers in the mode their forward ran in."""
    model.train()
    if checkpointing and not _checkpointing(model):
        enable_checkpointing(model)
