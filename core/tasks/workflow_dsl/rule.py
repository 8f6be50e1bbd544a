"""The stated rule: the expected level of a pattern that the log does not cover.

    mean = start + (CEILING - start) * (1 - product over helping operators of (1 - help)) - penalties

`start` is the domain's fallback mean: a valid line earns more than invalid text only by what it does. Each helping
operator closes a share of the remaining gap to the ceiling, so returns diminish and no pattern can pass the ceiling:
there is no jackpot. The shares and penalties are stated, not measured (the log has no parallel block and no code
problem); only their order of magnitude is the log's: 0.50 for the fallback, 0.76 for its best pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from core.config.task import Domain
from core.tasks.workflow_dsl.ast import ENSEMBLES, Call, Conditional, Loop, Operator, Parallel, Steps, Workflow, walk
from core.tasks.workflow_dsl.structure import blocks, operators

CEILING = 0.80
FLOOR = 0.05

WRITERS = frozenset(
    {Operator.CUSTOM, Operator.ANSWER_GENERATE, Operator.PROGRAMMER, Operator.CUSTOM_CODE_GENERATE}
)  # they produce an answer
CODERS = frozenset({Operator.PROGRAMMER, Operator.CUSTOM_CODE_GENERATE})
CHECKERS = frozenset({Operator.TEST, Operator.REVIEW, Operator.VERIFY})

# The share of the gap to the ceiling that an operator closes, once, wherever it stands. Not listed: 0.
HELP: Mapping[Domain, Mapping[Operator, float]] = {
    "math": {
        Operator.CUSTOM: 0.05,
        Operator.ANSWER_GENERATE: 0.10,
        Operator.PROGRAMMER: 0.40,
        Operator.CUSTOM_CODE_GENERATE: 0.15,
        Operator.TEST: 0.05,
        Operator.REVISE: 0.05,
        Operator.FORMAT: 0.05,
        Operator.SC_ENSEMBLE: 0.20,
        Operator.MD_ENSEMBLE: 0.15,
        Operator.DECOMPOSE: 0.15,
        Operator.VERIFY: 0.10,
    },
    "qa": {
        Operator.CUSTOM: 0.10,
        Operator.ANSWER_GENERATE: 0.30,
        Operator.REVISE: 0.10,
        Operator.FORMAT: 0.15,
        Operator.SC_ENSEMBLE: 0.30,
        Operator.MD_ENSEMBLE: 0.25,
        Operator.DECOMPOSE: 0.20,
        Operator.VERIFY: 0.15,
    },
    "code": {
        Operator.CUSTOM: 0.05,
        Operator.PROGRAMMER: 0.30,
        Operator.CUSTOM_CODE_GENERATE: 0.30,
        Operator.TEST: 0.30,
        Operator.REVISE: 0.10,
        Operator.SC_ENSEMBLE: 0.15,
        Operator.MD_ENSEMBLE: 0.15,
        Operator.DECOMPOSE: 0.10,
        Operator.VERIFY: 0.05,
    },
}
TWO_BRANCHES = 0.75  # an ensemble over two branches helps this much of what it does over three or more
LOOP_HELP = 0.05  # per repetition after the first of a loop that checks and revises

NO_ANSWER = 0.15  # nothing in the workflow writes an answer
STRAY_ENSEMBLE = 0.04  # each ensemble that joins no parallel block
UNCHECKED_REVISE = 0.03  # each Revise before any Review, Test or Verify
UNTESTABLE = 0.03  # each Test before anything wrote code
ODD_CONDITION = 0.03  # each condition that checks nothing
IDLE_LOOP = 0.03  # each loop that does not both check and revise
REPEAT = 0.02  # each further call of an operator on one path; copies in other branches are free
LENGTH = 0.02  # each operator after the eighth
FREE_LENGTH = 8
CODE_FOR_QA = 0.03  # a qa workflow that writes or tests code


def rule_mean(domain: Domain, workflow: Workflow, start: float) -> float:
    """The expected level of `workflow`, in [FLOOR, CEILING], where `start` is the domain's fallback mean."""
    open_gap = 1.0
    for share in _helps(domain, workflow):
        open_gap *= 1 - share
    mean = start + (CEILING - start) * (1 - open_gap) - _penalties(domain, workflow)
    return min(CEILING, max(FLOOR, mean))


def _helps(domain: Domain, workflow: Workflow) -> list[float]:
    """The shares that count: each operator's once, and only where it can do its work."""
    help_of = HELP[domain]
    useful: set[Operator] = set()
    seen: set[Operator] = set()
    for operator in operators(workflow):
        if operator not in ENSEMBLES and _can_work(operator, seen):
            useful.add(operator)
        seen.add(operator)
    # sorted: the order of a set of names differs between processes, and the product would round differently
    shares = [help_of.get(operator, 0.0) for operator in sorted(useful)]
    steps = list(blocks(workflow.steps))
    joined = [
        help_of[step.ensemble] * (1.0 if len(step.branches) > 2 else TWO_BRANCHES)
        for step in steps
        if isinstance(step, Parallel)
    ]
    turns = [loop.times - 1 for loop in steps if isinstance(loop, Loop) and _refines(loop)]
    return [*shares, max(joined, default=0.0), LOOP_HELP * max(turns, default=0)]


def _can_work(operator: Operator, seen: set[Operator]) -> bool:
    """Whether what stands before the operator lets it help at all."""
    match operator:
        case Operator.TEST:
            return bool(seen & CODERS)
        case Operator.REVISE:
            return bool(seen & CHECKERS)
        case Operator.VERIFY | Operator.FORMAT:
            return bool(seen & WRITERS)
        case Operator.DECOMPOSE:
            return not seen & WRITERS
    return True


def _penalties(domain: Domain, workflow: Workflow) -> float:
    """What the workflow's mistakes cost, added up."""
    names = operators(workflow)
    steps = list(blocks(workflow.steps))
    unchecked = untestable = 0
    for place, operator in enumerate(names):
        before = frozenset(names[:place])
        unchecked += operator is Operator.REVISE and not before & CHECKERS
        untestable += operator is Operator.TEST and not before & CODERS
    stray = sum(name in ENSEMBLES for name in names) - sum(isinstance(step, Parallel) for step in steps)
    odd = sum(isinstance(step, Conditional) and step.condition not in CHECKERS for step in steps)
    idle = sum(isinstance(step, Loop) and not _refines(step) for step in steps)
    repeats = sum(count - 1 for count in _on_one_path(workflow.steps).values())
    return (
        NO_ANSWER * (not WRITERS.intersection(names))
        + STRAY_ENSEMBLE * stray
        + UNCHECKED_REVISE * unchecked
        + UNTESTABLE * untestable
        + ODD_CONDITION * odd
        + IDLE_LOOP * idle
        + REPEAT * repeats
        + LENGTH * max(0, len(names) - FREE_LENGTH)
        + CODE_FOR_QA * (domain == "qa" and bool((CODERS | {Operator.TEST}).intersection(names)))
    )


def _refines(loop: Loop) -> bool:
    """Whether the body both checks and revises."""
    names = set(walk(loop.body))
    return Operator.REVISE in names and bool(names & CHECKERS)


def _on_one_path(steps: Steps) -> Counter[Operator]:
    """How often each operator is called in sequence: of parallel branches, the one that calls it most."""
    counts: Counter[Operator] = Counter()
    for step in steps:
        match step:
            case Call():
                counts[step.operator] += 1
            case Conditional():
                counts.update((step.condition, step.action))
            case Loop():
                counts.update(_on_one_path(step.body))
            case Parallel():
                widest: Counter[Operator] = Counter()
                for branch in step.branches:
                    widest |= _on_one_path(branch)
                counts.update(widest)
                counts[step.ensemble] += 1
    return counts
