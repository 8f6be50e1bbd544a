"""The optimiser and one update: micro-batches, accumulated gradient, clipping, step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from core.algorithms.names import OPTIMISERS
from core.config import GrpoStage, Schedule, StageBase
from core.errors import CheckpointError
from core.models.devices import to_device
from core.policies.base import Policy, Rollout, Scores
from core.randomness import RowKey, seeded
from core.training.parallel import LEARN, Machine, World, add_gradients, own_rows


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


def own_losses(stage: StageBase, now: Callable[[Schedule], float]) -> dict[str, float]:
    """The weights of the policy's own losses where a schedule's value is `now(schedule)`, those of 0 left out."""
    schedules = dict(stage.loss_weights)
    if isinstance(stage, GrpoStage):
        schedules.setdefault("consistency", stage.consistency_weight)
    return {name: weight for name, schedule in schedules.items() if (weight := now(schedule))}


def add_own_losses(
    parts: LossParts, scores: Scores, weights: Mapping[str, float], rows: int, counted_R: Tensor | None = None
) -> LossParts:
    """The parts with the policy's own losses added, each times its weight: means over the `rows` of the whole batch.

    `counted_R` says which of the scored rows they are means over (None: all).
    """
    if not weights:
        return parts

    def mean(losses_R: Tensor) -> Tensor:
        counted = losses_R if counted_R is None else losses_R[to_device(counted_R, losses_R.device)]
        return counted.sum() / max(1, rows)

    values = {name: mean(scores.losses_N[name]) for name in weights}
    terms = {name: weights[name] * value for name, value in values.items()}
    return replace(
        parts,
        total=parts.total + torch.stack(list(terms.values())).sum(),
        sums={**parts.sums, **{f"losses/{name}": value.detach() for name, value in values.items()}},
        terms={**parts.terms, **terms},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Rows of a rollout and the loss that learns from them; `wants` is what the loss needs besides log-probs."""

    rollout: Rollout
    rows: Sequence[int]
    loss: Loss
    micro_rows: int
    wants: frozenset[str] = frozenset()


def numbers_of(scalars: Sequence[Tensor]) -> list[float]:
    """The values of tensors of one number each, read in one go."""
    if not scalars:
        return []
    device = scalars[0].device
    values: list[float] = torch.stack([scalar.detach().to(device).double() for scalar in scalars]).tolist()
    return values


class _BatchSums:
    """What the micro-batches so far have added up to, besides the gradient itself."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.maxima: dict[str, Tensor] = {}
        self.terms: dict[str, None] = {}  # names, in order

    def add(self, parts: LossParts) -> None:
        """A micro-batch more."""
        for name, value in {"loss": parts.total.detach(), **parts.sums}.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        for name, value in parts.maxima.items():
            self.maxima[name] = torch.maximum(self.maxima[name], value) if name in self.maxima else value
        self.terms |= dict.fromkeys(parts.terms)

    def metrics(self, world: World, norm: Tensor) -> dict[str, float]:
        """Of the whole batch, the same on every rank, as the gradient's norm is."""
        # Read at once: each number that a GPU is asked for waits for all that it still has to do.
        *own, norm_read = numbers_of([*self.sums.values(), *self.maxima.values(), norm])
        sums, maxima = own[: len(self.sums)], own[len(self.sums) :]
        gathered = world.gather((dict(zip(self.sums, sums, strict=True)), dict(zip(self.maxima, maxima, strict=True))))
        metrics: dict[str, float] = {"grad_norm": norm_read}
        for name in dict.fromkeys(name for sums, _ in gathered for name in sums):
            metrics[name] = sum(sums[name] for sums, _ in gathered if name in sums)
        for name in dict.fromkeys(name for _, maxima in gathered for name in maxima):
            values = [maxima[name] for _, maxima in gathered if name in maxima]
            metrics[name] = float(torch.tensor(values).max())  # NaN stays
        return metrics


def optimiser_of(stage: StageBase, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """The stage's optimiser over these parameters: torch's, or an 8-bit one of bitsandbytes."""
    traits = OPTIMISERS[stage.optim]
    settings: dict[str, Any] = {"lr": stage.learning_rate}
    if traits.decays:
        settings["weight_decay"] = stage.weight_decay
    if traits.betas:
        settings["betas"] = (stage.adam_beta1, stage.adam_beta2)
    if traits.epsilon:
        settings["eps"] = stage.adam_epsilon
    if traits.fused:
        settings["fused"] = True
    # Importing bitsandbytes loads CUDA libraries: others do without.
    module: Any = import_module("bitsandbytes.optim" if traits.eight_bit else "torch.optim")
    optimiser: torch.optim.Optimizer = getattr(module, traits.of)(parameters, **settings)
    return optimiser


class Update:
    """The stage's optimiser over a policy's trainable parameters."""

    def __init__(self, policy: Policy, stage: StageBase) -> None:
        self._policy = policy
        self._max_grad_norm = stage.max_grad_norm
        self.clip: Callable[[list[Tensor], float], Tensor] = torch.nn.utils.clip_grad_norm_
        named = sorted(policy.trainable().items())
        self._names = [name for name, _ in named]
        parameters = [parameter for _, parameter in named]
        self._optimizer = optimiser_of(stage, parameters)
        self._eight_bit = OPTIMISERS[stage.optim].eight_bit

    def apply(
        self,
        batches: Sequence[Batch],
        *,
        learning_rate: float,
        key: RowKey,
        shares: bool = False,
        machine: Machine | None = None,
    ) -> dict[str, float]:
        """One optimiser step over all batches; metrics of the loss. Where loss or gradient is not finite, none is made.

        `key` names the dropout of this update; torch's global generator is left as it was found. With `shares`, each
        term's share of the gradient norm is measured too (a pass more for each term: to keep one graph for all of them
        would keep what gradient checkpointing recomputes). Each rank learns from its own groups; gradient and metrics
        are those of all. Raises RunError where not one row fits into memory.
        """
        machine = machine or Machine()
        world = machine.world
        micro_rows = max(min(batch.micro_rows, len(batch.rows)) for batch in batches)
        key = key._replace(attempt=2 * world.rank)  # dropout of its own for each rank; odd ones are a fault's
        own = [replace(batch, rows=own_rows(world, batch.rollout, batch.rows)) for batch in batches]

        def backward(term: str | None = None) -> _BatchSums:
            sums = machine.room.whole(LEARN, micro_rows, lambda rows: self._backward(own, rows, key, term), world)
            add_gradients(self._parameters(), world)
            return sums

        batch = backward()
        grad_shares = self._shares(batch, backward, world) if shares else {}
        norm = self.clip(self._parameters(), self._max_grad_norm)
        metrics = batch.metrics(world, norm)
        sound = math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])
        if sound:
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return {**metrics, **grad_shares, "learning_rate": learning_rate, "update": float(sound)}

    def _backward(self, batches: Sequence[Batch], limit: int, key: RowKey, term: str | None) -> _BatchSums:
        """The gradient of the batches, in micro-batches of at most `limit` rows; whatever was there before is gone.

        Of all of the loss, or of one of its terms.
        """
        self._optimizer.zero_grad(set_to_none=True)
        sums = _BatchSums()
        with torch.enable_grad(), seeded(key):
            for batch in batches:
                for rows in self._policy.split(batch.rollout, batch.rows, min(batch.micro_rows, limit)):
                    scores = self._policy.score(batch.rollout, rows, wants=batch.wants, weights="current")
                    parts = batch.loss(scores, rows)
                    pulling = parts.total if term is None else parts.terms.get(term)
                    if pulling is not None and (term is None or pulling.requires_grad):
                        pulling.backward()  # type: ignore[no-untyped-call]
                    sums.add(parts)
        return sums

    def _shares(self, batch: _BatchSums, backward: Callable[[str], _BatchSums], world: World) -> dict[str, float]:
        """`grad_share/<term>`: the norm of a term's gradient over the sum of all terms' norms; nothing where that is 0.

        A share of the *loss* says nothing about a term's pull. The gradient is left as it was.
        """
        names = list(dict.fromkeys(name for names in world.gather(list(batch.terms)) for name in names))
        kept = [parameter.grad for parameter in self._parameters()]
        norms: list[Tensor] = []
        for name in names:
            backward(name)
            parts = [parameter.grad.norm() for parameter in self._parameters() if parameter.grad is not None]
            norms.append(torch.stack(parts).norm() if parts else torch.zeros(()))
        for parameter, gradient in zip(self._parameters(), kept, strict=True):
            parameter.grad = gradient
        by_term = dict(zip(names, numbers_of(norms), strict=True))
        whole = sum(by_term.values())
        return {f"grad_share/{name}": norm / whole for name, norm in by_term.items()} if whole > 0 else {}

    def state(self) -> dict[str, Tensor]:
        """Moments and step counts as `parameter.slot`, on the CPU; of Adam's kind empty before the first step."""
        return {
            f"{name}.{slot}": torch.as_tensor(value).detach().to("cpu", copy=True)
            for name, parameter in zip(self._names, self._parameters(), strict=True)
            for slot, value in self._optimizer.state.get(parameter, {}).items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state()`. Raises CheckpointError where it belongs to other parameters."""
        slots: dict[str, dict[str, Any]] = {}
        for name, value in state.items():
            parameter, _, slot = name.rpartition(".")
            slots.setdefault(parameter, {})[slot] = value.clone()
        if unknown := sorted(set(slots) - set(self._names)):
            raise CheckpointError(f"optimiser state does not fit this model: unknown parameter {unknown[0]!r}")
        if self._eight_bit:  # bitsandbytes counts in a plain number
            slots = {name: {**kept, "step": int(kept["step"])} for name, kept in slots.items()}
        # By torch's own rule each slot goes where the optimiser keeps it: beside its weight, or on the CPU.
        whole = self._optimizer.state_dict()
        whole["state"] = {place: slots[name] for place, name in enumerate(self._names) if name in slots}
        self._optimizer.load_state_dict(whole)

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
