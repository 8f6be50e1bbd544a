"""The real built-in model, built at most once: from the user's cache, as in production."""

from __future__ import annotations

from typing import Any

import pytest

from core.models.sources import builtin
from core.policies.lm.build import tiny_pairs


@pytest.fixture(scope="session")
def tiny_model() -> tuple[Any, Any]:
    """(model, tokenizer) of `builtin:tiny`."""
    return builtin.load(tiny_pairs())
