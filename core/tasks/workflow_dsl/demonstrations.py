"""Lines to warm-start the built-in model on: about what P30's policy wrote, and a broad tail.

Most lines (85 %) are drawn from a domain's dominant patterns, the others are random valid lines that reach every
operator and construct. That start earns clearly less than the best patterns do: training has something to find.
`free_text` gives English instead of workflows; how much of it is mixed in is the model builder's choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from core.config.task import Domain
from core.tasks.workflow_dsl.ast import Call, Conditional, Loop, Operator, Parallel, Step, Steps, Workflow
from core.tasks.workflow_dsl.outcomes import DOMAINS
from core.tasks.workflow_dsl.printer import render
from core.tasks.workflow_dsl.problems import SENTENCES, fill, problem_texts
from core.tasks.workflow_dsl.prompts import prompt_text

RANDOM_SHARE = 0.15  # more of it, and a model this small spells badly
LONGEST = 90  # characters of a random line: a longer one would not fit what the built-in model may write

# Math and qa: the log's counts of its frequent patterns, qa's one pattern thinned so that a group is not always of one
# line. Code was never drawn there: its row is made up in the same manner.
DOMINANT: dict[Domain, dict[str, int]] = {
    "math": {
        "Programmer -> Custom -> Review ? Revise : done": 71,
        "Programmer -> Custom -> Review -> (Revise) * 3": 48,
        "Programmer -> Custom": 28,
        "Custom -> Programmer -> Review ? Revise : done": 24,
        "Custom -> Programmer -> Custom -> Review ? Revise : done": 13,
        "Programmer": 6,
    },
    "qa": {
        "Custom -> Review ? Revise : done": 60,
        "Custom -> Review -> Revise": 15,
        "Custom -> Programmer -> Review ? Revise : done": 10,
        "Custom": 10,
        "AnswerGenerate -> Review ? Revise : done": 5,
    },
    "code": {
        "Custom -> Programmer -> Review ? Revise : done": 40,
        "Programmer -> Custom -> Review ? Revise : done": 25,
        "Custom -> Review ? Revise : done": 20,
        "Programmer -> Custom": 10,
        "CustomCodeGenerate -> Test": 5,
    },
}
_OPERATORS = tuple(Operator)
_ENSEMBLES = (Operator.SC_ENSEMBLE, Operator.MD_ENSEMBLE)


def demonstrations(count: int, seed: int) -> list[tuple[str, str]]:
    """`count` (short prompt, valid line) pairs, the domains in turn; the problems are in no split."""
    rng = Random(f"demonstrations/{seed}")
    return [(prompt, _line(rng, domain)) for domain, prompt in _prompts(count, seed)]


def free_text(count: int, seed: int) -> list[tuple[str, str]]:
    """`count` (short prompt, English sentence) pairs from the problems' vocabulary: never a valid workflow."""
    rng = Random(f"free text/{seed}")
    return [(prompt, fill(SENTENCES[int(rng.random() * len(SENTENCES))], rng)) for _, prompt in _prompts(count, seed)]


def random_workflow(rng: Random) -> Workflow:
    """A small random workflow: at most seven operators, every construct and operator within reach."""
    kind = rng.random()
    if kind < 0.2:
        return Workflow(steps=(_call(rng),))
    if kind < 0.4:
        return Workflow(steps=_calls(rng, 2, 4))
    steps: list[Step] = list(_calls(rng, 0, 1))
    if kind < 0.6:
        steps.append(Conditional(condition=_operator(rng), action=_operator(rng)))
    elif kind < 0.8:
        branches = tuple((_call(rng),) for _ in range(_whole(rng, 2, 3)))
        steps.append(Parallel(branches=branches, ensemble=_ENSEMBLES[_whole(rng, 0, 1)]))
    else:
        steps.append(Loop(body=_calls(rng, 1, 3), times=_whole(rng, 1, 3)))
    return Workflow(steps=(*steps, *_calls(rng, 0, 1)))


def _prompts(count: int, seed: int) -> Iterator[tuple[Domain, str]]:
    texts = {domain: problem_texts(domain, "demonstration", seed) for domain in DOMAINS}
    for index in range(count):
        domain = DOMAINS[index % len(DOMAINS)]
        yield domain, prompt_text("short", domain, next(texts[domain]))


def _line(rng: Random, domain: Domain) -> str:
    if rng.random() < RANDOM_SHARE:
        while len(line := render(random_workflow(rng))) > LONGEST:
            pass
        return line
    patterns = DOMINANT[domain]
    left = rng.random() * sum(patterns.values())
    for pattern, weight in patterns.items():
        left -= weight
        if left < 0:
            return pattern
    return next(iter(patterns))


def _whole(rng: Random, low: int, high: int) -> int:
    return low + int(rng.random() * (high - low + 1))


def _operator(rng: Random) -> Operator:
    return _OPERATORS[_whole(rng, 0, len(_OPERATORS) - 1)]


def _call(rng: Random) -> Call:
    return Call(operator=_operator(rng))


def _calls(rng: Random, low: int, high: int) -> Steps:
    return tuple(_call(rng) for _ in range(_whole(rng, low, high)))
