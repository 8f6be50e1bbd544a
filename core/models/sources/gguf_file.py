"""GGUF files: what is in one, and its weights as an ordinary transformers model, made once and kept in the cache.

The weights stay what they were rounded to: dequantising gives every one its own number, not its old value back.
Imports torch only to dequantise. Not here: loading what is kept (core.models.loading).
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from core.config import ModelSpec
from core.errors import ModelError, StorageError
from core.models.cache import cache_root, check_free_space, get_or_make, sha256_of
from core.models.messages import first_line, no_progress_bars, note
from core.models.sources.base import ORIGIN, OTHER_PLACE, Origin, Pairs, path_of, read_origin, unfit_file_errors

FILES = ("config.json", "model.safetensors", "tokenizer_config.json", ORIGIN)
MAGIC = b"GGUF"
OpenFile = Callable[[Path], AbstractContextManager[Path]]  # a work folder -> the GGUF file, while the context lasts
UNREADABLE = (OSError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class GGUFContent:
    """What a GGUF file holds: how many weights, and how most of them are kept (`Q4_1`)."""

    parameters: int
    tensor_type: str

    @property
    def quantised(self) -> str | None:
        """How the weights were rounded, in words; None where they were not."""
        if self.tensor_type in ("F32", "F16", "BF16"):
            return None
        bits = "".join(filter(str.isdigit, self.tensor_type.partition("_")[0]))
        return f"{bits}-bit ({self.tensor_type}), dequantised" if bits else f"{self.tensor_type}, dequantised"


def read_content(file: Path) -> GGUFContent:
    """What the file holds. Raises ModelError where it is no GGUF file, or not all of one."""
    try:
        with file.open("rb") as stream:
            begins = stream.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"cannot read {file}: {error.strerror or error}") from error
    if begins != MAGIC:
        raise ModelError(f"{file} is not a GGUF file; give a .gguf file, a folder of model files, or a hub id")
    from gguf import GGUFReader  # brings numpy with it

    try:
        tensors = GGUFReader(file).tensors
        whole = all(int(tensor.data_offset) + int(tensor.n_bytes) <= file.stat().st_size for tensor in tensors)
    except UNREADABLE as error:
        raise ModelError(f"{file} is not a whole GGUF file ({first_line(error)}); download it again") from error
    if not tensors or not whole:
        raise ModelError(f"{file} is not a whole GGUF file (weights are missing); download it again")
    counts: Counter[str] = Counter()
    for tensor in tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    return GGUFContent(parameters=counts.total(), tensor_type=counts.most_common(1)[0][0])


def cache_folder(sha256: str, dtype: str) -> Path:
    """Where the model of the GGUF file with this hash is kept, in float32 or bfloat16."""
    return cache_root() / f"gguf-{sha256[:16]}-{dtype}"


def claims(source: str) -> bool:
    """True for a file, and for whatever is called `.gguf`, unless it is a folder."""
    path = path_of(source)
    return not path.is_dir() and (source.lower().endswith(".gguf") or path.is_file())


def locate(spec: ModelSpec, _pairs: Pairs) -> Origin:
    """The model of the user's own file in our cache, made now unless it is there."""
    path = find(spec.source)
    content = read_content(path)
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    file = path.resolve()
    origin = Origin(source=spec.source, kind="gguf", path=file, sha256=digest, quantised=content.quantised)
    return dequantise(lambda _: nullcontext(file), origin, spec.dtype)


def find(source: str) -> Path:
    """The file, of whose content nothing is read. Raises ModelError where there is none."""
    path = path_of(source)
    if not path.is_file():
        raise ModelError(f"got the model {source!r}, and there is no such file; {OTHER_PLACE}")
    return path


def dequantise(open_file: OpenFile, origin: Origin, dtype: str) -> Origin:
    """The origin with the folder of a GGUF file's model in the cache, made now unless it is there, where it is noted.

    The file is asked for only then, by the one process that makes the entry. Raises ModelError where it is damaged or
    of a kind that transformers cannot read, StorageError where the cache has no room.
    """
    make = partial(_make, open_file=open_file, origin=origin, dtype=dtype)
    folder = cache_folder(str(origin.sha256), dtype)
    get_or_make(folder, make, files=FILES, what=f"dequantise {origin.source}")
    quantised = read_origin(folder).get("quantised")
    return replace(origin, path=folder, quantised=quantised if isinstance(quantised, str) else None)


def _make(work: Path, *, open_file: OpenFile, origin: Origin, dtype: str) -> None:
    """The weights in `dtype` and the tokenizer as transformers' own files, and what they were made of."""
    import torch
    from safetensors import SafetensorError

    with open_file(work) as file:
        content = read_content(file)
        needed = content.parameters * getattr(torch, dtype).itemsize
        check_free_space(work.parent, needed + 2**25, f"dequantise {file.name}")
        note(f"dequantises {file.name} into {work.parent} ({needed / 2**30:.1f} GiB), once")
        model, tokenizer = _read(work, file, dtype)
    record = {**origin.as_json(), "quantised": content.quantised, "parameters": content.parameters}
    try:
        with no_progress_bars():
            model.save_pretrained(work, max_shard_size=2 * needed)
            tokenizer.save_pretrained(work)
        (work / ORIGIN).write_text(json.dumps(record), encoding="utf-8")
    except (OSError, RuntimeError, SafetensorError) as error:  # safetensors' own errors know no errno
        raise StorageError(
            f"cannot dequantise {file.name} in {work.parent}: {first_line(error)}; make room there"
        ) from error


def _read(work: Path, file: Path, dtype: str) -> tuple[Any, Any]:
    """The file's model, as an ordinary one, and its tokenizer."""
    from transformers import AutoTokenizer

    alone = work / "gguf"  # by itself: transformers would also read what stands beside the file
    alone.mkdir()
    (alone / "model.gguf").symlink_to(file.resolve())
    try:
        with no_progress_bars():
            tokenizer = AutoTokenizer.from_pretrained(alone, gguf_file="model.gguf", local_files_only=True)
            return _without_quantisation(alone, dtype), tokenizer
    except unfit_file_errors() as error:
        raise ModelError(f"transformers cannot read {file}: {first_line(error)}; give safetensors instead") from error
    finally:
        (alone / "model.gguf").unlink()
        alone.rmdir()


def _without_quantisation(folder: Path, dtype: str) -> Any:
    """The model without a word of quantisation, which `save_pretrained` would refuse."""
    import torch
    from transformers import AutoModelForCausalLM

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
