"""The task protocol and its records. No torch here: `show` and `validate` use tasks too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Split = Literal["train", "eval", "test"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One problem. `prompt` is the text the model is given; `facts` is what scoring needs (domain, answer, ...).

    `messages` are a conversation that is given instead (`role` and `content` each), `prompt` then its last words.
    `plain`: the prompt is continued as it stands, without the tokenizer's chat template.
    """

    id: str
    prompt: str
    facts: Mapping[str, object] = field(default_factory=dict)
    messages: Sequence[Mapping[str, str]] | None = None
    plain: bool = False


def names_of(example: Example) -> tuple[str, str]:
    """What two problems are the same by: the id, or what the model is given."""
    said = example.prompt if example.messages is None else repr([dict(turn) for turn in example.messages])
    return f"id {example.id}", f"text {said}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One scored completion. `reward` is NaN where it could not be computed: missing, never 0.

    `parts` are what it is made of, or other scores of the same completion, by name: logged as `rewards/<name>`.
    """

    reward: float
    expected: float  # the reward's expectation, free of the task's own noise; equals `reward` where there is none
    valid: bool
    parts: Mapping[str, float] = field(default_factory=dict)  # NaN where missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A titled table of text cells, for `grpoctl show RUN --samples`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Task(Protocol):
    """Problems of a seed, and the scores of what a policy answers to them."""

    def examples(self, split: Split) -> Sequence[Example]:
        """All problems of a split, in a fixed order; train and eval come from the spec's `data_seed` and are disjoint.

        `test` is what no run looks at: none where the task keeps no such problems.
        """
        ...

    def score(
        self, examples: Sequence[Example], outputs: Sequence[str], ids: Sequence[Sequence[int]] = ()
    ) -> list[Outcome]:
        """One outcome per (example, output) pair; `ids` are the outputs' tokens, where there are any.

        A built-in task is pure: the same pair always scores the same. Raises TaskError where it cannot go on.
        """
        ...

    def target(self, example: Example) -> str:
        """A good answer to an example, what a supervised stage imitates. Raises TaskError where the task has none."""
        ...

    def tables(self, samples: Sequence[Mapping[str, object]]) -> list[Table]:
        """What the rows of samples.jsonl show (keys `step`, `prompt_id`, `text`, `valid`, `reward`)."""
        ...


class Demonstrations(Protocol):
    """A task a model can be warm-started on."""

    def __call__(self, count: int, seed: int) -> list[tuple[str, str]]:
        """`count` (prompt, completion) pairs, the prompts distinct from both splits' in general."""
        ...
