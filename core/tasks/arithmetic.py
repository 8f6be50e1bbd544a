"""ArithmeticTask: add two numbers of at most `digits` digits; the answer is checked.

The second task, to prove that nothing outside core.tasks knows what a workflow is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from random import Random

from core.config.task import ArithmeticTaskSpec
from core.errors import SpecError, TaskError
from core.tasks.base import Example, Outcome, Split, Table
from core.tasks.text import TextTask, prompt_of, text_example

WELL_FORMED = 0.2  # a number, but the wrong one
WRONG_SHARE = 0.4  # of the demonstrations, so that a warm-started model has something to learn

# A number as one writes it. Answers are compared as text: int() of a hostile digit string is slow, then an error.
_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


class ArithmeticTask(TextTask):
    """`12+7=` wants `19`; see core.tasks.base.Task. Raises SpecError where more problems are asked for than exist."""

    def __init__(self, spec: ArithmeticTaskSpec) -> None:
        self.spec = spec
        self._top = 10**spec.digits  # operands are 0 .. top - 1; 3+4 and 4+3 are two problems
        count = spec.train_prompts + spec.eval_prompts
        if count > self._top**2:
            raise SpecError(
                f"train_prompts + eval_prompts = {count}, but there are only {self._top**2} problems of "
                f"{spec.digits} digit(s); ask for fewer, or raise digits",
                key="task",
            )

    def examples(self, split: Split) -> Sequence[Example]:
        """All problems of a split; ids `train-00000`, ..., facts `left`, `right`, `answer`. It has no `test`."""
        return self._splits.get(split, ())

    @cached_property
    def _splits(self) -> dict[Split, tuple[Example, ...]]:
        # The held-out problems are drawn first: they stay the same whatever train_prompts is.
        drawn = _shuffled(self._top**2, Random(f"arithmetic/{self.spec.data_seed}"))
        held_out = tuple(self._example("eval", i, p) for i, p in enumerate(islice(drawn, self.spec.eval_prompts)))
        train = tuple(self._example("train", i, p) for i, p in enumerate(islice(drawn, self.spec.train_prompts)))
        return {"train": train, "eval": held_out}

    def _example(self, split: Split, index: int, problem: int) -> Example:
        left, right = divmod(problem, self._top)
        facts = {"left": left, "right": right, "answer": left + right}
        return text_example(id=f"{split}-{index:05d}", prompt=f"{left}+{right}=", facts=facts)

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """1 for the right number, 0.2 for another number, 0 for anything else; white space around it is ignored.

        Raises TaskError on an example of another task.
        """
        outcomes = []
        for example, output in zip(examples, outputs, strict=True):
            if "answer" not in example.facts:
                raise TaskError(f"example {example.id} has no answer: it is no problem of arithmetic")
            reward = _reward(output, str(example.facts["answer"]))
            outcomes.append(Outcome(reward=reward, expected=reward, valid=reward > 0))
        return outcomes

    def target(self, example: Example) -> str:
        """The right answer."""
        return str(example.facts["answer"])

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """Accuracy and well-formed share by the digits of the larger operand."""
        known = {example.id: example for split in self._splits.values() for example in split}
        rewards: dict[str, list[float]] = {}
        for sample in samples:
            example = known.get(str(sample["prompt_id"]))
            size = "unknown problem" if example is None else _digits(example)
            reward = 0.0 if example is None else _reward(str(sample["text"]), str(example.facts["answer"]))
            rewards.setdefault(size, []).append(reward)
        rows = [
            (size, str(len(group)), _share(group, at_least=1.0), _share(group, at_least=WELL_FORMED))
            for size, group in sorted(rewards.items())
        ]
        return [
            Table(
                title="Accuracy by operand size",
                columns=("digits of the larger operand", "samples", "right", "well-formed"),
                rows=tuple(rows),
            )
        ]

    def demonstrations(self, count: int, seed: int, wrong_share: float = WRONG_SHARE) -> list[tuple[str, str]]:
        """`count` (prompt, number) pairs, about `wrong_share` of them wrong.

        The prompts are no held-out ones and, where the splits leave at least as many problems over, no training ones.
        Raises TaskError where every problem is held out.
        """
        kept_out = {prompt_of(example).text for example in self._splits["eval"]}
        if len(kept_out) == self._top**2:
            raise TaskError("every problem is held out: none is left to demonstrate; lower eval_prompts")
        both = kept_out | {prompt_of(example).text for example in self._splits["train"]}
        if 2 * len(both) <= self._top**2:
            kept_out = both
        rng = Random(f"arithmetic demonstrations/{seed}")
        pairs: list[tuple[str, str]] = []
        while len(pairs) < count:
            left, right = int(rng.random() * self._top), int(rng.random() * self._top)
            if f"{left}+{right}=" not in kept_out:
                answer = left + right
                pairs.append((f"{left}+{right}=", str(_wrong(answer, rng) if rng.random() < wrong_share else answer)))
        return pairs


def _reward(output: str, answer: str) -> float:
    text = output.strip()
    if text == answer:
        return 1.0
    return WELL_FORMED if _NUMBER.fullmatch(text) else 0.0


def _wrong(answer: int, rng: Random) -> int:
    """A number of at least 0 that is off by 1 to 9."""
    off = 1 + int(rng.random() * 9)
    return answer - off if answer >= off and rng.random() < 0.5 else answer + off


def _digits(example: Example) -> str:
    return str(max(len(str(example.facts["left"])), len(str(example.facts["right"]))))


def _share(rewards: Sequence[float], *, at_least: float) -> str:
    return f"{100 * sum(reward >= at_least for reward in rewards) / len(rewards):.1f} %"


def _shuffled(count: int, rng: Random) -> Iterator[int]:
    """0 .. count - 1 in random order, lazily: a Fisher-Yates shuffle that stores only what it has moved."""
    moved: dict[int, int] = {}
    for place in range(count):
        other = place + int(rng.random() * (count - place))
        drawn = moved.pop(other, other)
        if other != place:
            moved[other] = moved.pop(place, place)
        yield drawn
