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


def norm_of(parameters: Sequence[Tensor]) -> Tensor:
    """The norm of the parameters' gradients together, a scalar where they are; 0 where none has one."""
    norms = [one.grad.norm() for one in parameters if one.grad is not None]
    return torch.stack(norms).norm() if norms else torch.zeros(())


def numbers_of(scalars: Sequence[Tensor]) -> list[float]:
    """What these tensors of one number each say, read in one go."""
    if not scalars:
        return []
    device = scalars[0].device
    found: list[float] = torch.stack([one.detach().to(device).double() for one in scalars]).tolist()
    return found


def shares_of(norms: Mapping[str, float]) -> dict[str, float]:
    """`grad_share/<term>`: its norm over the sum of all terms' norms; nothing where no term pulls.

    A share of the *loss* says nothing about a term's pull.
    """
    whole = sum(norms.values())
    return {f"grad_share/{name}": norm / whole for name, norm in norms.items()} if whole > 0 else {}
