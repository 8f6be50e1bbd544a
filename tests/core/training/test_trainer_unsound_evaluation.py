"""An evaluation whose rollout is unsound tells of the sampler: it has no reward, and a guard may end the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.config import GuardSpec
from core.policies.base import Rollout, Sampling
from core.randomness import EVALUATE, RowKey
from core.tasks.base import Example
from core.training.callbacks import RolloutIntegrity
from core.training.outcome import outcome
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, trainer_of


class ForgetfulEvaluations(TabularPolicy):
    """Records log-probs that are off by 3 nats, in evaluations after the first only."""

    evaluations = 0

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        rollout = super().sample(prompts, k, how, keys)
        if keys[0].purpose != EVALUATE:
            return rollout
        self.evaluations += 1
        assert rollout.drawn_NT is not None
        return replace(rollout, drawn_NT=rollout.drawn_NT - 3.0) if self.evaluations > 1 else rollout


TASK = PricedTask(lambda prompt, output: float(output))


def ran(trainer: Trainer) -> Recorder:
    recorder = Recorder()
    drive(trainer.steps(), recorder)
    return recorder


def test_it_has_no_reward_and_is_never_the_best() -> None:
    stage = grpo_stage(max_steps=4)
    trainer = trainer_of(ForgetfulEvaluations(), TASK, stage, evaluation={"eval_steps": 2})
    rows = ran(trainer).rows
    assert [row["step"] for row in rows if "eval/logprob_gap" in row] == [0, 2, 4]
    assert [row["step"] for row in rows if "eval/reward" in row] == [0]
    assert [row["step"] for row in rows if "eval/valid" in row] == [0, 2, 4]  # what came out is still told
    assert rows[-1]["eval/logprob_gap"] == pytest.approx(3.0, abs=1e-5)
    assert (trainer.progress.best_step, trainer.progress.best_value) == (None, None)
    assert outcome(trainer.table).best["step"] == 0  # all there is


@pytest.mark.parametrize(("action", "status", "last"), [("stop", "INVALID_ROLLOUT", 2), ("warn", "COMPLETED", 4)])
def test_it_ends_the_run_where_the_guard_says_so(action: str, status: str, last: int) -> None:
    guards = GuardSpec.model_validate({"rollout_integrity": action})
    trainer = trainer_of(ForgetfulEvaluations(), TASK, grpo_stage(max_steps=4), evaluation={"eval_steps": 2})
    trainer.callbacks = [RolloutIntegrity(guards, "float32")]
    recorder = Recorder()
    assert drive(trainer.steps(), recorder).status == status
    assert trainer.progress.step == last


def test_the_start_is_not_what_training_is_measured_by() -> None:
    # Every output pays the same: nothing is learned, no evaluation beats the start, and still one is the best trained.
    trainer = trainer_of(
        TabularPolicy(), PricedTask(lambda prompt, output: 1.0), grpo_stage(max_steps=4), evaluation={"eval_steps": 2}
    )
    ran(trainer)
    assert trainer.progress.best_step == 2
    assert outcome(trainer.table).best["step"] == trainer.progress.best_step
