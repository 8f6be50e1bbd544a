"""Checkpoints: exact, complete or not there, refused by name where damaged, and no more of them than asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.config import CheckpointSpec
from core.errors import CheckpointError, StorageError
from core.training.callbacks import Checkpointing
from core.training.checkpoint import Checkpoints, Progress, Snapshot
from core.training.trainer import drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, trainer_of

FILES = ["weights.safetensors", "optimizer.safetensors", "state.json"]


def snapshot(step: int, best: int | None = None) -> Snapshot:
    generator = torch.Generator().manual_seed(step)
    weights = {
        "layer.lora_A.weight": torch.randn(3, 4, generator=generator),
        "half": torch.randn(5, generator=generator).bfloat16(),
        "flag": torch.tensor(True),
    }
    moments = {"half.exp_avg": torch.randn(5, generator=generator), "half.step": torch.tensor(float(step))}
    progress = Progress(step=step, updates=step - 1, completions=16 * step, best_step=best, best_value=0.5)
    return Snapshot(progress=progress, weights=weights, optimizer=moments)


def same(one: Snapshot, other: Snapshot) -> bool:
    def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
        return left.keys() == right.keys() and all(
            left[name].dtype is right[name].dtype and torch.equal(left[name], right[name]) for name in left
        )

    return (
        one.progress == other.progress
        and equal(dict(one.weights), dict(other.weights))
        and equal(dict(one.optimizer), dict(other.optimizer))
    )


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", keep=2)


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


CARRIED = {"running.count": 3, "running.mean": 0.1, "beta": 1 / 3}


@pytest.mark.parametrize(
    "progress",
    [
        Progress(),
        Progress(step=7, updates=3, completions=112, best_step=5, best_value=1 / 3),
        Progress(step=7, stage=2, stage_step=4, stage_updates=3, prompts=19, carried=CARRIED),
    ],
)
def test_what_goes_in_comes_out(checkpoints: Checkpoints, progress: Progress) -> None:
    saved = replace(snapshot(7), progress=progress)
    assert checkpoints.save(saved) == checkpoints.path(progress.step)
    assert same(checkpoints.load(progress.step), saved)
    assert names(checkpoints) == [f"step-{progress.step:06d}"]
    assert sorted(path.name for path in checkpoints.path(progress.step).iterdir()) == sorted(FILES)


def test_before_the_first_update_the_optimiser_is_empty(checkpoints: Checkpoints) -> None:
    saved = replace(snapshot(1), optimizer={})
    checkpoints.save(saved)
    assert same(checkpoints.load(1), saved)


def test_a_step_saved_again_replaces_the_first(checkpoints: Checkpoints) -> None:
    checkpoints.save(snapshot(3))
    other = replace(snapshot(4), progress=snapshot(3).progress)
    checkpoints.save(other)
    assert same(checkpoints.load(3), other)


@pytest.mark.parametrize(
    ("saved", "kept"),
    [
        # (step, the best step so far): the last two stay, and the best.
        ([(3, None), (6, None), (9, None)], [6, 9]),
        ([(3, 3), (6, 3), (9, 3), (12, 3)], [3, 9, 12]),
        ([(3, 3), (6, 6), (9, 6)], [6, 9]),
        ([(3, 3), (6, 3), (9, 9), (12, 9), (15, 9)], [9, 12, 15]),
        ([(3, 0), (6, 0), (9, 0)], [6, 9]),  # the best is the start, which has no checkpoint
    ],
)
def test_retention(checkpoints: Checkpoints, saved: list[tuple[int, int | None]], kept: list[int]) -> None:
    for step, best in saved:
        checkpoints.save(snapshot(step, best))
    assert checkpoints.steps() == kept
    for step in kept:
        checkpoints.load(step)


def test_more_are_kept_where_asked(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=4)
    for step in range(1, 7):
        checkpoints.save(snapshot(step, best=1))
    assert checkpoints.steps() == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere_is_refused_by_name(checkpoints: Checkpoints, name: str) -> None:
    folder = checkpoints.save(snapshot(6, best=6))
    content = (folder / name).read_bytes()
    for place in range(0, len(content), 1 if name == "state.json" else 7):
        flipped = bytes([content[place] ^ 1])
        (folder / name).write_bytes(content[:place] + flipped + content[place + 1 :])
        with pytest.raises(CheckpointError, match=str(folder)) as caught:
            checkpoints.load(6)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("length", [0, 1, -1])
def test_a_truncated_file_is_refused_by_name(checkpoints: Checkpoints, name: str, length: int) -> None:
    folder = checkpoints.save(snapshot(6))
    path = folder / name
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=str(folder)):
        checkpoints.load(6)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused_by_name(checkpoints: Checkpoints, name: str) -> None:
    folder = checkpoints.save(snapshot(6))
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{folder} is damaged: No such file"):
        checkpoints.load(6)
    with pytest.raises(CheckpointError, match="step-000099"):
        checkpoints.load(99)


@pytest.mark.parametrize(
    "content", ["", "{", "null", "[]", "7", '"version"', "{}", '{"version": 1}', '{"version": 1, "sha256": {}}']
)
def test_a_state_that_is_none_is_refused_by_name(checkpoints: Checkpoints, content: str) -> None:
    folder = checkpoints.save(snapshot(6))
    (folder / "state.json").write_text(content)
    with pytest.raises(CheckpointError, match=str(folder)):
        checkpoints.load(6)


def test_files_without_a_checksum_are_refused(checkpoints: Checkpoints) -> None:
    folder = checkpoints.save(snapshot(6))
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"sha256": {}}))
    with pytest.raises(CheckpointError, match=str(folder)):
        checkpoints.load(6)


@pytest.mark.parametrize("version", [1, 99, None])  # 1 knew of one stage only
def test_another_version_is_refused_by_name(checkpoints: Checkpoints, version: int | None) -> None:
    folder = checkpoints.save(snapshot(6))
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"version": version}))
    with pytest.raises(CheckpointError, match=rf"{folder} has version {version}, this grpoctl reads \d"):
        checkpoints.load(6)


def test_the_newest_sound_one_is_found_and_the_others_are_named(checkpoints: Checkpoints) -> None:
    assert checkpoints.newest_sound() == (None, [])
    for step in (3, 6, 9):
        checkpoints.save(snapshot(step, best=3))
    newest, refused = checkpoints.newest_sound()
    assert newest is not None
    assert (newest.progress.step, refused) == (9, [])
    (checkpoints.path(9) / "weights.safetensors").write_bytes(b"damaged")
    newest, refused = checkpoints.newest_sound()
    assert newest is not None
    assert same(newest, snapshot(6, best=3))
    assert len(refused) == 1
    assert str(checkpoints.path(9)) in refused[0]
    for step in (3, 6):
        (checkpoints.path(step) / "state.json").unlink()
    newest, refused = checkpoints.newest_sound()
    assert newest is None
    assert [str(checkpoints.path(step)) in line for step, line in zip((9, 6, 3), refused, strict=True)] == [True] * 3


def test_what_a_killed_writer_left_is_ignored_and_dropped(checkpoints: Checkpoints) -> None:
    checkpoints.save(snapshot(6))
    half = checkpoints.folder / "writing-step-000009"
    half.mkdir()
    (half / "weights.safetensors").write_bytes(b"half of")
    assert checkpoints.steps() == [6]
    newest, refused = checkpoints.newest_sound()
    assert newest is not None
    assert (newest.progress.step, refused) == (6, [])
    checkpoints.drop_after(6)
    assert names(checkpoints) == ["step-000006"]
    half.mkdir()
    (half / "stray").write_bytes(b"")
    checkpoints.save(snapshot(9))  # or it is written over
    assert names(checkpoints) == ["step-000006", "step-000009"]
    assert same(checkpoints.load(9), snapshot(9))


def test_resuming_drops_what_is_newer(checkpoints: Checkpoints) -> None:
    for step in (3, 6, 9):
        checkpoints.save(snapshot(step, best=3))
    checkpoints.drop_after(6)
    assert checkpoints.steps() == [3, 6]


def test_other_files_in_the_folder_are_let_alone(checkpoints: Checkpoints) -> None:
    checkpoints.save(snapshot(6))
    (checkpoints.folder / "step-notes").mkdir()
    (checkpoints.folder / "README").write_text("mine")
    assert checkpoints.steps() == [6]
    checkpoints.drop_after(0)
    assert names(checkpoints) == ["README", "step-notes"]


def test_a_disk_that_refuses_is_told_in_one_line_and_the_old_checkpoint_stays(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match=r"cannot write checkpoint .*step-000003.*--resume"):
        Checkpoints(tmp_path / "checkpoints", keep=2).save(snapshot(3))


@pytest.mark.parametrize(
    ("save_steps", "eval_steps", "kept"),
    [
        # keep=99: every checkpoint that was written. Every 4 steps, at the last (10), and at every best evaluation.
        (4, 10, {4, 8, 10}),
        (99, 10, {10}),
        (4, 3, {4, 8, 10}),
    ],
)
def test_when_checkpoints_are_written(tmp_path: Path, save_steps: int, eval_steps: int, kept: set[int]) -> None:
    task = PricedTask(lambda prompt, output: 1.0 if output == "2" else 0.0)
    stage = grpo_stage(num_generations=8, learning_rate=0.5)
    trainer = trainer_of(TabularPolicy(), task, stage, evaluation={"eval_steps": eval_steps})
    checkpoints = Checkpoints(tmp_path, keep=99)
    spec = CheckpointSpec(save_steps=save_steps)
    trainer.callbacks = [Checkpointing(checkpoints, spec, trainer.snapshot, trainer.over)]
    recorder = Recorder()
    drive(trainer.steps(), recorder)
    best: set[int] = set()
    value = -1.0
    for row in recorder.rows:
        if (reward := row.get("eval/reward")) is not None and reward > value:
            best, value = best | {int(row["step"] or 0)}, reward
    assert set(checkpoints.steps()) == kept | best - {0}
    assert eval_steps == 10 or best - kept - {0}  # it got better at steps that had no other reason
    assert checkpoints.load(10).progress == trainer.progress
