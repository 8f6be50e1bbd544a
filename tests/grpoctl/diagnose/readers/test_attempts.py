"""Logs that begin again: which rows are one run's."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpoctl.diagnose.readers.attempts import newest_attempt
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.registry import open_source


def one(places: Sequence[float | None], unit: str = "step") -> tuple[list[int], list[str]]:
    """The newest attempt of rows with other rewards each."""
    return newest_attempt(places, lambda at: {"reward": float(at + 1)}, unit)


@pytest.mark.parametrize(
    ("places", "kept"),
    [
        ([1, 2, 3, 4], [0, 1, 2, 3]),
        ([1, 2, 3, 1, 2, 3, 4], [3, 4, 5, 6]),  # begun again
        ([1, 2, 3, 4, 5, 3, 4, 5, 6], [0, 1, 5, 6, 7, 8]),  # resumed behind step 2
        ([1, 2, 3, 4, 5, 3, 3.5, 4], [0, 1, 5, 6, 7]),  # resumed, and not as far as before
        ([1, 2, 3, 1, 2, 3, 1, 2, 3], [6, 7, 8]),  # twice
        ([1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6], [0, 1, 2, 9, 10, 11]),  # resumed twice
        ([1, 2, 3, 4, 5, 2, 4, 6, 8, 10], [5, 6, 7, 8, 9]),  # of coarser rows, and further
        ([*range(1, 31), *range(10, 101, 10)], [*range(30, 40)]),  # the same: no further from 0 than from the next
        ([1, 2, 3] * 5, [*range(15)]),  # a count of something else
        ([*range(1, 201)] * 9, [*range(1600, 1800)]),
        ([2, 1, 4, 3, 6, 5, 8, 7], [*range(8)]),  # of processes that lag
        ([9, 9, 1, 1, 1, 9], [*range(6)]),  # three rows at one place are no course
        ([8, 7, 6, 5, 4], [*range(5)]),  # from the end to the beginning
        ([*range(1, 11), 5, 3, 6, 4, 7], [*range(15)]),  # in no order
        ([1, 2, 3, 4, 5, 6, 3, 7, 8, 9], [*range(10)]),  # the best step, told again
        ([5, 6, 7, 8, 1, 2, 3, 4], [*range(8)]),  # files in another order: nothing is told twice
        ([9, 10, 11, 12, 5, 6, 7, 8, 1, 2, 3, 4], [*range(12)]),
        ([101, 102, 103, 104, 1, 2, 3, 4], [4, 5, 6, 7]),  # resumed, and then begun anew
        ([1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9], [*range(11)]),  # a lag of one row
        ([1, 2, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6]),  # begun again behind two rows
        ([*range(1, 401), *range(25, 1000, 25)], [*range(400, 439)]),  # fewer rows, and further
        ([*range(1, 17), 1, 2, 3], [*range(16)]),  # the newest has hardly begun
        ([*range(1, 12), 1, 2, 3], [11, 12, 13]),
        ([1, 2, 3, 2, 3], [*range(5)]),  # two rows are no attempt
        ([1, None, 2, 3, None, 1, 2, 3, None], [5, 6, 7, 8]),
        ([], []),
    ],
)
def test_the_newest_attempt(places: list[float | None], kept: list[int]) -> None:
    placed = [place is not None for place in places]
    found, notes = newest_attempt(places, lambda at: {"reward": float(at + 1)} if placed[at] else {})
    assert found == kept
    assert bool(notes) == (len(kept) < len(places))


def test_a_row_or_two_without_a_place_hide_no_attempt() -> None:
    places = [*range(1, 11), None, *range(1, 11)]
    assert one(places)[0] == [*range(11, 21)]  # the row without a place has a reward, too
    assert one([1, None, 2, None, 3, 1, 2, 3])[1] == []  # too many have none


def test_the_note_says_what_is_left_out() -> None:
    _, (note,) = one([1, 2, 3, 1, 2, 3, 1, 2, 3], "epoch")
    assert note == (
        "the log goes back behind epoch 3, epoch 3 (begun again, or resumed): of 3 attempts the newest one is judged, "
        "6 rows are left out; to judge another one, give it as a file of its own"
    )
    _, (note,) = one([1, 2, 3, 4, 5, 3, 4, 5, 6])
    assert "3 rows are left out" in note
    _, (note,) = one([*range(1, 17), 1, 2, 3])
    assert "step 16" in note
    assert "of 2 attempts the longest one is judged, 3 rows" in note


def test_the_same_again_is_another_process() -> None:
    # what two processes print five steps at a time, and three: each row twice
    places = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8]
    kept, (note,) = newest_attempt(places, lambda at: {"reward": places[at] / 10, "kl": 0.1, "step_time": float(at)})
    assert [places[at] for at in kept] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert note == "8 rows tell again what others told (another process): counted once"
    # a reward that stands is anybody's: the rest tells two runs apart
    kept, (note,) = newest_attempt([1, 2, 3, 1, 2, 3], lambda at: {"reward": -1.0, "kl": 0.1 * at, "grad_norm": at})
    assert (kept, "of 2 attempts" in note) == ([3, 4, 5], True)


@pytest.mark.parametrize("count", ["num_tokens", "global_step", "epoch"])
def test_another_count_that_goes_on_is_of_one_run(count: str) -> None:
    places = [1, 2, 3, 1, 2, 3]
    for counted, kept in ((lambda at: at + 1.0, [*range(6)]), (lambda at: places[at] * 10.0, [3, 4, 5])):
        rows = [{"reward": float(at), "step": place, count: counted(at)} for at, place in enumerate(places)]
        assert newest_attempt(places, rows.__getitem__)[0] == kept


def test_a_count_that_begins_anew_goes_on_nowhere() -> None:
    tokens = [100.0, 200.0, 300.0, 4000.0, 8000.0, 12000.0]  # a longer batch
    rows = [{"reward": float(at), "num_tokens": count} for at, count in enumerate(tokens)]
    assert newest_attempt([1, 2, 3, 1, 2, 3], rows.__getitem__)[0] == [3, 4, 5]


def test_a_bar_begins_again_for_the_next_pass() -> None:
    rewards = [{"reward": float(at)} for at in range(8)]
    assert newest_attempt([1, 2, 3, 4, 1, 2, 3, 4], rewards.__getitem__, total=4)[0] == [*range(8)]
    assert newest_attempt([1, 2, 3, 4, 1, 2, 3, 4], rewards.__getitem__, total=9)[0] == [4, 5, 6, 7]


def test_what_was_told_before_takes_nothing_away() -> None:
    places = [*range(1, 21), *range(1, 11)]  # a run, and its beginning pasted again
    kept, (note,) = newest_attempt(places, lambda at: {"reward": places[at] / 100, "kl": 0.01 * places[at]})
    assert (kept, "10 rows tell again" in note) == ([*range(20)], True)


def test_rows_of_one_place_take_no_time() -> None:
    places = [100.0, *[1.0] * 20_000]
    begun = time.process_time()
    assert len(one(places)[0]) == len(places)
    resumed = [float(step) for at in range(2000) for step in range(20 * at, 20 * at + 25)]
    assert len(one(resumed)[0]) == len({*resumed})
    assert time.process_time() - begun < 5  # 9 s and more where each row looks at all that follow


def read(file: Path, text: str) -> Reading:
    file.write_text(text)
    return open_source(Source(name=str(file), path=file))


TWICE = [(step, 0.1 * step) for step in range(1, 7)] + [(step, 0.05 + 0.01 * step) for step in range(1, 5)]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("verl.log", ["step:{step} - critic/rewards/mean:{reward:.3f} - actor/grad_norm:0.{step}"]),
        ("trl.log", ["{{'loss': 0.0, 'reward': {reward:.3f}, 'epoch': {epoch}}}"]),
        ("bars.log", ["{percent}%|# | {step}/9 [00:01<00:05]{{'loss': 0.0, 'reward': {reward:.3f}}}"]),
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


def test_a_first_evaluation_goes_with_the_attempt_that_it_begins(tmp_path: Path) -> None:
    lines = []
    for first, rewards in ((0.9, TWICE[:6]), (0.2, TWICE[6:])):
        lines.append(f"step:0 - val-core/gsm8k/acc/mean@1:{first}")
        lines += [f"step:{step} - critic/rewards/mean:{reward:.3f}" for step, reward in rewards]
    rows = read(tmp_path / "run.log", "\n".join(lines)).case.rows
    assert [row["eval/reward"] for row in rows if "eval/reward" in row] == [0.2]


def test_evaluations_behind_all_training_rows_are_no_attempt(tmp_path: Path) -> None:
    train = [{"step": step, "reward": step / 50} for step in range(1, 21)]
    held_out = [{"step": step, "eval_reward": step / 60} for step in range(2, 21, 2)]
    as_csv = [f"{row['step']},{row.get('reward', '')},{row.get('eval_reward', '')}" for row in [*train, *held_out]]
    for name, text in (
        ("run.json", json.dumps([*train, *held_out])),
        ("run.jsonl", "\n".join(map(json.dumps, [*train, *held_out]))),
        ("run.csv", "\n".join(["step,reward,eval_reward", *as_csv])),
    ):
        reading = read(tmp_path / name, text)
        assert sum("reward/mean" in row for row in reading.case.rows) == 20, name
        assert sum("eval/reward" in row for row in reading.case.rows) == 10, name


def test_steps_that_are_counted_anew_in_each_epoch_are_one_run(tmp_path: Path) -> None:
    told = [(epoch, step, 0.1 * epoch + 0.01 * step) for epoch in range(3) for step in range(1, 26)]
    for name, line in (
        ("pairs.log", "Epoch {} Step {}: reward={:.3f}, kl=0.01"),
        ("run.jsonl", '{{"epoch": {}, "step": {}, "reward": {:.3f}}}'),
    ):
        reading = read(tmp_path / name, "\n".join(line.format(*one) for one in told))
        assert len(reading.case.rows) == 75, name
        assert not any("attempts" in note for note in reading.notes), name
    rows = [f"{100 + 25 * epoch + step},{step},{reward:.3f}" for epoch, step, reward in told]
    numbered = read(tmp_path / "run.csv", "\n".join(["global_step,step,reward", *rows]))
    assert [row["step"] for row in numbered.case.rows] == [*range(101, 176)]


def test_a_run_that_is_told_twice_is_read_once(tmp_path: Path) -> None:
    line = "{{'loss': 0.1, 'reward': {reward:.3f}, 'kl': 0.0{step}, 'epoch': {epoch}}}"
    lines = [line.format(step=step, reward=reward, epoch=step / 6) for step, reward in [*TWICE[:6], *TWICE[:6]]]
    reading = read(tmp_path / "run.log", "\n".join(lines))
    assert len(reading.case.rows) == 6
    assert any("6 rows tell again" in note for note in reading.notes)
    standing = "step={step} reward=-1.0 kl={kl}"
    two = [standing.format(step=step, kl=kl * step) for kl in (0.3, 0.001) for step in range(1, 9)]
    assert read(tmp_path / "two.log", "\n".join(two)).case.rows[-1]["kl"] == 0.008


def test_epochs_on_lines_of_their_own(tmp_path: Path) -> None:
    lines = [f"Epoch {at}: reward {level + 0.01 * at:.2f} kl 0.01" for level in (0.2, 0.4) for at in range(1, 6)]
    reading = read(tmp_path / "run.log", "\n".join(lines))
    assert [row["reward/mean"] for row in reading.case.rows] == [0.41, 0.42, 0.43, 0.44, 0.45]
    fractions = [f"{at / 10},{level + at / 100}" for level in (0.2, 0.4) for at in range(1, 6)]
    table = read(tmp_path / "run.csv", "\n".join(["epoch,reward", *fractions]))
    assert [row["reward/mean"] for row in table.case.rows] == pytest.approx([0.41, 0.42, 0.43, 0.44, 0.45])


def test_the_settings_may_be_of_another_attempt(tmp_path: Path) -> None:
    lines = ["GRPOConfig(learning_rate=1e-3, num_generations=2)"]
    lines += [f"{{'loss': 0.1, 'reward': {reward:.3f}, 'epoch': {step / 6}}}" for step, reward in TWICE]
    reading = read(tmp_path / "run.log", "\n".join(lines))
    assert reading.case.settings.num_generations == 2
    assert any(note.startswith("settings are those that the log states first") for note in reading.notes)


OF_VERL = """\
{{'actor_rollout_ref': {{'actor': {{'optim': {{'lr': {rate}}}}},
                       'rollout': {{'n': {count}}}}},
 'data': {{'train_batch_size': 64}}}}"""


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("GRPOConfig(\n_n_gpu=1,\nlearning_rate={rate},\nnum_generations={count},\n)",
         "{{'loss': 0.1, 'reward': {reward:.3f}, 'epoch': {epoch}}}"),
        ("Namespace(lr={rate}, group_size={count})", "{{'loss': 0.1, 'reward': {reward:.3f}, 'epoch': {epoch}}}"),
        (OF_VERL, "step:{step} - critic/rewards/mean:{reward:.3f} - actor/grad_norm:0.{step}"),
        ("python -m verl actor_rollout_ref.rollout.n={count} actor_rollout_ref.actor.optim.lr={rate}",
         "step:{step} - critic/rewards/mean:{reward:.3f} - actor/grad_norm:0.{step}"),
        ("python -m verl \\\n actor_rollout_ref.rollout.n={count} \\\n actor_rollout_ref.actor.optim.lr={rate}",
         "step:{step} - critic/rewards/mean:{reward:.3f} - actor/grad_norm:0.{step}"),
        ("GRPOConfig(num_generations={count})\nBaseline reward: 0.12\nTrainingArguments(learning_rate={rate})",
         "{{'loss': 0.1, 'reward': {reward:.3f}, 'epoch': {epoch}}}"),
        ("python train.py --lr {rate} --num_generations {count}", "step {step}: reward {reward:.3f} kl 0.{step}"),
    ],
    ids=["TRL's", "Namespace", "verl's", "overrides", "an override a line", "in pieces", "options"],
)  # fmt: skip
def test_settings_are_those_that_are_stated_before_the_attempt_that_is_judged(
    head: str, line: str, tmp_path: Path
) -> None:
    told = [line.format(step=step, reward=reward, epoch=step / 6) for step, reward in TWICE]
    first, second = (head.format(rate=rate, count=count) for rate, count in (("1e-06", 8), ("0.001", 2)))
    other = "step 3 is the best so far" if "step:" not in line else "(WorkerDict pid=7) saved a checkpoint"
    reading = read(tmp_path / "run.log", "\n".join([first, *told[:3], other, *told[3:6], second, *told[6:]]))
    settings = reading.case.settings
    assert [row["reward/mean"] for row in reading.case.rows] == [0.06, 0.07, 0.08, 0.09]
    assert (settings.num_generations, settings.learning_rate) == (2, 1e-3)
    assert sum(note.startswith("settings are those that the log states before the") for note in reading.notes) == 1


FIRST, OTHER = (
    "GRPOConfig(learning_rate=1e-6, num_generations=8)",
    "GRPOConfig(learning_rate=1e-3, num_generations=2)",
)


def told(rows: int, base: float) -> list[str]:
    return [f"{{'loss': 0.1, 'reward': {base + step / 1000}, 'epoch': {step / 10}}}" for step in range(1, rows + 1)]


@pytest.mark.parametrize(
    "lines",
    [
        [FIRST, *told(40, 0.1), OTHER, *told(4, 0.5)],  # the longest one is judged
        [FIRST, *told(10, 0.1), OTHER, *told(10, 0.5), *told(10, 0.3)],  # the third one states nothing
        [
            "lr: 1e-6",
            "num_generations: 8",
            *told(10, 0.1),
            "lr: 1e-3",
            "num_generations: 2",
            *told(10, 0.5),
        ],  # a row's?
    ],
    ids=["longest", "third", "lines"],
)
def test_else_those_stand_that_are_stated_before_all_rows(lines: list[str], tmp_path: Path) -> None:
    reading = read(tmp_path / "run.log", "\n".join(lines))
    settings = reading.case.settings
    assert (settings.num_generations, settings.learning_rate) == (8, 1e-6)
    assert sum(note.startswith("settings are those that the log states first") for note in reading.notes) == 1


def test_a_rate_that_stands_in_every_row_is_no_setting(tmp_path: Path) -> None:
    rows = [
        f"{{'loss': 0.1,\n 'reward': {base + step / 1000},\n 'learning_rate': {step * 1e-6},\n 'epoch': {step / 10}}}"
        for base in (0.1, 0.5)
        for step in range(1, 11)
    ]
    reading = read(tmp_path / "run.log", "\n".join([FIRST.replace("1e-6", "1e-5"), *rows]))
    assert len(reading.case.rows) == 10
    assert reading.case.settings.learning_rate == 1e-5


def test_what_is_told_twice_is_no_attempt_with_settings_of_its_own(tmp_path: Path) -> None:
    rows = told(10, 0.1)
    reading = read(tmp_path / "run.log", "\n".join(["python t.py --lr 1e-5", *rows, *rows]))
    assert reading.case.settings.learning_rate == 1e-5
    assert [note for note in reading.notes if note.startswith("settings are")] == []


def test_nothing_is_said_of_settings_that_no_line_states(tmp_path: Path) -> None:
    places = [*range(1, 11), *range(1, 21)]
    bars = [f"{at}%|# | {at}/40 [00:01<00:05]{{'loss': 0.0, 'reward': 0.{at:03}}}" for at in places]
    reading = read(tmp_path / "run.log", "\n".join(bars))
    assert any("of 2 attempts" in note for note in reading.notes) or len(reading.case.rows) == 20
    assert [note for note in reading.notes if note.startswith("settings are")] == []


def test_attempts_that_meet_in_one_averaged_row_keep_their_settings(tmp_path: Path) -> None:
    def rows(count: int) -> list[str]:
        return [f"step:{step} - critic/rewards/mean:0.{step % 10}1" for step in range(1, count + 1)]

    heads = [f"python -m verl actor_rollout_ref.rollout.n={count}" for count in (8, 2)]
    reading = read(tmp_path / "run.log", "\n".join([heads[0], *rows(20001), heads[1], *rows(30000)]))
    assert reading.case.averaged_over == 2
    assert reading.case.settings.num_generations == 2


def test_names_that_the_user_maps_are_rewards_too(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "score_x": reward}) for step, reward in TWICE]
    (tmp_path / "run.jsonl").write_text("\n".join(lines))
    asked = Source(name="run.jsonl", path=tmp_path / "run.jsonl", columns={"score_x": "reward"})
    rows = open_source(asked).case.rows
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["reward/mean"] for row in rows] == pytest.approx([0.06, 0.07, 0.08, 0.09])


def test_a_table_of_epochs_of_steps_is_numbered_by_its_order(tmp_path: Path) -> None:
    told = [f"{epoch},{step},{0.1 * epoch + 0.01 * step:.2f}" for epoch in range(3) for step in range(1, 6)]
    reading = read(tmp_path / "run.csv", "\n".join(["epoch,step,reward", *told]))
    assert [row["step"] for row in reading.case.rows] == [*range(1, 16)]
    assert "begins again" in reading.notes[0]
    seeds = [f"{step},{step / 10 + seed / 100:.2f}" for step in range(1, 6) for seed in range(3)]
    by_step = read(tmp_path / "run.csv", "\n".join(["global_step,reward", *seeds]))
    assert [row["step"] for row in by_step.case.rows] == [1, 2, 3, 4, 5]
    twice = [f"{at / 10},{level + at / 100:.2f}" for level in (0.2, 0.4) for at in range(1, 6)]
    table = read(tmp_path / "run.csv", "\n".join(["epoch,reward", *twice]))
    assert [row["step"] for row in table.case.rows] == [1, 2, 3, 4, 5]


def test_a_last_line_without_a_step_hides_nothing(tmp_path: Path) -> None:
    lines = [f"step={step} reward={reward + 0.01 * step:.2f} kl=0.1" for reward in (0.1, 0.5) for step in range(1, 26)]
    lines.insert(25, "Final results: reward=0.35")
    reading = read(tmp_path / "run.log", "\n".join([*lines, "Final results: reward=0.75"]))
    assert min(row["reward/mean"] or 0 for row in reading.case.rows) > 0.5
