"""The workflow language: its records, text -> Workflow and back, and structure classes. Nothing about rewards here.

A workflow is a sequence of steps; a step is a call, a conditional, a parallel block or a loop. The operator that closes
a parallel block is part of the block, so a block without one cannot be built.

    workflow    = sequence, end
    sequence    = step, { "->", step }
    step        = conditional | call | parallel | loop
    conditional = operator, "?", operator, ":", "done"
    parallel    = "[", sequence, ",", sequence, { ",", sequence }, "]", "->", ( "ScEnsemble" | "MdEnsemble" )
    loop        = "(", sequence, ")", "*", ( "1" | "2" | "3" )

Spaces, tabs and line ends may stand between any two tokens and around the text. Nothing is repaired: the seed's parser
took `Revise *` for three times Revise, and a workflow out of a sentence; here that is invalid text. Every workflow that
can be built has one canonical text, and `parse(render(workflow)) == workflow`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias, get_args

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


def render(workflow: Workflow) -> str:
    """The canonical text: one space around arrows, `?`, `:` and `*`, one after a comma, none inside brackets."""
    return _sequence(workflow.steps)


def _sequence(steps: Steps) -> str:
    return " -> ".join([_step(step) for step in steps])


def _step(step: Step) -> str:
    match step:
        case Call():
            return step.operator.value
        case Conditional():
            return f"{step.condition.value} ? {step.action.value} : done"
        case Parallel():
            return f"[{', '.join([_sequence(branch) for branch in step.branches])}] -> {step.ensemble.value}"
        case Loop():
            return f"({_sequence(step.body)}) * {step.times}"


# Always matches: a token, else any one character, else the end (an empty token). Possessive, so hostile text is linear.
_TOKEN = re.compile(r"[ \t\r\n]*+(->|[A-Za-z][A-Za-z0-9_]*+|[0-9]++|.|\Z)", re.DOTALL)
_OPERATORS = {operator.value: operator for operator in Operator}
_CALLS = {operator: Call(operator=operator) for operator in Operator}
_TIMES = {"1": 1, "2": 2, "3": 3}  # compared as text: int() of a million digits is an error of its own
_AN_OPERATOR = "an operator (" + ", ".join(_OPERATORS) + ")"
_A_STEP = "an operator, '[' or '('"


class DslError(ValueError):
    """Text that is no workflow: `position` counts characters from 0, `expected` says what may stand there."""

    def __init__(self, *, position: int, expected: str, got: str) -> None:
        super().__init__(f"position {position}: expected {expected}, got {got}")
        self.position = position
        self.expected = expected


def parse(text: str) -> Workflow:
    """The workflow that `text` spells. Raises DslError."""
    reader = _Reader(text)
    steps = reader.sequence()
    if reader.token:
        raise reader.error("'->' or the end of the text")
    return Workflow(steps=steps)


class _Reader:
    """A cursor over the tokens of one text; one method per line of the grammar."""

    __slots__ = ("_end", "_in_loop", "_in_parallel", "_operators", "_text", "start", "token")

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._operators = 0
        self._in_loop = self._in_parallel = False
        self.token = ""
        self.start = 0
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._end)
        assert match is not None  # the pattern's last alternative is the end itself
        self.token = match[1]
        self.start, self._end = match.span(1)

    def error(self, expected: str) -> DslError:
        """The error for the token at the cursor."""
        token = self.token if len(self.token) <= 24 else self.token[:24] + "..."
        return DslError(position=self.start, expected=expected, got=repr(token) if token else "the end of the text")

    def _take(self, token: str, expected: str | None = None) -> None:
        if self.token != token:
            raise self.error(expected or repr(token))
        self._advance()

    def sequence(self) -> Steps:
        """The steps up to the first token that is no arrow."""
        steps = [self._step()]
        while self.token == "->":
            self._advance()
            steps.append(self._step())
        return tuple(steps)

    def _step(self) -> Step:
        if self.token == "[":
            return self._parallel()
        if self.token == "(":
            return self._loop()
        operator = self._operator(_A_STEP if not self.token[:1].isalpha() else _AN_OPERATOR)
        if self.token != "?":
            return _CALLS[operator]
        self._advance()
        action = self._operator(_AN_OPERATOR)
        self._take(":")
        self._take("done")
        return Conditional(condition=operator, action=action)

    def _parallel(self) -> Parallel:
        if self._in_parallel:
            raise self.error("an operator or '(' (a parallel block cannot stand inside another one)")
        self._in_parallel = True
        self._advance()
        branches = [self.sequence()]
        self._take(",", "'->' or ',' (a parallel block has at least two branches)")
        branches.append(self.sequence())
        while self.token == ",":
            self._advance()
            branches.append(self.sequence())
        self._take("]", "'->', ',' or ']'")
        self._in_parallel = False
        joined = "'-> ScEnsemble' or '-> MdEnsemble' (a parallel block needs one directly after it)"
        self._take("->", joined)
        if _OPERATORS.get(self.token) not in ENSEMBLES:
            raise self.error(joined)
        return Parallel(branches=tuple(branches), ensemble=self._operator(joined))

    def _loop(self) -> Loop:
        if self._in_loop:
            raise self.error("an operator or '[' (a loop cannot stand inside another one)")
        self._in_loop = True
        self._advance()
        body = self.sequence()
        self._take(")", "'->' or ')'")
        self._in_loop = False
        self._take("*", "'*' and how often, 1 to 3")
        times = _TIMES.get(self.token)
        if times is None:
            raise self.error("1, 2 or 3")
        self._advance()
        return Loop(body=body, times=times)

    def _operator(self, expected: str) -> Operator:
        operator = _OPERATORS.get(self.token)
        if operator is None:
            raise self.error(expected)
        if self._operators == MAX_OPERATORS:
            raise self.error(f"at most {MAX_OPERATORS} operators")
        self._operators += 1
        self._advance()
        return operator


Structure = Literal["single", "chain", "conditional", "parallel", "loop"]
STRUCTURES: tuple[Structure, ...] = get_args(Structure)


def operators(workflow: Workflow) -> tuple[Operator, ...]:
    """Its operators in reading order, repeats kept, a loop's body once."""
    return tuple(walk(workflow.steps))


def structure(workflow: Workflow) -> Structure:
    """The class of the strongest construct anywhere in it: loop > parallel > conditional > chain > single."""
    kinds = {type(step) for step in blocks(workflow.steps)}
    if Loop in kinds:
        return "loop"
    if Parallel in kinds:
        return "parallel"
    if Conditional in kinds:
        return "conditional"
    return "single" if len(workflow.steps) == 1 and isinstance(workflow.steps[0], Call) else "chain"


def blocks(steps: Steps) -> Iterator[Step]:
    """Every step, the inner ones after the block that holds them."""
    for step in steps:
        yield step
        if isinstance(step, Loop):
            yield from blocks(step.body)
        elif isinstance(step, Parallel):
            for branch in step.branches:
                yield from blocks(branch)
