"""Small GGUF files: a Llama of one layer over bytes, its weights at random or cut off."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

WIDTH, TOKENS = 64, 260
Q8_0, F32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32


def matrices() -> dict[str, np.ndarray]:
    """Name -> weights of the only layer and of both ends."""
    draw = np.random.default_rng(0).standard_normal
    shapes = {"token_embd": (TOKENS, WIDTH), "output": (TOKENS, WIDTH), "blk.0.attn_k": (WIDTH // 2, WIDTH)}
    shapes["blk.0.attn_v"] = shapes["blk.0.attn_k"]
    for name in ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        shapes[f"blk.0.{name}"] = (WIDTH, WIDTH)
    return {name: draw(shape, dtype=np.float32) for name, shape in shapes.items()}


def write(path: Path, *, arch: str = "llama", held_as: gguf.GGMLQuantizationType = Q8_0) -> Path:
    """A whole GGUF file of `matrices`, and norms of ones, held so."""
    file = gguf.GGUFWriter(path, arch)
    file.add_block_count(1)
    file.add_context_length(64)
    file.add_embedding_length(WIDTH)
    file.add_feed_forward_length(WIDTH)
    file.add_head_count(2)
    file.add_head_count_kv(1)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // 2)
    file.add_vocab_size(TOKENS)
    words = ["<unk>", "<s>", "</s>", "ab", *bytes_to_unicode().values()]
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("default")
    file.add_token_list(words)
    file.add_token_merges(["a b"])
    file.add_token_types([3, 3, 3, *[1] * (len(words) - 3)])
    file.add_eos_token_id(2)
    for name, weights in matrices().items():
        file.add_tensor(f"{name}.weight", gguf.quants.quantize(weights, held_as), raw_dtype=held_as)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        file.add_tensor(f"{name}.weight", np.ones(WIDTH, dtype=np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path
