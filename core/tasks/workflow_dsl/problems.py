"""Seeded problem texts, the prompts that ask them, and demonstrations for the built-in model. No rewards here.

A problem is five to eight lower-case words and numbers from a small closed vocabulary. It belongs to a split by its own
hash, so the splits are disjoint whatever their sizes and seeds are, and a longer split begins with the shorter one.

Demonstrations are about what P30's policy wrote, and a broad tail: most lines (85 %) are drawn from a domain's dominant
patterns, the others are random valid lines that reach every operator and construct. That start earns clearly less than
the best patterns do: training has something to find. `free_text` gives English instead of workflows; how much of it is
mixed in is the model builder's choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random
from typing import Literal, assert_never

from core.config.task import Domain
from core.tasks.workflow_dsl.grammar import Call, Conditional, Loop, Operator, Parallel, Step, Steps, Workflow, render
from core.tasks.workflow_dsl.rewards import DOMAINS

Share = Literal["train", "eval", "demonstration"]

NAMES = ("tom", "anna", "ben", "mia", "sam", "eva")
THINGS = ("apples", "books", "coins", "cards", "lamps", "stones", "boats", "trees")
LOOKS = ("red", "old", "big", "new", "green", "small")
PLACES = ("tower", "bridge", "river", "school", "city", "garden", "castle", "island")

SLOTS = {
    "name": NAMES,
    "things": THINGS,
    "look": LOOKS,
    "place": PLACES,
    "gets": ("buys", "finds", "sells", "loses"),
    "did": ("built", "named", "painted", "crossed"),
    "treat": ("sort", "count", "reverse", "merge"),
    "by": ("name", "size", "price", "age"),
}
TEMPLATES: dict[Domain, tuple[str, ...]] = {
    "math": (
        "{name} has {n} {look} {things} and {gets} {n}",
        "add {n} to {n} then take {n}",
        "{n} {look} {things} cost {n} coins each",
        "share {n} {things} among {n} people",
    ),
    "qa": (
        "who {did} the {look} {place} in {n}",
        "when did {name} see {n} {look} {things}",
        "which {place} had {n} {look} {things}",
        "where is {look} {place} {n} near the {place}",
    ),
    "code": (
        "{treat} {n} {look} {things} by {by}",
        "print the {things} {name} {gets} after {n}",
        "find {n} {look} {things} in a list",
        "{treat} a list of {n} {things} by {by}",
    ),
}
SENTENCES = (
    "the {look} {place} is near the {look} {place}",
    "the answer is {n} {look} {things}",
    "{name} {gets} {n} {things} in the {place}",
    "take the {things} to the {place} then count the {things}",
)
_SHARES: dict[Share, range] = {"train": range(128), "eval": range(128, 192), "demonstration": range(192, 256)}
_PATIENCE = 20  # draws in vain before the numbers may have another digit: so any size that is asked for is produced


def problem_texts(domain: Domain, share: Share, seed: int) -> Iterator[str]:
    """Distinct problem texts of the domain, without end: all different, and in no other share."""
    rng = Random(f"problems/{seed}/{share}/{domain}")
    seen: set[str] = set()
    while True:
        top = 100
        vain = 0
        while True:
            text = fill(_pick(rng, TEMPLATES[domain]), rng, top)
            if text not in seen and hashlib.sha256(text.encode()).digest()[0] in _SHARES[share]:
                break
            vain += 1
            if vain % _PATIENCE == 0:
                top *= 10
        seen.add(text)
        yield text


def fill(template: str, rng: Random, top: int = 100) -> str:
    """The template with a word for each slot and a number from 2 to `top` - 1 for each `{n}`."""
    words = []
    for word in template.split():
        slot = word[1:-1]
        if not word.startswith("{"):
            words.append(word)
        elif slot == "n":
            words.append(str(2 + int(rng.random() * (top - 2))))
        else:
            words.append(_pick(rng, SLOTS[slot]))
    return " ".join(words)


def _pick(rng: Random, words: tuple[str, ...]) -> str:
    # not rng.choice: only random() is promised to draw the same from one Python version to the next
    return words[int(rng.random() * len(words))]


def unit(*name: object) -> float:
    """A uniform in (0, 1) that is a pure function of the name's parts."""
    digest = hashlib.sha256("/".join(str(part) for part in name).encode()).digest()
    return (int.from_bytes(digest[:8], "big") // 2**12 + 0.5) / 2**52


Style = Literal["short", "instruct"]

# One line per construct; a test parses every one of them.
CONSTRUCTS = {
    "One operator": "AnswerGenerate",
    "Sequence": "Programmer -> Custom",
    "Parallel, joined by an ensemble operator directly after it": "[Custom, AnswerGenerate, Programmer] -> ScEnsemble",
    "Conditional": "Custom -> Review ? Revise : done",
    "Loop, 1 to 3 times, always with parentheses": "Custom -> (Review -> Revise) * 2",
}
_DESCRIPTIONS = """\
Custom: reasons freely about the problem
AnswerGenerate: reasons step by step and states an answer
Programmer: writes and runs Python code
CustomCodeGenerate: writes code for a given signature
Test: runs code against test cases
Review: judges a solution and gives feedback
Revise: corrects a solution by the feedback
Format: extracts the short final answer
ScEnsemble: picks the most consistent of several solutions
MdEnsemble: picks a solution by repeated majority vote
Decompose: splits the problem into smaller ones
Verify: checks the final answer against the problem"""


def prompt_text(style: Style, domain: Domain, problem: str) -> str:
    """The text a model is given; a completion goes on directly after it."""
    match style:
        case "short":
            return f"{domain}: {problem}\nDSL: "
        case "instruct":
            examples = "\n".join(f"{name}: {line}" for name, line in CONSTRUCTS.items())
            return (
                "Write one line of workflow DSL that solves the problem below.\n\n"
                f"Operators:\n{_DESCRIPTIONS}\n\n"
                f"Syntax:\n{examples}\n\n"
                "Rules:\n"
                "- answer with the DSL line alone: no explanation, no label, no quotes\n"
                "- use only the operators above, at most 15 in all; shorter is better\n"
                "- no loop inside a loop, no parallel block inside a parallel block\n\n"
                f"Problem ({domain}): {problem}\n\n"
                "DSL:"  # no space at the end: real tokenizers carry it in the next token
            )
        case _:
            assert_never(style)


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
