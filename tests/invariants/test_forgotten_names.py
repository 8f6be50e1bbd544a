"""A name that somebody added to a list of names and forgot in the code fails where it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from core.algorithms.advantages import advantages
from core.algorithms.kl import kl_loss
from core.algorithms.reductions import token_weights
from core.algorithms.schedules import value
from core.algorithms.surrogates import Trust, surrogate
from core.config import AdvantageSpec, GuardSpec, ModelSpec
from core.models.precision import DeviceRoom, WeightsSize, use_4bit
from core.tasks.gsm8k import answer_in
from core.tasks.workflow_dsl.problems import prompt_text
from core.training.callbacks import CollapseGuard
from grpoctl.sweeps.pruning import decide, sign

NEW: Any = "new"
ONES, MASK = torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool)


def normalised(axis: str) -> Any:
    """Advantages under a normaliser that has a new name on this axis."""
    how = AdvantageSpec.model_construct(**{**dict(AdvantageSpec()), axis: NEW})
    return advantages([[0.0, 1.0]], how, lengths_PC=1)


def pruned() -> Any:
    """What a pruner with a new name decides."""
    from grpoctl.sweeps.spec import PrunerSpec

    rule = PrunerSpec.model_construct(**{**dict(PrunerSpec()), "name": NEW})
    return decide(rule, [(0, 0.5, 1.0)], [], [0])


def guarded() -> Any:
    """What a guard does with a finding under an action that has a new name."""
    guards = GuardSpec.model_construct(**{**dict(GuardSpec()), "collapse": NEW})
    return CollapseGuard(guards).after_step([{"step": 1, "loss": None}])


@pytest.mark.parametrize(
    "use",
    [
        lambda: normalised("transform"),
        lambda: normalised("baseline"),
        lambda: normalised("scale_rewards"),
        lambda: normalised("weighting"),
        lambda: token_weights(MASK, NEW),
        lambda: kl_loss(ONES, ONES, NEW),
        lambda: value(NEW, 1.0, 0.5, 2, 1),
        lambda: surrogate(ONES, ONES, ONES, MASK, Trust(kind=NEW, epsilon=0.2, epsilon_high=0.2)),
        guarded,
        lambda: ModelSpec.model_construct(dtype=NEW).itemsize,
        lambda: ModelSpec.model_construct(mixed_precision=NEW, load_in_4bit="never").computes_in,
        lambda: use_4bit(
            NEW, lora=True, weights=WeightsSize(count=1, itemsize=2), room=DeviceRoom(free=1, bitsandbytes=True)
        ),
        lambda: answer_in("#### 1", NEW),
        lambda: prompt_text(NEW, "math", "1 + 1"),
        lambda: sign(NEW),
        pruned,
    ],
)
def test_it_fails(use: Callable[[], object]) -> None:
    with pytest.raises(AssertionError, match=NEW):
        use()
