"""A run that was killed and resumed records what an undisturbed one records, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from core.config import CheckpointSpec, GrpoStage, GuardSpec
from core.faults import RolloutInTrainMode
from core.policies.base import Policy
from core.training.callbacks import Checkpointing, CollapseGuard
from core.training.checkpoint import Checkpoints
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, small_policy, trainer_of, with_moving_reference

STEPS, SAVE, KILLED_AT = 12, 3, 7


def policy_of(kind: str) -> Policy:
    """A fresh policy, as a new process would build it."""
    match kind:
        case "table":
            return TabularPolicy()
        case "full":
            return small_policy()
        case "lora":
            return small_policy(lora_dropout=0.0)
        case "dropout":
            return small_policy(lora_dropout=0.3, checkpointing=True)
        case "moving-full" | "moving-lora":
            return with_moving_reference(small_policy(lora_dropout=0.0 if kind == "moving-lora" else None))
        case "fault":
            return RolloutInTrainMode(small_policy(lora_dropout=0.3))
    raise AssertionError(kind)


# What a text earns depends on all of it; three prompts of five pay the same for any. So some steps have no signal and
# skip their update.
TASK = PricedTask(lambda prompt, output: sum(map(ord, output)) % 7 / 6 if prompt in (1, 2) else 0.5, prompts=5)


def stage_of(kind: str) -> GrpoStage:
    return grpo_stage(
        max_steps=STEPS,
        num_generations=3,
        max_completion_length=6,
        learning_rate=0.05 if kind == "table" else 0.01,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        lr_clock="updates",
        temperature={"start": 1.0, "end": 0.5, "steps": 10},
        beta=0.02,
        weight_decay=0.1,
        gradient_accumulation_steps=2,
        advantage={"ddof": 0},
        sync_ref_model=kind.startswith("moving"),
        ref_model_sync_steps=4,  # the last move before the kill stands in the checkpoint, the next comes after it
    )


def trainer_in(folder: Path, kind: str) -> tuple[Trainer, Checkpoints]:
    trainer = trainer_of(policy_of(kind), TASK, stage_of(kind), evaluation={"eval_steps": 4})
    checkpoints = Checkpoints(folder, keep=2)
    trainer.callbacks = [Checkpointing(checkpoints, CheckpointSpec(save_steps=SAVE), trainer.snapshot, trainer.over)]
    return trainer, checkpoints


def lines(records: list[dict[str, object]] | list[dict[str, float | None]]) -> list[str]:
    return [json.dumps(record) for record in records]


@pytest.mark.parametrize("kind", ["table", "full", "lora", "dropout", "fault", "moving-full", "moving-lora"])
def test_rows_and_samples_are_those_of_an_undisturbed_run(kind: str, tmp_path: Path) -> None:
    undisturbed = Recorder()
    first, _ = trainer_in(tmp_path / "undisturbed", kind)
    drive(first.steps(), undisturbed)
    assert 0 < first.progress.updates < STEPS  # updates were skipped too

    killed = Recorder(stop_at=KILLED_AT)
    with pytest.raises(KeyboardInterrupt):
        drive(trainer_in(tmp_path / "run", kind)[0].steps(), killed)
    assert killed.rows[-1]["step"] == KILLED_AT

    torch.manual_seed(99)  # another process, another state of the global generator
    resumed, checkpoints = trainer_in(tmp_path / "run", kind)
    snapshot, refused = checkpoints.newest_sound()
    assert snapshot is not None
    assert (snapshot.progress.step, refused) == (KILLED_AT // SAVE * SAVE, [])
    kept = Recorder()
    kept.rows = [row for row in killed.rows if (row["step"] or 0) <= snapshot.progress.step]
    kept.samples = [s for s in killed.samples if int(str(s["step"])) <= snapshot.progress.step]
    resumed.restore(snapshot, kept.rows)
    drive(resumed.steps(), kept)

    assert lines(kept.rows) == lines(undisturbed.rows)
    assert lines(kept.samples) == lines(undisturbed.samples)
    assert resumed.progress == first.progress
    assert resumed.table == first.table
    weights = first.policy.state()
    assert all(torch.equal(value, weights[name]) for name, value in resumed.policy.state().items())
    assert Checkpoints(tmp_path / "run", keep=2).steps() == Checkpoints(tmp_path / "undisturbed", keep=2).steps()


def test_a_run_that_was_over_at_its_last_checkpoint_is_over_when_resumed(tmp_path: Path) -> None:
    task = PricedTask(lambda prompt, output: 0.5, valid=lambda output: False)

    def trainer() -> tuple[Trainer, Checkpoints]:
        trainer, checkpoints = trainer_of(TabularPolicy(), task, stage_of("table")), Checkpoints(tmp_path, keep=2)
        saving = Checkpointing(checkpoints, CheckpointSpec(save_steps=SAVE), trainer.snapshot, trainer.over)
        trainer.callbacks = [CollapseGuard(GuardSpec(patience=2 * SAVE, min_length=None)), saving]
        return trainer, checkpoints

    first, _ = trainer()
    ending = drive(first.steps(), Recorder())
    assert (ending.status, first.progress.step) == ("COLLAPSED", 2 * SAVE)
    resumed, checkpoints = trainer()
    snapshot, _ = checkpoints.newest_sound()
    assert snapshot is not None
    resumed.restore(snapshot, first.table)
    nothing = Recorder()
    assert drive(resumed.steps(), nothing) == ending
    assert nothing.rows == []


def test_resumed_before_the_first_checkpoint_it_starts_over(tmp_path: Path) -> None:
    undisturbed, killed, again = Recorder(), Recorder(stop_at=2), Recorder()
    drive(trainer_in(tmp_path / "undisturbed", "table")[0].steps(), undisturbed)
    with pytest.raises(KeyboardInterrupt):
        drive(trainer_in(tmp_path / "run", "table")[0].steps(), killed)
    resumed, checkpoints = trainer_in(tmp_path / "run", "table")
    assert checkpoints.newest_sound() == (None, [])
    drive(resumed.steps(), again)
    assert lines(again.rows) == lines(undisturbed.rows)
    assert lines(again.samples) == lines(undisturbed.samples)
