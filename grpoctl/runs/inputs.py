"""What a run reads besides its spec: the task's data files and reward files, by the sha256 of what is in them.

What is here: `inputs` of provenance.json, and the note where a resumed run finds others. What is not: reading them for
training. Nothing here fails: what cannot be read has a sha256 of null.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.config import RunSpec
from core.config.task import CustomTaskSpec, DataSpec, Gsm8kTaskSpec
from grpoctl.config.authored import is_file
from grpoctl.files import read_json, replace_json
from grpoctl.runs.run_dir import RunDir

_SHOWN = 12  # digits of a hash in a note


def record(run: RunDir, spec: RunSpec) -> list[str]:
    """Write what this attempt reads into provenance.json; gives a note for each input that changed since the first one.

    `inputs` at the top of the file are the first attempt's; an attempt that reads something else has its own. Raises
    StorageError.
    """
    now, document = inputs_of(spec), read_json(run.provenance)
    if document is None or not now:
        return []
    first = document.setdefault("inputs", now)
    if first != now and document["attempts"]:
        document["attempts"][-1]["inputs"] = now
    replace_json(run.provenance, document)
    return [
        f"{name} has changed since this run began ({_short(first.get(name))} -> {_short(now.get(name))}): "
        "steps before and after this one are not of the same task"
        for name in sorted({*first, *now})
        if first.get(name) != now.get(name)
    ]


def inputs_of(spec: RunSpec) -> dict[str, Any]:
    """path -> sha256 of each file; `hub:NAME` -> config, split and revision of a dataset of the hub."""
    task = spec.task
    if isinstance(task, Gsm8kTaskSpec):
        return _gsm8k(task)
    if not isinstance(task, CustomTaskSpec):
        return {}
    parts = (task.data, task.eval_data, task.test_data)
    found = {name: value for data in parts if data is not None for name, value in _data(data).items()}
    files = [reward.function.rpartition(":")[0] for reward in task.rewards]
    return {**found, **{file: sha256(Path(file)) for file in files if is_file(file)}}


def _gsm8k(task: Gsm8kTaskSpec) -> dict[str, Any]:
    if task.path is None:
        return {}
    files = [Path(task.path) / f"{name}.jsonl" for name in ("train", "test")]
    return {str(file): sha256(file) for file in files if file.exists()}


def _data(data: DataSpec) -> dict[str, Any]:
    if data.path is not None:
        return {data.path: sha256(Path(data.path))}
    named = {"config": data.config, "split": data.split, "revision": data.revision}
    return {f"hub:{data.hub}[{data.split}]": named}


def sha256(file: Path) -> str | None:
    """64 hex digits over the file's bytes; None where they cannot be read."""
    digest = hashlib.sha256()
    try:
        for piece in _pieces(file.expanduser()):
            digest.update(piece)
    except (OSError, RuntimeError):  # RuntimeError: the folder of a user there is not
        return None
    return digest.hexdigest()


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            yield piece


def _short(value: str | Mapping[str, object] | None) -> str:
    return "not there" if value is None else value[:_SHOWN] if isinstance(value, str) else str(dict(value))
