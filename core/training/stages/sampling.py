"""The groups of a step: sampled, scored, looked at by the guards, and refilled where dynamic sampling asks for it."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from core.algorithms.advantages import dead_groups
from core.config import GrpoStage
from core.policies.base import ENTROPY, Sampling
from core.tasks.base import names_of
from core.training.callbacks.base import Ending
from core.training.clock import Spent
from core.training.groups import Groups
from core.training.requests import Request, Reward, Score
from core.training.stages.base import NOTHING, Done, Here
from core.training.stages.rewards import kept_candidates
from core.training.step_metrics import distinct_outputs, integrity_metrics, rollout_metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """All groups that were sampled on a step, and the indices of those to learn from."""

    groups: Groups
    chosen: Sequence[int]
    prompts: int
    integrity: Mapping[str, float]
    ending: Ending | None
    held_out: float
    distinct: int  # different outputs
    tokens: bool  # whether outputs are made of tokens
    virtual_best: float | None = None

    def row(self, advantages_PK: Tensor) -> dict[str, float]:
        """The step's metrics of everything that was sampled."""
        discarded = len(self.groups.rewards_PK) - len(self.chosen)
        return {
            **rollout_metrics(
                self.groups,
                advantages_PK,
                distinct=self.distinct,
                tokens=self.tokens,
                virtual_best=self.virtual_best,
            ),
            "groups/discarded": discarded,
            "groups/held_out": self.held_out,
            **self.integrity,
        }

    @property
    def spent(self) -> Spent:
        """What was sampled, groups that nothing is learned from included."""
        rollout = self.groups.rollout
        return Spent(completions=len(rollout), tokens=int(rollout.mask_NT.sum()))

    def done(
        self, row: Mapping[str, float], samples: Sequence[Mapping[str, object]], carried: Mapping[str, float]
    ) -> Done:
        """The step as it ended."""
        return Done(
            row=row,
            samples=samples,
            spent=self.spent,
            prompts=self.prompts,
            carried=carried,
            ending=self.ending,
        )


def gather(here: Here, how: Sampling) -> Generator[Request, Any, Gathered]:
    """Sample the step's prompts, check one group's integrity, and go on sampling while groups are missing.

    Groups are chosen by their unshaped rewards. At the cap the step goes on with the groups it has.
    """
    stage, size = here.stage, int(here.stage.prompts_per_step)
    parts: list[Groups] = [(yield from _sampled(here, how, 0, size, 0))]
    integrity = yield from _integrity(here, parts[0])
    ending = here.look({"step": here.step, **{name: _finite(value) for name, value in integrity.items()}})
    dynamic = stage.dynamic_sampling if isinstance(stage, GrpoStage) else None
    chosen, drawn = _useful(here, parts[0], live=dynamic is not None), size
    for attempt in range(1, dynamic.max_attempts if dynamic is not None and ending is None else 1):
        if (missing := size - len(chosen)) == 0:
            break
        parts.append((yield from _sampled(here, how, drawn, missing, attempt)))
        chosen += [drawn + index for index in _useful(here, parts[-1], live=True)]
        drawn += missing
    groups = _joined(here, parts)
    return Gathered(
        groups=groups,
        chosen=chosen,
        prompts=drawn,
        integrity=integrity,
        ending=ending,
        held_out=fmean(not here.held_out.isdisjoint(names_of(prompt)) for prompt in groups.rollout.prompts),
        distinct=distinct_outputs(here.task, groups.rollout),
        tokens=here.spec.policy.tokens,
        virtual_best=_virtual_best(stage),
    )


def rows_of(groups: Sequence[int], k: int) -> list[int]:
    """The rows of these groups."""
    return [row for group in groups for row in range(group * k, (group + 1) * k)]


def _sampled(here: Here, how: Sampling, offset: int, count: int, attempt: int) -> Generator[Request, Any, Groups]:
    prompts = here.prompts(here.progress.prompts + offset, count)
    rollout = yield here.sample(prompts, int(here.stage.num_generations), how, attempt)
    groups: Groups = yield Reward(task=here.task, rollout=rollout, step=here.progress.step)
    return groups


def _integrity(here: Here, groups: Groups) -> Generator[Request, Any, dict[str, float]]:
    """The gap between recorded and clean log-probs on one whole group: each takes its turn."""
    k = int(here.stage.num_generations)
    rows = rows_of([(here.step - 1) % int(here.stage.prompts_per_step)], k)
    policy = here.spec.policy
    wants = frozenset({ENTROPY}) if policy.entropies else NOTHING
    clean = yield Score(policy=here.policy, rollout=groups.rollout, rows=rows, wants=wants)
    return integrity_metrics(groups.rollout, rows, clean, density=policy.density)


def _useful(here: Here, groups: Groups, *, live: bool) -> list[int]:
    """The groups that a step may learn from: with `live`, only those whose rewards differ (the virtual best counts)."""
    stage, rewards_PK = here.stage, kept_candidates(here, groups.rewards_PK)
    useful_P = torch.ones(len(rewards_PK), dtype=torch.bool)
    if live:
        useful_P &= ~torch.from_numpy(dead_groups(rewards_PK.numpy(), _virtual_best(stage)))
    if stage.positive_reward is not None:
        useful_P &= (rewards_PK.nan_to_num(-math.inf) >= stage.positive_reward).any(-1)
    return [int(index) for index in useful_P.nonzero().squeeze(-1)]


def _virtual_best(stage: Any) -> float | None:
    return stage.advantage.virtual_best if isinstance(stage, GrpoStage) else None


def _joined(here: Here, parts: Sequence[Groups]) -> Groups:
    if len(parts) == 1:
        return parts[0]
    return Groups(
        rollout=here.policy.join([part.rollout for part in parts]),
        outcomes=[outcome for part in parts for outcome in part.outcomes],
        rewards_PK=torch.cat([part.rewards_PK for part in parts]),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
