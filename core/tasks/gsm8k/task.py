"""Gsm8kTask: word problems whose answer is one number, and what a completion earns on one.

Paper: arXiv 2110.14168. Held-out problems come out of the training file, by `data_seed`: the test file is what no run
looks at. Not here: how a number is read out of a text (answers), where problems come from (problems).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import assert_never

from core.config.task import Gsm8kTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.base import Example, Outcome, Split, Table
from core.tasks.gsm8k.answers import answer_in, lenient_answer, written
from core.tasks.gsm8k.problems import Problem, problems
from core.tasks.gsm8k.tables import sample_tables
from core.tasks.text import TextTask, text_example

# Both as their users know them: verl's prompt for GSM8K, and the one of Qwen2.5-Math's model cards.
ASKS = {
    "hashes": 'Let\'s think step by step and output the final answer after "####".',
    "boxed": "Please reason step by step, and put your final answer within \\boxed{}.",
}
_BLANKS = re.compile(r"\W+")


class Gsm8kTask(TextTask):
    """GSM8K; see core.tasks.base.Task. Reads its problems when they are first asked for."""

    def __init__(self, spec: Gsm8kTaskSpec) -> None:
        self.spec = spec

    def examples(self, split: Split) -> Sequence[Example]:
        """All problems of a split; ids `train-00000`, ..., facts `question`, `answer`, `solution`, `steps`.

        `steps` are the lines of the worked solution, something to slice evaluations by. Raises SpecError where the
        files are not what they should be, or hold fewer problems than are asked for.
        """
        return self._test if split == "test" else self._splits[split]

    @cached_property
    def _splits(self) -> dict[Split, tuple[Example, ...]]:
        pool, spec = problems(self.spec.path, "train"), self.spec
        rng = Random(f"gsm8k/{spec.data_seed}")
        keys = [rng.random() for _ in pool]
        order = [pool[index] for index in sorted(range(len(pool)), key=keys.__getitem__)]
        # Held out first: they stay the same whatever train_prompts is.
        held_out = order[: spec.eval_prompts]
        known = {normalised(problem.question) for problem in held_out}
        rest = [problem for problem in order[spec.eval_prompts :] if normalised(problem.question) not in known]
        if len(held_out) < spec.eval_prompts or len(rest) < spec.train_prompts:
            raise SpecError(
                f"train_prompts + eval_prompts = {spec.train_prompts + spec.eval_prompts}, but there are only "
                f"{len(held_out) + len(rest)} problems to learn from and hold out; ask for fewer",
                key="task",
            )
        return {"train": self._built("train", rest[: spec.train_prompts]), "eval": self._built("eval", held_out)}

    @cached_property
    def _test(self) -> tuple[Example, ...]:
        return self._built("test", problems(self.spec.path, "test"))

    def _built(self, split: Split, chosen: Sequence[Problem]) -> tuple[Example, ...]:
        return tuple(
            text_example(
                id=f"{split}-{index:05d}",
                prompt=f"{problem.question} {ASKS[self.spec.answer_form]}",
                facts={
                    "question": problem.question,
                    "answer": written(problem.answer),
                    "solution": problem.solution,
                    "steps": problem.steps,
                },
            )
            for index, problem in enumerate(chosen)
        )

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """1 for the right number as `spec.score` reads it, `format_reward` for a wrong one in the asked form, else 0.

        Parts: `exact` (right, and in the asked form), `lenient` (right as answers.lenient_answer reads it), `format`
        (an answer in the asked form, whether right or wrong). Valid is an answer in the asked form; with a lenient
        score any number. Raises TaskError on an example of another task.
        """
        return [self._outcome(example, output) for example, output in zip(examples, outputs, strict=True)]

    def _outcome(self, example: Example, output: str) -> Outcome:
        if "answer" not in example.facts or "solution" not in example.facts:
            raise TaskError(f"example {example.id} has no answer and solution: it is no problem of gsm8k")
        gold, form = Fraction(str(example.facts["answer"])), self.spec.answer_form
        strict, loose = answer_in(output, form), lenient_answer(output, form)
        match self.spec.score:
            case "exact":
                counted = strict
            case "lenient":
                counted = loose
            case _:
                assert_never(self.spec.score)
        reward = 1.0 if counted == gold else self.spec.format_reward if strict is not None else 0.0
        return Outcome(
            reward=reward,
            expected=reward,
            valid=counted is not None,
            parts={
                "exact": float(strict == gold),
                "lenient": float(loose == gold),
                "format": float(strict is not None),
            },
        )

    def target(self, example: Example) -> str:
        """The worked solution without calculator marks, and its answer in the asked form on a last line."""
        answer = example.facts["answer"]
        match self.spec.answer_form:
            case "hashes":
                last = f"#### {answer}"
            case "boxed":
                last = f"The answer is \\boxed{{{answer}}}."
            case _:
                assert_never(self.spec.answer_form)
        return f"{example.facts['solution']}\n{last}"

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """Accuracy over the steps, and how answers fail."""
        return sample_tables(samples)


def normalised(text: str) -> str:
    """The text's words in lower case, one blank between them: what makes two questions one."""
    return _BLANKS.sub(" ", text.lower()).strip()
