"""What the methods of a spec's stages stand for, and where the spec departs from them."""

from __future__ import annotations

from typing import Any

from core.config import METHODS, GrpoStage, RunSpec, named_point, point
from grpoctl.config.layers import leaves


def described(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """Stage -> method, title, source, axes (dotted axis -> value of the name), overridden (axis -> [name's, here])."""
    return {name: _described(stage) for name, stage in spec.stages.items() if isinstance(stage, GrpoStage)}


def _described(stage: GrpoStage) -> dict[str, Any]:
    method = METHODS[stage.method]
    named, here = leaves(named_point(stage.method)), leaves(point(stage))
    keys = dict.fromkeys([*named, *here])
    return {
        "method": stage.method,
        "title": method.title,
        "source": method.source,
        "axes": named,
        "overridden": {key: [named.get(key), here.get(key)] for key in keys if named.get(key) != here.get(key)},
    }
