"""A step that blends a supervised part in: the part does not depend on whether any group taught something."""

from __future__ import annotations

import pytest

from core.training.trainer import drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, trainer_of


def rows_of_run(policy: TabularPolicy, *, price: float | None, **changes: object) -> list[dict[str, float | None]]:
    """Three steps; every output is paid `price`, or its own number. The supervised answer is arm 0."""
    task = PricedTask(lambda _, output: float(output) if price is None else price)
    recorder = Recorder()
    drive(trainer_of(policy, task, grpo_stage(max_steps=3, **changes)).steps(), recorder)
    return recorder.rows[1:]


@pytest.mark.parametrize("dynamic", [None, {"max_attempts": 2}])
def test_without_a_live_group_the_supervised_part_still_teaches(dynamic: object) -> None:
    policy = TabularPolicy()
    rows = rows_of_run(policy, price=1.0, supervised_weight=1.0, dynamic_sampling=dynamic, beta=0.1)
    assert [row["update"] for row in rows] == [1, 1, 1]
    assert all("supervised/loss" in row and "policy/loss" not in row for row in rows)
    assert policy.chance(0) > 0.27  # from a quarter


def test_without_a_live_group_and_without_supervision_nothing_is_learned() -> None:
    policy = TabularPolicy()
    rows = rows_of_run(policy, price=1.0)
    assert [row["update"] for row in rows] == [0, 0, 0]
    assert policy.chance(0) == pytest.approx(0.25)


def test_with_live_groups_both_parts_pull() -> None:
    rows = rows_of_run(TabularPolicy(), price=None, supervised_weight=0.5)
    assert all({"supervised/loss", "policy/loss"} <= row.keys() for row in rows if row["update"])
    shares = [row for row in rows if "grad_share/supervised" in row]
    assert shares
    assert all(0 < float(row["grad_share/supervised"] or 0) < 1 for row in shares)
    assert [row["loss"] for row in rows] == pytest.approx(
        [float(row["policy/loss"] or 0) + 0.5 * float(row["supervised/loss"] or 0) for row in rows]
    )


def test_several_updates_of_one_rollout_see_the_same_answers() -> None:
    """With a learning rate of next to nothing the supervised loss of each update is that of the first."""
    one = rows_of_run(TabularPolicy(), price=None, supervised_weight=0.5, learning_rate=1e-12)
    two = rows_of_run(TabularPolicy(), price=None, supervised_weight=0.5, learning_rate=1e-12, num_iterations=2)
    assert [row["supervised/loss"] for row in two] == pytest.approx([row["supervised/loss"] for row in one])
