"""CustomTask: the user's rows as problems, the user's functions as rewards, and what both come to.

Not here: reading rows (formats), what a row asks and which split it is in (problems), running functions
(core.tasks.rewards). No function of the user's is loaded before something is scored.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any

from core.config.task import CustomTaskSpec, RewardSpec
from core.errors import TaskError
from core.tasks.base import Example, Outcome, Split, Table
from core.tasks.custom.problems import Prompts, splits_of
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


def outcomes_of(
    rewards: Sequence[RewardSpec],
    verdicts: Mapping[str, Verdict],
    outputs: Sequence[str],
    valid_above: float | None,
) -> list[Outcome]:
    """One outcome per output; `parts` are the functions' values by name, NaN where there is none.

    The reward is the sum of weight x value over the functions that gave a value. It is missing where one of them was
    lost (raised, hung, ...), and where none gave a value. A weight of 0 counts for neither: that function is only
    logged.
    """
    weighted = [reward for reward in rewards if reward.weight != 0]
    return [_outcome(row, rewards, weighted, verdicts, output, valid_above) for row, output in enumerate(outputs)]


def _outcome(
    row: int,
    rewards: Sequence[RewardSpec],
    weighted: Sequence[RewardSpec],
    verdicts: Mapping[str, Verdict],
    output: str,
    valid_above: float | None,
) -> Outcome:
    parts = {reward.label: float(verdicts[reward.label].values[row]) for reward in rewards}
    lost = any(row in verdicts[reward.label].lost for reward in weighted)
    terms = [reward.weight * parts[reward.label] for reward in weighted if not math.isnan(parts[reward.label])]
    total = math.nan if lost or not terms else math.fsum(terms)
    # What was lost is no worse for it: a step whose rewards are missing must not look like a collapse.
    valid = bool(output.strip()) if valid_above is None or math.isnan(total) else total > valid_above
    return Outcome(reward=total, expected=total, valid=valid, parts=parts)


MOST = 10  # completions that are shown
LONGEST = 60  # characters of one of them


def sample_tables(samples: Sequence[Mapping[str, object]]) -> list[Table]:
    """One row for each reward over the first, the middle and the last third of the steps; the commonest completions."""
    return [_rewards(samples), _commonest(samples)]


def _rewards(samples: Sequence[Mapping[str, object]]) -> Table:
    thirds = _thirds(samples)
    names = dict.fromkeys(name for sample in samples for name in _parts(sample))
    rows = [("reward", *(_mean([_number(sample.get("reward")) for sample in third]) for third in thirds))]
    rows += [(name, *(_mean([_parts(sample).get(name) for sample in third]) for third in thirds)) for name in names]
    rows.append(("valid", *(_mean([float(bool(sample.get("valid"))) for sample in third]) for third in thirds)))
    missing = [sum(_number(sample.get("reward")) is None for sample in third) for third in thirds]
    rows.append(("rewards missing", *(str(count) for count in missing)))
    return Table(title="Mean rewards", columns=("", "first third", "second", "last"), rows=tuple(rows))


def _commonest(samples: Sequence[Mapping[str, object]]) -> Table:
    texts = Counter(str(sample["text"]) for sample in samples)
    rows = []
    for text, count in texts.most_common(MOST):
        rewards = [_number(sample.get("reward")) for sample in samples if sample["text"] == text]
        cell = " ".join(text.split())
        rows.append((cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 3]}...", str(count), _mean(rewards)))
    title = f"Commonest of {len(texts)} different completions"
    return Table(title=title, columns=("completion", "samples", "mean reward"), rows=tuple(rows))


def _thirds(samples: Sequence[Mapping[str, object]]) -> list[list[Mapping[str, object]]]:
    """The samples of the steps' first, second and last third."""
    steps = sorted({int(str(sample["step"])) for sample in samples})
    third = {step: min(2, 3 * index // max(1, len(steps))) for index, step in enumerate(steps)}
    return [[sample for sample in samples if third[int(str(sample["step"]))] == number] for number in range(3)]


def _parts(sample: Mapping[str, object]) -> Mapping[str, float | None]:
    parts = sample.get("rewards")
    return {str(k): _number(v) for k, v in parts.items()} if isinstance(parts, Mapping) else {}


def _number(value: object) -> float | None:
    """A finite number; None for what is missing, which the file writes as null."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _mean(values: Sequence[float | None]) -> str:
    present = [value for value in values if value is not None]
    return f"{fmean(present):.4g}" if present else "-"
