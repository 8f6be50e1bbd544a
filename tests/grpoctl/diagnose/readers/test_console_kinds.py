"""Which lines of a log are steps of training: not evaluations, examples and dialogues, nor what a bar draws again."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import GrpoError
from core.health.finding import Row
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.registry import open_source

STEP = "Step {0}: reward=0.{0} kl=0.01\n"


def read(tmp_path: Path, text: str) -> Reading:
    file = tmp_path / "run.log"
    file.write_text(text)
    return open_source(Source(name=str(file), path=file))


def rows_of(tmp_path: Path, text: str) -> list[Row]:
    return list(read(tmp_path, text).case.rows)


def told(rows: list[Row], metric: str = "reward/mean") -> list[tuple[float | None, float | None]]:
    return [(row["step"], row[metric]) for row in rows if metric in row]


@pytest.mark.parametrize(
    ("line", "held_out"),
    [
        ("[eval @ step 2] reward=0.9 kl=0.5", 0.9),
        ("Eval: reward=0.9 acc=0.9", 0.9),
        ("2026-01-01 12:00:00,123 - INFO - Evaluation: reward 0.9 loss 0.25", 0.9),
        ("MATH-500 eval @ step 2: acc=0.9 (450/500)", 0.9),
        ("Step 2 | Eval: reward=0.9", 0.9),
        ("Evaluated aime24 (Step 2) | Policy v0 | Reward 0.9 | Truncation 21.3%", 0.9),
        ('{"message": "Evaluated aime24 (Step 2) | Reward 0.9", "level": "INFO"}', 0.9),
        ("eval@2: {'mean_reward': 0.9, 'steps_taken': 12}", 0.9),
        ("{'log_type': 'eval', 'step': 2, 'reward': 0.9}", 0.9),
        ("{'eval': True, 'step': 2, 'reward': 0.9}", 0.9),
        ("held-out set: reward=0.9", 0.9),
        ("[10:00:01] [pipeline.py (670)] [INFO] [DRIVER 0 / 1][PID 2] val metrics: {'score/mean': 0.9, 'len': 3}", 0.9),
        ("test set: reward=0.9", 0.9),
    ],
)
def test_a_line_of_an_evaluation_is_no_step(line: str, held_out: float, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, STEP.format(1) + STEP.format(2) + line + "\n" + STEP.format(3))
    assert told(rows) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert told(rows, "eval/reward") == [(2, held_out)]
    assert [row["kl"] for row in rows] == [0.01] * 3  # what the evaluation says of it is left out


PREFIXES = (
    "INFO:__main__:",
    "[10:00:00] [INFO] [train.py:120] ",
    "10:00 | INFO     | __main__:train:88 - ",
    "10:00 - INFO - ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("line", ["[Eval] reward: 0.9", "Validation: reward: 0.9", "=== Eval @ step 5: reward 0.9 ==="])
def test_an_evaluation_behind_a_loggers_prefix(line: str, prefix: str, tmp_path: Path) -> None:
    steps = "".join(
        f"{prefix}Step {at}/7 | reward: 0.{at} | loss: 0.1\n" + (f"{prefix}{line}\n" if at == 5 else "")
        for at in range(1, 8)
    )
    rows = rows_of(tmp_path, steps)
    assert told(rows) == [(at, at / 10) for at in range(1, 8)]
    assert told(rows, "eval/reward") == [(5, 0.9)]


def test_a_heading_of_an_evaluation_ends_at_a_step(tmp_path: Path) -> None:
    steps = "".join(f"  Step {at}/7 reward: 0.{at} loss: 0.1\n" for at in range(1, 8))
    for heading in ("Running validation:\n", "Evaluation:\n  accuracy: 0.4\n"):
        rows = rows_of(tmp_path, steps.replace("  Step 4", heading + "  Step 4"))
        assert told(rows) == [(at, at / 10) for at in range(1, 8)]


@pytest.mark.parametrize("word", ["Initial eval reward: 0.1", "Baseline accuracy: 0.1", "Saved, reward: 0.1 so far"])
def test_a_word_before_the_first_step_numbers_nothing(word: str, tmp_path: Path) -> None:
    steps = "".join(f"Step {at}/30 | reward: 0.{at:02} | loss: 0.1\n" for at in range(1, 25))
    rows = rows_of(tmp_path, f"{word}\n{steps}")
    assert [(row["step"], row["reward/mean"]) for row in rows if row["step"]] == [(at, at / 100) for at in range(1, 25)]


@pytest.mark.parametrize(
    "line",
    [
        "Step 4: reward=0.4 eval 0.25",  # a value of the step
        "[train] Step 4 | eval skipped | reward=0.4 kl=0.01",
        "eval: skipped | Step 4: reward=0.4",
        "trainer val step 4: reward=0.4, val reward=0.5",
        "eval.py:33 Step 4: reward=0.4 kl=0.01",
        "[test: grpo] Step 4: reward=0.4",
        "10:00 - evaluation - INFO - Step 4: reward=0.4",
        "Evaluating every 10 steps:\n  Step 4: reward=0.4",
        "Validation dataset:\n  Step 4: reward=0.4",
        "[system] Step 4 reward: 0.4, kl: 0.01",
        "output: Step 4 reward: 0.4",
        "Response: reward=0.4 len=300 step=4",
        "Step 4\n├── reward: 0.4\n└── kl: 0.01",
        "Step 4 | samples 64 | reward 0.4 kl 0.01",
        "[evaluator] Step 4: reward=0.4",
        "[step 4] train/val metrics: {'reward': 0.4, 'kl': 0.04, 'val_reward': 0.3}",
        "test run, Step 4: reward=0.4",
        "val_frac=0.1 Step 4: reward=0.4",
    ],
)
def test_a_step_that_has_such_a_word_is_one(line: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, STEP.format(1) + STEP.format(2) + STEP.format(3) + line + "\n")
    assert told(rows)[-1] == (4, 0.4)


@pytest.mark.parametrize(
    "example",
    [
        "########## Example 1 (Reward: 1.0, Response Length: 449)",
        "[DEBUG] gen[0] reward=-2.5",
        "   1. aria         reward: 0.90",
        "--- Sample Response (Reward: 0.037) ---\nreward: 7\n---",
        "======= Example =======\nUsing the numbers\nReward: 1.0\n=======",
        "[response] Sure! step=4 is where reward=10 is paid, loss = 0.5",
        "Question: what is reward: 7 and kl: 3?",
        "Assistant: the reward = 12, kl = 5",
        "  Turn 0: `ls -l` -> reward=+0.20",
        "  Gen 12: Reward= 0.116 | M: e7e6",
        "  Rollout 3/12: reward=1, answer='x'",
        "[SAMPLE  ] reward=0.9  expected=51",
        "rollout q='What is 9 + 3?', a='12', returns=1.02, size=0",
        "  [-] reward=-1.0",  # no word says so: it stands behind the step's own
    ],
)
def test_one_completion_is_no_step(example: str, tmp_path: Path) -> None:
    lines = [STEP.format(at) + example + "\n" for at in range(1, 4)]
    assert told(rows_of(tmp_path, "".join(lines))) == [(1, 0.1), (2, 0.2), (3, 0.3)]


@pytest.mark.parametrize(
    "line",
    ["Response length: {0}00 | reward: 0.{0}", "Completion tokens: {0}00, reward: 0.{0}", "answer reward: 0.{0}"],
)
def test_what_completions_are_like_is_one(line: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "".join(f"Step {at}\n{line.format(at)}\n" for at in range(1, 4)))
    assert [value for row in rows for name, value in row.items() if name in ("reward/mean", "rewards/answer")]


def test_what_a_step_says_of_an_evaluation_is_both(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "".join(f"Epoch {at}: train reward 0.{at} val reward 0.5\n" for at in range(1, 5)))
    assert [(row["reward/mean"], row["eval/reward"]) for row in rows] == [(at / 10, 0.5) for at in range(1, 5)]
    line = "Step {0}: reward: 0.{0}, eval reward: 0.5, kl: 0.01\n"
    rows = rows_of(tmp_path, "".join(line.format(at) for at in range(1, 5)))
    assert [(row["reward/mean"], row["eval/reward"]) for row in rows] == [(at / 10, 0.5) for at in range(1, 5)]


def test_evaluations_number_no_rows_that_have_no_number(tmp_path: Path) -> None:
    rows = "".join(
        f"{{'reward': 0.{at}, 'loss': 0.1, 'kl': 0.1}}\n" + ("" if at % 2 else f"Eval at step {at}: accuracy: 0.5\n")
        for at in range(1, 7)
    )
    found = rows_of(tmp_path, rows)
    assert told(found) == [(at, at / 10) for at in range(1, 7)]
    assert told(found, "eval/reward") == [(2, 0.5), (4, 0.5), (6, 0.5)]


def test_many_samples_stand_behind_a_mean(tmp_path: Path) -> None:
    samples = "".join(f"  [-] reward=-0.{at}\n" for at in range(1, 5))
    means = "".join(f"step {at}  loss=0.1  reward_mean=0.{at}\n{samples}" for at in range(1, 4))
    assert told(rows_of(tmp_path, means)) == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_completions_without_a_mean_are_read_by_their_groups(tmp_path: Path) -> None:
    group = "  Q{at}: what?\n    Rollout 1: reward={one}, a='x'\n    Rollout 2: reward={two}, a='y'\n    Loss: 0.5\n"
    text = "".join(group.format(at=at, one=at % 2, two=1) for at in range(1, 7)) + "Epoch 1 avg reward: 0.75\n"
    rows = rows_of(tmp_path, text)
    assert told(rows) == [(at, 1.0 if at % 2 else 0.5) for at in range(1, 7)]
    assert not [row for row in rows if "reward/group_std" in row]  # what is printed may be two of sixty-four
    assert {row["loss"] for row in rows} == {0.5}
    one_each = "".join(f"Rollout {at}: reward=0.{at}\nLoss: 0.5\n" for at in range(1, 7))
    assert told(rows_of(tmp_path, one_each)) == [(at, at / 10) for at in range(1, 7)]


def test_samples_are_no_steps_where_few_lines_tell_the_mean(tmp_path: Path) -> None:
    step = "  Sample 1 (reward: 0.0)\n  Sample 2 (reward: 0.0)\nStep {0} loss: 0.0{0}\n"
    steps = [step.format(at) + ("" if at % 4 else f"Step {at} mean reward: 0.{at} kl: 0.01\n") for at in range(1, 9)]
    rewards = [row["reward/mean"] for row in rows_of(tmp_path, "".join(steps)) if "reward/mean" in row]
    assert {0.4, 0.8} <= {*rewards}


@pytest.mark.parametrize("behind", ["", "loss=0.701 kl=0.070\n"])  # and read while it goes on
def test_updates_before_their_step_are_its_own(behind: str, tmp_path: Path) -> None:
    steps = "".join(f"loss=0.{at} kl=0.0{at}\n" * 4 + f"Step {at} reward=0.{at}\n" for at in range(1, 7))
    rows = [row for row in rows_of(tmp_path, steps + behind) if "reward/mean" in row]
    assert [(row["step"], row["reward/mean"], row["kl"]) for row in rows] == [
        (at, at / 10, at / 100) for at in range(1, 7)
    ]


def test_a_dictionary_before_its_steps_line_is_its_own(tmp_path: Path) -> None:
    rows = rows_of(
        tmp_path, "".join(f"{{'loss': 0.{at}, 'kl': 0.0{at}}}\nStep {at} reward=0.{at}\n" for at in range(1, 8))
    )
    assert [(row["step"], row["reward/mean"], row["kl"]) for row in rows] == [
        (at, at / 10, at / 100) for at in range(1, 8)
    ]


def test_many_updates_for_a_reward_are_rows(tmp_path: Path) -> None:
    updates = [f"{{'loss': 0.{at}, 'kl': 0.02, 'grad_norm': 1.{at}}}\n" for at in range(11, 51)]
    text = "".join(
        one + (f"{{'step': {at}, 'reward': 0.{at}}}\n" if at % 10 == 0 else "") for at, one in enumerate(updates, 1)
    )
    assert len(rows_of(tmp_path, text)) >= 40


def test_few_lines_of_steps_do_not_outvote_rows_without(tmp_path: Path) -> None:
    rows = "".join(f"reward=0.{at} kl=0.01\n" for at in range(1, 10))
    text = "".join(f"step {at} reward=0.5\n{rows}" for at in (10, 20, 30))
    assert len(rows_of(tmp_path, text)) == 30


@pytest.mark.parametrize(
    "line",
    [
        "{word} reward at step {at}: 0.0\nstep {at} | reward 0.{at} | kl 0.01",
        "step {at} | reward 0.{at} | kl 0.01\n{word} reward at step {at}: 0.0",
    ],
)
@pytest.mark.parametrize("word", ["Min", "Max", "Gold", "Eval", "Validation", "Target"])
def test_another_reward_at_a_step_is_not_the_steps_mean(word: str, line: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "".join(line.format(word=word, at=at) + "\n" for at in range(1, 6)))
    assert told(rows) == [(at, at / 10) for at in range(1, 6)]


@pytest.mark.parametrize("line", ["mean reward at Step {0}: 0.{0}", "Returns of step {0}: 0.{0}"])
def test_what_a_step_earned_behind_its_name(line: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "".join(line.format(at) + "\n" for at in range(1, 6)))
    assert told(rows) == [(at, at / 10) for at in range(1, 6)]


def test_lines_that_tell_of_updates_are_no_samples(tmp_path: Path) -> None:
    rows = [f"reward=0.{at:02} kl=0.02 loss=0.11\n" for at in range(1, 61)]
    text = "".join(row + (f"[step {at}] avg_reward=0.5\n" if at % 10 == 0 else "") for at, row in enumerate(rows, 1))
    assert len(rows_of(tmp_path, text)) >= 60
    both = "".join(f"[step {at}/8] avg reward: 0.{at}\n    reward: 0.{at} | kl: 0.01\n" for at in range(1, 9))
    assert [(row["reward/mean"], row["kl"]) for row in rows_of(tmp_path, both)] == [
        (at / 10, 0.01) for at in range(1, 9)
    ]


def test_lines_with_a_kl_are_not_outvoted_by_words_on_the_end(tmp_path: Path) -> None:
    rows = "".join(f"question='2+2' expected='4' reward=0.{at} kl=0.01\n" for at in range(1, 9))
    assert told(rows_of(tmp_path, rows + "final reward=0.3\n" * 3))[:8] == [(at, at / 10) for at in range(1, 9)]


def test_a_log_that_goes_on_without_numbers_is_not_cut_off(tmp_path: Path) -> None:
    text = "".join(f"step {at} reward 0.{at}\n" for at in range(1, 5)) + "resumed\n" + "reward: 0.5\n" * 4
    assert len(rows_of(tmp_path, text)) == 8


@pytest.mark.parametrize(
    "line",
    [
        "reward=0.{0} kl=0.01 ms/step:    3999",
        "reward=0.{0} kl=0.01 rollouts/step=64",
        "reward 0.{0} | kl 0.01 | 5.2s/step 16 left",
        "reward 0.{0}  kl 0.01  batch     64  loss 0.1",
        "reward 0.{0}  kl 0.01  sec per step:      1",
        "kl 0.01 loss 0.3 reward per step 0.{0}",
        "| kl 0.01 | mean reward per step 0.{0} |",
        "Rollout {0}/12: mean_reward=0.{0} kl=0.01 loss=0.1",
        "question='2+2' expected='4' reward=0.{0} kl=0.01",
    ],
)
def test_rows_in_their_order(line: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "".join(line.format(at) + "\n" for at in range(1, 9)))
    assert told(rows) == [(at, at / 10) for at in range(1, 9)]


def test_a_line_before_the_first_step_shifts_no_updates(tmp_path: Path) -> None:
    steps = "".join(f"step {at} reward=0.{at}\nkl=0.0{at} loss=0.1\nkl=0.0{at} loss=0.1\n" for at in range(1, 9))
    rows = rows_of(tmp_path, "response length: 512\n" + steps)
    assert [(row["step"], row["reward/mean"], row["kl"]) for row in rows if "kl" in row] == [
        (at, at / 10, at / 100) for at in range(1, 9)
    ]


def test_columns_of_several_steps_are_no_crash(tmp_path: Path) -> None:
    for text in (
        "| Reward at step 1 | Reward at step 2 |\n|---|---|\n| 0.3 | 0.4 |\n",
        "reward at step 1 | kl\n0.3 | 0.4\n",
    ):
        with pytest.raises(GrpoError):
            rows_of(tmp_path, text)


def test_what_updates_tell_is_their_steps_mean(tmp_path: Path) -> None:
    """tiny-grpo: a line of each rollout, the step's returns, and a line of each update."""
    step = (
        "rollout q='What is 9 + 3?', a='12', returns=1.02, replay_buffer_size=0\n"
        "returns of step {0}: {0}.37\n{0}: kl= 0.0{0}0, grad_norm= 0.4\n{0}: kl= 0.0{0}4, grad_norm= 0.2\n"
    )
    rows = rows_of(tmp_path, "found 12 prompts\n" + "".join(step.format(at) for at in range(1, 5)))
    assert told(rows) == [(at, pytest.approx(at + 0.37)) for at in range(1, 5)]
    assert told(rows, "kl") == [(at, pytest.approx(at / 100 + 0.002)) for at in range(1, 5)]
    assert [row["grad_norm"] for row in rows] == [pytest.approx(0.3)] * 4
    above = "".join(f"kl=0.0{at}0\nkl=0.0{at}4\nstep {at} reward=0.{at}\n" for at in range(1, 5))
    assert told(rows_of(tmp_path, above), "kl") == [(at, pytest.approx(at / 100 + 0.002)) for at in range(1, 5)]


def test_rewards_in_lines_and_updates_in_dictionaries_are_one_course(tmp_path: Path) -> None:
    """Open-Reasoner-Zero: a line of what was earned, bars of the critic's workers, a dictionary of the update."""
    step = (
        "10:00 | INFO     | orz.trainer:make_experience:317 - avg_raw_rewards: 0.{0}, avg_kl: 0.0{0}\n"
        "Critic: 100%|###| 12/12 [00:40<00:00,  3.41s/it, critic_loss=0.03]\n"
        "Critic: 100%|###| 12/12 [00:41<00:00,  3.41s/it, critic_loss=0.04]\n"
        "10:01 | INFO     | orz.trainer:train:173 - {{'policy_loss': 0.5, 'actor_lr': 1e-06, 'entropy': 0.{0}}}\n"
    )
    rows = rows_of(tmp_path, "".join(step.format(at) for at in range(1, 6)))
    assert [(row["reward/mean"], row["kl"], row["entropy"]) for row in rows] == [
        (at / 10, at / 100, at / 10) for at in range(1, 6)
    ]
    assert {row["policy/loss"] for row in rows} == {0.5}


def test_where_a_logger_was_called_is_no_metric(tmp_path: Path) -> None:
    line = "10:00:01 | INFO     | __main__:custom_reward:298 - reward: 0.{0}, kl: 0.01\n"
    rows = rows_of(tmp_path, "".join(line.format(at) for at in range(1, 5)))
    assert told(rows) == [(at, at / 10) for at in range(1, 5)]
    assert "rewards/custom" not in rows[0]


def test_a_padded_number_is_a_steps(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "".join(f"[grpo] step {at:4d} reward=0.5 kl=0.01\n" for at in (8, 10, 12, 1000)))
    assert [row["step"] for row in rows] == [8, 10, 12, 1000]


def test_a_sentence_beside_a_table_of_runs_is_no_run(tmp_path: Path) -> None:
    table = "| Model | Mean reward | KL |\n|---|---|---|\n| ours | 0.7 | 0.1 |\n"
    (row,) = rows_of(tmp_path, f"reward: 0.2 for an answer in JSON.\n\n{table}")
    assert row["reward/mean"] == 0.7
    rows = rows_of(tmp_path, "".join(STEP.format(at) for at in range(1, 4)) + f"\n{table}")
    assert told(rows) == [(1, 0.1), (2, 0.2), (3, 0.3)]


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {epoch}/Step {at}: reward=0.{at} kl=0.01",
        "train/step {at} | reward=0.{at}",
        "Update #{at:5d}: reward=0.{at}",
        "Iteration {at:6d} reward=0.{at}",
        "INFO: reward at step {at}: 0.{at}",
        "[12:00:01] reward at step {at}: 0.{at}",
    ],
)
def test_where_a_steps_number_stands(line: str, tmp_path: Path) -> None:
    lines = [line.format(at=at, epoch=1 + at // 4) for at in range(2, 9)]
    assert told(rows_of(tmp_path, "\n".join(lines) + "\n")) == [(at, at / 10) for at in range(2, 9)]


def test_tags_are_no_runs(tmp_path: Path) -> None:
    for tags in (("epoch1", "epoch2"), ("INFO", "WARNING"), ("cuda0", "cuda1"), ("generate", "update")):
        lines = [f"[{tag}] step {at} | reward=0.{at} | kl=0.01\n" for tag in tags for at in range(1, 6)]
        assert read(tmp_path, "".join(lines)).further == ()


def test_rewards_before_the_first_number_are_rows(tmp_path: Path) -> None:
    text = "reward=0.1\nreward=0.2\nreward=0.3\n" + "".join(f"Step {at}: reward=0.{at}\n" for at in range(4, 7))
    assert [row["reward/mean"] for row in rows_of(tmp_path, text)] == [at / 10 for at in range(1, 7)]


def test_lines_of_another_phase_are_no_updates_of_a_step(tmp_path: Path) -> None:
    steps = "".join(
        f"Step {at} | reward=0.{at}\n  loss=0.{at} kl=0.0{at}\n  loss=0.{at} kl=0.0{at}\n" for at in range(1, 7)
    )
    right = [(at / 10, at / 100) for at in range(1, 7)]
    sft, cut, of_step_0 = "loss=1.9 kl=0.5\n" * 10, "Step 7 | reward=0.7\n", "  loss=0.9 kl=0.9\n" * 2
    for before, behind in (("Epoch 1/1 loss: 1.23\n", cut), (sft, ""), (sft, cut), (of_step_0, "")):
        rows = rows_of(tmp_path, before + steps + behind)
        assert [(row["reward/mean"], row["kl"]) for row in rows if "kl" in row and "reward/mean" in row] == right
    assert not [row for row in rows if row.get("kl") == 0.9]


def test_an_example_ends_where_a_step_is_told(tmp_path: Path) -> None:
    text = STEP.format(1) + STEP.format(2) + "=== Example generation ===\ntext\n" + STEP.format(3) + STEP.format(4)
    assert len(rows_of(tmp_path, text)) == 4


def test_two_summaries_do_not_outvote_the_rows(tmp_path: Path) -> None:
    listed = "".join(f"gen[{at}] reward=0.{at} kl=0.01\n" for at in range(1, 10))
    assert len(rows_of(tmp_path, listed + "mean reward: 0.5\nfinal mean reward: 0.6\n")) >= 9


def test_a_table_of_a_runs_ends_does_not_outvote_its_steps(tmp_path: Path) -> None:
    lines = "".join(f"step {at}: reward {at / 100} kl {at / 1000}\n" for at in range(1, 21))
    ends = "\n| metric | start | end |\n|---|---|---|\n| reward | 0.01 | 0.20 |\n| kl | 0.001 | 0.02 |\n"
    assert [row["reward/mean"] for row in rows_of(tmp_path, lines + ends)] == [at / 100 for at in range(1, 21)]


def test_what_a_dictionary_says_in_words_is_no_step(tmp_path: Path) -> None:
    sample = "{'split_name': 'x', 'prompt_text': 'Summarize: reward: 3.0 and kl: 2.0'}\n"
    assert told(rows_of(tmp_path, STEP.format(1) + sample + STEP.format(2) + sample)) == [(1, 0.1), (2, 0.2)]


def test_pairs_with_commas_between_are_no_header(tmp_path: Path) -> None:
    line = "Step: 5%|# | {0}/20 [05:30<16:30, val_rewards=0.3, val_generation_length=602, train_rewards=0.{0}]\n"
    rows = rows_of(tmp_path, "".join(line.format(at) for at in range(1, 6)))
    assert [(row["reward/mean"], row["eval/reward"]) for row in rows] == [(at / 10, 0.3) for at in range(1, 6)]


def test_lines_of_deepspeed_chat(tmp_path: Path) -> None:
    """A loss that is no number is told beside a reward that is one."""
    step = (
        "epoch: 0|step: {0}|ppo_ep: 1|act_loss: {1}|cri_loss: {1}|unsuper_loss: 0.0\n"
        "average reward score: -{0}.5\n-------------------------------------\n"
        "|E2E latency=2.12s |Gather latency=0.00s (0.00%) |Training time=0.42s (19.78%) |CurSamplesPerSec=1.89\n"
    )
    rows = rows_of(tmp_path, "".join(step.format(at, loss) for at, loss in ((3, 30.9), (4, "inf"), (5, "inf"))))
    assert told(rows) == [(3, -3.5), (4, -4.5), (5, -5.5)]
    assert told(rows, "policy/loss") == told(rows, "critic/loss") == [(3, 30.9), (4, None), (5, None)]


def test_the_newest_first_is_turned_round(tmp_path: Path) -> None:
    newest_first = "".join(f"{{'step': {at}, 'reward': 0.{at}, 'kl': 0.01}}\n" for at in range(6, 0, -1))
    assert [row["reward/mean"] for row in rows_of(tmp_path, newest_first)] == [at / 10 for at in range(1, 7)]
    newest_first = "".join(STEP.format(at) for at in range(6, 0, -1))
    assert [row["reward/mean"] for row in rows_of(tmp_path, newest_first)] == [at / 10 for at in range(1, 7)]


def test_a_log_of_examples_alone_is_read(tmp_path: Path) -> None:
    assert len(rows_of(tmp_path, "".join(f"sample {at} reward=0.{at} kl=0.1\n" for at in range(1, 5)))) == 4


BAR = "Epoch {epoch}:  10%|#  | {at}/20 [00:0{at}<00:10, 1.0s/it, loss=0.5, reward=0.{at}]"


def test_a_bar_that_is_drawn_again_is_one_step(tmp_path: Path) -> None:
    bars = [BAR.format(epoch=1, at=at) + "\r" for at in range(1, 8) for _ in range(3)]
    assert [row["reward/mean"] for row in rows_of(tmp_path, "".join(bars) + "\n")] == [
        pytest.approx(at / 10) for at in range(1, 8)
    ]
    flat = [BAR.format(epoch=1, at=1).replace("1/20", f"{at}/20") + "\r" for at in range(1, 8)]
    assert len(rows_of(tmp_path, "".join(flat) + "\n")) == 7  # a run whose reward stands still


def test_bars_tell_more_than_the_epochs_they_are_of(tmp_path: Path) -> None:
    bars = "".join(BAR.format(epoch=1, at=at) + "\n" for at in range(1, 10)) + BAR.format(epoch=1, at=10) + "\n"
    text = bars + "Epoch 1: mean reward=0.5\n" + bars.replace("Epoch 1", "Epoch 2") + "Epoch 2: mean reward=0.5\n"
    assert len(rows_of(tmp_path, text)) > 10


def test_what_is_printed_behind_a_bar_is_another_line(tmp_path: Path) -> None:
    """No line ends behind a bar, so that what is printed stands there: its numbers are of the step that follows."""
    lines = "".join(
        f"Batches: 5%|# | {at}/90 [00:01<00:09, 1.0s/it, loss=0.{at - 1}1, reward=0.{at - 1}]"
        f"INFO - loss=0.{at}1 | reward=0.{at} | lr=1e-6\n"
        for at in range(2, 8)
    )
    assert [row["reward/mean"] for row in rows_of(tmp_path, lines)] == [pytest.approx(at / 10) for at in range(2, 8)]


def test_a_table_of_the_ends_is_no_course_beside_lines_of_the_steps(tmp_path: Path) -> None:
    lines = "".join(STEP.format(at) for at in range(1, 8))
    table = "\n| Metric | Base | After GRPO |\n|---|---|---|\n| Mean reward | 0.1 | 0.7 |\n| KL | 0 | 0.5 |\n"
    assert len(rows_of(tmp_path, lines + table)) == 7
    assert len(rows_of(tmp_path, table)) == 2


def test_returns_are_rewards_where_nothing_else_is(tmp_path: Path) -> None:
    line = "{{'returns': 0.{0}, 'task_reward': 0.{0}5, 'kl': 0.1}}\n"
    assert told(rows_of(tmp_path, "".join(line.format(at) for at in range(1, 4))))[0] == (1, 0.15)
    objective = line.replace("returns", "policy reward")
    assert told(rows_of(tmp_path, "".join(objective.format(at) for at in range(1, 4))))[0] == (1, 0.15)
    bare = line.replace("'task_reward': 0.{0}5, ", "")
    assert told(rows_of(tmp_path, "".join(bare.format(at) for at in range(1, 4))))[0] == (1, 0.1)


def test_what_is_told_again_without_its_step_is_told_once(tmp_path: Path) -> None:
    """ROLL and SkyRL print a step's numbers twice, once rounded or without the step's number."""
    lines = "".join(
        f'[tracking] metrics_tag: {{"step": {at}, "metrics": {{"critic/score/mean": 0.{at}, "actor/lr": 1e-06, '
        f'"critic/rewards/mean": -0.01}}}}\n{{"critic/score/mean": 0.{at}, "actor/lr": 1e-06}}\n'
        for at in range(1, 5)
    )
    assert told(rows_of(tmp_path, lines)) == [(at, at / 10) for at in range(1, 5)]
    more = lines.replace('"actor/lr": 1e-06}\n', '"actor/lr": 1e-06, "actor/grad_norm": 0.5}\n')
    assert [row["grad_norm"] for row in rows_of(tmp_path, more)] == [0.5] * 4  # what the second one tells more
    other = lines.replace('\n{"critic/score/mean": 0.3, ', '\n{"critic/score/mean": 0.9, ')
    assert len(rows_of(tmp_path, other)) == 5  # another number is another row


YAML = """\
(Runner pid=1) Step {0}
(Runner pid=1) actor:
(Runner pid=1)   lr: 1.0e-06
(Runner pid=1)   kl_loss: 0.0{0}
(Runner pid=1) critic:
(Runner pid=1)   rewards:
(Runner pid=1)     mean: 0.9
(Runner pid=1)   score:
(Runner pid=1)     max: 1.0
(Runner pid=1)     mean: 0.{0}
(Runner pid=1) prompt_length:
(Runner pid=1)   mean: 411.0
(Runner pid=1) response_length:
(Runner pid=1)   mean: 2{0}.0
"""


def test_blocks_of_yaml_are_read_by_their_headings(tmp_path: Path) -> None:
    first = "(Runner pid=1) Step 0\n(Runner pid=1) val:\n(Runner pid=1)   reward_score: 0.25\n"
    rows = rows_of(tmp_path, first + "".join(
        YAML.format(at) for at in range(1, 4)
    ))  # fmt: skip
    assert told(rows) == [(at, at / 10) for at in range(1, 4)]
    assert told(rows, "completions/length") == [(at, 20 + at) for at in range(1, 4)]
    assert told(rows, "eval/reward") == [(0, 0.25)]


def test_a_heading_takes_no_name_away(tmp_path: Path) -> None:
    block = (
        "== Step {0}/9 ==\nTraining Results:\n  • Avg Reward: 0.{0}\n  • Loss: 0.5\n"
        "Validation Results:\n  • Accuracy: 0.75\n"
    )
    rows = rows_of(tmp_path, "".join(block.format(at) for at in range(1, 4)))
    assert told(rows) == [(at, at / 10) for at in range(1, 4)]
    assert [row["eval/reward"] for row in rows] == [0.75] * 3
    assert "rewards/accuracy" not in rows[0]


def test_a_table_with_a_step_as_its_title_is_a_row(tmp_path: Path) -> None:
    table = (
        "      Step {0}\n┏━━━━┳━━━━┓\n┃ Metric ┃ Value ┃\n┡━━━━╇━━━━┩\n"
        "│ env/all/reward/total │ 0.{0} │\n│ optim/lr │ 0.00004 │\n└───┴───┘\n"
    )
    rows = rows_of(tmp_path, "".join(table.format(at) for at in range(1, 5)))
    assert told(rows) == [(at, at / 10) for at in range(1, 5)]


def test_two_columns_without_a_header_are_pairs(tmp_path: Path) -> None:
    block = "Step {0}\n====\nadvantage/mean   -0.000000\nprogress/lr     0.000020\nreward/mean     0.{0}00000\n====\n"
    rows = rows_of(tmp_path, "".join(block.format(at) for at in range(1, 4)))
    assert told(rows) == [(at, at / 10) for at in range(1, 4)]


def test_a_remark_between_rows_ends_no_table(tmp_path: Path) -> None:
    table = "step  reward  kl\n1  0.1  0.01\n2  0.2  0.02\n# checkpoint saved\n3  0.3  0.03\n"
    assert told(rows_of(tmp_path, table)) == [(1, 0.1), (2, 0.2), (3, 0.3)]


@pytest.mark.parametrize("start", ["base", "SFT", "**SFT**"])
def test_a_start_and_an_end_that_are_evaluated_are_two_rows(start: str, tmp_path: Path) -> None:
    table = f"| Stage | GSM8K | MATH |\n|---|---|---|\n| {start} | 40.0% | 30.0% |\n| GRPO | 5.0% | 7.0% |\n"
    rows = rows_of(tmp_path, table)
    assert [row["eval/reward"] for row in rows] == [pytest.approx(0.35), pytest.approx(0.06)]


def test_a_bar_without_an_end_that_is_drawn_again(tmp_path: Path) -> None:
    """Lightning's: each epoch's numbers once behind a step, once more when the next epoch begins."""
    drawn = "Epoch {0}: : 0it [04:2{0}, ?it/s, loss=1.{1}, v_num=0, avg_reward=0.{1}]{2}\n"
    text = "".join(
        drawn.format(at, at + 1, f"Epoch {at}, global step {8 * (at + 1)}: not in top 1")
        + drawn.format(at + 1, at + 1, "")
        for at in range(4)
    )
    assert told(rows_of(tmp_path, text)) == [(8, 0.1), (16, 0.2), (24, 0.3), (32, 0.4)]


def test_blocks_behind_what_a_logger_writes(tmp_path: Path) -> None:
    def lines(at: int, *texts: str) -> str:
        return "".join(f"2025-06-23 18:39:5{at},886 - main - INFO - {text}\n" for text in texts)

    text = "".join(
        lines(
            at,
            f"📊 Iteration {at} metrics:", "  - KL Divergence: 0.01", f"  - Average Reward: 0.{at}",
            f"📊 Validation Results (Iteration {at}):", "  - success_rate: 0.5",
            "📸 Image 1:", "    CLIP Score: 0.9",
        )
        for at in (1, 2, 3)
    )  # fmt: skip
    rows = rows_of(tmp_path, text)
    assert told(rows) == [(1, 0.1), (2, 0.2), (3, 0.3)]  # a score of something else is no reward
    assert told(rows, "eval/slices/accuracy") == [(1, 0.5), (2, 0.5), (3, 0.5)]


def test_parts_of_a_reward_that_were_evaluated(tmp_path: Path) -> None:
    text = "Step 0\nval:\n  accuracy_reward: 0.4\n  format_reward: 0.9\n"
    (row,) = rows_of(tmp_path, text)
    assert (row["eval/slices/accuracy"], row["eval/rewards/format"]) == (0.4, 0.9)


def test_how_many_steps_there_were_is_no_row(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "".join(map(STEP.format, (1, 2, 3))) + "Done. steps=50\n")
    assert told(rows) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert len(rows) == 3


def test_what_a_head_cites_is_no_row(tmp_path: Path) -> None:
    steps = "".join(f"global_step={at} | reward_mean=0.{at} | response_length_mean=20{at}.0\n" for at in (3, 4, 5))
    rows = rows_of(tmp_path, "response_length_mean=2300.5 is far from the median\n\n" + steps)
    assert [(row["step"], row["completions/length"]) for row in rows] == [(3, 203.0), (4, 204.0), (5, 205.0)]


def test_what_a_notebook_prints_beside_its_table_of_losses(tmp_path: Path) -> None:
    table = "Step\tTraining Loss\n" + "".join(f"{at}\t0.{at}\n" for at in range(10, 90, 2))
    rows = rows_of(tmp_path, "one try: reward 1.0, accuracy 0.5\nthe reward: 0.3, length 9\n\n" + table)
    assert told(rows, "loss")[:2] == [(10, 0.10), (12, 0.12)]
    assert (len(rows), told(rows)) == (40, [])


def test_a_table_of_losses_before_rewards_is_of_another_stage(tmp_path: Path) -> None:
    table = "Step\tTraining Loss\n" + "".join(f"{at}\t0.{at}\n" for at in range(10, 90))
    rows = rows_of(tmp_path, table + "\n" + "".join(f"reward: 0.{at} kl: 0.01\n" for at in range(1, 9)))
    assert [row["reward/mean"] for row in rows] == [at / 10 for at in range(1, 9)]


def test_words_before_a_score(tmp_path: Path) -> None:
    for word in ("got", "and", "Done", "results"):
        text = "".join(f"step {at} {word} score: 0.{at}, kl: 0.1\n" for at in range(1, 5))
        assert told(rows_of(tmp_path, text)) == [(at, at / 10) for at in range(1, 5)]


def test_an_item_is_followed_by_steps(tmp_path: Path) -> None:
    text = "".join(f"* epoch {at} done, saving,\n   step={2 * at} reward=0.{at} kl=0.1,\n" for at in range(1, 5))
    assert len(rows_of(tmp_path, text)) == 4


@pytest.mark.parametrize(
    ("name", "metric"),
    [("eval_median_reward", "eval/reward"), ("eval_max_reward", None), ("eval_format_reward", "eval/rewards/format")],
)
def test_which_evaluated_rewards_are_parts(name: str, metric: str | None) -> None:
    assert name_of(name) == metric
