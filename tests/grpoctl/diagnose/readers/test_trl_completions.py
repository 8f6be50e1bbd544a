"""Completions that TRL keeps as parquet, as samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpoctl.diagnose.readers.trl_completions import inferred_group_size, read_completions

REWARDS = {"rewards/right/mean", "reward"}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A folder with two steps of two groups of two."""
    for step in (1, 2):
        kept(tmp_path, step)
    return tmp_path


def kept(folder: Path, step: int, **more: list[Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    (folder / "completions").mkdir(exist_ok=True)
    table: dict[str, list[Any]] = {
        "step": [step] * 4,
        "prompt": ["1+1=", "1+1=", "2+2=", "2+2="],
        "completion": ["2", "3", "4", "4"],
        "right": [1.0, 0.0, 1.0, 1.0],
        "advantage": [0.7, -0.7, 0.0, 0.0],
        **more,
    }
    pyarrow.parquet.write_table(pyarrow.table(table), folder / "completions" / f"completions_{step:05d}.parquet")


def test_rows_become_samples(output: Path) -> None:
    samples, notes = read_completions(output, REWARDS)
    assert notes == []
    assert [sample.step for sample in samples] == [1] * 4 + [2] * 4
    one = samples[1]
    assert (one.row, one.group, one.text, one.reward, one.advantage, one.valid) == (1, "1+1=", "3", 0.0, -0.7, None)
    assert inferred_group_size(samples) == {"num_generations": 2}


def test_no_folder_is_no_samples(tmp_path: Path) -> None:
    assert read_completions(tmp_path, REWARDS) == ((), [])
    assert inferred_group_size(()) == {}


def test_a_conversation_is_its_last_message_and_a_long_prompt_has_a_short_name(tmp_path: Path) -> None:
    turn = [{"role": "user", "content": "Add. " * 40}]
    answer = [{"role": "assistant", "content": "2"}]
    kept(tmp_path, 1, prompt=[turn] * 4, completion=[answer] * 4)
    samples, _ = read_completions(tmp_path, REWARDS)
    assert {sample.text for sample in samples} == {"2"}
    (name,) = {sample.group for sample in samples}
    assert name is not None
    assert len(name) <= 81


def test_of_two_rewards_none_is_the_reward(tmp_path: Path) -> None:
    kept(tmp_path, 1, short=[1.0] * 4)
    samples, _ = read_completions(tmp_path, {*REWARDS, "rewards/short/mean"})
    assert {sample.reward for sample in samples} == {None}
    samples, _ = read_completions(tmp_path, REWARDS)  # `short` is then a column the user logged
    assert [sample.reward for sample in samples] == [1.0, 0.0, 1.0, 1.0]


def test_a_damaged_file_is_told_and_the_others_are_read(output: Path) -> None:
    (output / "completions" / "completions_00002.parquet").write_bytes(b"PAR1 no more")
    samples, notes = read_completions(output, REWARDS)
    assert len(samples) == 4
    assert notes == ["1 of 2 files of completions could not be read"]
