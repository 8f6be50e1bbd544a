"""grpoctl finds a GRPO configuration that works on your task, and tells you, with evidence, why the others did not."""

from __future__ import annotations

__version__ = "0.1.0"
