"""The policy `lm` of a spec: its model loaded, its adapter put on, its sampler ready."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.config import ArithmeticTaskSpec, ModelSpec, RunSpec
from core.errors import ModelError
from core.models import adapters, devices, loading
from core.models.catalogue import known_parameters
from core.models.messages import note
from core.models.sources.base import Origin
from core.policies.lm.causal_lm import CausalLMPolicy
from core.tasks import arithmetic
from core.tasks.workflow_dsl import problems as workflow_dsl


@functools.cache  # as much work as loading the model: a process that executes many runs does it once
def tiny_pairs() -> list[tuple[str, str]]:
    """What `builtin:tiny` is warm-started on: valid answers to both tasks, and a share of free text."""
    sums = [ArithmeticTaskSpec(name="arithmetic", digits=1, train_prompts=20, eval_prompts=20)]
    sums.append(ArithmeticTaskSpec(name="arithmetic", digits=2))
    return [
        *workflow_dsl.demonstrations(4000, seed=0),
        *workflow_dsl.free_text(160, seed=1),
        *(pair for spec in sums for pair in arithmetic.ArithmeticTask(spec).demonstrations(500, seed=0)),
    ]


def build(spec: RunSpec) -> tuple[CausalLMPolicy, Origin]:
    """The policy of a spec, to be trained, and where its weights came from. Raises ModelError."""
    settings = spec.language_model
    loaded = _loaded(settings)
    model, reference = loaded.model, None
    if settings.trainable is not None:
        model = adapters.train_only(model, settings.trainable)
    if settings.lora is None:
        reference = adapters.frozen_copy(model)
    else:
        model = adapters.with_lora(model, settings.lora, seed=spec.seed)
        if spec.syncs_reference:
            reference = adapters.frozen_copy(model)  # of a fresh adapter, which adds nothing: the base
    policy = CausalLMPolicy(
        model,
        loaded.tokenizer,
        reference=reference,
        checkpointing=settings.gradient_checkpointing,
        mixed_precision=settings.mixed_precision,
        chat_template_kwargs=settings.chat_template_kwargs,
    )
    policy.reference_moves = spec.syncs_reference
    return policy, loaded.origin


def _loaded(spec: ModelSpec) -> loading.LoadedModel:
    """The model as it is loaded, and torch on as many threads as pay at its size."""
    if (parameters := known_parameters(spec.source)) is not None:
        devices.set_threads(parameters)  # before: the built-in model is trained where it is not in the cache
    loaded = loading.load_with_origin(spec, tiny_pairs)
    devices.set_threads(sum(weight.numel() for weight in loaded.model.parameters()))
    for name in unread_variables(loaded.tokenizer, spec.chat_template_kwargs):
        note(f"model.chat_template_kwargs.{name} changes nothing: the chat template of {spec.source} does not read it")
    return loaded


def unread_variables(tokenizer: Any, variables: Mapping[str, object]) -> list[str]:
    """Names that no chat template of the tokenizer has in it."""
    template = str(getattr(tokenizer, "chat_template", None) or "")
    return [name for name in variables if not re.search(rf"\b{re.escape(name)}\b", template)]


def build_sampler(spec: ModelSpec, adapter: Path | None = None) -> CausalLMPolicy:
    """A policy that is only drawn from: the model of a spec, under the adapter of a folder where one is given.

    Raises ModelError where either cannot be loaded, or the adapter does not fit.
    """
    loaded = _loaded(spec)
    model, tokenizer = loaded.model, loaded.tokenizer
    model = model if adapter is None else adapters.load_adapter(model, adapter)
    return _drawn_from(model, tokenizer, spec)


def build_kept(spec: ModelSpec, weights: Mapping[str, Tensor]) -> CausalLMPolicy:
    """A policy that is only drawn from: the model of a spec with what a checkpoint has of its trained weights.

    Raises ModelError where the model cannot be loaded, CheckpointError where the weights are not of it.
    """
    loaded = _loaded(spec)
    model, tokenizer = loaded.model, loaded.tokenizer
    if spec.trainable is not None:
        model = adapters.train_only(model, spec.trainable)
    if spec.lora is not None:
        model = adapters.with_lora(model, spec.lora, seed=0)  # every weight of it is replaced
    policy = _drawn_from(model, tokenizer, spec)
    policy.load(weights)
    return policy


def _drawn_from(model: Any, tokenizer: Any, spec: ModelSpec) -> CausalLMPolicy:
    """A policy without a reference."""
    return CausalLMPolicy(
        model, tokenizer, mixed_precision=spec.mixed_precision, chat_template_kwargs=spec.chat_template_kwargs
    )


def write_merged(spec: ModelSpec, adapter: Path, folder: Path) -> None:
    """The adapter of a folder added into the weights of its base, written to another as a model with its tokenizer.

    Raises ModelError where the base is held in 4 bits, or either cannot be loaded.
    """
    try:
        model, tokenizer = loading.load(spec, tiny_pairs)
        adapters.save(adapters.merge_adapter(adapters.load_adapter(model, adapter)), folder)
    except torch.OutOfMemoryError as error:
        raise ModelError("no memory to merge the weights in; try again when nothing else runs here") from error
    tokenizer.save_pretrained(folder)
