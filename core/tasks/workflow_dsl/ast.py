"""The records of a workflow, and what may stand inside what.

A workflow is a sequence of steps; a step is a call, a conditional, a parallel block or a loop. The operator that closes
a parallel block is part of the block, so a block without one cannot be built. No parsing and no printing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

MAX_OPERATORS = 15
MAX_TIMES = 3


class Operator(StrEnum):
    """The operators of the seed project; the value is the name in the text."""

    CUSTOM = "Custom"
    ANSWER_GENERATE = "AnswerGenerate"
    PROGRAMMER = "Programmer"
    CUSTOM_CODE_GENERATE = "CustomCodeGenerate"
    TEST = "Test"
    REVIEW = "Review"
    REVISE = "Revise"
    FORMAT = "Format"
    SC_ENSEMBLE = "ScEnsemble"
    MD_ENSEMBLE = "MdEnsemble"
    DECOMPOSE = "Decompose"
    VERIFY = "Verify"


ENSEMBLES = frozenset({Operator.SC_ENSEMBLE, Operator.MD_ENSEMBLE})


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """`X`: one operator."""

    operator: Operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditional:
    """`X ? Y : done`: run `condition`, then `action` unless it was satisfied."""

    condition: Operator
    action: Operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallel:
    """`[A, B] -> ScEnsemble`: at least two branches and the operator that joins them."""

    branches: tuple[Steps, ...]
    ensemble: Operator

    def __post_init__(self) -> None:
        if len(self.branches) < 2 or not all(self.branches):
            raise ValueError("a parallel block needs at least two branches, each with a step")
        if self.ensemble not in ENSEMBLES:
            raise ValueError(f"a parallel block is joined by ScEnsemble or MdEnsemble, not by {self.ensemble}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Loop:
    """`(A -> B) * n`: the body, 1 to 3 times."""

    body: Steps
    times: int

    def __post_init__(self) -> None:
        if not self.body:
            raise ValueError("a loop needs at least one step")
        if not 1 <= self.times <= MAX_TIMES:
            raise ValueError(f"a loop runs 1 to {MAX_TIMES} times, not {self.times}")


Step: TypeAlias = Call | Conditional | Parallel | Loop
Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflow:
    """One workflow: 1 to 15 operators, no loop inside a loop, no parallel block inside a parallel block.

    The two nesting rules bound the depth at two blocks, so no walk over a workflow can overflow the stack.
    Raises ValueError where a rule is broken.
    """

    steps: Steps

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError("a workflow needs at least one step")
        _check_nesting(self.steps, ())
        count = sum(1 for _ in walk(self.steps))
        if count > MAX_OPERATORS:
            raise ValueError(f"a workflow has at most {MAX_OPERATORS} operators, not {count}")


def walk(steps: Steps) -> Iterator[Operator]:
    """Every operator in reading order, the joining ensembles included; a loop's body once."""
    for step in steps:
        match step:
            case Call():
                yield step.operator
            case Conditional():
                yield step.condition
                yield step.action
            case Parallel():
                for branch in step.branches:
                    yield from walk(branch)
                yield step.ensemble
            case Loop():
                yield from walk(step.body)


def _check_nesting(steps: Steps, inside: tuple[type[Step], ...]) -> None:
    """Nothing, or ValueError where a block stands inside another of its kind."""
    for step in steps:
        if isinstance(step, (Parallel, Loop)):
            if type(step) in inside:
                raise ValueError(f"a {type(step).__name__.lower()} cannot stand inside another one")
            for body in step.branches if isinstance(step, Parallel) else (step.body,):
                _check_nesting(body, (*inside, type(step)))
