"""Small pictures and policies for the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.config.policy import RestorationConfig
from core.policies.restoration.policy import RestorationPolicy
from core.randomness import TRAIN, RowKey
from core.tasks.base import Example


def settings(**changes: Any) -> RestorationConfig:
    small = {"width": 8, "blocks": [1, 1, 1, 1], "refinement": 1}
    return RestorationConfig.model_validate({"kind": "restoration", **small, **changes})


def policy_of(*, seed: int = 0, **changes: Any) -> RestorationPolicy:
    return RestorationPolicy(settings(**changes), seed=seed)


def picture(height: int = 16, width: int = 16, seed: int = 0, *, clean: bool = True) -> Example:
    generator = np.random.default_rng(seed)
    degraded, known = (generator.random((height, width, 3), dtype=np.float32) for _ in range(2))
    return Example(id=f"p{seed}", inputs={"degraded": degraded}, facts={"clean": known} if clean else {})


def keys(count: int) -> list[RowKey]:
    return [RowKey(0, TRAIN, 1, 0, row) for row in range(count)]
