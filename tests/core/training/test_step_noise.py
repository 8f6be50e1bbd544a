"""A step's limits by the run's own noise: the start's, and more where the trainer's own scores differ by more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.health.finding import Row
from core.policies.base import Rollout, Sampling, Scores, Weights
from core.randomness import TRAIN, RowKey
from core.tasks.base import Example
from core.training.requests import Sample, Score
from tests.fakes import PricedTask, TabularPolicy, asked, grpo_stage, ran, trainer_of

K = 4
STAGE = grpo_stage(max_steps=2, prompts_per_step=1, num_generations=K)
SAME_REWARD = PricedTask(lambda *_: 1.0)  # no update: the four arms stay equally likely, with a doubt of 3/4 each


class RoundingPolicy(TabularPolicy):
    """While training its sampler is off by `sampler` nats, its score of one row alone by `trainer`."""

    def __init__(self, *, sampler: float, trainer: float) -> None:
        super().__init__()
        self._sampler, self._trainer = sampler, trainer
        self._training = False

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        rollout = super().sample(prompts, k, how, keys)
        self._training = keys[0].purpose == TRAIN
        assert rollout.drawn_NT is not None
        return replace(rollout, drawn_NT=rollout.drawn_NT + self._sampler * self._training)

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        scores = super().score(rollout, rows, wants=wants, weights=weights)
        alone = self._training and len(rows) == 1
        return replace(scores, logprobs_NT=scores.logprobs_NT + self._trainer * alone)


def steps(**off: float) -> list[Row]:
    """The rows of two steps that only warn."""
    guards = {"rollout_integrity": "warn", "collapse": "off", "noise_factor": 2.0}
    return ran(trainer_of(RoundingPolicy(**off), SAME_REWARD, STAGE, guards=guards)).rows[1:]


@pytest.mark.parametrize(
    ("sampler", "trainer", "limit"),
    [
        # Sampler and trainer agree exactly at the start: noise is the floor of fp32, 1e-4 of a logit, the limit twice
        # that, and in log-probs 3/4 of it.
        (1e-4, 0.0, 1.5e-4),
        (1e-4, 1.0, 1.5e-4),  # within the limit: nobody asks the trainer
        (3e-4, 0.0, 1.5e-4),
        # Beyond it. The mean of four scores is 3e-4 / (3/4) = 4e-4 off in logits: of four equal tokens the noise is
        # 4e-4 * (1 + 2.5 / 2) = 9e-4, twice that the limit, 3/4 of it in log-probs.
        (3e-4, 3e-4, 1.35e-3),
        # However much it is, no more than ten times the start's: 1e-3, and twice that.
        (3e-4, 1.0, 1.5e-3),
    ],
)
def test_the_trainers_own_scores_widen_the_limit_of_a_step_beyond_it(
    sampler: float, trainer: float, limit: float
) -> None:
    for row in steps(sampler=sampler, trainer=trainer):
        assert row["rollout/logprob_gap"] == pytest.approx(sampler, rel=1e-2)
        assert row["rollout/detectable_gap"] == pytest.approx(limit, rel=1e-2)


def test_rows_are_scored_again_one_by_one_only_on_steps_beyond_the_limit() -> None:
    def scored_alone(sampler: float) -> list[list[int]]:
        trainer = trainer_of(RoundingPolicy(sampler=sampler, trainer=0.0), SAME_REWARD, STAGE)
        requests = [request for request, _ in asked(trainer)]
        begun = next(at for at, request in enumerate(requests) if isinstance(request, Sample) and request.k == K)
        return [list(r.rows) for r in requests[begun:] if isinstance(r, Score) and r.name == "calibrate"]

    assert scored_alone(1e-4) == []
    assert scored_alone(3e-4) == [[row] for row in range(K)] * 2
