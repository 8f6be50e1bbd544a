"""Specs of a custom task over a file of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.config.task import CustomTaskSpec

Spec = Callable[..., CustomTaskSpec]


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Writes `content` to a file called `name` and gives a spec of it; other settings as keywords."""

    def make(content: str | bytes, name: str = "rows.jsonl", **more: Any) -> CustomTaskSpec:
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        fixed = {"name": "custom", "train_prompts": 1, "eval_prompts": 1, "prompt": "{q}?"}
        told = {**fixed, "data": {"path": str(file)}, "rewards": [{"function": "rewards:right"}], **more}
        return CustomTaskSpec.model_validate(told)

    return make
