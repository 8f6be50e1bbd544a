"""A model's folder for both tools: a real model as specs name it, or a random one whose tokenizer is of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core.config import ModelSpec
from core.models import loading
from core.models.messages import no_progress_bars

END, PAD = "<|end|>", "<|pad|>"
CHAT = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TINY_LLAMA = {
    "model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip


def folder_of(source: str) -> Path:
    """Where a source's fp32 weights lie on this machine. Raises ModelError."""
    return loading.locate(ModelSpec(source=source), list).path


def tokenizer_of(folder: Path) -> Any:
    """The folder's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def random_model(shape: Mapping[str, Any], folder: Path, *, dtype: torch.dtype = torch.float32) -> Path:
    """A folder with random weights of this shape (a transformers configuration) and a tokenizer of bytes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = byte_tokenizer()
    own = {name: value for name, value in shape.items() if name != "model_type"}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    config = AutoConfig.for_model(shape["model_type"], **own, **ends)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):  # billions of normals take minutes on a CPU
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with no_progress_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def byte_tokenizer() -> Any:
    """A tokenizer of the 256 bytes, an end and a padding token, with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([END, PAD])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END, pad_token=PAD, padding_side="left")
    tokenizer.chat_template = CHAT
    return tokenizer
