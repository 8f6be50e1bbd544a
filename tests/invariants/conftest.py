"""The models here have two layers: a second torch thread costs them more than it gives."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Torch on one thread, as the built-in model runs in production."""
    torch.set_num_threads(1)
