"""A policy on a task's problems, without training: what `grpoctl eval` measures, drawn as a run's evaluations are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.policies.base import Policy, Sampling
from core.randomness import EVALUATE, RowKey
from core.tasks.base import Example, Task
from core.training.groups import Groups, collect

ROWS = 128  # of a batch, whole groups: what is kept of it is small, and progress is seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """K completions of each prompt, drawn so."""

    k: int
    how: Sampling
    seed: int


def measured(policy: Policy, task: Task, examples: Sequence[Example], draws: Draws) -> Iterator[Groups]:
    """The examples' scored groups in order, a bounded batch of them at a time.

    Row n of all draws by its own key, so neither batches nor the number of examples change what is drawn.
    """
    size = max(1, ROWS // draws.k)
    for first in range(0, len(examples), size):
        part = examples[first : first + size]
        rows = range(first * draws.k, (first + len(part)) * draws.k)
        keys = [RowKey(draws.seed, EVALUATE, 0, 0, row) for row in rows]
        yield collect(task, policy.sample(part, draws.k, draws.how, keys))
