"""What of a model is trained, put on it and written out: a LoRA adapter, every weight, or those that patterns name.

What is written has the forms that peft and transformers read. Not here: where base weights come from
(core.models.sources), the model card (grpoctl.exports) and which files a run has (grpoctl.runs).
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from core.config import LoraSpec
from core.config.policy import ConvLora
from core.errors import ModelError, SpecError, StorageError
from core.models.messages import first_line, no_progress_bars
from core.randomness import INIT, RowKey, seeded

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def lora_config(lora: LoraSpec) -> Any:
    """peft's settings of an adapter."""
    from peft import LoraConfig  # importing peft costs a second: full fine-tuning does not pay it

    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.lora_alpha,
        lora_dropout=lora.lora_dropout,
        target_modules=lora.targets,
        task_type="CAUSAL_LM",
    )


def check_targets(model: Any, lora: LoraSpec) -> None:
    """Raises SpecError where no module of the model has one of the adapter's target names."""
    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    missing = [target for target in lora.target_modules if target not in names]
    if missing and not lora.all_linear:
        raise SpecError(f"got {missing[0]!r}, this model has no module of that name", key="model.lora.target_modules")


def with_lora(model: Any, lora: LoraSpec, *, seed: int) -> Any:
    """The model with a fresh adapter, the base frozen; the adapter's start belongs to the seed.

    Raises SpecError where no module of the model has one of the target names.
    """
    from peft import get_peft_model

    check_targets(model, lora)
    with seeded(RowKey(seed, INIT, 0, 0, 0)), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name that 5.23 deprecates
        return get_peft_model(model, lora_config(lora))


def restart_lora(model: Any, *, seed: int) -> None:
    """Give the adapter of a PEFT model, whoever put it on, the start that `with_lora` gives it with this seed.

    peft makes the two layers, which draws, and then draws the first one's weights anew, all on the CPU.
    """
    from peft.tuners.lora import LoraLayer

    with seeded(RowKey(seed, INIT, 0, 0, 0)), torch.no_grad():
        for layer in [module for module in model.modules() if isinstance(module, LoraLayer)]:
            for down, up in zip(layer.lora_A.values(), layer.lora_B.values(), strict=True):
                start = torch.nn.Linear(down.in_features, down.out_features, bias=False)
                torch.nn.Linear(up.in_features, up.out_features, bias=False)
                torch.nn.init.kaiming_uniform_(start.weight, a=math.sqrt(5))
                down.weight.copy_(start.weight)
                up.weight.zero_()


def adapt_layers(network: Any, lora: ConvLora, targets: Sequence[str]) -> None:
    """Put fresh adapters into the network, on its layers of these names; all its other weights are frozen."""
    from peft import LoraConfig, inject_adapter_in_model  # importing peft costs a second: others do not pay it

    config = LoraConfig(r=lora.r, lora_alpha=lora.lora_alpha, target_modules=list(targets))
    inject_adapter_in_model(config, network)
    for name, weight in network.named_parameters():
        weight.requires_grad_(".lora_" in name)


def train_only(model: Any, patterns: Sequence[str]) -> Any:
    """The model with all weights frozen but those whose name one of the patterns (`model.layers.29.*`) matches.

    Raises SpecError for a pattern that matches nothing: a frozen backbone by a slip of the pen would train nothing.
    """
    owned = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in owned):
            raise SpecError(_explain_no_match(pattern, model), key="model.trainable")
    for name, parameter in owned.items():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))
    return model


def frozen_copy(model: Any) -> dict[str, Tensor]:
    """Copies of the weights that will be trained, by name: with them the model is its own reference."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


@contextmanager
def using_weights(model: Any, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """The model with these weights in the place of its own; afterwards it has its own again, to the bit.

    For a forward without gradients. What is frozen is shared, so a reference costs no more than what moves.
    """
    swapped = [(parameter, weights[name]) for name, parameter in model.named_parameters() if name in weights]
    original = [parameter.data for parameter, _ in swapped]
    try:
        for parameter, weight in swapped:
            parameter.data = weight
        yield
    finally:
        for (parameter, _), data in zip(swapped, original, strict=True):
            parameter.data = data


def save(model: Any, folder: Path) -> None:
    """A PEFT model's adapter alone, another model whole, in safetensors. The base of an adapter is named by its path
    or hub id, as it was loaded. Raises StorageError.
    """
    words = {}
    if getattr(model, "peft_config", None) is not None:
        words = {"save_embedding_layers": False}  # `auto` would ask the hub whether an embedding grew; ours never do
        model.create_or_update_model_card = lambda _folder: None  # a form to be filled in: our card tells of the run
    try:
        with no_progress_bars():
            model.save_pretrained(folder, **words)
    except SafetensorError as error:  # so it tells of a disk that refuses
        raise StorageError(f"cannot write {folder}: {first_line(error)}; free some space") from error


def base_model_of(folder: Path) -> str:
    """The path or hub id of the model that an adapter is for. Raises ModelError where it does not say."""
    try:
        base = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"cannot read {folder / ADAPTER_CONFIG}: {first_line(error)}; export the adapter again"
        ) from error
    if not isinstance(base, str) or not base:
        raise ModelError(f"{folder / ADAPTER_CONFIG} names no base model; set base_model_name_or_path in it")
    return base


def load_adapter(model: Any, folder: Path) -> Any:
    """The model under the adapter of a folder, in eval mode, nothing of it trainable.

    Raises ModelError where the adapter is damaged or is another model's.
    """
    from peft import PeftModel  # importing peft costs a second: a model without an adapter does not pay it

    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ModelError(f"{folder} has no {ADAPTER_WEIGHTS}; export the adapter again")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            adapted = PeftModel.from_pretrained(model, str(folder))
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the adapter in {folder} does not fit its base model: {first_line(error)}") from error
    missing = [str(warning.message) for warning in caught if "missing adapter keys" in str(warning.message).lower()]
    if missing:
        raise ModelError(f"the adapter in {folder} lacks weights: {missing[0].splitlines()[0]}; export it again")
    return adapted.eval()


def merge_adapter(adapted: Any) -> Any:
    """The plain model with the adapter added into its weights; the PEFT model is used up.

    Raises ModelError for a base in 4 or 8 bits: what is added would be rounded away.
    """
    if is_quantised(adapted):
        raise ModelError(
            "cannot merge an adapter into 4-bit weights: rounding to 4 bits would lose it; leave it an adapter, or "
            "load the base with model.load_in_4bit=never"
        )
    if shared := _tied_layer(adapted):
        raise ModelError(
            f"cannot merge an adapter on {shared}: it shares its weight with another layer, which would be changed "
            "too; leave it an adapter"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:  # weights that are not finite
        raise ModelError(f"cannot merge the adapter: {first_line(error)}") from error


def is_quantised(model: Any) -> bool:
    """True when the weights are held in 4 or 8 bits."""
    return bool(getattr(model, "is_loaded_in_4bit", False) or getattr(model, "is_loaded_in_8bit", False))


def _explain_no_match(pattern: str, model: Any) -> str:
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


def _tied_layer(adapted: Any) -> str | None:
    """The first layer under an adapter whose weight another layer has too (tied embeddings)."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    owners = Counter(id(p) for module in adapted.modules() for p in module.parameters(recurse=False))
    layers = {name: module for name, module in adapted.named_modules() if isinstance(module, BaseTunerLayer)}
    return next((name for name, layer in layers.items() if owners[id(layer.get_base_layer().weight)] > 1), None)
