"""The two prompt styles: one short line for the built-in model, a full instruction for a real one."""

from __future__ import annotations

from typing import Literal, assert_never

from core.config.task import Domain

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
