"""A folder of model files: found, and checked to be whole before anything reads its weights. Imports no torch.

Not here: the cache's own checksums (core.models.cache), and loading (core.models.loading).
"""

from __future__ import annotations

import json
import math
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.config import ModelSpec
from core.errors import ModelError
from core.models.cache import sha256_of
from core.models.sources.base import OTHER_PLACE, Origin, Pairs, path_of

CONFIG, INDEX, SINGLE = "config.json", "model.safetensors.index.json", "model.safetensors"
OLD_INDEX, OLD_SINGLE = "pytorch_model.bin.index.json", "pytorch_model.bin"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "spiece.model")
HASHED = 2**30  # bytes: a model folder up to this size is hashed for the record
_LONGEST_HEADER = 100_000_000  # bytes; the format's own limit


def claims(source: str) -> bool:
    """True for a folder that is there, and for whatever else is written as a path."""
    return path_of(source).is_dir() or source.startswith((".", "/", "~"))


def locate(spec: ModelSpec, _pairs: Pairs) -> Origin:
    """The user's own folder. Raises ModelError where there is none, or where it holds no whole model."""
    folder = find(spec.source)
    files = weight_files(folder)
    hashed = len(files) == 1 and files[0].stat().st_size <= HASHED
    digest = sha256_of(files[0]) if hashed else None
    return Origin(source=spec.source, kind="directory", path=folder.resolve(), sha256=digest)


def find(source: str) -> Path:
    """The folder of a whole model; nothing is hashed. Raises ModelError."""
    folder = path_of(source)
    if not folder.is_dir():
        raise ModelError(f"got the model {source!r}, which is no directory; {OTHER_PLACE}")
    check(folder)
    return folder


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the folder's weights: one, or the shards its index names, whether they are there or not."""
    for index, single in ((INDEX, SINGLE), (OLD_INDEX, OLD_SINGLE)):
        if (folder / single).is_file():
            return [folder / single]
        if (folder / index).is_file():
            return [folder / name for name in _shards(folder / index)]
    return []


def is_complete(folder: Path) -> bool:
    """True when config, tokenizer and every weight file are there."""
    try:
        files = weight_files(folder)
    except ModelError:
        return False
    parts = (folder / CONFIG).is_file() and any((folder / name).is_file() for name in TOKENIZERS)
    return bool(parts and files and all(file.is_file() for file in files))


def check(folder: Path) -> None:
    """Raises ModelError, in one line, where the folder is no model that could be loaded: what it lacks, what to do."""
    if not (folder / CONFIG).is_file():
        raise ModelError(f"{folder} is not a model: {_advise(folder)}")
    _read(folder / CONFIG)
    files = weight_files(folder)
    if not files:
        raise ModelError(f"{folder} has no weights: neither {SINGLE} nor {INDEX}; download the model again")
    for file in files:
        if not file.is_file():
            raise ModelError(f"{folder} lacks {file.name}, which its index names; download the model again")
        if file.suffix == ".safetensors":
            safetensors_header(file)
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise ModelError(f"{folder} has no tokenizer ({', '.join(TOKENIZERS[:3])}, ...); download the model again")


def safetensors_header(file: Path) -> dict[str, dict[str, Any]]:
    """Name -> {dtype, shape, data_offsets} of a safetensors file. Raises ModelError where the file is not whole."""
    size = file.stat().st_size
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            described = json.loads(stream.read(min(length, _LONGEST_HEADER)))
        tensors = {name: tensor for name, tensor in described.items() if name != "__metadata__"}
        end = 8 + length + max((int(tensor["data_offsets"][1]) for tensor in tensors.values()), default=0)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, struct.error) as error:
        raise ModelError(f"{file} is damaged: its head cannot be read; download the model again") from error
    if end != size:
        raise ModelError(f"{file} is damaged: it has {size} bytes, its head says {end}; download the model again")
    return tensors


def count_parameters(folder: Path) -> int | None:
    """How many weights the folder's safetensors files hold; None where there are none, or they are not whole."""
    try:
        files = [file for file in weight_files(folder) if file.suffix == ".safetensors"]
        counts = [math.prod(tensor["shape"]) for file in files for tensor in safetensors_header(file).values()]
    except (ModelError, OSError, TypeError):
        return None
    return sum(counts) or None


def chat_template(folder: Path) -> str:
    """The chat template of the folder's tokenizer, all of them where there are several; empty where there is none."""
    texts = []
    with suppress(OSError, ValueError):
        texts.append((folder / "chat_template.jinja").read_text(encoding="utf-8"))
    for name in ("tokenizer_config.json", "chat_template.json"):
        with suppress(ModelError):
            if given := _read(folder / name).get("chat_template"):
                texts.append(given if isinstance(given, str) else json.dumps(given))
    return "\n".join(texts)


def _shards(index: Path) -> list[str]:
    named = _read(index).get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise ModelError(f"{index} is damaged: it names no weight files; download the model again")
    return sorted(set(named.values()))


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as JSON; download the model again") from error
    if not isinstance(document, dict):
        raise ModelError(f"{file} is no JSON object; download the model again")
    return document


def _advise(folder: Path) -> str:
    """What a folder without a configuration is, and what to give in its place."""
    if (folder / "adapter_config.json").is_file():
        return "it is an adapter; merge it first (grpoctl export RUN FOLDER --merged)"
    gguf = sorted(folder.glob("*.gguf"))
    if gguf:
        return f"it has no {CONFIG}; give the GGUF file itself: model.source={gguf[0]}"
    return f"it has no {CONFIG}; give a folder that save_pretrained wrote, a GGUF file or a hub id"
