"""(domain, workflow) -> the distribution of its reward levels, before the cost of its operators.

A pattern that P30's log covers has its counts, filled up to `FULL_SIZE` observations from the domain's valid samples:
24 or more counts stand as they are, six of six is no oracle. Every other valid pattern has the domain's valid
distribution, moved to the mean that the stated rule gives (`rule_mean`). Text that is no workflow has the fallback's
distribution. Code has no data: it starts from math and qa pooled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum, isclose

from core.config.task import Domain
from core.tasks.workflow_dsl.grammar import (
    ENSEMBLES,
    Call,
    Conditional,
    Loop,
    Operator,
    Parallel,
    Steps,
    Workflow,
    blocks,
    operators,
    render,
    walk,
)

# Counts taken from the log of P30: data only.
#
# Origin: `logs/training_p30.log` of the public repository beita6969/colab-grpo (MIT), the run that document 000
# analyses: 570 scored samples of Qwen2.5-7B-Instruct, 380 on math and 190 on qa problems; no code problem was ever
# drawn. A row counts how many samples were given each level of `LEVELS`; the 33 samples whose workflow failed to run
# count as 0, as they did in training.
#
# What is left out of the patterns, though it is in the domains' totals: text that the seed's parser took and that is no
# workflow of the grammar (a `DSL:` prefix, a tag, a possessive s: 8 samples), and patterns seen once.
#
# What is rewritten: the log's `Revise *`. The seed's clean-up stripped the digits off the end of a line (`Revise * 3`),
# and its parser took a star without a number for three times; the log shows the code that ran, with three calls of
# Revise in each of the 52 samples. They stand here under the workflow that ran.
#
# In the same log `Review ? Revise : done` was run as `Review -> Revise`, always both. The table keeps what was written.
LEVELS = (0.0, 0.2, 0.4, 0.7, 1.0)
Counts = tuple[int, int, int, int, int]  # how many samples were given each of LEVELS

VALID: Mapping[str, Counts] = {
    "math": (26, 67, 7, 0, 112),
    "qa": (49, 0, 0, 16, 49),
}
FALLBACK: Mapping[str, Counts] = {
    "math": (4, 78, 28, 0, 58),
    "qa": (35, 1, 2, 10, 28),
}
PATTERNS: Mapping[str, Mapping[str, Counts]] = {
    "math": {
        "Programmer -> Custom -> Review ? Revise : done": (16, 20, 2, 0, 33),
        "Programmer -> Custom -> Review -> (Revise) * 3": (6, 20, 1, 0, 21),
        "Programmer -> Custom": (0, 7, 2, 0, 19),
        "Custom -> Programmer -> Review ? Revise : done": (0, 10, 2, 0, 12),
        "Custom -> Programmer -> Custom -> Review ? Revise : done": (4, 3, 0, 0, 6),
        "Programmer": (0, 0, 0, 0, 6),
        "Custom -> Programmer -> Review -> (Revise) * 3": (0, 1, 0, 0, 3),
        "Programmer -> Review ? Revise : done": (0, 0, 0, 0, 3),
        "Review ? Revise : done": (0, 3, 0, 0, 0),
        "Custom -> Programmer -> Custom": (0, 0, 0, 0, 2),
    },
    "qa": {
        "Custom -> Review ? Revise : done": (47, 0, 0, 16, 49),
        "Custom -> Programmer -> Review ? Revise : done": (2, 0, 0, 0, 0),
    },
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """Five probabilities, one per level of `LEVELS`. Raises ValueError where they are none."""

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.probabilities) != len(LEVELS) or min(self.probabilities) < 0:
            raise ValueError(f"{len(LEVELS)} probabilities of at least 0 wanted, got {self.probabilities}")
        if not isclose(fsum(self.probabilities), 1.0, abs_tol=1e-9):
            raise ValueError(f"probabilities add up to {fsum(self.probabilities)}, not to 1")

    @property
    def mean(self) -> float:
        """The expected level."""
        return self.expected(0.0)

    def expected(self, cost: float) -> float:
        """E[max(0, level - cost)]: the reward is clipped at 0 before it is averaged, not after."""
        return fsum(p * max(0.0, level - cost) for p, level in zip(self.probabilities, LEVELS, strict=True))

    def quantile(self, u: float) -> float:
        """The smallest level whose cumulative probability is at least `u`, for u in (0, 1); rises with u."""
        if not 0 < u < 1:
            raise ValueError(f"a quantile is asked for at a u in (0, 1), got {u}")
        cumulative = 0.0
        reached = 0.0
        for p, level in zip(self.probabilities, LEVELS, strict=True):
            if p > 0:
                cumulative += p
                reached = level
                if cumulative >= u:
                    break
        return reached  # where rounding left the sum a hair under u: the highest level that can happen


def from_weights(weights: Sequence[float]) -> Distribution:
    """The distribution in proportion to `weights` (counts, or counts and pseudo-counts)."""
    total = fsum(weights)
    return Distribution(probabilities=tuple(weight / total for weight in weights))


def topped_up(counts: Sequence[int], prior: Distribution, size: int) -> Distribution:
    """`counts`, filled up with pseudo-observations of `prior` to `size` observations; `size` or more stand as they are.

    Worked: 6 of 6 right under a prior of mean 0.6, size 24, have mean (6 + 18 * 0.6) / 24 = 0.70.
    """
    missing = max(0, size - sum(counts))
    return from_weights([count + missing * p for count, p in zip(counts, prior.probabilities, strict=True)])


def moved_to(prior: Distribution, mean: float) -> Distribution:
    """`prior` mixed with certain success (level 1) or certain failure (level 0) so that its mean is `mean`."""
    if not 0 <= mean <= 1:
        raise ValueError(f"a mean level lies in [0, 1], got {mean}")
    up = mean >= prior.mean
    share = (mean - prior.mean) / (1 - prior.mean) if up else (prior.mean - mean) / prior.mean
    certain = len(LEVELS) - 1 if up else 0
    return from_weights(
        [(1 - share) * p + (share if index == certain else 0.0) for index, p in enumerate(prior.probabilities)]
    )


# The stated rule: the expected level of a pattern that the log does not cover.
#
#     mean = start + (CEILING - start) * (1 - product over helping operators of (1 - help)) - penalties
#
# `start` is the domain's fallback mean: a valid line earns more than invalid text only by what it does. Each helping
# operator closes a share of the remaining gap to the ceiling, so returns diminish and no pattern can pass the ceiling:
# there is no jackpot. The shares and penalties are stated, not measured (the log has no parallel block and no code
# problem); only their order of magnitude is the log's: 0.50 for the fallback, 0.76 for its best pattern.
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


DOMAINS: tuple[Domain, ...] = ("math", "qa", "code")
FULL_SIZE = 24


def _with_pooled_code(counts: Mapping[str, Counts]) -> dict[Domain, Distribution]:
    pooled = [sum(column) for column in zip(*counts.values(), strict=True)]
    return {domain: from_weights(counts.get(domain, pooled)) for domain in DOMAINS}


_PRIOR = _with_pooled_code(VALID)
_FALLBACK = _with_pooled_code(FALLBACK)
_COVERED: dict[Domain, dict[str, Distribution]] = {
    domain: {
        pattern: topped_up(counts, _PRIOR[domain], FULL_SIZE) for pattern, counts in PATTERNS.get(domain, {}).items()
    }
    for domain in DOMAINS
}


def fallback(domain: Domain) -> Distribution:
    """What text that is no workflow earns: the seed then ran a lone Custom."""
    return _FALLBACK[domain]


def prior(domain: Domain) -> Distribution:
    """All valid samples of the domain together."""
    return _PRIOR[domain]


@lru_cache(maxsize=4096)
def outcomes(domain: Domain, workflow: Workflow) -> Distribution:
    """The distribution of a valid workflow's level. Remembered by workflow, never by text, which may be megabytes."""
    known = _COVERED[domain].get(render(workflow))
    if known is not None:
        return known
    return moved_to(_PRIOR[domain], rule_mean(domain, workflow, _FALLBACK[domain].mean))
