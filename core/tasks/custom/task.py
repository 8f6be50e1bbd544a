"""CustomTask: being written."""

from __future__ import annotations

from typing import Any


class CustomTask:
    """Placeholder."""

    def __init__(self, spec: Any) -> None:
        raise NotImplementedError
