"""What names a spec and its runs: hashes of canonical JSON, the stem of a run's id, and what each `name@revision` was
when it first ran, so that a changed spec is noticed and the old one can run again.

Two different specs never share a stem; comments, key order and the way a number is written do not matter. One JSON file
per recorded document: `p31@1.json` is the first, `p31@1+3fa2c1.json` one that changed under the same revision.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.config import RunSpec
from core.errors import NotFoundError, SpecError
from grpoctl.config.documents import read_text
from grpoctl.config.resolved import plain
from grpoctl.files import create_text, storage_errors

_EXACT = 2**53  # up to here every integral float is one integer
_REFERENCE = re.compile(r"(?P<name>[a-z0-9][a-z0-9_-]*)@[1-9]\d*(\+[0-9a-f]{6,64})?")


def canonical(value: object) -> str:
    """Canonical JSON: sorted keys, no whitespace, 1.0 and -0.0 written 1 and 0, other floats in shortest exact form."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _canonical(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _canonical(below) for key, below in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def spec_sha(spec: RunSpec) -> str:
    """sha256 (64 hex digits) of the resolved spec without its seed: equal for runs that differ in the seed only."""
    tree = plain(spec)
    del tree["seed"]
    return _sha(_with_order(tree))


def authored_sha(authored: Mapping[str, object]) -> str:
    """sha256 (64 hex digits) of an authored document: what `revision` counts."""
    return _sha(_with_order(authored))


def _with_order(tree: Mapping[str, object]) -> dict[str, object]:
    """The tree with its stages as a list where there are several: their order is part of what is run."""
    stages = tree.get("stages")
    if not isinstance(stages, Mapping) or len(stages) < 2:
        return dict(tree)
    return {**tree, "stages": [[name, stage] for name, stage in stages.items()]}


def run_stem(spec: RunSpec) -> str:
    """`p31-tiny-s0-1f3a9c2e`: a run's id is this and its number."""
    return f"{spec.name}-{spec.profile}-s{spec.seed}-{spec_sha(spec)[:8]}"


def _sha(value: object) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedAs:
    """`p31@1`, or `p31@1+3fa2c1` with `changed` where the content is not what first ran under that revision."""

    label: str
    changed: bool


@dataclass(frozen=True, slots=True)
class Revisions:
    """The recorded documents of one home. The folder is made when the first is recorded."""

    folder: Path

    def recorded_as(self, spec: RunSpec, authored: Mapping[str, object]) -> RecordedAs:
        """The label of a spec and its authored document, recorded where it is new. Raises StorageError, SpecError."""
        label = f"{spec.name}@{spec.revision}"
        sha = authored_sha(authored)
        if self._record(label, sha, authored):
            return RecordedAs(label=label, changed=False)
        for digits in (6, 12, 64):  # six may collide; twelve do not, in one folder
            changed = f"{label}+{sha[:digits]}"
            if self._record(changed, sha, authored):
                break
        return RecordedAs(label=changed, changed=True)

    def document(self, reference: str) -> tuple[Path, Mapping[str, object]]:
        """(file, authored document) of `p31@1` or `p31@1+3fa2c1`. Raises NotFoundError naming what there is."""
        label = reference.lower()
        match = _REFERENCE.fullmatch(label)
        if match is None:
            raise NotFoundError(f"got {reference!r}; a recorded spec is NAME@REVISION, e.g. p31@1 or p31@1+3fa2c1")
        file = self._file(label)
        if not file.is_file():
            name = match["name"]
            have = ", ".join(self.labels(name)) or "none"
            raise NotFoundError(f"{label} has not run here; recorded of {name}: {have}. The current file is {name!r}")
        return file, _read(file)[1]

    def labels(self, name: str = "") -> list[str]:
        """The recorded labels, sorted; of one experiment only where a name is given."""
        labels = sorted(file.stem for file in self.folder.glob("*.json"))
        return [label for label in labels if not name or label.partition("@")[0] == name]

    def _file(self, label: str) -> Path:
        return self.folder / f"{label}.json"

    def _record(self, label: str, sha: str, authored: Mapping[str, object]) -> bool:
        """Whether `label` stands for this content now: it did, or it was free and has been written."""
        file = self._file(label)
        if not file.exists():
            content = {"schema": 1, "label": label, "sha": sha, "authored": authored}
            with storage_errors("record", file):
                file.parent.mkdir(parents=True, exist_ok=True)
            create_text(file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))
        return _read(file)[0] == sha


def _read(file: Path) -> tuple[str, Mapping[str, object]]:
    """(sha, authored) of a recorded file. Raises SpecError where it is damaged."""
    try:
        content = json.loads(read_text(file))
        sha, authored = content["sha"], content["authored"]
        if isinstance(authored, dict) and authored_sha(authored) == sha:
            return sha, authored
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise SpecError("is damaged: not the document it was recorded as; remove it to record anew", file=file)
