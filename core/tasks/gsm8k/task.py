"""Gsm8kTask: being written."""

from __future__ import annotations

from typing import Any


class Gsm8kTask:
    """Placeholder."""

    def __init__(self, spec: Any) -> None:
        raise NotImplementedError
