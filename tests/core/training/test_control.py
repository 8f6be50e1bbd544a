"""Who is outside may end a run, after a step that was evaluated and at no other time."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.assemble import callbacks
from core.training.callbacks import Checkpointing, ParentControl
from core.training.checkpoint import Checkpoints
from core.training.outcome import Ending
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, trainer_of

TASK = PricedTask(lambda prompt, output: float(output))
ENOUGH = Ending(status="PRUNED", message="the median was better")


def trainer() -> Trainer:
    return trainer_of(TabularPolicy(), TASK, grpo_stage(), evaluation={"eval_steps": 3})


def test_it_is_asked_after_each_evaluated_step_when_that_is_recorded() -> None:
    run, recorder, asked = trainer(), Recorder(), []

    def ask(step: int) -> Ending | None:
        asked.append((step, recorder.rows[-1]["step"]))
        return None

    run.callbacks = [ParentControl(ask)]
    assert drive(run.steps(), recorder).status == "COMPLETED"
    assert asked == [(3, 3), (6, 6), (9, 9), (10, 10)]  # not before the first step


@pytest.mark.parametrize(("at", "end"), [(3, 3), (4, None), (6, 6), (0, None)])
def test_what_it_says_ends_the_run_there(at: int, end: int | None) -> None:
    run, recorder = trainer(), Recorder()
    run.callbacks = [ParentControl(lambda step: ENOUGH if step == at else None)]
    ending = drive(run.steps(), recorder)
    assert (ending == ENOUGH) == (end is not None)
    assert recorder.rows[-1]["step"] == (end or 10)


def test_it_is_asked_before_checkpoints_are_written_and_only_where_there_is_one(tmp_path: Path) -> None:
    run, checkpoints = trainer(), Checkpoints(tmp_path, 2)
    found = callbacks(run.spec, run, checkpoints, lambda step: ENOUGH)
    assert [type(one) for one in found[-2:]] == [ParentControl, Checkpointing]
    assert not any(isinstance(one, ParentControl) for one in callbacks(run.spec, run, checkpoints))
    run.callbacks = found
    assert drive(run.steps(), Recorder()) == ENOUGH
    assert checkpoints.steps() == [3]  # the first evaluation is the best so far
