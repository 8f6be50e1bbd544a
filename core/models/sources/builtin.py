"""`builtin:tiny`: a small Qwen2 that is built here once, needs no download, and behaves like a small instruct model.

It is warm-started by supervised training on (prompt, completion) pairs: mostly valid answers, some free text. Its
tokenizer spells operator names, all but their first two letters one by one: with one token per operator, or with pairs
of letters, the next token hardly depends on more than the last one, and a sampler that lost its KV cache still writes
valid lines. One layer is enough to spell, and a token then costs two thirds of what it costs with two.
Not here: what the pairs are (core.policies.lm.build hands them in), and any other model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from core.algorithms.schedules import learning_rate
from core.config import ModelSpec
from core.errors import ModelError
from core.models.cache import cache_root, get_or_make
from core.models.catalogue import TINY
from core.models.messages import no_progress_bars, stage
from core.models.sources.base import Origin, Pairs
from core.randomness import INIT, ORDER, RowKey, permutation, seeded

Pair = tuple[str, str]
END, PAD = "<|end|>", "<|pad|>"
CHAT = "{{ messages | map(attribute='content') | join('\n') }}"  # a lone prompt stays as it is
WINDOW = 16
# What may become one token, the first that fits: what ends a conditional or a prompt; a lower-case word with its space;
# a name's first two letters with what stands before them; any other letter or digit alone; what stands between.
# So ` -> Custom` is five tokens: decision 4 says why not fewer.
PIECES = r" : done|\nDSL: |(?<![A-Za-z]) ?[a-z]+|[^A-Za-z\d]*[A-Z][a-z]?|[a-z]|\d|[^A-Za-z\d]+?(?= [a-z])|[^A-Za-z\d]+"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Everything the weights depend on besides the pairs; part of the cache key."""

    version: int = 2
    seed: int = 0
    vocabulary: int = 400
    hidden: int = 128
    layers: int = 1
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 256
    steps: int = 600
    rows: int = 16
    learning_rate: float = 4e-3


def claims(source: str) -> bool:
    """True for `builtin:` and whatever follows it."""
    return source.startswith("builtin:")


def locate(spec: ModelSpec, pairs: Pairs) -> Origin:
    """The model in our cache, built now unless it is there. Raises ModelError for a name that is not `tiny`."""
    if spec.source != TINY:
        raise ModelError(f"got model {spec.source!r}; the built-in models are: {TINY}")
    return Origin(source=TINY, kind="builtin", path=get_or_build(pairs()))


def load(pairs: Sequence[Pair], recipe: Recipe | None = None, root: Path | None = None) -> tuple[Any, Any]:
    """(model, tokenizer) of the recipe and pairs: from the cache, or built now."""
    return read(get_or_build(pairs, recipe, root))


def get_or_build(pairs: Sequence[Pair], recipe: Recipe | None = None, root: Path | None = None) -> Path:
    """The cache entry of the recipe and pairs, built now where it is not there or damaged.

    Safe when two processes build at once: one waits. Raises StorageError where the cache cannot be written.
    """
    recipe = recipe or Recipe()
    folder = folder_of(pairs, recipe, root)
    build = partial(_build, pairs=pairs, recipe=recipe)
    return get_or_make(folder, build, files=FILES, what="build the built-in model")


def read(folder: Path) -> tuple[Any, Any]:
    """(model, tokenizer) of a cache entry; in float32 on the CPU, and the caller's own."""
    return deepcopy(_read_once(folder, folder.stat().st_ino))


@lru_cache(maxsize=1)  # a process that executes many runs reads it once: a folder is made whole, and never changed
def _read_once(folder: Path, _inode: int) -> tuple[Any, Any]:
    with no_progress_bars():
        model = Qwen2ForCausalLM.from_pretrained(folder, local_files_only=True)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    tokenizer.chat_template = CHAT
    return model, tokenizer


def has_builtin_tokenizer(folder: Path) -> bool:
    """True when the folder's tokenizer is the built-in model's: of this model, or of one that was trained from it.

    transformers would put Qwen2's way of splitting words in the place of ours, for the model is a Qwen2.
    """
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        return bool((settings["eos_token"], settings["pad_token"]) == (END, PAD))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def folder_of(pairs: Sequence[Pair], recipe: Recipe | None = None, root: Path | None = None) -> Path:
    """Where the model of the recipe and pairs is kept."""
    return (root or cache_root()) / f"builtin-tiny-{key(pairs, recipe or Recipe())}"


def key(pairs: Sequence[Pair], recipe: Recipe) -> str:
    """16 hex digits over the recipe and the pairs."""
    return _key(tuple(tuple(pair) for pair in pairs), recipe)


@lru_cache(maxsize=1)
def _key(pairs: tuple[Pair, ...], recipe: Recipe) -> str:
    digest = hashlib.sha256(json.dumps(asdict(recipe), sort_keys=True).encode())
    digest.update(json.dumps(pairs).encode())
    return digest.hexdigest()[:16]


def _build(work: Path, *, pairs: Sequence[Pair], recipe: Recipe) -> None:
    stage("building builtin:tiny, once on this machine")
    tokenizer = train_tokenizer(pairs, recipe)
    model = train_model(pairs, tokenizer, recipe)
    with no_progress_bars():
        model.save_pretrained(work)
    tokenizer.save_pretrained(work)


def train_tokenizer(pairs: Sequence[Pair], recipe: Recipe) -> Any:
    """A byte-level BPE of the pairs that spells names; encodes any text."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator((text for pair in pairs for text in pair), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END, pad_token=PAD, padding_side="left")


def train_model(pairs: Sequence[Pair], tokenizer: Any, recipe: Recipe) -> Any:
    """The warm-started model, in eval mode: cross-entropy on completions and their end token, AdamW, cosine."""
    config = Qwen2Config(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        intermediate_size=recipe.intermediate,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with seeded(RowKey(recipe.seed, INIT, 0, 0, 0)):
        model = Qwen2ForCausalLM(config)
    model.train()
    batches = list(_batches(pairs, tokenizer, recipe))
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    for step, (ids, labels) in enumerate(batches):
        rate = learning_rate(
            recipe.learning_rate, "cosine", index=step + 1, warmup_steps=20, total_steps=len(batches) + 1
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = model(input_ids=ids, attention_mask=(ids != config.pad_token_id).long(), labels=labels).loss
        if not torch.isfinite(loss):
            raise ModelError(f"building the built-in model diverged at step {step} of {len(batches)}")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def _batches(pairs: Sequence[Pair], tokenizer: Any, recipe: Recipe) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` right-padded (ids, labels) batches in a seeded order; labels are -100 on prompts and padding.

    Batches hold rows of like length (sorted inside a window of 16 batches): padding would cost half the time.
    """
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    prompts = tokenizer([prompt for prompt, _ in pairs], add_special_tokens=False)["input_ids"]
    completions = tokenizer([completion for _, completion in pairs], add_special_tokens=False)["input_ids"]
    rows = [(p + c + [end], [-100] * len(p) + c + [end]) for p, c in zip(prompts, completions, strict=True)]
    for window in range(math.ceil(recipe.steps / WINDOW)):
        size = min(WINDOW, recipe.steps - window * WINDOW)
        order = permutation(RowKey(recipe.seed, ORDER, window, 0, 0), len(rows))
        chosen = sorted((rows[order[i % len(order)]] for i in range(size * recipe.rows)), key=lambda row: len(row[0]))
        for batch in permutation(RowKey(recipe.seed, ORDER, window, 1, 0), size):
            part = chosen[batch * recipe.rows : (batch + 1) * recipe.rows]
            width = max(len(ids) for ids, _ in part)
            yield (
                torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in part]),
                torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in part]),
            )
