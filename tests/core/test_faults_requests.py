"""Faults between a trainer and what it asks for, and the counts and shares that make them visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config import CheckpointSpec
from core.faults import FaultyTrainer
from core.policies.base import Policy
from core.training.callbacks import Checkpointing
from core.training.checkpoint import Checkpoints
from core.training.trainer import Parts, Trainer, drive
from tests.fakes import LongPolicy, PricedTask, Recorder, ScriptedPolicy, TabularPolicy, grpo_stage, ran, run_spec

STAGE = grpo_stage(max_steps=2, num_generations=2, prompts_per_step=2, advantage={"scale_rewards": "none"})
# Groups are arms 0 and 1; a prompt of an even number pays 1 for arm 1, an odd one 0.4.
TASK = PricedTask(lambda problem, output: (1.0 if problem % 2 == 0 else 0.4) * int(output))


def trainer(policy: Policy, *faults: str, task: PricedTask = TASK, **stage: object) -> Trainer:
    spec = run_spec(STAGE.model_copy(update=stage), evaluation={"eval_steps": 2})
    parts = Parts(spec=spec, policy=policy, task=task)
    return FaultyTrainer(parts, faults) if faults else Trainer(parts)


def samples(*faults: str) -> list[dict[str, object]]:
    return [one for one in ran(trainer(ScriptedPolicy(), *faults)).samples if one["step"] == 1]


def test_interleaved_rows_are_compared_with_another_prompts() -> None:
    sound, mixed = samples(), samples("wrong-group-order")
    first, second = sound[0]["prompt_id"], sound[2]["prompt_id"]
    assert [one["prompt_id"] for one in sound] == [first, first, second, second]
    assert [one["prompt_id"] for one in mixed] == [first, second, first, second]
    assert [one["text"] for one in mixed] == ["0", "0", "1", "1"]
    # Neighbours now both drew arm 0, or both drew arm 1: 0 and 0, then 1 and 0.4 in some order (mean 0.7).
    assert [one["advantage"] for one in mixed][:2] == [0.0, 0.0]
    assert sorted(float(str(one["advantage"])) for one in mixed[2:]) == pytest.approx([-0.3, 0.3])
    assert sorted(abs(float(str(one["advantage"]))) for one in sound) == pytest.approx([0.2, 0.2, 0.5, 0.5])


def test_a_flipped_sign_leaves_the_samples_rewards_and_turns_their_advantages() -> None:
    sound, flipped = samples(), samples("reward-sign-flipped")
    assert [one["reward"] for one in flipped] == [one["reward"] for one in sound]
    assert [one["advantage"] for one in flipped] == [-float(str(one["advantage"])) for one in sound]
    policy, other = TabularPolicy(), TabularPolicy()
    rewards = ran(trainer(policy, "reward-sign-flipped", max_steps=8)).column("reward/mean")
    ran(trainer(other, max_steps=8))
    assert all(value is not None and value <= 0 for value in rewards)
    assert policy.chance(0) > 0.25 > other.chance(0)  # arm 0 pays nothing


def test_tokens_that_the_loss_counts_are_those_that_were_drawn_unless_its_mask_is_off() -> None:
    # Arm a is a + 1 tokens long: two groups of arms 0 and 1 are 2 * (1 + 2) tokens; without the last of each row, 2.
    sound = ran(trainer(LongPolicy()))
    assert sound.column("policy/tokens") == sound.column("policy/tokens_drawn") == [6.0, 6.0]
    off = ran(trainer(LongPolicy(), "completion-mask-off-by-one"))
    assert (off.column("policy/tokens"), off.column("policy/tokens_drawn")) == ([2.0, 2.0], [6.0, 6.0])


def test_truncated_completions_that_a_stage_leaves_out_are_no_missing_tokens() -> None:
    rows = ran(trainer(LongPolicy(), mask_truncated_completions=True, max_completion_length=2, num_generations=3))
    # Arm 0 is 1 token, arms 1 and 2 are cut off at 2: two groups, one token each.
    assert rows.column("policy/tokens") == rows.column("policy/tokens_drawn") == [2.0, 2.0]


def test_the_share_of_prompts_that_evaluation_asks_too() -> None:
    # The fake's problems have one text for each number in every split: all of training's are evaluation's, by text.
    assert ran(trainer(ScriptedPolicy())).column("groups/held_out") == [1.0, 1.0]


@pytest.mark.parametrize("fault", ["wrong-group-order", "reward-sign-flipped", "completion-mask-off-by-one"])
def test_a_resumed_run_suffers_the_same(fault: str, tmp_path: Path) -> None:
    def fresh(folder: Path) -> tuple[Trainer, Checkpoints]:
        own = trainer(LongPolicy(), fault, max_steps=6)
        checkpoints = Checkpoints(folder, keep=2)
        own.callbacks = [Checkpointing(checkpoints, CheckpointSpec(save_steps=2), own.snapshot, own.over)]
        return own, checkpoints

    whole, killed, resumed = Recorder(), Recorder(stop_at=3), Recorder()
    drive(fresh(tmp_path / "a")[0].steps(), whole)
    with pytest.raises(KeyboardInterrupt):
        drive(fresh(tmp_path / "b")[0].steps(), killed)
    again, checkpoints = fresh(tmp_path / "b")
    snapshot, _ = checkpoints.newest_sound()
    assert snapshot is not None
    again.restore(snapshot, killed.rows[: snapshot.progress.step + 1])
    drive(again.steps(), resumed)
    assert [*killed.rows[: snapshot.progress.step + 1], *resumed.rows] == whole.rows


def learned(policy: Policy, *faults: str, **stage: object) -> Recorder:
    return ran(trainer(policy, *faults, task=PricedTask(lambda _, output: float(int(output))), **stage))


def test_a_gradient_clipped_before_it_is_there_is_learned_from_as_long_as_it_is() -> None:
    sound, early = (learned(ScriptedPolicy(), *faults) for faults in ((), ("clip-before-backward",)))
    assert all(value is not None and value > 0 for value in sound.column("grad_norm"))
    assert early.column("grad_norm") == [0.0, 0.0]
    assert early.column("loss")[0] == sound.column("loss")[0]  # the first step's, before anything is learned
    assert {name for row in early.rows for name in row if name.startswith("grad_share/")} == {"grad_share/policy"}


def test_old_log_probs_that_are_the_new_ones_keep_the_ratio_at_1() -> None:
    sound, frozen = (
        learned(ScriptedPolicy(), *faults, num_iterations=3, learning_rate=0.1)
        for faults in ((), ("frozen-log-probs",))
    )
    assert all(value is not None and value > 1.001 for value in sound.column("policy/ratio_max"))
    assert frozen.column("policy/ratio_max") == [1.0, 1.0]
    both = learned(ScriptedPolicy(), "completion-mask-off-by-one", "frozen-log-probs", num_iterations=3)
    assert both.column("policy/tokens") == [0.0, 0.0]
