"""Which step a reward function is told: how many are done, at a step's own scoring and at an evaluation."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from core.config.task import CustomTaskSpec, DataSpec, RewardSpec
from core.tasks.custom.task import CustomTask
from core.training.requests import Reward
from tests.fakes import TabularPolicy, asked, grpo_stage, trainer_of

SOURCE = "def f(completions, trainer_state): return [trainer_state.global_step] * len(completions)"


@pytest.mark.process
def test_a_function_is_told_how_many_steps_are_done(tmp_path: Path) -> None:
    """TRL's global_step: 0 before the first update. Evaluated before step 1 and after step 2."""
    (tmp_path / "data.csv").write_text("q\n" + "\n".join(f"question {row}" for row in range(8)) + "\n")
    (tmp_path / "mine.py").write_text(SOURCE)
    spec = CustomTaskSpec(
        name="custom",
        data=DataSpec(path=str(tmp_path / "data.csv")),
        prompt="{q}",
        rewards=(RewardSpec(function=f"{tmp_path}/mine.py:f"),),
        train_prompts=4,
        eval_prompts=2,
    )
    task = CustomTask(spec)
    stage = grpo_stage(max_steps=2)
    with closing(task):
        trainer = trainer_of(TabularPolicy(), task, stage, evaluation={"eval_steps": 2})
        told = [
            (request.name, {outcome.reward for outcome in groups.outcomes})
            for request, groups in asked(trainer)
            if isinstance(request, Reward)
        ]
    assert told == [("evaluate", {0.0}), ("reward", {0.0}), ("reward", {1.0}), ("evaluate", {2.0})]
