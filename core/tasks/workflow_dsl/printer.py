"""Workflow -> its one canonical text. `parse(render(workflow)) == workflow` for every workflow that can be built."""

from __future__ import annotations

from core.tasks.workflow_dsl.ast import Call, Conditional, Loop, Parallel, Step, Steps, Workflow


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
