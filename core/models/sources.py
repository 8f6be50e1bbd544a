"""Where weights come from: `builtin:tiny`, a local directory, or a hub id (cached or reachable)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.errors import ModelError
from core.models import tiny
from core.spec import ModelSpec

TINY = "builtin:tiny"
ADVICE = "give a local directory as model.source, make the hub reachable, or use --profile tiny"


def load(spec: ModelSpec, pairs: Callable[[], Sequence[tuple[str, str]]]) -> tuple[Any, Any]:
    """(model in eval mode on its device, left-padding tokenizer). `pairs` are what the built-in model is warmed up on.

    Raises ModelError naming the source and what would help.
    """
    if spec.source == TINY:
        model, tokenizer = tiny.load(pairs())
        return model.to(dtype=getattr(torch, spec.dtype)).eval(), tokenizer
    if spec.source.startswith("builtin:"):
        raise ModelError(f"got model {spec.source!r}; the built-in models are: {TINY}")
    folder = Path(spec.source).expanduser()
    if spec.source.startswith((".", "/", "~")) and not folder.is_dir():
        raise ModelError(f"got model.source {spec.source!r}, which is no directory; {ADVICE}")
    source = str(folder) if folder.is_dir() else spec.source
    local = folder.is_dir() or not hub_reachable()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left", local_files_only=local)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, spec.dtype), local_files_only=local)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ModelError(f"cannot load the model {spec.source!r}: {reason}; {ADVICE}") from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer


def hub_reachable() -> bool:
    """Whether the model hub answers within three seconds; its client would try for nearly a minute.

    True without looking where a proxy is set: then only the client knows the way.
    """
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), timeout=3.0).close()
    except OSError:
        return False
    return True
