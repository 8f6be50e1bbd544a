"""Fault injections in a task: what it pays, and what it gives to train on. Only a spec can switch one on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from core.tasks.base import Example, Outcome, Split, Table, Task

PAID = 0.5  # whatever the completion


class _Wrapped:
    """The task that is wrapped, in everything that a fault leaves alone."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def examples(self, split: Split) -> Sequence[Example]:
        """As the wrapped task."""
        return self._task.examples(split)

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """As the wrapped task."""
        return self._task.score(examples, outputs, ids)

    def target(self, example: Example) -> str:
        """As the wrapped task."""
        return self._task.target(example)

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """As the wrapped task."""
        return self._task.tables(samples)


class ConstantReward(_Wrapped):
    """A broken reward function: it answers, and always the same."""

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """Half a point for everything; what is valid stays so."""
        return [replace(one, reward=PAID, expected=PAID) for one in self._task.score(examples, outputs, ids)]


class EvaluationInTraining(_Wrapped):
    """The evaluation's problems are among those to train on."""

    def examples(self, split: Split) -> Sequence[Example]:
        """As the wrapped task; of `train`, the held-out problems after its own."""
        own = self._task.examples(split)
        return (*own, *self._task.examples("eval")) if split == "train" else own


FAULTS: Mapping[str, Callable[[Task], Task]] = {
    "constant-reward": ConstantReward,
    "evaluation-in-training": EvaluationInTraining,
}
