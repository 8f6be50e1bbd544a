"""The reward of the comparison, with TRL's signature: both tools are handed this function."""

from __future__ import annotations

from typing import Any


def variety(completions: list[Any], **_: Any) -> list[float]:
    """How many of a completion's characters differ, as a share: graded, so that hardly any group is without signal.

    TRL gives conversations where prompts are such, grpoctl the texts.
    """
    texts = [said if isinstance(said, str) else said[0]["content"] for said in completions]
    return [len(set(text)) / (len(text) + 1) for text in texts]
