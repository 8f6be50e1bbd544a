"""A run that is valid, and the one error of it where top-level keys are changed."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.config import RunSpec

STAGE: dict[str, Any] = {"max_steps": 10, "num_generations": 2, "prompts_per_step": 3, "learning_rate": 1e-3}
RUN: dict[str, Any] = {
    "name": "x",
    "title": "x",
    "model": {"source": "builtin:tiny"},
    "task": {"name": "workflow-dsl"},
    "stages": {"grpo": STAGE},
}


def refused(change: dict[str, Any]) -> dict[str, Any]:
    """The one error of a run with these top-level keys changed."""
    with pytest.raises(ValidationError) as caught:
        RunSpec.model_validate({**RUN, **change})
    (error,) = caught.value.errors()
    return dict(error)
