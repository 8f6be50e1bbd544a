"""Which models are decoders and nothing more, so that their parts may be run otherwise than by their own forward.

Families that bound or scale their logits, or look through a window, are run as transformers runs them.
"""

from __future__ import annotations

from typing import Any

PLAIN_DECODERS = ("llama", "qwen2", "qwen3")  # read in the tested transformers: a 4-D mask reaches attention unchanged
WHOLE = {"full_attention"}


def under_adapter(model: Any) -> Any:
    """The transformers model that a PEFT model wraps; any other as it is."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def plain_decoder(model: Any) -> bool:
    """Whether this causal LM is a decoder that sees all before it, and a head on its last hidden state, no more."""
    ours = type(model).__module__.startswith("transformers.models.") and model.config.model_type in PLAIN_DECODERS
    return ours and _sees_all(model.config)


def takes_ready_mask(config: Any) -> bool:
    """Whether the model hands a ready (rows, 1, 1, keys) mask to attention as it is.

    Working one out of the 2-D mask costs transformers a sixth of a small model's token. But layers with a sliding
    window see less than the whole row, eager attention adds its mask instead of choosing by it, and some families read
    more than padding from the 2-D mask: whoever is not known to be plain gets that one.
    """
    return _sees_all(config) and config.model_type in PLAIN_DECODERS and config._attn_implementation == "sdpa"


def _sees_all(config: Any) -> bool:
    kinds = set(getattr(config, "layer_types", None) or WHOLE)
    return kinds == WHOLE and getattr(config, "sliding_window", None) is None
