"""The policy protocol: what can be sampled from, scored and trained.

Shape suffixes, here and everywhere in core:
    P  prompts      K  completions of one prompt      N = P*K  rows, the K rows of a group adjacent
    T  factors of one output (tokens, picks, action factors)      V  vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor
from torch.nn import Parameter

from core.randomness import RowKey
from core.tasks.base import Example

Weights = Literal["current", "reference"]
ENTROPY = "entropy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How to draw. Log-probs are recorded and scored at `temperature`; the filters only restrict what is drawn."""

    temperature: float
    max_completion_length: int
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """Sampled outputs: N rows of T factors, on the CPU whatever the policy runs on."""

    prompts: Sequence[Example]  # P
    prompt_N: Tensor  # index into prompts
    actions: Mapping[str, Tensor]  # private to the policy; first dimension N
    mask_NT: Tensor  # bool: this factor was drawn
    drawn_NT: Tensor | None  # log-probs recorded while sampling; None: offline data
    outputs: Sequence[str]  # N, what a task scores
    truncated_N: Tensor  # bool: cut off at max_completion_length
    how: Sampling

    def __len__(self) -> int:
        return len(self.outputs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What a policy says of the rows it was asked about (R of the rollout's N, in the order asked), on its device."""

    logprobs_NT: Tensor
    entropies_NT: Tensor | None = None
    losses_N: Mapping[str, Tensor] = field(default_factory=dict)


class Policy(Protocol):
    """A trainable distribution over outputs."""

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        """K outputs for each prompt; `keys` has one entry per row (P*K)."""
        ...

    def replay(self, prompts: Sequence[Example], outputs: Sequence[str]) -> Rollout:
        """One row for each prompt with a given output, as if it had been drawn: supervised targets, offline data."""
        ...

    def join(self, rollouts: Sequence[Rollout]) -> Rollout:
        """The rollouts one after another as one; all were sampled in the same way."""
        ...

    def split(self, rollout: Rollout, rows: Sequence[int], limit: int) -> list[Sequence[int]]:
        """The rows in micro-batches of at most `limit` rows each."""
        ...

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        """Log-probs of the drawn factors. With gradients enabled this is the update's forward, without a clean one."""
        ...

    def trainable(self) -> Mapping[str, Parameter]:
        """The parameters an optimiser moves, by name."""
        ...

    def state(self) -> Mapping[str, Tensor]:
        """What a checkpoint must hold to restore this policy: detached copies."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state()`. Raises CheckpointError where names or shapes differ."""
        ...

    def export(self, folder: Path) -> None:
        """Write the trained part in a form other tools load (PEFT adapter, or transformers model)."""
        ...
