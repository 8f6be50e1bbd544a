"""Logs that begin again: which rows are one run's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpoctl.diagnose.readers.attempts import one_attempt
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.registry import open_source


@pytest.mark.parametrize(
    ("places", "kept"),
    [
        ([1, 2, 3, 4], [0, 1, 2, 3]),
        ([1, 2, 3, 1, 2, 3, 4], [3, 4, 5, 6]),  # begun again
        ([1, 2, 3, 4, 5, 3, 4, 5, 6], [0, 1, 5, 6, 7, 8]),  # resumed behind step 2
        ([1, 2, 3, 4, 5, 3, 3.5, 4], [0, 1, 5, 6, 7]),  # resumed, and not as far as before
        ([1, 2, 3, 1, 2, 3, 1, 2, 3], [6, 7, 8]),  # twice
        ([1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6], [0, 1, 2, 9, 10, 11]),  # resumed twice
        ([1, 2, 3] * 5, [*range(15)]),  # a count of something else
        ([*range(1, 201)] * 9, [*range(1600, 1800)]),
        ([2, 1, 4, 3, 6, 5, 8, 7], [0, 1, 2, 3, 4, 5, 6, 7]),  # of processes that lag
        ([9, 9, 1, 1, 1, 9], [0, 1, 2, 3, 4, 5]),  # three rows at one place are no course
        ([*range(1, 11), 5, 3, 6, 4, 7], [*range(15)]),  # in no order
        ([8, 7, 6, 5, 4], [0, 1, 2, 3, 4]),  # from the end to the beginning
        ([*range(1, 13), 1, 2, 3], [*range(12)]),  # the newest has hardly begun
        ([*range(1, 12), 1, 2, 3], [11, 12, 13]),
        ([1, 2, 3, 2, 3], [0, 1, 2, 3, 4]),  # two rows are no attempt
        ([], []),
    ],
)
def test_one_attempt(places: list[float], kept: list[int]) -> None:
    found, notes = one_attempt(places, float)
    assert found == kept
    assert bool(notes) == (len(kept) < len(places))


def test_the_note_says_what_is_left_out() -> None:
    _, (note,) = one_attempt([1, 2, 3, 1, 2, 3, 1, 2, 3], float, "epoch")
    assert note == (
        "the log goes back behind epoch 3, epoch 3 (begun again, or resumed): of 3 attempts the newest one is judged, "
        "6 rows are left out; to judge another one, give it as a file of its own"
    )
    _, (note,) = one_attempt([*range(1, 13), 1, 2, 3], float)
    assert "step 12" in note
    assert "of 2 attempts the longest one is judged, 3 rows" in note


def test_the_same_again_is_no_attempt() -> None:
    # what two processes print five steps at a time: each row twice, but for rounding of one of them
    places = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8]
    rewards = [0.1, 0.2, 0.3, 0.4, 0.5, 0.1, 0.2, 0.3, 0.4, 0.51, 0.6, 0.7, 0.8, 0.6, 0.7, 0.8]
    assert one_attempt(places, rewards.__getitem__) == ([*range(16)], [])
    assert one_attempt([1, 2, 3, 1, 2, 3], lambda _: 0.0)[0] == [3, 4, 5]  # 0 is anybody's
    assert one_attempt([1, 2, 3, 1, 2, 3], lambda _: None)[0] == [3, 4, 5]


def read(file: Path, text: str) -> Reading:
    file.write_text(text)
    return open_source(Source(name=str(file), path=file))


TWICE = [(step, 0.1 * step) for step in range(1, 7)] + [(step, 0.05 + 0.01 * step) for step in range(1, 5)]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("verl.log", ["step:{step} - critic/rewards/mean:{reward:.3f} - actor/grad_norm:0.{step}"]),
        ("trl.log", ["{{'loss': 0.0, 'reward': {reward:.3f}, 'epoch': {epoch}}}"]),
        ("bars.log", ["{percent}%|# | {step}/6 [00:01<00:05]{{'loss': 0.0, 'reward': {reward:.3f}}}"]),
        ("run.csv", ["{step},{reward:.3f},0.{step}"]),
        ("run.jsonl", ['{{"step": {step}, "reward": {reward:.3f}, "kl": 0.{step}}}']),
        ("run.json", ['{{"step": {step}, "reward": {reward:.3f}, "kl": 0.{step}}}']),
    ],
)
def test_two_runs_in_one_file_are_not_mixed(name: str, lines: list[str], tmp_path: Path) -> None:
    said = [
        line.format(step=step, reward=reward, epoch=step / 4, percent=step) for step, reward in TWICE for line in lines
    ]
    heads = {"run.csv": "step,reward,kl\n"}
    text = json.dumps([json.loads(one) for one in said]) if name == "run.json" else "\n".join(said) + "\n"
    reading = read(tmp_path / name, heads.get(name, "") + text)
    assert [row["reward/mean"] for row in reading.case.rows] == [0.06, 0.07, 0.08, 0.09]
    assert [row["step"] for row in reading.case.rows] == [1, 2, 3, 4]
    assert sum("of 2 attempts the newest one" in note for note in reading.notes) == 1


def test_evaluations_go_with_the_attempt_that_they_are_of(tmp_path: Path) -> None:
    lines = []
    for step, reward in TWICE:
        lines.append(f"{{'reward': {reward:.3f}, 'epoch': {step / 4}}}")
        if step == 3:
            lines.append(f"{{'eval_reward': {reward + 0.5:.3f}, 'epoch': {step / 4}}}")
    rows = read(tmp_path / "run.log", "\n".join(lines)).case.rows
    assert [row["eval/reward"] for row in rows if "eval/reward" in row] == [0.58]


def test_supervised_rows_before_the_rewards_are_no_attempt(tmp_path: Path) -> None:
    lines = [f"{{'loss': {1 / step:.3f}, 'epoch': {step / 4}}}" for step in range(1, 9)]
    lines += [f"{{'loss': 0.0, 'reward': {step / 10}, 'epoch': {step / 8}}}" for step in range(1, 5)]
    reading = read(tmp_path / "run.log", "\n".join(lines))
    assert len(reading.case.rows) == 12
    assert not any("attempts" in note for note in reading.notes)
