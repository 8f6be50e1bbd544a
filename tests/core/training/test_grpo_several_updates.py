"""Several optimiser steps on one rollout: which rows each learns from, and how far the policy has moved by then."""

from __future__ import annotations

from typing import Any

import pytest

from core.randomness import DROPOUT
from core.training.grpo import averaged
from core.training.requests import Learn
from tests.fakes import PricedTask, ScriptedPolicy, TabularPolicy, asked, grpo_stage, ran, trainer_of

TASK = PricedTask(lambda prompt, output: float(output))
K = 4


def learned(trainer: Any) -> list[tuple[Learn, dict[str, float]]]:
    """The updates of a run, in order, each with its metrics."""
    return [(request, answer) for request, answer in asked(trainer) if isinstance(request, Learn)]


def stage_of(**changes: object) -> Any:
    return grpo_stage(**{"prompts_per_step": 3, "num_generations": K, "max_steps": 3, "learning_rate": 0.3, **changes})


@pytest.mark.parametrize(("iterations", "minibatches"), [(1, 1), (3, 1), (1, 3), (2, 2), (2, 3)])
def test_minibatches_are_whole_groups_and_every_iteration_learns_from_each_once(
    iterations: int, minibatches: int
) -> None:
    stage = stage_of(num_iterations=iterations, minibatches=minibatches)
    found = learned(trainer_of(ScriptedPolicy(), TASK, stage, seed=5))
    per_step = iterations * minibatches
    assert [request.key for request, _ in found] == [
        (5, DROPOUT, step, 0, index) for step in (1, 2, 3) for index in range(per_step)
    ]
    for start in range(0, len(found), minibatches):
        parts = [list(request.batches[0].rows) for request, _ in found[start : start + minibatches]]
        assert sorted(row for part in parts for row in part) == list(range(3 * K))
        for (request, _), part in zip(found[start : start + minibatches], parts, strict=True):
            assert len(part) % K == 0
            assert {row // K for row in part for _ in "x"} == {row // K for row in part[::K]}
            assert list(request.batches[0].loss.rows) == part  # type: ignore[attr-defined]
        assert max(map(len, parts)) - min(map(len, parts)) in (0, K)


def test_with_fewer_groups_than_minibatches_each_is_still_learned_from_once() -> None:
    # Prompt 1 alone has a signal, and it does not reach 3 groups: one minibatch is all there is.
    task = PricedTask(lambda prompt, output: float(output) if prompt == 1 else 0.0)
    stage = stage_of(minibatches=3, num_iterations=2, dynamic_sampling={"max_attempts": 2}, max_steps=4)
    found = learned(trainer_of(ScriptedPolicy(), task, stage))
    steps: dict[int, list[int]] = {}
    for request, _ in found:
        steps.setdefault(request.key.step, []).extend(request.batches[0].rows)
    assert steps
    for rows in steps.values():
        assert all(rows.count(row) == 2 for row in rows)  # once in each of two iterations


def test_the_first_update_of_a_rollout_is_at_ratio_1_and_the_later_ones_are_not() -> None:
    found = learned(trainer_of(TabularPolicy(), TASK, stage_of(num_iterations=3, num_generations=16)))
    ratios = [metrics["policy/ratio_max"] for _, metrics in found]
    assert len(ratios) == 9
    assert ratios[::3] == [pytest.approx(1.0, abs=1e-6)] * 3
    assert all(ratio > 1.05 for index, ratio in enumerate(ratios) if index % 3)


def test_ratios_beyond_the_bounds_are_counted_and_a_step_reports_the_mean() -> None:
    trainer = trainer_of(ScriptedPolicy(), TASK, stage_of(num_iterations=3, max_steps=1))
    found = [metrics for _, metrics in learned(trainer)]
    for name in ("policy/clip_low", "policy/clip_high"):
        values = [metrics[name] for metrics in found]
        assert values[0] == 0.0
        assert values[1] > 0.0
    # Arm 3 is pushed up and arm 0 down beyond their bounds after one step of 0.3: a quarter of the tokens each; arm 2
    # (up) and arm 1 (down) move with them, so after one step it is half of them each way at most.
    assert 0.25 <= found[1]["policy/clip_high"] <= 0.5
    row = ran(trainer_of(ScriptedPolicy(), TASK, stage_of(num_iterations=3, max_steps=1))).rows[-1]
    assert row["policy/clip_high"] == pytest.approx(sum(metrics["policy/clip_high"] for metrics in found) / 3)
    assert row["policy/ratio_max"] == max(metrics["policy/ratio_max"] for metrics in found)
    assert row["update"] == 1


def test_a_clipped_token_no_longer_pulls() -> None:
    # Two arms, always one of each: after a step of 0.3 both ratios are beyond 0.2, so the second update does not pull.
    stage = stage_of(num_iterations=2, max_steps=1, num_generations=2)
    found = learned(trainer_of(ScriptedPolicy(2), PricedTask(lambda p, o: float(o)), stage))
    assert found[0][1]["grad_norm"] > 0.1
    assert found[1][1]["policy/clip_low"] == found[1][1]["policy/clip_high"] == pytest.approx(0.5)
    assert found[1][1]["grad_norm"] == pytest.approx(0.0, abs=1e-7)


def test_a_step_with_several_updates_is_one_on_the_clock_of_updates() -> None:
    trainer = trainer_of(ScriptedPolicy(), TASK, stage_of(num_iterations=2, minibatches=3))
    ran(trainer)
    assert (trainer.progress.updates, trainer.progress.step) == (3, 3)
    assert float(trainer.update.state()["logits.step"]) == 18  # the optimiser's own count


def test_averages_are_of_the_updates_that_have_the_metric() -> None:
    rows = [
        {"loss": 1.0, "update": 0.0, "policy/ratio_max": 2.0, "grad_share/kl": 0.5},
        {"loss": 3.0, "update": 1.0, "policy/ratio_max": 1.0},
    ]
    assert averaged(rows) == {"loss": 2.0, "update": 1.0, "policy/ratio_max": 2.0, "grad_share/kl": 0.5}


def test_a_minibatch_without_signal_moves_nothing() -> None:
    """Its gradient is 0, but Adam's momentum of the minibatch before it would move the weights."""
    task = PricedTask(lambda problem, output: float(output) * (problem % 2))  # every second group is dead
    policy = TabularPolicy()
    changes = {"max_steps": 1, "prompts_per_step": 4, "minibatches": 4}
    learned = [
        request for request, _ in asked(trainer_of(policy, task, grpo_stage(**changes))) if isinstance(request, Learn)
    ]
    assert len(learned) == 2
    policy = TabularPolicy()
    trainer = trainer_of(policy, task, grpo_stage(**changes, skip_without_signal=False))
    assert len([request for request, _ in asked(trainer) if isinstance(request, Learn)]) == 4
