"""The optimiser and one update: micro-batches, accumulated gradient, clipping, step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from core.errors import CheckpointError
from core.policies.base import Policy, Rollout, RowKey, Scores
from core.rollout.uniforms import seeded
from core.spec import StageBase


@dataclass(frozen=True, kw_only=True, slots=True)
class LossParts:
    """A micro-batch's share of the loss. `sums` add up over micro-batches, of `maxima` the largest counts.

    `terms` are the weighted parts that `total` is the sum of, by name: what gradient shares are measured of.
    """

    total: Tensor
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    maxima: Mapping[str, Tensor] = field(default_factory=dict)
    terms: Mapping[str, Tensor] = field(default_factory=dict)


Loss = Callable[[Scores, Sequence[int]], LossParts]


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Rows of a rollout and the loss that learns from them; `wants` is what the loss needs besides log-probs."""

    rollout: Rollout
    rows: Sequence[int]
    loss: Loss
    micro_rows: int
    wants: frozenset[str] = frozenset()


class Update:
    """AdamW over a policy's trainable parameters."""

    def __init__(self, policy: Policy, stage: StageBase) -> None:
        self._policy = policy
        self._max_grad_norm = stage.max_grad_norm
        named = sorted(policy.trainable().items())
        self._names = [name for name, _ in named]
        parameters = [parameter for _, parameter in named]
        self._optimizer = torch.optim.AdamW(parameters, lr=stage.learning_rate, weight_decay=stage.weight_decay)

    def apply(
        self, batches: Sequence[Batch], *, learning_rate: float, key: RowKey, shares: bool = False
    ) -> dict[str, float]:
        """One optimiser step over all batches; metrics of the loss. Where loss or gradient is not finite, none is made.

        `key` names the dropout of this update; torch's global generator is left as it was found. With `shares`, each
        term's share of the gradient norm is measured too (a backward pass more for each term).
        """
        sums: dict[str, Tensor] = {}
        maxima: dict[str, Tensor] = {}
        measured = _Shares(self._parameters()) if shares else None
        self._optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad(), seeded(key):
            for batch in batches:
                for rows in self._policy.split(batch.rollout, batch.rows, batch.micro_rows):
                    parts = batch.loss(
                        self._policy.score(batch.rollout, rows, wants=batch.wants, weights="current"), rows
                    )
                    if measured is not None:
                        measured.add(parts.terms)
                    parts.total.backward()  # type: ignore[no-untyped-call]
                    for name, value in {"loss": parts.total.detach(), **parts.sums}.items():
                        sums[name] = sums[name] + value if name in sums else value
                    for name, value in parts.maxima.items():
                        maxima[name] = torch.maximum(maxima[name], value) if name in maxima else value
        norm = torch.nn.utils.clip_grad_norm_(self._parameters(), self._max_grad_norm)
        metrics = {name: float(value) for name, value in {**sums, **maxima, "grad_norm": norm}.items()}
        sound = math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])
        if sound:
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        found = measured.metrics() if measured is not None else {}
        return {**metrics, **found, "learning_rate": learning_rate, "update": float(sound)}

    def state(self) -> dict[str, Tensor]:
        """The optimiser's moments and step counts as `parameter.slot`; empty before the first step."""
        return {
            f"{name}.{slot}": value.detach().clone()
            for name, parameter in zip(self._names, self._parameters(), strict=True)
            for slot, value in self._optimizer.state.get(parameter, {}).items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state()`. Raises CheckpointError where it belongs to other parameters."""
        slots: dict[str, dict[str, Tensor]] = {}
        for name, value in state.items():
            parameter, _, slot = name.rpartition(".")
            slots.setdefault(parameter, {})[slot] = value.clone()
        if unknown := sorted(set(slots) - set(self._names)):
            raise CheckpointError(f"optimiser state does not fit this model: unknown parameter {unknown[0]!r}")
        for own, weights in zip(self._names, self._parameters(), strict=True):
            self._optimizer.state.pop(weights, None)
            if own in slots:
                # Moments live beside their weights, Adam's step count on the CPU: where torch itself keeps them.
                self._optimizer.state[weights] = {
                    slot: value if slot == "step" else value.to(weights.device) for slot, value in slots[own].items()
                }

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]


class _Shares:
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

    def metrics(self) -> dict[str, float]:
        """`grad_share/<term>`: its norm over the sum of all terms' norms; nothing where no term pulls."""
        norms = {
            name: float(torch.stack([one.norm() for one in gradients]).norm())
            for name, gradients in self._gradients.items()
        }
        whole = sum(norms.values())
        return {f"grad_share/{name}": norm / whole for name, norm in norms.items()} if whole > 0 else {}
