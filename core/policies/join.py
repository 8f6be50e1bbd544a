"""Several rollouts as one: what a step needs that sampled more than once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from core.policies.base import Rollout


def joined(rollouts: Sequence[Rollout], padding: Mapping[str, int]) -> Rollout:
    """The rows of all rollouts in order. `padding` is what fills an action tensor (else 0).

    Actions named `prompt...` are widened on the left, all else (N, T) on the right.
    """
    if len(rollouts) == 1:
        return rollouts[0]
    first = rollouts[0]
    offsets = [sum(len(one.prompts) for one in rollouts[:index]) for index in range(len(rollouts))]
    drawn = [one.drawn_NT for one in rollouts if one.drawn_NT is not None]
    return replace(
        first,
        prompts=[prompt for one in rollouts for prompt in one.prompts],
        prompt_N=torch.cat([one.prompt_N + offset for one, offset in zip(rollouts, offsets, strict=True)]),
        actions={
            name: _stacked([one.actions[name] for one in rollouts], padding.get(name, 0), name.startswith("prompt"))
            for name in first.actions
        },
        mask_NT=_stacked([one.mask_NT for one in rollouts], 0),
        drawn_NT=_stacked(drawn, 0) if len(drawn) == len(rollouts) else None,
        outputs=[output for one in rollouts for output in one.outputs],
        truncated_N=torch.cat([one.truncated_N for one in rollouts]),
    )


def _stacked(parts: Sequence[Tensor], fill: int, left: bool = False) -> Tensor:
    """The (N, width) tensors under each other, widened to the widest; one-dimensional ones as they are."""
    if parts[0].dim() == 1:
        return torch.cat(list(parts))
    width = max(part.shape[1] for part in parts)
    missing = [width - part.shape[1] for part in parts]
    return torch.cat(
        [pad(part, (gap, 0) if left else (0, gap), value=fill) for part, gap in zip(parts, missing, strict=True)]
    )
