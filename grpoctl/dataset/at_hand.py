"""The tokenizer and the model of a spec, where they are on this machine: a check downloads nothing.

Heavy imports stand inside functions: `grpoctl check` without --data must stay quick.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from core.spec import ModelSpec


def absent(spec: ModelSpec) -> str | None:
    """Why the model is not to be tried here; None where it is at hand, built here, or a path that loading judges."""
    from core.models.catalogue import local_folder

    path = Path(os.path.expanduser(spec.source))
    named = spec.source.startswith((".", "/", "~", "builtin:")) or path.exists()
    if named or local_folder(spec.source, spec.revision) is not None:
        return None
    return f"{spec.source} is not on this machine; choose another --profile, or give model.source=FOLDER"


def tokenizer_of(spec: ModelSpec) -> Any | None:
    """The model's tokenizer; None where it is not at hand, or cannot be read."""
    from core.models.catalogue import local_folder

    folder = local_folder(spec.source, spec.revision)
    if folder is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=spec.trust_remote_code)
    except (OSError, ValueError, KeyError):
        return None  # lengths are then counted in characters, and the report says so
