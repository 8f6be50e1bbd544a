"""The sources in the order in which they are asked; the hub takes what none of the others claims."""

from __future__ import annotations

from collections.abc import Sequence

from core.models.sources import builtin, gguf_file, hub, local
from core.models.sources.base import Source

SOURCES: Sequence[Source] = (builtin, gguf_file, local, hub)
