"""What a workflow looks like: its structure class and its operators. Nothing about rewards here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from core.tasks.workflow_dsl.ast import Call, Conditional, Loop, Operator, Parallel, Step, Steps, Workflow, walk

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
