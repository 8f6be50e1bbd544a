"""CustomTask: the user's rows as problems, the user's functions as rewards.

Not here: reading rows (rows), what a row asks (prompts), which split it is in (splits), running functions
(core.tasks.rewards). No function of the user's is loaded before something is scored.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from core.config.task import CustomTaskSpec
from core.errors import TaskError
from core.tasks.base import Example, Outcome, Split, Table
from core.tasks.custom.prompts import Prompts
from core.tasks.custom.scoring import outcomes_of
from core.tasks.custom.splits import splits_of
from core.tasks.custom.tables import sample_tables
from core.tasks.rewards.judge import Judge, Verdict
from core.tasks.text import TextTask, prompt_of


class CustomTask(TextTask):
    """A task of the user's own; see core.tasks.base.Task."""

    def __init__(self, spec: CustomTaskSpec) -> None:
        """Raises SpecError where a template is none."""
        self.spec = spec
        self._prompts = Prompts(spec)
        self._judge: Judge | None = None
        self._step: int | None = None  # of the run, for functions that ask for it; None: nobody said

    def examples(self, split: Split) -> Sequence[Example]:
        """All problems of a split; ids `train-00000`, ..., facts the row's columns. `test` where there is test_data.

        Raises SpecError where the data cannot be had, or are too few.
        """
        return self._splits[split]

    @cached_property
    def _splits(self) -> Mapping[Split, Sequence[Example]]:
        return splits_of(self.spec, self._prompts)

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """The weighted sum of the user's functions; missing where one of them was lost, or none gave a value.

        Raises TaskError where a function loses whole steps again and again, SpecError where one cannot be found.
        """
        if not outputs:
            return []
        verdicts = self.verdicts(examples, outputs, ids)
        return outcomes_of(self.spec.rewards, verdicts, outputs, self.spec.valid_above)

    def verdicts(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> Mapping[str, Verdict]:
        """What each function says of the outputs, by reward name: conversations where the task has such, else texts."""
        prompts: list[Any] = [self._as_rewards_see(example) for example in examples]
        completions: list[Any] = list(outputs)
        if self.spec.messages is not None:
            completions = [[{"role": "assistant", "content": output}] for output in outputs]
        names = dict.fromkeys(name for example in examples for name in example.facts)
        columns = {name: [example.facts.get(name) for example in examples] for name in names}
        return self.judge.judge(prompts, completions, ids, columns, step=self._step)

    def make_ready(self) -> None:
        """Import every function. Raises SpecError: what is missing, and an argument that no column gives."""
        self.judge.check(list(self.examples("train")[0].facts))

    def begin_step(self, step: int) -> None:
        """Functions that ask for `trainer_state` are told this step."""
        self._step = step

    @property
    def judge(self) -> Judge:
        """The process with the reward functions, started when it is first needed."""
        if self._judge is None:
            self._judge = Judge(self.spec.rewards)
            weakref.finalize(self, self._judge.close)  # where nobody closes this task
        return self._judge

    def _as_rewards_see(self, example: Example) -> Any:
        prompt = prompt_of(example)
        if self.spec.messages is None or prompt.messages is None:
            return prompt.text
        return [dict(message) for message in prompt.messages]

    def target(self, example: Example) -> str:
        """The answer template's text. Raises TaskError where the spec has none."""
        answer = self._prompts.answer(example)
        if answer is None:
            raise TaskError("this task has no answers to imitate; set task.answer, e.g. answer: '{answer}'")
        return answer

    def gold(self, example: Example) -> str | None:
        """The answer that the rewards must accept; None where the spec has none."""
        return self._prompts.gold(example)

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """Each reward over the run, and the commonest completions."""
        return sample_tables(samples)

    def close(self) -> None:
        """End the process with the reward functions."""
        if self._judge is not None:
            self._judge.close()
            self._judge = None
