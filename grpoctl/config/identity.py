"""What names a spec and its runs: hashes of canonical JSON, and the stem of a run's id.

Two different specs never share a stem; comments, key order and the way a number is written do not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from core.config import RunSpec
from grpoctl.config.resolved import plain

_EXACT = 2**53  # up to here every integral float is one integer


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
