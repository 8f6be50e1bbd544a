"""A step draws nothing from the global generators and leaves them as they were."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from core.faults import RolloutInTrainMode
from core.policies.base import Policy
from core.training.trainer import drive
from tests.fakes import PricedTask, Recorder, grpo_stage, small_policy, trainer_of

TASK = PricedTask(lambda prompt, output: float(len(output)))


def ran(policy: Policy, seed: int) -> tuple[Recorder, bool]:
    """Two steps from this state of the global generators, and whether they stand where they stood."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    recorder = Recorder()
    drive(trainer_of(policy, TASK, grpo_stage(max_steps=2, beta=0.01)).steps(), recorder)
    assert recorder.column("update") == [1, 1]
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    return recorder, torch.equal(before[0], after[0]) and before[1:] == after[1:]


@pytest.mark.parametrize("fault", [False, True])
def test_with_dropout(fault: bool) -> None:
    def policy() -> Policy:
        inner = small_policy(lora_dropout=0.4)
        return RolloutInTrainMode(inner) if fault else inner

    first, untouched = ran(policy(), seed=1)
    assert untouched
    other, untouched = ran(policy(), seed=2)
    assert untouched
    assert (first.rows, first.samples) == (other.rows, other.samples)
