"""Whether the task of a spec can be had, as far as this machine's files tell, before a run asks for it."""

from __future__ import annotations

import os
from pathlib import Path

from core.config.run import RunSpec
from core.config.task import CustomTaskSpec
from core.errors import SpecError
from core.tasks import registry
from core.tasks.base import Task
from core.tasks.rewards.resolving import NotFound, check_file, is_file

MOST_SLICES = 50  # of an evaluation: each is a metric of its own


def check_task(spec: RunSpec) -> None:
    """Refuses a task that cannot be had, as far as this machine's files tell; runs nothing. Raises SpecError."""
    task = registry.build(spec.task)
    if registry.is_local(spec.task):
        check_slices(task, spec.evaluation.slice_by)
    if isinstance(spec.task, CustomTaskSpec):
        _check_reward_files(spec.task)


def _check_reward_files(task: CustomTaskSpec) -> None:
    for number, reward in enumerate(task.rewards):
        place = reward.function.rpartition(":")[0]
        try:
            if is_file(place):
                check_file(Path(os.path.expanduser(place)).resolve())
        except NotFound as error:
            raise SpecError(f"{reward.function}: {error}", key=f"task.rewards.{number}.function") from None


def check_slices(task: Task, slice_by: str | None) -> None:
    """Raises SpecError where the evaluation is to be cut by what its problems do not have, or what hardly two share."""
    if slice_by is None:
        return
    held_out, key = task.examples("eval"), "evaluation.slice_by"
    if slice_by not in held_out[0].facts:
        raise SpecError(f"got {slice_by!r}; this task's problems have: {', '.join(held_out[0].facts)}", key=key)
    values = len({str(example.facts.get(slice_by)) for example in held_out})
    if values > MOST_SLICES:
        got = f"got {slice_by!r}, which has {values} values among {len(held_out)} problems"
        raise SpecError(f"{got}; allowed: at most {MOST_SLICES}", key=key)
