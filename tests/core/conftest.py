"""The models here have two layers: a second torch thread costs them more than it gives."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Torch on one thread, as the built-in model runs in production."""
    import torch

    torch.set_num_threads(1)
