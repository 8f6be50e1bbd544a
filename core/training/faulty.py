"""Fault injections between a trainer and what it asks for: requests and answers that are changed on their way.

Only a spec can switch one on. The trainer's own code knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from core.policies.base import Rollout
from core.training.groups import Groups
from core.training.grpo_loss import GrpoLoss
from core.training.requests import Answer, Learn, Request, Reward, Sample
from core.training.trainer import Parts, Steps, Trainer
from core.training.update import Batch


class FaultyTrainer(Trainer):
    """A trainer whose requests and answers suffer these faults, in this order."""

    def __init__(self, parts: Parts, faults: Sequence[str]) -> None:
        super().__init__(parts)
        self._before = [ASKED[fault] for fault in faults if fault in ASKED]
        self._after = [ANSWERED[fault] for fault in faults if fault in ANSWERED]

    def steps(self) -> Steps:
        """As a trainer's, but for what goes wrong on the way."""
        steps, answer = super().steps(), None
        while True:
            try:
                request: Request = steps.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            for change in self._before:
                request = change(request)
            answer = yield request
            for spoil in self._after:
                answer = spoil(request, answer)


def interleaved(request: Request, answer: Answer) -> Answer:
    """Rows of a training rollout in the order p0 p1 p0 p1 ...: whoever cuts them every K rows mixes the prompts."""
    if not isinstance(request, Sample) or request.name != "sample" or not isinstance(answer, Rollout):
        return answer
    order_N = torch.arange(len(answer)).view(len(answer.prompts), -1).T.flatten()
    return replace(
        answer,
        prompt_N=answer.prompt_N[order_N],
        actions={name: rows[order_N] for name, rows in answer.actions.items()},
        mask_NT=answer.mask_NT[order_N],
        drawn_NT=None if answer.drawn_NT is None else answer.drawn_NT[order_N],
        outputs=[answer.outputs[row] for row in order_N.tolist()],
        truncated_N=answer.truncated_N[order_N],
    )


def negated(request: Request, answer: Answer) -> Answer:
    """What is to be learned from is minus the reward; evaluations and samples have what the task paid."""
    if not isinstance(request, Reward) or request.name != "reward" or not isinstance(answer, Groups):
        return answer
    return replace(answer, rewards_PK=-answer.rewards_PK)


def without_last_token(request: Request) -> Request:
    """The loss looks one token to the right of where it should: the last one of every completion is not learned."""
    if not isinstance(request, Learn):
        return request
    return replace(request, batches=[_shifted(batch) for batch in request.batches])


def _shifted(batch: Batch) -> Batch:
    if not isinstance(batch.loss, GrpoLoss):
        return batch
    mask_NT: Tensor = batch.loss.mask_NT
    return replace(batch, loss=replace(batch.loss, mask_NT=torch.nn.functional.pad(mask_NT[:, 1:], (0, 1))))


ASKED: Mapping[str, Callable[[Request], Request]] = {"completion-mask-off-by-one": without_last_token}
ANSWERED: Mapping[str, Callable[[Request, Any], Any]] = {
    "wrong-group-order": interleaved,
    "reward-sign-flipped": negated,
}
