"""Text -> Workflow, by recursive descent; what is wrong is told with its position.

    workflow    = sequence, end
    sequence    = step, { "->", step }
    step        = conditional | call | parallel | loop
    conditional = operator, "?", operator, ":", "done"
    parallel    = "[", sequence, ",", sequence, { ",", sequence }, "]", "->", ( "ScEnsemble" | "MdEnsemble" )
    loop        = "(", sequence, ")", "*", ( "1" | "2" | "3" )

Spaces, tabs and line ends may stand between any two tokens and around the text. Nothing is repaired: the seed's parser
took `Revise *` for three times Revise, and a workflow out of a sentence; here that is invalid text.
"""

from __future__ import annotations

import re

from core.tasks.workflow_dsl.ast import (
    ENSEMBLES,
    MAX_OPERATORS,
    Call,
    Conditional,
    Loop,
    Operator,
    Parallel,
    Step,
    Steps,
    Workflow,
)

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
        found = _TOKEN.match(self._text, self._end)
        assert found is not None  # the pattern's last alternative is the end itself
        self.token = found[1]
        self.start, self._end = found.span(1)

    def error(self, expected: str) -> DslError:
        """The error for the token at the cursor."""
        shown = self.token if len(self.token) <= 24 else self.token[:24] + "..."
        return DslError(position=self.start, expected=expected, got=repr(shown) if shown else "the end of the text")

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
