"""Task rewards -> what a step learns from, worked by hand: overlong, truncated, KL, candidates, entropy, importance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import pytest
import torch

from core.policies.base import Rollout, Sampling
from core.randomness import RowKey
from core.tasks.base import Example
from core.training.grpo import GrpoLoss
from core.training.requests import Learn, StepDone
from core.training.trainer import Trainer, drive
from tests.fakes import (
    LongPolicy,
    PricedTask,
    Recorder,
    ScriptedPolicy,
    TabularPolicy,
    asked,
    grpo_stage,
    ran,
    small_policy,
    trainer_of,
)

BY_ARM = PricedTask(lambda prompt, output: float(output))  # arms 0 to 3 earn 0 to 3
SAME = PricedTask(lambda prompt, output: 1.0)
RAW = {"scale_rewards": "none"}  # advantages are rewards minus their mean


@dataclass(frozen=True, kw_only=True, slots=True)
class First:
    """The first step of a run: its first update's loss (None: none was made), its row, and row -> advantage."""

    loss: Any
    row: dict[str, float]
    advantages: list[float]


def first(policy: Any, task: Any, **changes: object) -> First:
    stage = {"max_steps": 1, "prompts_per_step": 1, "max_completion_length": 4, "max_grad_norm": 1e9, "advantage": RAW}
    trainer = trainer_of(policy, task, grpo_stage(**stage | changes))
    loss, done = None, None
    for request, _ in asked(trainer):
        if isinstance(request, Learn) and loss is None:
            loss = request.batches[0].loss
        if isinstance(request, StepDone):
            done = request
    assert done is not None
    return First(loss=loss, row=dict(done.row), advantages=[float(str(s["advantage"])) for s in done.samples])  # type: ignore[arg-type]


def weighed(*logits: float) -> ScriptedPolicy:
    policy = ScriptedPolicy()
    with torch.no_grad():
        policy.logits.copy_(torch.tensor(logits))
    return policy


@pytest.mark.parametrize(
    ("overlong", "shaped"),
    [
        # Lengths 1, 2, 3, 4 of at most 4. The last 2 tokens are the buffer: nothing, nothing, half, all is taken off.
        ({"buffer": 0.5}, [1.0, 1.0, 0.5, 0.0]),
        ({"buffer": 0.5, "weight": 2.0}, [1.0, 1.0, 0.0, -1.0]),
        ({"buffer": 1.0}, [0.75, 0.5, 0.25, 0.0]),
        ({"buffer": 0.01}, [1.0, 1.0, 1.0, 0.0]),  # less than one token is one
    ],
)
def test_the_overlong_penalty(overlong: dict[str, float], shaped: list[float]) -> None:
    found = first(LongPolicy(), SAME, overlong=overlong)
    mean = sum(shaped) / 4
    assert found.advantages == [pytest.approx(reward - mean) for reward in shaped]
    assert found.row["reward/mean"] == 1.0  # what the task said
    assert found.row["groups/dead"] == 1.0
    assert found.row["update"] == 1


def test_truncated_completions_are_masked_where_the_spec_says_so() -> None:
    # Arm 3 is cut off: three rows of 1, 2 and 3 factors remain. At ratio 1 only the first factor of a row pulls,
    # with weight 1 / (3 rows x its length) and advantage -1.5, -0.5, 0.5: d log p_i / d logit_j is (i = j) - 1/4.
    policy = LongPolicy()
    stage = grpo_stage(
        max_steps=1, prompts_per_step=1, max_completion_length=4, max_grad_norm=1e9, advantage=RAW,
        mask_truncated_completions=True, reduction="sequence_mean",
    )  # fmt: skip
    trainer = trainer_of(policy, BY_ARM, stage)
    drive(trainer.steps(), Recorder())
    pulls = [-1.5 / 3, -0.5 / 6, 0.5 / 9]
    expected = [-((pulls[j] if j < 3 else 0.0) - sum(pulls) / 4) for j in range(4)]
    assert (10 * trainer.update.state()["logits.exp_avg"]).tolist() == pytest.approx(expected, rel=1e-4)
    assert first(LongPolicy(), BY_ARM, mask_truncated_completions=True).loss.mask_NT.sum(-1).tolist() == [1, 2, 3, 0]
    assert first(LongPolicy(), BY_ARM).loss.mask_NT.sum(-1).tolist() == [1, 2, 3, 4]


def test_where_all_are_truncated_and_masked_nothing_pulls() -> None:
    masked = {"max_completion_length": 1, "mask_truncated_completions": True}
    found = first(LongPolicy(), BY_ARM, **masked)
    assert found.row["update"] == 0  # a gradient of 0 would let the optimiser's momentum move the weights
    assert found.row["completions/truncated"] == 1.0
    assert first(LongPolicy(), BY_ARM, **masked, skip_without_signal=False).row["grad_norm"] == 0.0


LIKELY = [log(0.5), log(0.25), log(0.125), log(0.125)]  # against a uniform reference d = log 2, 0, -log 2, -log 2


def test_a_kl_in_the_reward_worked_by_hand() -> None:
    # Arm 0 earns 1. With beta 0.5 and k1 = d the rewards are 1 - 0.5 log 2, 0, 0.5 log 2, 0.5 log 2.
    task = PricedTask(lambda prompt, output: 1.0 if output == "0" else 0.0)
    found = first(weighed(*LIKELY), task, beta=0.5, kl_in="reward", kl_estimator="k1")
    shaped = [1 - 0.5 * log(2), 0.0, 0.5 * log(2), 0.5 * log(2)]
    assert found.advantages == [pytest.approx(reward - sum(shaped) / 4, abs=1e-6) for reward in shaped]
    # Reported is k3 = exp(-d) + d - 1: 0.5 + log 2 - 1, 0, and twice 2 - log 2 - 1.
    assert found.row["kl"] == pytest.approx(((0.5 + log(2) - 1) + 2 * (1 - log(2))) / 4, abs=1e-6)
    assert found.row["beta"] == 0.5
    assert found.row["loss"] == pytest.approx(found.row["policy/loss"])  # it is not in the loss, too


def test_a_kl_in_the_loss_leaves_the_rewards_alone() -> None:
    # k2 = d^2 / 2 on three of four tokens: beta times 3 (log 2)^2 / 8.
    found = first(weighed(*LIKELY), BY_ARM, beta=0.5)
    assert found.advantages == [-1.5, -0.5, 0.5, 1.5]
    assert found.row["loss"] - found.row["policy/loss"] == pytest.approx(0.5 * 3 * log(2) ** 2 / 8, abs=1e-6)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (2, [0.0, 0.0, -0.5, 0.5]),  # 2 and 3 about 2.5
        (3, [0.0, -1.0, 0.0, 1.0]),
        (9, [-1.5, -0.5, 0.5, 1.5]),
        ({"start": 4, "end": 2, "steps": 2}, [0.0, -1.0, 0.0, 1.0]),  # start is before step 1: there it is 3
    ],
)
def test_only_the_best_candidates_take_part(keep: object, expected: list[float]) -> None:
    found = first(ScriptedPolicy(), BY_ARM, keep_candidates=keep)
    assert found.advantages == [pytest.approx(value) for value in expected]
    assert found.row["reward/mean"] == 1.5  # of all that were sampled


def test_a_completion_of_credit_by_entropy() -> None:
    # Mean entropies H, H/2, H/3, H/4 (only the first factor is a choice). With A > 0, rows 2 and 3 share by H: 4/7
    # and 3/7; with A < 0, rows 0 and 1 by 1/H: 1/3 and 2/3. Half of the reward is weighted: 0.5 + 0.5 x 2 x share.
    found = first(LongPolicy(), BY_ARM, entropy_weighting="sequence")
    expected = [-1.5 * (0.5 + 1 / 3), -0.5 * (0.5 + 2 / 3), 0.5 * (0.5 + 4 / 7), 1.5 * (0.5 + 3 / 7)]
    assert found.loss.advantages.tolist() == [pytest.approx(value, rel=1e-5) for value in expected]
    by_token = first(LongPolicy(), BY_ARM, entropy_weighting="token").loss.advantages
    # The first factors are equally uncertain, the others equally certain: every weight is 1.
    assert by_token.tolist() == [[pytest.approx(value)] * 4 for value in (-1.5, -0.5, 0.5, 1.5)]


class OddSampler(ScriptedPolicy):
    """Draws from other numerics than it scores in: its recorded log-prob of arm 0 is log 2 too low."""

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        rollout = super().sample(prompts, k, how, keys)
        assert rollout.drawn_NT is not None
        low_N1 = (rollout.actions["ids"] == 0).unsqueeze(-1)
        return replace(rollout, drawn_NT=rollout.drawn_NT - log(2) * low_N1)


@pytest.mark.parametrize(("cap", "weight", "capped"), [(1.5, 1.5, 0.25), (2.5, 2.0, 0.0), (0.5, 0.5, 1.0)])
def test_importance_weights_and_their_cap(cap: float, weight: float, capped: float) -> None:
    # Arm 0's weight is exp(scored - recorded) = 2, the others' 1.
    found = first(OddSampler(), BY_ARM, importance_sampling_cap=cap, reduction="token_mean")
    others = min(1.0, cap)
    assert found.row["importance/weight_mean"] == pytest.approx((weight + 3 * others) / 4)
    assert found.row["importance/capped"] == pytest.approx(capped)
    assert found.loss.importance_NT.flatten().tolist() == [pytest.approx(v) for v in (weight, others, others, others)]
    # The surrogate's old log-probs are the scored ones: ratio 1, so the loss is minus the mean of weight x advantage.
    assert found.row["policy/ratio_max"] == pytest.approx(1.0)
    expected = -(weight * -1.5 + others * (-0.5 + 0.5 + 1.5)) / 4
    assert found.row["policy/loss"] == pytest.approx(expected, abs=1e-6)


def test_without_importance_weights_the_recorded_log_probs_are_the_old_ones() -> None:
    found = first(OddSampler(), BY_ARM)
    assert found.row["policy/ratio_max"] == pytest.approx(2.0)
    assert found.loss.importance_NT is None
    assert "importance/capped" not in found.row


REFILLED = {"prompts_per_step": 2, "dynamic_sampling": {"max_attempts": 9}, "max_steps": 2}
HALF = PricedTask(lambda prompt, output: float(output) if prompt == 1 else 0.0)  # three prompts of four are dead


def stopped_after_one(trainer: Trainer) -> Recorder:
    recorder = Recorder(stop_at=1)
    with pytest.raises(KeyboardInterrupt):
        drive(trainer.steps(), recorder)
    assert recorder.rows[-1]["groups/discarded"]
    return recorder


def test_importance_is_of_the_rows_that_are_learned_from() -> None:
    stage = grpo_stage(**REFILLED, importance_sampling_cap=1.5)
    row = stopped_after_one(trainer_of(OddSampler(), HALF, stage)).rows[-1]
    assert row["importance/weight_mean"] == pytest.approx((1.5 + 3) / 4)
    assert row["importance/capped"] == pytest.approx(0.25)


def test_running_statistics_are_of_the_shaped_rewards_that_are_learned_from() -> None:
    # Rewards 0 to 3 less beta d: d = log 2, 0, -log 2, -log 2. The mean is 1.5 + 0.5 x log 2 / 4.
    running = {"baseline": "running", "scale_rewards": "running", "running_decay": 0.75}
    stage = grpo_stage(**REFILLED, beta=0.5, kl_in="reward", kl_estimator="k1", advantage=running)
    trainer = trainer_of(weighed(*LIKELY), HALF, stage)
    stopped_after_one(trainer)
    carried = trainer.progress.carried
    assert carried["running.count"] == 1
    assert carried["running.weight"] == pytest.approx(0.25)
    assert carried["running.mean"] == pytest.approx(0.25 * (1.5 + 0.5 * log(2) / 4))


def test_a_running_baseline_is_that_of_the_steps_before() -> None:
    # Prompt n pays n more than the arm; one prompt a step. The first step takes its own mean and std; the second's
    # baseline is the first's mean, which its own rewards have not touched.
    task = PricedTask(lambda prompt, output: prompt + float(output))
    running = {"baseline": "running", "scale_rewards": "none"}
    stage = grpo_stage(max_steps=3, prompts_per_step=1, advantage=running, learning_rate=1e-9)
    recorder = Recorder()
    drive(trainer_of(ScriptedPolicy(), task, stage).steps(), recorder)
    steps = [[s for s in recorder.samples if s["step"] == step] for step in (1, 2, 3)]
    means = [sum(float(str(s["reward"])) for s in step) / 4 for step in steps]
    # decay 0.9: after two steps (0.09 m1 + 0.1 m2) / 0.19
    baselines = [means[0], means[0], (0.09 * means[0] + 0.1 * means[1]) / 0.19]
    for step, baseline in zip(steps, baselines, strict=True):
        assert [s["advantage"] for s in step] == [pytest.approx(float(str(s["reward"])) - baseline) for s in step]
    assert len(set(means)) == 3
    # what was subtracted is in the row, and what nothing was divided by is not
    first, *later = recorder.rows[1:]
    assert "reward/running_mean" not in first
    assert [row["reward/running_mean"] for row in later] == [pytest.approx(baseline) for baseline in baselines[1:]]
    assert not any("reward/running_std" in row for row in recorder.rows)


def test_a_running_scale_is_recorded_as_it_divides() -> None:
    task = PricedTask(lambda prompt, output: prompt + float(output))
    running = {"baseline": "group", "scale_rewards": "running", "eps": 1e-12}
    stage = grpo_stage(max_steps=2, prompts_per_step=1, advantage=running, learning_rate=1e-9)
    recorder = Recorder()
    drive(trainer_of(ScriptedPolicy(), task, stage).steps(), recorder)
    rewards, advantages = (
        [float(str(s[name])) for s in recorder.samples if s["step"] == 2] for name in ("reward", "advantage")
    )
    unit = (max(rewards) - min(rewards)) / (max(advantages) - min(advantages))
    assert recorder.rows[2]["reward/running_std"] == pytest.approx(unit)
    assert "reward/running_mean" not in recorder.rows[2]


def test_the_table_gives_the_loss_what_it_says() -> None:
    found = first(TabularPolicy(), BY_ARM, num_generations=8)
    assert isinstance(found.loss, GrpoLoss)
    assert found.loss.advantages.tolist() == found.advantages


@pytest.mark.parametrize("method", ["rloo", "reinforce_pp"])
def test_a_kl_of_rounding_is_no_signal(method: str) -> None:
    """At the first step policy and reference are one: only the sampler rounds otherwise, which whitening blows up."""
    task = PricedTask(lambda prompt, output: 1.0)
    policy = small_policy(lora_dropout=0.0)
    changes = {"method": method, "beta": 0.1, "max_steps": 1, "max_completion_length": 4}
    rows = ran(trainer_of(policy, task, grpo_stage(**changes))).rows[1:]
    assert [row["advantage/max_abs"] for row in rows] == [0.0]
    assert [row["update"] for row in rows] == [0]


def test_until_enough_rewards_were_seen_the_group_is_the_measure() -> None:
    # Prompt n pays n more than the arm; one prompt of 4 rows a step, running statistics after 8 rewards: two steps.
    task = PricedTask(lambda prompt, output: prompt + float(output))
    rule = {"baseline": "running", "scale_rewards": "none", "running_rule": "count", "running_after": 8}
    stage = grpo_stage(max_steps=3, prompts_per_step=1, advantage=rule, learning_rate=1e-9)
    recorder = ran(trainer_of(ScriptedPolicy(), task, stage))
    assert recorder.column("advantage/mean")[:2] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert ["reward/running_mean" in row for row in recorder.rows[1:]] == [False, False, True]
    rewards = [[float(str(s["reward"])) for s in recorder.samples if s["step"] == step] for step in (1, 2, 3)]
    means = [sum(of) / 4 for of in rewards]
    running = (0.09 * means[0] + 0.1 * means[1]) / 0.19  # 4 and 8 rewards so far: the bound of 0.1 twice
    assert recorder.rows[3]["reward/running_mean"] == pytest.approx(running)
    assert recorder.rows[3]["advantage/mean"] == pytest.approx(means[2] - running)
