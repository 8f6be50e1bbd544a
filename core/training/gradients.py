"""Gradients of several ranks added up, and whose pull they are: each loss term's share of the norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from core.training.world import World


def add_gradients(parameters: Sequence[Tensor], world: World) -> None:
    """Every parameter's gradient becomes the sum over all ranks.

    One that no rank has a gradient for keeps none: AdamW would decay it. A rank that had no rows adds nothing.
    """
    if world.size == 1:
        return
    anywhere = [any(has) for has in zip(*world.gather([one.grad is not None for one in parameters]), strict=True)]
    moved = [one for one, has in zip(parameters, anywhere, strict=True) if has]
    for one in moved:
        if one.grad is None:
            one.grad = torch.zeros_like(one)
    world.add([one.grad for one in moved if one.grad is not None])


class GradientShares:
    """The gradient of each term, added up over micro-batches: a share of the *loss* says nothing about its pull."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._gradients: dict[str, list[Tensor]] = {}

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Measure the terms of one micro-batch; leaves their graph as it was."""
        for name, term in terms.items():
            found = torch.autograd.grad(term, self._parameters, retain_graph=True, allow_unused=True)
            sums = self._gradients.setdefault(name, [torch.zeros_like(one) for one in self._parameters])
            for place, one in enumerate(found):
                if one is not None:
                    sums[place] += one

    def metrics(self, world: World) -> dict[str, float]:
        """`grad_share/<term>`: its norm over the sum of all terms' norms; nothing where no term pulls."""
        for name in dict.fromkeys(name for names in world.gather(list(self._gradients)) for name in names):
            world.add(self._gradients.setdefault(name, [torch.zeros_like(one) for one in self._parameters]))
        norms = {
            name: float(torch.stack([one.norm() for one in gradients]).norm())
            for name, gradients in self._gradients.items()
        }
        whole = sum(norms.values())
        return {f"grad_share/{name}": norm / whole for name, norm in norms.items()} if whole > 0 else {}
