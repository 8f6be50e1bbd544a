"""Reach the point that the context stands for: half the context's numbers, in order, their signs turned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from core.tasks.base import Example, Outcome, Split, Table, Task
from gaussian_bandit.settings import ReachConfig


class Reach(Task):
    """The reward is exp(-squared distance): 1 at the point, falling to 0."""

    def __init__(self, spec: ReachConfig) -> None:
        self.spec = spec

    def examples(self, split: Split) -> Sequence[Example]:
        count = {"train": self.spec.train_prompts, "eval": self.spec.eval_prompts, "test": 0}[split]
        draw = Random(f"reach/{self.spec.data_seed}/{split}")
        return [self._example(f"{split}-{index:05d}", draw) for index in range(count)]

    def _example(self, name: str, draw: Random) -> Example:
        context = tuple(draw.uniform(-1.0, 1.0) for _ in range(self.spec.context))
        point = tuple(-0.5 * context[action % self.spec.context] for action in range(self.spec.actions))
        return Example(id=name, inputs={"context": context}, facts={"point": point, "side": context[0] > 0})

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        outcomes = []
        for example, output in zip(examples, outputs, strict=True):
            point: Any = example.facts["point"]
            distance = math.dist(output, point)
            reward = math.exp(-(distance**2))
            near = distance < 1.0
            outcomes.append(Outcome(reward=reward, expected=reward, valid=near, parts={"distance": distance}))
        return outcomes

    def record(self, output: Any) -> Mapping[str, object]:
        return {"action": [round(number, 6) for number in output]}

    def shown(self, example: Example) -> str:
        context: Any = example.inputs["context"]
        return " ".join(f"{number:+.2f}" for number in context)

    def shown_output(self, sample: Mapping[str, object]) -> str:
        action: Any = sample["action"]
        return " ".join(f"{number:+.2f}" for number in action)

    def target(self, example: Example) -> Any:
        return example.facts["point"]

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        last = max((int(str(sample["step"])) for sample in samples), default=0)
        rows = tuple((str(s["prompt_id"]), self.shown_output(s)) for s in samples if s["step"] == last)
        return [Table(title=f"Actions of step {last}", columns=("context", "action"), rows=rows)]
