"""The task protocol and its records. No torch here: `show` and `validate` use tasks too."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from core.errors import TaskError

Split = Literal["train", "eval", "test"]
SHOWN = 20  # samples of a step in the table of a task that has none of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One problem. `inputs` are what a policy is given, by name; `facts` what scoring needs (domain, answer, ...).

    Of a text task: core.tasks.text.
    """

    id: str
    inputs: Mapping[str, object]
    facts: Mapping[str, object] = field(default_factory=dict)


def names_of(example: Example) -> tuple[str, str]:
    """What two problems are the same by: the id, or what the policy is given."""
    return f"id {example.id}", f"inputs {_content(example.inputs)}"


def _content(value: Any) -> str:
    """The same text for equal inputs: values as they print, arrays and tensors by a hash of their numbers."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_content(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list | tuple) and set(map(type, value)) <= {int, str}:
        return repr(list(value))  # the same, for thousands of numbers at once
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_content, value))}]"
    if hasattr(value, "__array__"):
        array = value.__array__()
        return f"{array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    return repr(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One scored output. `reward` is NaN where it could not be computed: missing, never 0.

    `parts` are what it is made of, or other scores of the same output, by name: logged as `rewards/<name>`. `measured`
    is in units of its own (dB): evaluations report it as `eval/<name>`, which is a declared metric (core.metrics).
    """

    reward: float
    expected: float  # what evaluations report: the reward's expectation free of the task's own noise, or its yardstick
    valid: bool
    parts: Mapping[str, float] = field(default_factory=dict)  # NaN where missing
    right: bool | None = None  # whether the answer is right; None where the task does not know
    measured: Mapping[str, float] = field(default_factory=dict)  # NaN where missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A titled table of text cells, for `grpoctl show RUN --samples`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Task(Protocol):
    """Problems of a seed, and the scores of what a policy answers to them.

    Outputs are whatever the policy gives (text, indices, vectors): a task declares which it can score in its settings
    (`scores`, core.config.task.TaskConfig). A subclass of this protocol inherits the methods that have a body.
    """

    def examples(self, split: Split) -> Sequence[Example]:
        """All problems of a split, in a fixed order; train and eval come from the spec's `data_seed` and are disjoint.

        `test` is what no run looks at: none where the task keeps no such problems.
        """
        ...

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """One outcome per (example, output) pair; `ids` are the outputs' tokens, where the policy draws tokens.

        A built-in task is pure: the same pair always scores the same. Raises TaskError where it cannot go on.
        """
        ...

    def record(self, output: Any) -> Mapping[str, object]:
        """What samples.jsonl keeps of an output: keys and values that JSON can hold. Equal outputs, equal records."""
        ...

    def shown(self, example: Example) -> str:
        """A problem as a person reads it, in a table's cell."""
        ...

    def shown_output(self, sample: Mapping[str, object]) -> str:
        """A recorded output as a person reads it: `sample` is a row of samples.jsonl."""
        ...

    def target(self, example: Example) -> Any:
        """A good output for an example, what a supervised stage imitates. Raises TaskError where the task has none."""
        raise TaskError("this task has no answers to imitate; leave supervised stages and supervised_weight out")

    def stored(self, example: Example) -> Sequence[Any]:
        """Outputs for an example that were scored before the run: what `groups: offline` learns from.

        `score` gives their outcomes. Raises TaskError where the task has none.
        """
        raise TaskError("this task has no stored outputs; leave groups: offline out")

    def baselines(self) -> Mapping[str, Mapping[str, float]]:
        """What can be had on the held-out problems without training, by name: random outputs, the best possible, ...

        Each as the metrics that an evaluation of it would have (`eval/reward`, `eval/rewards/<part>`, what is
        measured). A run records them before its first step. None here.
        """
        return {}

    def picture(self, examples: Sequence[Example], outputs: Sequence[Any]) -> bytes | None:
        """A PNG image of what an evaluation answered, one output for each example; None where there is none to look at.

        A run keeps that of each evaluation in its `pictures` folder.
        """
        return None

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """What the rows of samples.jsonl show (`step`, `prompt_id`, what `record` keeps, `valid`, `reward`).

        Here the first samples of the last recorded step, as `shown_output` shows them.
        """
        last = max((int(str(sample["step"])) for sample in samples), default=0)
        rows = [sample for sample in samples if sample["step"] == last]
        cells = [
            (
                str(row["prompt_id"]),
                self.shown_output(row),
                "missing" if row["reward"] is None else f"{float(str(row['reward'])):.3f}",
                "yes" if row["valid"] else "no",
            )
            for row in rows[:SHOWN]
        ]
        many = f"the first {SHOWN} of {len(rows)} samples" if len(rows) > SHOWN else f"all {len(rows)} samples"
        columns = ("prompt id", "completion", "reward", "valid")
        return [Table(title=f"Step {last}: {many}", columns=columns, rows=tuple(cells))]

    def from_file(self, file: Path, *, change: str | None = None, seed: int = 0) -> Example:
        """The problem that a file of the user's is; `change` is done to it first, drawn by `seed`.

        Without a change nobody knows a good answer, and it cannot be scored. Raises TaskError where the task reads no
        files, SpecError for a file that it cannot read and a change that it does not know.
        """
        raise TaskError("the problems of this task are no files")

    def drawn(self, example: Example, output: Any) -> Mapping[str, bytes]:
        """PNG images of one problem and its answer, by a word for each; none where there is nothing to look at."""
        return {}

    def make_ready(self) -> None:
        """Have what scoring needs before a run begins. Raises SpecError where something is missing."""
        return

    def begin_step(self, step: int) -> None:
        """Be told how many steps of the run are done, where rewards depend on that."""
        return

    def close(self) -> None:
        """Give back what scoring holds: processes, files."""
        return


class WrappedTask(Task):
    """Another task in everything that a subclass does not change."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def examples(self, split: Split) -> Sequence[Example]:
        """As the wrapped task."""
        return self.task.examples(split)

    def score(
        self, examples: Sequence[Example], outputs: Sequence[Any], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """As the wrapped task."""
        return self.task.score(examples, outputs, ids)

    def record(self, output: Any) -> Mapping[str, object]:
        """As the wrapped task."""
        return self.task.record(output)

    def shown(self, example: Example) -> str:
        """As the wrapped task."""
        return self.task.shown(example)

    def shown_output(self, sample: Mapping[str, object]) -> str:
        """As the wrapped task."""
        return self.task.shown_output(sample)

    def target(self, example: Example) -> Any:
        """As the wrapped task."""
        return self.task.target(example)

    def stored(self, example: Example) -> Sequence[Any]:
        """As the wrapped task."""
        return self.task.stored(example)

    def baselines(self) -> Mapping[str, Mapping[str, float]]:
        """As the wrapped task."""
        return self.task.baselines()

    def picture(self, examples: Sequence[Example], outputs: Sequence[Any]) -> bytes | None:
        """As the wrapped task."""
        return self.task.picture(examples, outputs)

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """As the wrapped task."""
        return self.task.tables(samples)

    def from_file(self, file: Path, *, change: str | None = None, seed: int = 0) -> Example:
        """As the wrapped task."""
        return self.task.from_file(file, change=change, seed=seed)

    def drawn(self, example: Example, output: Any) -> Mapping[str, bytes]:
        """As the wrapped task."""
        return self.task.drawn(example, output)

    def make_ready(self) -> None:
        """As the wrapped task."""
        self.task.make_ready()

    def begin_step(self, step: int) -> None:
        """As the wrapped task."""
        self.task.begin_step(step)

    def close(self) -> None:
        """As the wrapped task."""
        self.task.close()
