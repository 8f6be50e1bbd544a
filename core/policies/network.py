"""What policies over a network of their own share: weights that are trained, kept beside the current ones, restored.

A language model's policy has adapters and bases instead (core.policies.lm).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import Parameter

from core.errors import CheckpointError
from core.models.devices import set_threads
from core.policies.base import Keep, Policy, Weights, mix_into

KEPT: tuple[Keep, ...] = ("reference", "epoch")


class NetworkPolicy(Policy):
    """A policy over one network without buffers, in eval mode; the weights it keeps are those that may be trained."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network.eval()
        self._kept: dict[Keep, dict[str, Tensor]] = {}
        for which in KEPT:
            self.keep(which)
        set_threads(sum(weight.numel() for weight in self.network.parameters()))

    def keep(self, which: Keep) -> None:
        """Let the weights as they are now be the reference, or those that an epoch began with."""
        self._kept[which] = {
            name: weight.detach().clone() for name, weight in self.network.named_parameters() if weight.requires_grad
        }

    def sync_reference(self, alpha: float) -> None:
        """Move the reference's weights towards the current ones."""
        mix_into(self._kept["reference"], dict(self.network.named_parameters()), alpha)

    def trainable(self) -> Mapping[str, Parameter]:
        """The network's weights, those that are frozen left out."""
        return {name: weight for name, weight in self.network.named_parameters() if weight.requires_grad}

    def state(self) -> Mapping[str, Tensor]:
        """The network, and the weights it keeps, under their names."""
        now = {name: weight.detach().clone() for name, weight in self.network.named_parameters()}
        for which, kept in self._kept.items():
            now |= {f"{which}.{name}": weight.clone() for name, weight in kept.items()}
        return now

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state()`. Raises CheckpointError where names or shapes differ."""
        mine = self.state()
        if odd := next((name for name in sorted(set(mine) | set(state)) if not _fits(mine, state, name)), None):
            raise CheckpointError(f"weights do not fit this policy: {odd!r} is missing, unknown or of another shape")
        with torch.no_grad():
            for name, weight in self.network.named_parameters():
                weight.copy_(state[name])
        for which, kept in self._kept.items():
            self._kept[which] = {name: state[f"{which}.{name}"].to(weight, copy=True) for name, weight in kept.items()}

    def forward(self, weights: Weights, *inputs: Any) -> Any:
        """The network's answer with these weights."""
        if weights == "current":
            return self.network(*inputs)
        return functional_call(self.network, self._kept[weights], inputs)


def _fits(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor], name: str) -> bool:
    return name in mine and name in theirs and mine[name].shape == theirs[name].shape
