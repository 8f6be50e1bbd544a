"""Tables and lists as people paste them into issues: which rows they are read as."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import GrpoError
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source
from grpoctl.diagnose.readers.written_cells import cell_values, steps_of_label

Row = dict[str, float]


def rows_of(text: str, folder: Path) -> list[Row]:
    file = folder / "comment.md"
    file.write_text(text)
    rows = open_source(Source(name=str(file), path=file)).case.rows
    return [{name: value for name, value in row.items() if value is not None and name != "update"} for row in rows]


@pytest.mark.parametrize(
    ("cell", "values"),
    [
        ("**0.42**", [0.42]),
        ("`0.5`", [0.5]),
        ("→ **0.84**", [0.84]),
        ("-> ", [None]),
        ("≈ 12", [12.0]),
        ("~0.3", [0.3]),
        ("0.1 → 0.4", [0.1, 0.4]),
        ("0.1->0.2 -> 0.4", [0.1, 0.2, 0.4]),
        ("12,345", [12345.0]),
        ("1.2k", [1200.0]),
        ("**−0.022**", [-0.022]),
        ("1×10⁻⁶", [1e-6]),
        ("0.033±0.038", [0.033]),
        ("−0.0151 (p = 5.7e-07)", [-0.0151]),
        ("3/20", [0.15]),
        ("0,35", [0.35]),
        ("0.25-0.75", [0.5]),
        ("<0.01", [0.01]),
        ("0.64 ✅", [0.64]),
        ("512 tokens", [512.0]),
        ("38.5B", [38.5e9]),
        ("fell to 0.4-0.5", [0.45]),
        ("飙升1.5-2.3", [1.9]),
        ("5-15 all along", [10.0]),
        ("spike to 15", [15.0]),
        ("peak at step 50", [None]),
        ("v2", [None]),
        ("Qwen2.5-3B", [None]),
        ("3 of 7 fail", [None]),
        ("1% → 3%", [0.01, 0.03]),
        ("**37.5% = 150/400**", [0.375]),
        ("0.5 = 0.7", [None]),
        ("192（耗满 200 上限）", [192.0]),
        ("—", [None]),
        ("yes", [None]),
        ("2025-01-02", [None]),
    ],
)
def test_a_cell(cell: str, values: list[float | None]) -> None:
    assert cell_values(cell) == pytest.approx(values)


@pytest.mark.parametrize(
    "header",
    ["| Run | Epoch 1 | Epoch 2 |", "| Metric | Epoch 1 (7B) | Epoch 2 (1.5B) |", "| Metric | Epochs 2 | Epochs 10 |"],
)
def test_columns_that_are_no_epochs_of_one_run(header: str, tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text(f"{header}\n|---|---|---|\n| reward | 0.3 | 0.1 |\n| KL | 0.1 | 0.2 |\n", encoding="utf-8")
    reading = open_source(Source(name=str(file), path=file))
    assert [len(one.case.rows) for one in (reading, *reading.further)] == [1, 1]


@pytest.mark.parametrize(
    ("names", "runs"),
    [
        (("Baseline (step 0)", "GRPO (step 500)", "DAPO (step 800)"), ["GRPO (step 500)", "DAPO (step 800)"]),
        (("before (step 0)", "after (step 500)"), [""]),
    ],
)
def test_steps_in_brackets_may_be_of_several_runs(names: tuple[str, ...], runs: list[str], tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text(
        f"| Metric | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}\n| reward | 0.1 | 0.3 | 0.4 |\n"
        "| KL | 0 | 0.01 | 0.02 |\n", encoding="utf-8",
    )  # fmt: skip
    reading = open_source(Source(name=str(file), path=file))
    assert [one.run for one in (reading, *reading.further)] == runs


def test_each_method_has_a_start_and_an_end(tmp_path: Path) -> None:
    """The baseline's row is no start of the other one's run."""
    file = tmp_path / "a.md"
    rows = "| baseline | 0.1 | 0.5 | 0.6 |\n| PPO | 0.1 | 0.3 | |\n| DAPO | - | 0.4 | |\n| GRPO | 0.2 | 0.6 | 0.7 |\n"
    header = "| Experiment | Start Reward | End Reward | Reward (best) |\n|---|---|---|---|\n"
    file.write_text(header + rows, encoding="utf-8")
    reading = open_source(Source(name=str(file), path=file))
    told = {one.run: [row["reward/mean"] for row in one.case.rows] for one in (reading, *reading.further)}
    assert told == {"PPO": [0.1, 0.3], "DAPO": [0.4], "GRPO": [0.2, 0.6]}
    file.write_text(header + "| A (step 500) | 0.1 | 0.5 | |\n| B (step 300) | 0.2 | 0.3 | |\n", encoding="utf-8")
    reading = open_source(Source(name=str(file), path=file))
    told = {one.run: [row["reward/mean"] for row in one.case.rows] for one in (reading, *reading.further)}
    assert told == {"A (step 500)": [0.1, 0.5], "B (step 300)": [0.2, 0.3]}


@pytest.mark.parametrize(
    ("over", "unit"),
    [("Model size", "M"), ("Trainable params", "M"), ("Checkpoint", "M"), ("Phase", "M"), ("Step", "m")],
)
def test_what_is_in_millions_and_no_step(over: str, unit: str, tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text(f"| {over} | reward |\n|---|---|\n| 135{unit} | 0.2 |\n| 360{unit} | 0.3 |\n", encoding="utf-8")
    try:
        reading = open_source(Source(name=str(file), path=file))
    except GrpoError:
        return
    assert max(row["step"] or 0 for one in (reading, *reading.further) for row in one.case.rows) < 10


def test_a_cell_that_is_no_number_was_measured() -> None:
    assert [math.isnan(value or 0.0) for value in cell_values("NaN (diverged)")] == [True]


@pytest.mark.parametrize(
    ("label", "span"),
    [
        ("50", (50, 50)),
        ("step 50", (50, 50)),
        ("0-50", (0, 50)),
        ("1–10", (1, 10)),
        ("Step 100 to 200", (100, 200)),
        ("0 → 100", (0, 100)),
        ("1.5k", (1500, 1500)),
        ("ckpt-200", (200, 200)),
        ("36 *(first run)*", (36, 36)),
        ("300+", (300, 300)),
        ("arm C4 step 50", (50, 50)),
        ("baseline `exp199`", (0, 0)),
        ("final", None),
        ("0.5", None),
        ("100-50", None),
    ],
)
def test_a_label(label: str, span: tuple[int, int] | None) -> None:
    assert steps_of_label(label) == span


TABLES: dict[str, tuple[str, list[Row]]] = {
    "metrics as rows, start and end as columns": (
        "After:\n\n| metric | start | end |\n|---|---|---|\n| mean reward | 0.12 | 0.61 |\n| KL div | 0.001 | "
        "**0.043** |\n| clip frac | 0.1% | 0.3% |\n",
        [
            {"step": 1, "reward/mean": 0.12, "kl": 0.001, "policy/clip_share": 0.001},
            {"step": 2, "reward/mean": 0.61, "kl": 0.043, "policy/clip_share": 0.003},
        ],
    ),
    "steps as columns": (
        "| | step 10 | step 50 | step 100 |\n|---|---|---|---|\n| **avg reward** | 0.41 | 0.12 | 0.00 |\n"
        "| truncated % | 2 | 64 | 100 |\n",
        [
            {"step": 10, "reward/mean": 0.41, "completions/truncated": 0.02},
            {"step": 50, "reward/mean": 0.12, "completions/truncated": 0.64},
            {"step": 100, "reward/mean": 0.0, "completions/truncated": 1.0},
        ],
    ),
    "ranges of steps, thousands": (
        "| Steps | Avg. Reward | Grad norm |\n|:-|--:|--:|\n| 0-50 | 0.21 | 0.4 |\n| 50–100 | 0.24 | 1,240.5 |\n",
        [
            {"step": 50, "reward/mean": 0.21, "grad_norm": 0.4},
            {"step": 100, "reward/mean": 0.24, "grad_norm": 1240.5},
        ],
    ),
    "arrows inside of ranges": (
        "| phase | reward | KL |\n|--|--|--|\n| step 10 → 100 | 0.10 → 0.45 | 0.01 → 0.02 |\n"
        "| step 101 → 200 | 0.45 → 0.03 | 0.02 → 14.7 |\n",
        [
            {"step": 10, "reward/mean": 0.1, "kl": 0.01},
            {"step": 100, "reward/mean": 0.45, "kl": 0.02},
            {"step": 101, "reward/mean": 0.45, "kl": 0.02},
            {"step": 200, "reward/mean": 0.03, "kl": 14.7},
        ],
    ),
    "a clip ratio beside lengths that is too large for PPO's": (
        "| step | reward | resp_len | clip_ratio |\n|-|-|-|-|\n| 5 | 0.4 | 630 | 4% |\n| 30 | 0.3 | 970 | **31%** |\n",
        [
            {"step": 5, "reward/mean": 0.4, "completions/length": 630, "completions/truncated": 0.04},
            {"step": 30, "reward/mean": 0.3, "completions/length": 970, "completions/truncated": 0.31},
        ],
    ),
    "a clip ratio that may be PPO's": (
        "| step | reward | resp_len | clip_ratio |\n|-|-|-|-|\n| 5 | 0.4 | 630 | 0.001 |\n| 30 | 0.3 | 970 | 0.2 |\n",
        [
            {"step": 5, "reward/mean": 0.4, "completions/length": 630},
            {"step": 30, "reward/mean": 0.3, "completions/length": 970},
        ],
    ),
    "a large clip ratio beside no length": (
        "| step | reward | clip_ratio |\n|--|--|--|\n| 5 | 0.4 | 4% |\n| 30 | 0.3 | 31% |\n",
        [{"step": 5, "reward/mean": 0.4}, {"step": 30, "reward/mean": 0.3}],
    ),
    "a base above its checkpoints, scores in percent": (
        "| | AIME24 (avg@16) |\n|-|-|\n| Qwen3-4B-Base | 68.0 |\n| Step 15 | 70.0 |\n| Step 30 | 41.0 |\n",
        [
            {"step": 0, "eval/slices/aime24": 0.68, "eval/reward": 0.68},
            {"step": 15, "eval/slices/aime24": 0.7, "eval/reward": 0.7},
            {"step": 30, "eval/slices/aime24": 0.41, "eval/reward": 0.41},
        ],
    ),
    "epochs with their steps below a base": (
        "| | eval reward |\n|-|-|\n| Qwen3-4B-Base | 0.5 |\n| Epoch 1 (Step 33) | 0.6 |\n| Epoch 2 (Step 66) | 0.4 |\n",
        [{"step": 0, "eval/reward": 0.5}, {"step": 33, "eval/reward": 0.6}, {"step": 66, "eval/reward": 0.4}],
    ),
    "a stronger model above the checkpoints": (
        "| Model | eval reward |\n|-|-|\n| Qwen2.5-72B-Instruct | 0.9 |\n| step 100 | 0.5 |\n| step 200 | 0.6 |\n",
        [{"step": 100, "eval/reward": 0.5}, {"step": 200, "eval/reward": 0.6}],
    ),
    "a reward of two": (
        "| Step | Accuracy reward |\n|-|-|\n| 10 | 0.4 |\n| 50 | 1.2 |\n| 100 | 1.7 |\n",
        [{"step": at, "rewards/accuracy": value} for at, value in ((10, 0.4), (50, 1.2), (100, 1.7))],
    ),
    "an accuracy that was measured wrong once": (
        "| Step | acc |\n|-|-|\n| 10 | 0.1 |\n| 50 | 0.2 |\n| 100 | 1.2 |\n",
        [{"step": at, "rewards/accuracy": value} for at, value in ((10, 0.1), (50, 0.2), (100, 1.2))],
    ),
    "a mean behind a median": (
        "| step | reward | length median | length mean |\n|-|-|-|-|\n| 1 | 0.1 | 90 | 100 |\n| 2 | 0.2 | 90 | 110 |\n",
        [
            {"step": 1, "reward/mean": 0.1, "completions/length": 100},
            {"step": 2, "reward/mean": 0.2, "completions/length": 110},
        ],
    ),
    "parts of a reward by checkpoints": (
        "| checkpoint | format reward | length penalty |\n|-|-|-|\n| start | 0.1 | -0.5 |\n| 100 | 0.2 | -0.3 |\n",
        [
            {"step": 1, "rewards/format": 0.1, "rewards/length_penalty": -0.5},
            {"step": 100, "rewards/format": 0.2, "rewards/length_penalty": -0.3},
        ],
    ),
    "a score of its author's by checkpoints": (
        "| checkpoint | sum_F1 |\n|-|-|\n| base（dev01） | 0.25 |\n| global_step_160 | 0.85 |\n"
        "| global_step_170 | 0.75 |\n",
        [
            {"step": at, "eval/slices/sum_f1": value, "eval/reward": value}
            for at, value in ((0, 0.25), (160, 0.85), (170, 0.75))
        ],
    ),
    "scores of a model before and after": (
        "| Model | Strict | Lenient |\n|-|-|-|\n| Qwen2.5-1.5B (baseline) | 2% | 40% |\n| + GRPO (ours) | 50% | 60% |\n"
        "| Δ | +48.0 pts | +20.0 pts |\n",
        [
            {"step": 1, "eval/slices/strict": 0.02, "eval/slices/lenient": 0.4, "eval/reward": 0.21},
            {"step": 2, "eval/slices/strict": 0.5, "eval/slices/lenient": 0.6, "eval/reward": 0.55},
        ],
    ),
    "a base that was trained by rewards, too": (
        "| Model | acc |\n|-|-|\n| RFT merged base | 0.8 |\n| GRPO from RFT | 0.7 |\n",
        [
            {"step": 1, "eval/slices/accuracy": 0.8, "eval/reward": 0.8},
            {"step": 2, "eval/slices/accuracy": 0.7, "eval/reward": 0.7},
        ],
    ),
    "scores of its author's in columns of steps": (
        "| Task | Baseline | Step 10 | Step 50 |\n|-|-|-|-|\n| Attribute removal | 60% | ~80% | 0% |\n"
        "| Failed tasks | 10% | 20% | 30% |\n",
        [
            {"step": at, "eval/slices/attribute_removal": value, "eval/reward": value}
            for at, value in ((0, 0.6), (10, 0.8), (50, 0.0))
        ],
    ),
    "windows of steps below a title": (
        "## 3. Windowed online accuracy (%)\n\n| Window (step) | GRPO |\n|-|-|\n| 1–50 | 38.0 |\n| 51–100 | 35.0 |\n"
        "| 101–150 | **15.0** |\n",
        [
            {"step": 50, "rewards/accuracy": 0.38},
            {"step": 100, "rewards/accuracy": 0.35},
            {"step": 150, "rewards/accuracy": 0.15},
        ],
    ),
    "settings with notes on them": (
        "| 参数 | 值 | 说明 |\n|-|-|-|\n| KL penalty | 0.1 | in the loss |\n| 温度 | 0.8 | |\n\n"
        "| Step | Reward |\n|-|-|\n| 1 | 0.5 |\n| 2 | 0.6 |\n",
        [{"step": at, "reward/mean": value, "beta": 0.1, "temperature": 0.8} for at, value in ((1, 0.5), (2, 0.6))],
    ),
    "metric and value": (
        "| Metric | Value |\n|---|---|\n| reward | 0.1 → 0.4 |\n| completions/clipped_ratio | ~0.98 |\n",
        [
            {"step": 1, "reward/mean": 0.1, "completions/truncated": 0.98},
            {"step": 2, "reward/mean": 0.4, "completions/truncated": 0.98},
        ],
    ),
    "a list with arrows": (
        "After ~300 steps:\n\n- reward: 0.52 -> 0.08\n- KL: 0.003 -> 8.1\n- mean completion length: 380 -> 12\n",
        [
            {"step": 1, "reward/mean": 0.52, "kl": 0.003, "completions/length": 380},
            {"step": 2, "reward/mean": 0.08, "kl": 8.1, "completions/length": 12},
        ],
    ),
    "prose": (
        "When I train on my dataset the reward drops from 0.62 to 0.05 while the KL explodes from 0.01 to 15.3.\n",
        [{"step": 1, "reward/mean": 0.62, "kl": 0.01}, {"step": 2, "reward/mean": 0.05, "kl": 15.3}],
    ),
    "bars between names and values": (
        "step 1 | reward 0.12 | kl 0.0004 | len 201\nstep 2 | reward 0.15 | kl 0.0006 | len 203\n",
        [
            {"step": 1, "reward/mean": 0.12, "kl": 0.0004, "completions/length": 201},
            {"step": 2, "reward/mean": 0.15, "kl": 0.0006, "completions/length": 203},
        ],
    ),
    "names and values in a sentence": (
        "[Step 1] avg reward 0.31, acc 25.0%, KL 0.012\n[Step 2] avg reward 0.35, acc 28.0%, KL 0.015\n",
        [
            {"step": 1, "reward/mean": 0.31, "rewards/accuracy": 0.25, "kl": 0.012},
            {"step": 2, "reward/mean": 0.35, "rewards/accuracy": 0.28, "kl": 0.015},
        ],
    ),
    "columns of spaces": (
        "step    mean_reward    grad norm\n1       0.25           0.51\n2       0.31           0.48\n",
        [
            {"step": 1, "reward/mean": 0.25, "grad_norm": 0.51},
            {"step": 2, "reward/mean": 0.31, "grad_norm": 0.48},
        ],
    ),
    "pandas": (
        "    step  reward      kl\n0      1   0.125  0.0001\n1      2   0.250  0.0004\n",
        [{"step": 1, "reward/mean": 0.125, "kl": 0.0001}, {"step": 2, "reward/mean": 0.25, "kl": 0.0004}],
    ),
    "one space between all words": (
        "Step Training Loss reward completions / mean_length\n1 0.0001 0.125 200.5\n2 0.0002 0.250 210.5\n",
        [
            {"step": 1, "loss": 0.0001, "reward/mean": 0.125, "completions/length": 200.5},
            {"step": 2, "loss": 0.0002, "reward/mean": 0.25, "completions/length": 210.5},
        ],
    ),
    "a CSV in a comment": (
        "My log:\nstep,reward,kl\n1,0.1,0.001\n2,0.2,0.002\n",
        [{"step": 1, "reward/mean": 0.1, "kl": 0.001}, {"step": 2, "reward/mean": 0.2, "kl": 0.002}],
    ),
    "Chinese": (
        "| 步数 | 平均奖励 | 平均回复长度 | 熵 |\n|-|-|-|-|\n| 1 | 0.10 | 800 | 0.9 |\n| 2 | 0.35 | 1024 | 0.2 |\n",
        [
            {"step": 1, "reward/mean": 0.1, "completions/length": 800, "entropy": 0.9},
            {"step": 2, "reward/mean": 0.35, "completions/length": 1024, "entropy": 0.2},
        ],
    ),
    "two tables of one run": (
        "| step | reward |\n|---|---|\n| 10 | 0.2 |\n| 20 | 0.3 |\n\n### KL\n\n| step | KL |\n|--|--|\n| 10 | 0.01 |\n"
        "| 20 | 0.5 |\n",
        [{"step": 10, "reward/mean": 0.2, "kl": 0.01}, {"step": 20, "reward/mean": 0.3, "kl": 0.5}],
    ),
    "two tables behind each other": (
        "| step | reward |\n|---|---|\n| 10 | 0.2 |\n\n| step | KL |\n|---|---|\n| 10 | 0.01 |\n",
        [{"step": 10, "reward/mean": 0.2, "kl": 0.01}],
    ),
    "HTML": (
        "<table><tr><th>Step</th><th>Reward (avg)</th><th>Zero-std groups</th></tr><tr><td>100</td><td><b>0.02</b></td>"
        "<td>97%</td></tr></table>",
        [{"step": 100, "reward/mean": 0.02, "groups/dead": 0.97}],
    ),
    "a box of ASCII": (
        "+------+--------+\n| step | reward |\n"
        "+======+========+\n| 5    | 0.5    |\n+------+--------+\n| 6    | 0.0    |\n",
        [{"step": 5, "reward/mean": 0.5}, {"step": 6, "reward/mean": 0.0}],
    ),
    "a box for each step": (
        "-----------------------\n| train/       |      |\n|    kl        | 0.02 |\n| rollout/     |      |\n"
        "|  mean_reward | 0.5  |\n-----------------------\n-----------------------\n| train/       |      |\n"
        "|    kl        | 0.03 |\n| rollout/     |      |\n|  mean_reward | 0.6  |\n-----------------------\n",
        [{"step": 1, "kl": 0.02, "reward/mean": 0.5}, {"step": 2, "kl": 0.03, "reward/mean": 0.6}],
    ),
    "a list for each step": (
        "Step 100:\n  - Reward: 0.45\n  - Truncated: 12%\nStep 200:\n  - Reward: 0.01\n  - Truncated: 99%\n",
        [
            {"step": 100, "reward/mean": 0.45, "completions/truncated": 0.12},
            {"step": 200, "reward/mean": 0.01, "completions/truncated": 0.99},
        ],
    ),
    "lists by epoch": (
        "Epoch 0.01: entropy = 0.2-0.6 (fine)\nEpoch 0.02: entropy = 0.1\n\nEpoch 0.01: reward = 0.03±0.04\n"
        "Epoch 0.02: reward = 0.04\n",
        [{"step": 1, "entropy": 0.4, "reward/mean": 0.03}, {"step": 2, "entropy": 0.1, "reward/mean": 0.04}],
    ),
    "NeMo RL's blocks": (
        "===== Step 5/100 =====\n  • Loss: -0.01\n  • Avg Reward: 0.35\n  • Mean Generation Length: 512.3\n"
        "===== Step 6/100 =====\n  • Loss: -0.02\n  • Avg Reward: 0.40\n  • Mean Generation Length: 530.3\n",
        [
            {"step": 5, "loss": -0.01, "reward/mean": 0.35, "completions/length": 512.3},
            {"step": 6, "loss": -0.02, "reward/mean": 0.4, "completions/length": 530.3},
        ],
    ),
    "W&B's summary": (
        "wandb: Run summary:\nwandb:         train/kl 0.0213\nwandb:     train/reward 0.35\nwandb: View run at x\n",
        [{"step": 1, "kl": 0.0213, "reward/mean": 0.35}],
    ),
    "AReaL's boxes": (
        "│ grpo_actor/task_reward/avg │ 3.4e-01 │ grpo_actor/entropy/avg │ 4.1e-01 │\n",
        [{"step": 1, "reward/mean": 0.34, "entropy": 0.41}],
    ),
    "ms-swift's steps": (
        "{'loss': 0.1, 'reward': 0.2, 'kl': 0.001, 'global_step/max_steps': '5/1000', 'elapsed_time': '1m 2s'}\n",
        [{"step": 5, "loss": 0.1, "reward/mean": 0.2, "kl": 0.001}],
    ),
    "sentences with a step": (
        "After 100 steps the reward is 0.42 and KL is 0.01.\nAfter 300 steps the reward is 0.02 and KL is 7.4.\n",
        [{"step": 100, "reward/mean": 0.42, "kl": 0.01}, {"step": 300, "reward/mean": 0.02, "kl": 7.4}],
    ),
    "a total in the header, and parts of an epoch": (
        "| Epoch | Reward | Valid/16 | zero_std/8 |\n|---|---|---|---|\n| 0.00 | 1.8 | 16/16 | 0/8 |\n"
        "| 0.35 | 0.8 | 12/16 | 2/8 |\n| 1.00 | 0.1 | 0/16 | 8/8 |\n",
        [
            {"step": 1, "reward/mean": 1.8, "completions/valid": 1.0, "groups/dead": 0.0},
            {"step": 2, "reward/mean": 0.8, "completions/valid": 0.75, "groups/dead": 0.25},
            {"step": 3, "reward/mean": 0.1, "completions/valid": 0.0, "groups/dead": 1.0},
        ],
    ),
    "a column for each epoch": (
        "| Metric | Epoch 0 | Epoch 1.5 | Epoch 3 (final) |\n|---|---|---|---|\n| reward | 0.62 | 0.64 | 0.668 |\n"
        "| KL from ref | 0 | 0.1 | 0.3 |\n",
        [
            {"step": 1, "reward/mean": 0.62, "kl": 0.0},
            {"step": 2, "reward/mean": 0.64, "kl": 0.1},
            {"step": 3, "reward/mean": 0.668, "kl": 0.3},
        ],
    ),
    "a column for the start, and each epoch": (
        "| Metric | Before | Epoch 1 | Epoch 2 |\n|---|---|---|---|\n| reward | 0.31 | 0.35 | 0.36 |\n"
        "| KL | 0 | 0.1 | 0.3 |\n",
        [
            {"step": 1, "reward/mean": 0.31, "kl": 0.0},
            {"step": 2, "reward/mean": 0.35, "kl": 0.1},
            {"step": 3, "reward/mean": 0.36, "kl": 0.3},
        ],
    ),
    "a row for the start, and each epoch": (
        "| Checkpoint | reward | KL |\n|---|---|---|\n| Before | 0.31 | 0 |\n| Epoch 1 | 0.35 | 0.1 |\n"
        "| Epoch 2 | 0.36 | 0.3 |\n",
        [
            {"step": 1, "reward/mean": 0.31, "kl": 0.0},
            {"step": 2, "reward/mean": 0.35, "kl": 0.1},
            {"step": 3, "reward/mean": 0.36, "kl": 0.3},
        ],
    ),
    "a run's name before every column": (
        "| Step | runA reward | runA KL |\n|---|---|---|\n| 10 | 0.1 | 0.0 |\n| 20 | 0.3 | 0.2 |\n",
        [{"step": 10, "reward/mean": 0.1, "kl": 0.0}, {"step": 20, "reward/mean": 0.3, "kl": 0.2}],
    ),
    "a run's name before what nobody knows, too": (
        "| Step | runB probe | runB KL |\n|---|---|---|\n| 10 | 0.1 | 0.0 |\n| 20 | 0.3 | 0.2 |\n",
        [{"step": 10, "kl": 0.0}, {"step": 20, "kl": 0.2}],
    ),
    "an evaluation's columns": (
        "| Step | eval reward | eval KL |\n|---|---|---|\n| 10 | 0.1 | 0.0 |\n| 20 | 0.3 | 0.2 |\n",
        [{"step": 10, "eval/reward": 0.1}, {"step": 20, "eval/reward": 0.3}],
    ),
    "a word before columns that are known by it": (
        "| Step | response length | response tokens |\n|---|---|---|\n| 10 | 100 | 3 |\n| 20 | 300 | 4 |\n",
        [{"step": 10, "completions/length": 100}, {"step": 20, "completions/length": 300}],
    ),
    "two tables of one run side by side": (
        "| Step | reward | Step | KL |\n|---|---|---|---|\n| 10 | 0.1 | 10 | 0.3 |\n| 20 | 0.2 | 20 | 0.4 |\n",
        [{"step": 10, "reward/mean": 0.1, "kl": 0.3}, {"step": 20, "reward/mean": 0.2, "kl": 0.4}],
    ),
    "steps in Chinese brackets": (
        "| 阶段 | reward | KL |\n|---|---|---|\n| SFT（step 0） | 0.1 | 0.0 |\n| GRPO（step 100） | 0.3 | 0.01 |\n"
        "| GRPO（step 200） | 0.5 | 0.02 |\n",
        [
            {"step": 1, "reward/mean": 0.1, "kl": 0.0},
            {"step": 100, "reward/mean": 0.3, "kl": 0.01},
            {"step": 200, "reward/mean": 0.5, "kl": 0.02},
        ],
    ),
    "steps in the brackets of a start and an end": (
        "| Metric | before (step 0) | after (step 500) |\n|---|---|---|\n| reward | 0.1 | 0.5 |\n| KL | 0.0 | 0.02 |\n",
        [{"step": 1, "reward/mean": 0.1, "kl": 0.0}, {"step": 500, "reward/mean": 0.5, "kl": 0.02}],
    ),
    "a word that makes another metric of it": (
        "| Step | std reward | std KL |\n|---|---|---|\n| 10 | 0.1 | 0.3 |\n| 20 | 0.2 | 0.4 |\n",
        [{"step": 10, "reward/std": 0.1}, {"step": 20, "reward/std": 0.2}],
    ),
    "a start that nobody told": (
        "| Run | Initial reward | Final reward | KL |\n|---|---|---|---|\n| GRPO | - | 0.62 | 0.02 |\n",
        [{"step": 1, "reward/mean": 0.62, "kl": 0.02}],
    ),
    "a start, an end, and what is told of the whole": (
        "| Run | First reward | Early reward | Last reward | Mean reward |\n|---|---|---|---|---|\n"
        "| GRPO | 0.1 | 0.2 | 0.5 | 0.3 |\n",
        [{"step": 1, "reward/mean": 0.1}, {"step": 2, "reward/mean": 0.5}],
    ),
    "a start and an end of another model": (
        "| Run | Baseline reward | Final reward |\n|---|---|---|\n| GRPO | 0.1 | 0.5 |\n",
        [{"step": 1, "reward/mean": 0.5, "rewards/baseline": 0.1}],
    ),
    "rates at the start and the end are settings": (
        "| Setting | Value |\n|---|---|\n| start LR | 1e-6 |\n| end LR | 1e-7 |\n| KL | 0.04 |\n| reward | 0.5 |\n",
        [{"step": 1, "kl": 0.04, "reward/mean": 0.5}],
    ),
    "a long table set in columns line by line": (
        "| Step | reward | Step | reward |\n|---|---|---|---|\n| 10 | 0.1 | 20 | 0.2 |\n| 30 | 0.3 | 40 | 0.4 |\n"
        "| 50 | 0.5 |  |  |\n",
        [{"step": at * 10, "reward/mean": at / 10} for at in (1, 2, 3, 4, 5)],
    ),
    "another run beside it": (
        "| Step | reward | Step | reward |\n|---|---|---|---|\n| 10 | 0.1 | 10 | 0.3 |\n| 20 | 0.2 | 20 | 0.4 |\n",
        [{"step": 10, "reward/mean": 0.3}, {"step": 20, "reward/mean": 0.4}],
    ),
    "models before and after training": (
        "| Metric | Baseline | Trained | Δ |\n|---|---|---|---|\n| Mean Reward | 0.38 | 0.41 | **+0.03** |\n"
        "| Detection Score | 0.19 | 0.29 | +10 pp |\n",
        [
            {"step": 1, "eval/reward": 0.38, "eval/slices/detection_score": 0.19},
            {"step": 2, "eval/reward": 0.41, "eval/slices/detection_score": 0.29},
        ],
    ),
    "steps behind a model before training": (
        "| | reward | length |\n|---|---|---|\n| before training | 0.1 | 20 |\n| step 10 | 0.2 | 30 |\n",
        [
            {"step": 1, "reward/mean": 0.1, "completions/length": 20},
            {"step": 10, "reward/mean": 0.2, "completions/length": 30},
        ],
    ),
    "stages beside steps, and a total": (
        "| window | mean reward |\n|---|---|\n| first 25 rounds | 0.3 |\n| rounds 100–150 | 0.2 |\n"
        "| **last 25 rounds** | **0.4** |\n| overall | 0.3 |\n",
        [{"step": 1, "reward/mean": 0.3}, {"step": 2, "reward/mean": 0.2}, {"step": 3, "reward/mean": 0.4}],
    ),
    "a stage beside its step": (
        "| Stage | Step | Reward |\n|---|---|---|\n| early | 0 | 0.7 |\n| mid | 164 | 0.9 |\n| late | 500 | 1.2 |\n",
        [{"step": 1, "reward/mean": 0.7}, {"step": 164, "reward/mean": 0.9}, {"step": 500, "reward/mean": 1.2}],
    ),
    "stages in words beside steps": (
        "| Steps | Reward |\n|---|---|\n| early | 0.1 |\n| 100 | 0.2 |\n| 200 | 0.3 |\n| late | 0.4 |\n"
        "| peak | 0.5 |\n",
        [{"step": 100, "reward/mean": 0.2}, {"step": 200, "reward/mean": 0.3}],
    ),
    "rewards with a plus": (
        "| | step 0 | step 50 | step 100 |\n|---|---|---|---|\n| reward | -1.2 | +0.4 | +0.6 |\n",
        [
            {"step": 1, "reward/mean": -1.2},
            {"step": 50, "reward/mean": 0.4},
            {"step": 100, "reward/mean": 0.6},
        ],
    ),
    "a model that was trained twice": (
        "| Metric | Untrained | Trained (SFT) | Trained (GRPO) |\n|---|---|---|---|\n| reward | 0.4 | 0.6 | 0.8 |\n",
        [{"step": 1, "eval/reward": 0.6}, {"step": 2, "eval/reward": 0.8}],
    ),
    "the last beside the mean": (
        "| Step | Reward | Last Reward | Last KL |\n|---|---|---|---|\n| 1 | 0.1 | 0.0 | 0.01 |\n"
        "| 2 | 0.2 | 0.1 | 0.02 |\n",
        [{"step": 1, "reward/mean": 0.1, "rewards/last": 0.0}, {"step": 2, "reward/mean": 0.2, "rewards/last": 0.1}],
    ),
    "first and last": (
        "| Run | First loss | Last loss | First reward | Last reward |\n|---|---|---|---|---|\n"
        "| GRPO | 0.5 | 0.4 | 0.1 | 0.3 |\n",
        [{"step": 1, "loss": 0.5, "reward/mean": 0.1}, {"step": 2, "loss": 0.4, "reward/mean": 0.3}],
    ),
    "the last of the whole": (
        "| Directory | Global Step | Last Loss | Last Reward | Last KL |\n|---|---|---|---|---|\n"
        "| `out_2` | 30/30 | 0.02 | 0.5 | 0.8 |\n",
        [{"step": 1, "loss": 0.02, "reward/mean": 0.5, "kl": 0.8}],
    ),
    "ends in a cell below a name that says so": (
        "| cell | lr | reward | entropy f→l |\n|---|---|---|---|\n| long / lr1e6 | 1e-6 | 0.7 | 0.4→0.2 |\n",
        [
            {"step": 1, "learning_rate": 1e-6, "reward/mean": 0.7, "entropy": 0.4},
            {"step": 2, "learning_rate": 1e-6, "reward/mean": 0.7, "entropy": 0.2},
        ],
    ),
    "settings and results": (
        "| Parameter | Value |\n|---|---|\n| KL penalty (β) | 0.04 |\n| Response length | 512 |\n\n"
        "| Metric | Start | End |\n|---|---|---|\n| reward | 0.1 | 0.4 |\n",
        [{"step": 1, "reward/mean": 0.1}, {"step": 2, "reward/mean": 0.4}],
    ),
    "a column of changes": (
        "| 指标 | GRPO | vs Vanilla |\n|---|---|---|\n| reward | 0.25 | **+42%** |\n| entropy | 1.5 | +50% |\n",
        [{"step": 1, "reward/mean": 0.25, "entropy": 1.5}],
    ),
    "the first and the last token": (
        "| Metric | Value |\n|---|---|\n| First token entropy | 2.5 |\n| Last token entropy | 0.1 |\n"
        "| reward | 0.4 |\n",
        [{"step": 1, "reward/mean": 0.4}],
    ),
    "ends of a part of the reward": (
        "| Run | Initial 10-step reward | Final 10-step reward | KL |\n|---|---|---|---|\n| GRPO | 0.1 | 0.5 | 0.2 |\n",
        [{"step": 1, "reward/mean": 0.1}, {"step": 2, "reward/mean": 0.5, "kl": 0.2}],
    ),
    "two boxes of a start and an end": (
        "| Metric | Value |\n|---|---|\n| Initial reward | 0.1 |\n| Final reward | 0.5 |\n| Initial reward | 0.2 |\n"
        "| Final reward | 0.3 |\n",
        [
            {"step": 1, "rewards/initial": 0.1, "reward/mean": 0.5},
            {"step": 2, "rewards/initial": 0.2, "reward/mean": 0.3},
        ],
    ),
    "a start, a middle and an end": (
        "| Run | Early reward | Mid reward | Late reward |\n|---|---|---|---|\n| GRPO | -1.2 | 0.1 | 0.3 |\n",
        [{"step": 1, "reward/mean": -1.2}, {"step": 2, "reward/mean": 0.3}],
    ),
    "what an expert has": (
        "| Step | expert reward | expert KL |\n|---|---|---|\n| 10 | 0.1 | 0.3 |\n| 20 | 0.2 | 0.4 |\n",
        [{"step": 10, "reward/mean": 0.1}, {"step": 20, "reward/mean": 0.2}],
    ),
    "a column without a name between two halves": (
        "| Step | reward | | Step | reward |\n|---|---|---|---|---|\n| 1 | 0.1 | | 3 | 0.3 |\n| 2 | 0.2 | | - | - |\n",
        [{"step": at, "reward/mean": at / 10} for at in (1, 2, 3)],
    ),
    "columns of a start and an end": (
        "| Algo | Initial reward | Final reward | KL |\n|---|---|---|---|\n| GRPO | 0.1 | +0.4 | 0.2 |\n",
        [{"step": 1, "reward/mean": 0.1}, {"step": 2, "reward/mean": 0.4, "kl": 0.2}],
    ),
    "a start without its end": (
        "| step | final reward | KL |\n|---|---|---|\n| 10 | 0.1 | 0.2 |\n| 20 | 0.1 | 0.3 |\n",
        [{"step": 10, "reward/mean": 0.1, "kl": 0.2}, {"step": 20, "reward/mean": 0.1, "kl": 0.3}],
    ),
    "a long table set in columns": (
        "| Step | reward | Step | reward |\n|---|---|---|---|\n| 10 | 0.1 | 30 | 0.3 |\n| 20 | 0.2 | 40 | 0.4 |\n",
        [{"step": at * 10, "reward/mean": at / 10} for at in (1, 2, 3, 4)],
    ),
    "steps in thousands and millions": (
        "| 步数 | reward |\n|---|---|\n| 209k | 16.5（快） |\n| 1.0M | 58.7 |\n| 4.1M | 147 |\n",
        [{"step": at, "reward/mean": r} for at, r in ((209_000, 16.5), (1_000_000, 58.7), (4_100_000, 147))],
    ),
    "a start in Chinese": (
        "| step | val reward | train score |\n|---|---|---|\n| 训练前 | 0.5 | - |\n| 10 | 0.8 | 0.7 |\n",
        [{"step": 0, "eval/reward": 0.5}, {"step": 10, "eval/reward": 0.8, "reward/mean": 0.7}],
    ),
    "what was trained before every column": (
        "| Step | train reward | train KL |\n|---|---|---|\n| 10 | 0.1 | 0.0 |\n| 20 | 0.3 | 0.2 |\n",
        [{"step": 10, "reward/mean": 0.1, "kl": 0.0}, {"step": 20, "reward/mean": 0.3, "kl": 0.2}],
    ),
    "two runs' names before columns": (
        "| Step | runA KL | runB KL | reward |\n|---|---|---|---|\n| 10 | 0.1 | 0.0 | 0.5 |\n"
        "| 20 | 0.3 | 0.2 | 0.5 |\n",
        [{"step": 10, "reward/mean": 0.5}, {"step": 20, "reward/mean": 0.5}],
    ),
    "a KL from a step": (
        "| step | reward | KL from step 0 |\n|---|---|---|\n| 1 | 0.30 | 0.1 |\n| 2 | 0.32 | 0.2 |\n",
        [{"step": 1, "reward/mean": 0.3}, {"step": 2, "reward/mean": 0.32}],
    ),
    "several numbers a cell": (
        "| step | train reward | held-out d4 / d6 | reward mean / std |\n|---|---|---|---|\n"
        "| 10 | 0.8 | 0.75 / 0.4 | 0.8 / 0.2 |\n"
        "| 20 | 0.9 | **0.7 / 0.5** | 0.9 / 0.1 |\n",
        [
            {
                "step": 10,
                "reward/mean": 0.8,
                "reward/std": 0.2,
                "eval/slices/d4": 0.75,
                "eval/slices/d6": 0.4,
                "eval/reward": 0.575,
            },
            {
                "step": 20,
                "reward/mean": 0.9,
                "reward/std": 0.1,
                "eval/slices/d4": 0.7,
                "eval/slices/d6": 0.5,
                "eval/reward": 0.6,
            },
        ],
    ),
    "a count and its total": (
        "| step | reward | valid / n |\n|---|---|---|\n| 10 | 0.1 | 14 / 16 |\n| 20 | 0.2 | 12 / 24 |\n",
        [{"step": 10, "reward/mean": 0.1}, {"step": 20, "reward/mean": 0.2}],
    ),
    "parts of an epoch behind a phase": (
        "| Phase | Epoch | Reward | KL |\n|---|---|---|---|\n| P1 | 0.00-0.10 | 1.43 | 0.0004 |\n"
        "| P2 | 0.10–0.20 | 1.44 | 0.0005 |\n",
        [{"step": 1, "reward/mean": 1.43, "kl": 0.0004}, {"step": 2, "reward/mean": 1.44, "kl": 0.0005}],
    ),
    "Chinese names": (
        "| step | reward | 熵 | 生成长度 | 截断比 |\n|---|---|---|---|---|\n| 25 | -1.08 | 0.431 | 256 | 1.00 |\n",
        [{"step": 25, "reward/mean": -1.08, "entropy": 0.431, "completions/length": 256, "completions/truncated": 1}],
    ),
    "decimal commas": (
        "| step | Reward | KL |\n|---|---|---|\n| 10 | 0,25 | 0,003 |\n",
        [{"step": 10, "reward/mean": 0.25, "kl": 0.003}],
    ),
    "quoted, and a scale in the header": (
        "> | iter | Reward | LR (×1e-6) |\n> |---|---|---|\n> | iter 1 | 0.31 ± 0.2 | 1.0 |\n",
        [{"step": 1, "reward/mean": 0.31, "learning_rate": 1e-6}],
    ),
    "rows that are of no step": (
        "| step | avg reward | notes |\n|---|---|---|\n| 0 (baseline) | 0.1 | - |\n| 50 | 0.2 | ok |\n| Δ | +0.1 | |\n",
        [{"step": 1, "reward/mean": 0.1}, {"step": 50, "reward/mean": 0.2}],
    ),
    "parts of a reward by their names": (
        "| step | reward | strict acc | tool reward |\n|---|---|---|---|\n| 10 | 0.08 | 0% | 0.5 |\n",
        [{"step": 10, "reward/mean": 0.08, "rewards/strict_acc": 0.0, "rewards/tool": 0.5}],
    ),
    "checkpoints by their steps, behind the models that were trained": (
        "| stage | exact | KL |\n|---|---|---|\n| base, zero-shot (greedy) | 17.6% | |\n"
        "| + SFT, 100 traces | 72.4% | 0 |\n"
        "| + GRPO 100 steps (t0.7) | 76.8% | 0.01 |\n| + GRPO 200 steps (t0.7) | **81.3%** | 0.02 |\n",
        [
            {"step": 1, "rewards/accuracy": 0.724, "kl": 0.0},
            {"step": 100, "rewards/accuracy": 0.768, "kl": 0.01},
            {"step": 200, "rewards/accuracy": 0.813, "kl": 0.02},
        ],
    ),
    "checkpoints of two runs: those of the first": (
        "| | reward | KL |\n|---|---|---|\n| SFT baseline (greedy) | 0.34 | 0 |\n| strict — step 100 | 0.40 | 0.1 |\n"
        "| strict — step 200 | 0.51 | 0.2 |\n| async — step 100 | 0.39 | 0.3 |\n| async — step 200 | 0.49 | 0.4 |\n"
        "| MLX reference | 0.5 | 0.1 |\n",
        [
            {"step": 1, "reward/mean": 0.34, "kl": 0.0},
            {"step": 100, "reward/mean": 0.40, "kl": 0.1},
            {"step": 200, "reward/mean": 0.51, "kl": 0.2},
        ],
    ),
    "checkpoints of two models, each with its start: those of the first": (
        "| run | reward | KL |\n|---|---|---|\n| Qwen 0.5B base | 0.1 | 0 |\n| Qwen 0.5B GRPO step 100 | 0.2 | 0.1 |\n"
        "| Qwen 0.5B GRPO step 200 | 0.3 | 0.2 |\n| Qwen 7B base | 0.5 | 0 |\n| Qwen 7B GRPO step 100 | 0.6 | 0.3 |\n"
        "| Qwen 7B GRPO step 200 | 0.7 | 0.4 |\n",
        [
            {"step": 1, "reward/mean": 0.1, "kl": 0.0},
            {"step": 100, "reward/mean": 0.2, "kl": 0.1},
            {"step": 200, "reward/mean": 0.3, "kl": 0.2},
        ],
    ),
    "steps of one run that are spelt otherwise": (
        "| | reward | KL |\n|---|---|---|\n| 100 | 0.4 | 0.1 |\n| 200 | 0.3 | 0.1 |\n| 200 (resumed) | 0.3 | 0.2 |\n"
        "| 1k | 0.2 | 0.3 |\n| step 1,500 | 0.0 | 9 |\n",
        [
            {"step": 100, "reward/mean": 0.4, "kl": 0.1},
            {"step": 200, "reward/mean": 0.3, "kl": 0.2},
            {"step": 1000, "reward/mean": 0.2, "kl": 0.3},
            {"step": 1500, "reward/mean": 0.0, "kl": 9.0},
        ],
    ),
    "a name for a part of one run": (
        "| | reward | KL |\n|---|---|---|\n| 100 | 0.4 | 0.1 |\n| 200 | 0.3 | 0.1 |\n"
        "| resumed, step 300 | 0.2 | 0.1 |\n"
        "| resumed, step 400 | 0.1 | 0.1 |\n",
        [{"step": 100 * n, "reward/mean": 0.5 - 0.1 * n, "kl": 0.1} for n in (1, 2, 3, 4)],
    ),
    "other models behind checkpoints, and before them": (
        "| | reward | KL |\n|---|---|---|\n| GPT-4o baseline | 0.9 | 0 |\n| 100 | 0.4 | 0.1 |\n| 200 | 0.5 | 0.1 |\n"
        "| 300 | 0.6 | 0.1 |\n| SFT model | 0.38 | 0 |\n",
        [{"step": 100 * n, "reward/mean": 0.3 + 0.1 * n, "kl": 0.1} for n in (1, 2, 3)],
    ),
    "ranges of steps in Chinese": (
        "| step 区间 | reward | KL | 零方差组比例 |\n|---:|---:|---:|---:|\n| 1～119 | 1.4 | 0.18 | 0.125 |\n"
        "| 121～239 | 2.6 | 0.09 | 0.404 |\n",
        [
            {"step": 119, "reward/mean": 1.4, "kl": 0.18, "groups/dead": 0.125},
            {"step": 239, "reward/mean": 2.6, "kl": 0.09, "groups/dead": 0.404},
        ],
    ),
    "a column that is called a window in Chinese": (
        "| reward | 窗口 | KL |\n|---|---|---|\n| 0.4 | 1-10 | 0.1 |\n| 0.5 | 11-20 | 0.1 |\n",
        [{"step": 10, "reward/mean": 0.4, "kl": 0.1}, {"step": 20, "reward/mean": 0.5, "kl": 0.1}],
    ),
    "checkpoints in columns of spaces": (
        "  checkpoint          pass@1   pass@8\n  Qwen3-0.6B-Base      31.1%    76.9%\n"
        "  sft                  28.3%    74.5%\n"
        "  grpo-ckpt-20         34.5%    78.7%\n  grpo-ckpt-40         50.0%    84.4%\n",
        [
            {"step": 0, "eval/slices/accuracy": 0.283, "eval/reward": 0.283},
            {"step": 20, "eval/slices/accuracy": 0.345, "eval/reward": 0.345},
            {"step": 40, "eval/slices/accuracy": 0.5, "eval/reward": 0.5},
        ],
    ),
    **{
        f"a row that is no end: {label}": (
            f"| Step | reward | KL |\n|---|---|---|\n| 300 | .7 | .06 |\n| 350 | .8 | .07 |\n| {label} | .05 | .07 |\n",
            [{"step": 300, "reward/mean": 0.7, "kl": 0.06}, {"step": 350, "reward/mean": 0.8, "kl": 0.07}],
        )
        for label in ("change, start to end", "final - best", "std over last 3", "final (greedy)", "Final test")
    },
    "an end without a number": (
        "| Step | Eval acc | β |\n|---|---|---|\n| 30 | 0.96 | 0.1 |\n| 40 | 0.99 | 0.2 |\n| ep1-end | 0.54 | 5 |\n",
        [
            {"step": at, "eval/slices/accuracy": score, "eval/reward": score, "beta": beta}
            for at, score, beta in ((30, 0.96, 0.1), (40, 0.99, 0.2), (50, 0.54, 5))
        ],
    ),
    "a best one behind checkpoints is no end": (
        "| Step | reward | KL |\n|---|---|---|\n| 30 | 0.5 | 0.1 |\n| 40 | 0.6 | 0.2 |\n| best | 0.9 | 5 |\n",
        [{"step": 30, "reward/mean": 0.5, "kl": 0.1}, {"step": 40, "reward/mean": 0.6, "kl": 0.2}],
    ),
    "the ends of a metric as two rows": (
        "| | value |\n|---|---|\n| loss | 0.5 |\n| reward, early | about -0.5 |\n| reward, later | -0.3 |\n",
        [{"step": 1, "reward/mean": -0.5}, {"step": 2, "loss": 0.5, "reward/mean": -0.3}],
    ),
    "parts that are no ends": (
        "| Metric | Value |\n|---|---|\n| reward | 0.5 |\n| entropy, first token | 2.1 |\n"
        "| entropy, last token | 0.1 |\n"
        "| grad norm (before) | 25.1 |\n| grad norm (after) | 1.0 |\n",
        [{"step": 1, "reward/mean": 0.5, "grad_norm": 25.1}],
    ),
    "ends below a name that is a metric": (
        "| Reward | Value |\n|---|---|\n| initial reward | 0.2 |\n| final reward | 0.8 |\n",
        [{"step": 1, "rewards/initial": 0.2, "reward/mean": 0.8}],
    ),
    "runs that were trained on so much": (
        "| Run | RL prompts | Reward | KL |\n|---|---|---|---|\n| base lr | 1000 | 0.7 | 0.01 |\n"
        "| high lr | 2000 | 0.5 | 0.3 |\n| no kl | 4000 | 0.4 | 2.5 |\n",
        [{"step": 1, "reward/mean": 0.7, "kl": 0.01}],
    ),
    "a run that was begun again is put in no other order": (
        "| Step | reward | KL |\n|---|---|---|\n| 100 | 0.1 | 9 |\n"
        "| 200 | 0.2 | 9 |\n| 300 | 0.3 | 9 |\n| 150 | 0.4 | 9 |\n| 250 | 0.5 | 9 |\n",
        [{"step": at, "reward/mean": at / 10, "kl": 9} for at in range(1, 6)],
    ),
    "an end that says its step": (
        "| Step | reward | KL |\n|---|---|---|\n| 100 | 0.5 | 0.1 |\n| 200 | 0.6 | 0.2 |\n"
        "| final (step 500) | 0.9 | 5 |\n",
        [
            {"step": 100, "reward/mean": 0.5, "kl": 0.1},
            {"step": 200, "reward/mean": 0.6, "kl": 0.2},
            {"step": 500, "reward/mean": 0.9, "kl": 5},
        ],
    ),
    "the start of one metric and the end of another": (
        "| | value |\n|---|---|\n| KL | 0.5 |\n| initial reward | 0.3 |\n| final loss | 0.2 |\n",
        [{"step": 1, "kl": 0.5, "loss": 0.2, "reward/mean": 0.3}],
    ),
    "columns at one step": (
        "| Model | Format at step 300 | Mean reward |\n|---|---|---|\n| ours, full fine-tune | 100.0% | 1.2 |\n",
        [{"step": 1, "rewards/format": 1.0, "reward/mean": 1.2}],
    ),
    "two tables of a start and an end": (
        "| Metric | Before | After |\n|---|---|---|\n| reward | 0.1 | 0.7 |\n\n"
        "| Metric | Before | After |\n|---|---|---|\n| KL | 0 | 0.5 |\n",
        [{"step": 1, "reward/mean": 0.1, "kl": 0.0}, {"step": 2, "reward/mean": 0.7, "kl": 0.5}],
    ),
    "checkpoints, the best first": (
        "arm       tasks    k  mean-of-k  median km\n------------\nckpt175     200  4.0     0.5095       1035\n"
        "ckpt50      200  4.0     0.5014       1163\nbase        200 32.0     0.4768       1272\n"
        "ckpt300     200  4.0     0.4587       1582\n",
        [
            {"step": step, "eval/slices/accuracy": score, "eval/reward": score}
            for step, score in ((0, 0.4768), (50, 0.5014), (175, 0.5095), (300, 0.4587))
        ],
    ),
    "stages by what was trained on": (
        "| checkpoint | RL rows | answer | avg_reward |\n|---|---:|---:|---:|\n| sft_v13 | 0 | 0.95 | 2.54 |\n"
        "| v13_stage1 | 128 | 0.96 | 2.55 |\n| v13_stage2 | 512 | 0.96 | 2.56 |\n",
        [
            {"step": 1, "reward/mean": 2.54},
            {"step": 128, "reward/mean": 2.55},
            {"step": 512, "reward/mean": 2.56},
        ],
    ),
    "rows that are evaluations by their step's remark": (
        "| Step | Reward |\n|---|---|\n| 0 (val) | 2.3% |\n| 10 | 44.5% |\n| 20 [eval] | 72.3% |\n",
        [{"step": 0, "eval/reward": 0.023}, {"step": 10, "reward/mean": 0.445}, {"step": 20, "eval/reward": 0.723}],
    ),
    "evaluations by names of their author's, behind the start that training has no row of": (
        "| Step | Reward | tomi | plan rate | Peak |\n|---|---|---|---|---|\n| 0 | — | 40% | 10% | |\n"
        "| 20 | 0.6 | 43% | 20% | 9% |\n| 40 | 0.7 | 52% | 30% | 9% |\n| 60 | 0.7 | 55% | 30% | 9% |\n",
        [
            {"step": 0, "eval/slices/tomi": 0.40, "eval/reward": 0.40},
            {"step": 20, "reward/mean": 0.6, "eval/slices/tomi": 0.43, "eval/reward": 0.43},
            {"step": 40, "reward/mean": 0.7, "eval/slices/tomi": 0.52, "eval/reward": 0.52},
            {"step": 60, "reward/mean": 0.7, "eval/slices/tomi": 0.55, "eval/reward": 0.55},
        ],
    ),
    "percentages by step, and nothing else": (
        "| Checkpoint | Total | field_A |\n|---|---|---|\n| SFT baseline | **90.2%** | 97.5% |\n"
        "| After GRPO iter 5 | 90.1% | 95.6% |\n| After GRPO iter 10 | 87.6% | 93.1% |\n",
        [
            {"step": step, "eval/slices/total": total, "eval/slices/field_a": field, "eval/reward": (total + field) / 2}
            for step, total, field in ((0, 0.902, 0.975), (5, 0.901, 0.956), (10, 0.876, 0.931))
        ],
    ),
    "lengths on average and at most": (
        "| Paso | Reward medio | Longitud de respuesta media/máx |\n|---|---|---|\n| 1 | 0.6 | 4216/6890 |\n"
        "| 2 | 0.7 | 4617/7004 |\n",
        [
            {"step": 1, "reward/mean": 0.6, "completions/length": 4216},
            {"step": 2, "reward/mean": 0.7, "completions/length": 4617},
        ],
    ),
    "names and values beside a course: its sum": (
        "| Metric | Value |\n|---|---|\n| Final Reward | 0.9 |\n| KL | 0.5 |\n\n| step | reward |\n|---|---|\n"
        "| 10 | 0.1 |\n| 20 | 0.2 |\n| 30 | 0.9 |\n",
        [{"step": 10, "reward/mean": 0.1}, {"step": 20, "reward/mean": 0.2}, {"step": 30, "reward/mean": 0.9}],
    ),
    "parts of the reward by words of their form": (
        "| RL iter | Reward | Format Exact | Answer Numeric |\n|---|---|---|---|\n| 1 | -1 | 0.5 | -0.5 |\n"
        "| 50 | 2 | 3 | 1 |\n",
        [
            {"step": 1, "reward/mean": -1, "rewards/format_exact": 0.5, "rewards/answer_numeric": -0.5},
            {"step": 50, "reward/mean": 2, "rewards/format_exact": 3, "rewards/answer_numeric": 1},
        ],
    ),
    "an item for a step that goes on in the next line": (
        "- Reward trajectory:\n  - Step 1: reward `0.57`, parseable `0.95`,\n    code-fence `0.16`,\n    "
        "sequence length `267.4`.\n"
        "  - Step 10: reward `0.81`, parseable `1.0`,\n    sequence length `273.0`.\n",
        [
            {"step": 1, "reward/mean": 0.57, "completions/valid": 0.95, "completions/length": 267.4},
            {"step": 10, "reward/mean": 0.81, "completions/valid": 1.0, "completions/length": 273.0},
        ],
    ),
    "a number that prose cites beside a log": (
        "The trainer still printed `reward_mean: 0.0000` then.\n```\nTrain step 1 - reward_mean: 0.93\n"
        "Train step 2 - reward_mean: 0.90\nTrain step 3 - reward_mean: 0.94\n```\n",
        [{"step": 1, "reward/mean": 0.93}, {"step": 2, "reward/mean": 0.90}, {"step": 3, "reward/mean": 0.94}],
    ),
    "the same table twice: the longer one": (
        "| step | reward |\n|---|---|\n| 1 | 0.9 |\n\nmore\n\n| step | reward |\n|---|---|\n| 1 | 0.1 |\n| 2 | 0.2 |\n",
        [{"step": 1, "reward/mean": 0.1}, {"step": 2, "reward/mean": 0.2}],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table(name: str, tmp_path: Path) -> None:
    text, expected = TABLES[name]
    rows = rows_of(text, tmp_path)
    assert rows == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize(
    "text",
    [
        "| Task | 4k | 8k | 16k |\n|-|-|-|-|\n| NIAH | 99% | 70% | 40% |\n",
        "| Country | 2010 | 2015 | 2020 |\n|-|-|-|-|\n| France | 40% | 50% | 60% |\n",
        "| Metric | Step 0 | Step 100 | Step 200 |\n|-|-|-|-|\n| Budget used | 0% | 50% | 100% |\n",
        "| Stage | Budget | Data |\n|-|-|-|\n| SFT | 10% | 60% |\n| GRPO | 90% | 40% |\n",
    ],
)
def test_percentages_that_are_no_scores(text: str, tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text(text)
    with pytest.raises(GrpoError):
        open_source(Source(name=str(file), path=file))


def test_scores_that_only_their_author_knows_are_noted(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text("| Task | Baseline | Step 10 | Step 50 |\n|-|-|-|-|\n| Twenty questions | 60% | 80% | 0% |\n")
    notes = open_source(Source(name=str(file), path=file)).notes
    assert any(note.startswith("taken for evaluations: Twenty questions (percentages by step") for note in notes)


@pytest.mark.parametrize(
    ("over", "labels"), [("Time", ("5m", "10m")), ("Step", ("Epoch one", "Final")), ("Trainable params", ("1M", "4M"))]
)
def test_what_counts_is_no_name_of_a_run(over: str, labels: tuple[str, ...], tmp_path: Path) -> None:
    rows = "".join(f"| {label} | 0.{at} | 0.0{at} |\n" for at, label in enumerate(labels, 1))
    with pytest.raises(GrpoError):
        rows_of(f"| {over} | Reward | KL |\n|---|---|---|\n{rows}", tmp_path)


def test_a_promise_is_no_course_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(GrpoError):
        rows_of("Reward is 1.0 for a correct answer and 0.0 otherwise. We use a group size of 8.\n", tmp_path)


RUNS = {  # a table with a row or a column for each run -> what each run is called, and its rows
    "rows of configurations": (
        "| config | reward | kl |\n|---|---|---|\n| ours, lr 1e-6 | 0.45 | 0.01 |\n| theirs | 0.10 | 3.2 |\n",
        {"ours, lr 1e-6": [{"reward/mean": 0.45, "kl": 0.01}], "theirs": [{"reward/mean": 0.10, "kl": 3.2}]},
    ),
    "columns of models": (
        "| metric | Qwen 1.5B | Llama 8B |\n|---|---|---|\n| reward | 0.4 | 0.5 |\n| kl | 0.1 | 0.2 |\n",
        {"Qwen 1.5B": [{"reward/mean": 0.4, "kl": 0.1}], "Llama 8B": [{"reward/mean": 0.5, "kl": 0.2}]},
    ),
    "steps that all runs have": (
        "| | reward |\n|---|---|\n| K=8, 200 steps | 0.45 |\n| K=16, 200 steps | 0.10 |\n| mean | 0.28 |\n",
        {"K=8, 200 steps": [{"reward/mean": 0.45}], "K=16, 200 steps": [{"reward/mean": 0.10}]},
    ),
    "before a fix and after it": (
        "| metric | before fix | after fix |\n|---|---|---|\n| reward | 0.3 | 0.5 |\n| kl | 0.1 | 0.2 |\n",
        {"before fix": [{"reward/mean": 0.3, "kl": 0.1}], "after fix": [{"reward/mean": 0.5, "kl": 0.2}]},
    ),
    "models before and after training: an evaluation": (
        "| Model | Accuracy | KL |\n|---|---|---|\n| Base 3B | 60% | |\n| Base, SFT warmup | 62% | |\n"
        "| SFT + GRPO | 61% | 0.1 |\n| SFT + DAPO | 70% | 0.2 |\n| GPT-5 | 90% | |\n",
        {
            "SFT + GRPO": [{"eval/reward": 0.62}, {"eval/reward": 0.61, "kl": 0.1}],
            "SFT + DAPO": [{"eval/reward": 0.62}, {"eval/reward": 0.70, "kl": 0.2}],
        },
    ),
    "an odd number of columns": (
        "| Metric | run A | run B | run C |\n|---|---|---|---|\n"
        "| Mean reward | 0.2 | 0.6 | 0.1 |\n| KL | 0.01 | 0.02 | 30 |\n",
        {
            "run A": [{"reward/mean": 0.2, "kl": 0.01}],
            "run B": [{"reward/mean": 0.6, "kl": 0.02}],
            "run C": [{"reward/mean": 0.1, "kl": 30}],
        },
    ),
    "one name twice, and none": (
        "| Run | Reward |\n|---|---|\n| A | 0.4 |\n| A | 0.9 |\n| | 0.5 |\n",
        {"A": [{"reward/mean": 0.4}], "A #2": [{"reward/mean": 0.9}], "row 3": [{"reward/mean": 0.5}]},
    ),
    "numbers": (
        "| Seed | Reward |\n|---|---|\n| 1 | 0.4 |\n| 42 | 0.9 |\n",
        {"1": [{"reward/mean": 0.4}], "42": [{"reward/mean": 0.9}]},
    ),
    "no training by rewards among models": (
        "| Model | Reward |\n|---|---|\n| bert-base | 0.4 |\n| roberta | 0.9 |\n",
        {"bert-base": [{"reward/mean": 0.4}], "roberta": [{"reward/mean": 0.9}]},
    ),
    "a checkpoint of one run, two of another": (
        "| | reward |\n|---|---|\n| base | 0.1 |\n| GRPO, step 100 | 0.2 |\n| GRPO, step 200 | 0.3 |\n"
        "| DAPO, step 100 | 0.4 |\n",
        {
            "grpo": [{"reward/mean": 0.1}, {"reward/mean": 0.2}, {"reward/mean": 0.3}],
            "dapo": [{"reward/mean": 0.1}, {"reward/mean": 0.4}],
        },
    ),
    "values of a setting": (
        "| epsilon | reward_mean | best |\n|---|---|---|\n| 0.05 (old) | -0.05 | 1 |\n| **0.1** | -0.04 | 2 |\n",
        {"epsilon 0.05": [{"reward/mean": -0.05}], "epsilon 0.1": [{"reward/mean": -0.04}]},
    ),
    "learning rates: no course of one": (
        "| lr | final reward | KL |\n|---|---|---|\n| 1e-6 | 0.31 | 0.01 |\n| 1e-5 | 0.12 | 2.4 |\n",
        {
            "lr 1e-6": [{"learning_rate": 1e-6, "reward/mean": 0.31, "kl": 0.01}],
            "lr 1e-5": [{"learning_rate": 1e-5, "reward/mean": 0.12, "kl": 2.4}],
        },
    ),
    "start and end as rows, runs as columns": (
        "| Metric | A | B |\n|---|---|---|\n| Initial Reward | 0.4 | 0.3 |\n| Final Reward | 0.7 | 0.5 |\n"
        "| Final KL | 0.1 | 9 |\n",
        {
            "A": [{"reward/mean": 0.4}, {"reward/mean": 0.7, "kl": 0.1}],
            "B": [{"reward/mean": 0.3}, {"reward/mean": 0.5, "kl": 9}],
        },
    ),
    "a value of each in every cell": (
        "| step | reward | entropy |\n|---|---|---|\n| 1 | 0.3 / 0.4 / 0.5 | 1.1 / 1.2 / 1.3 |\n"
        "| 2 | 0.6 / 0.7 / 0.8 | 1.4 / 1.5 / 1.6 |\n",
        {
            f"{at + 1} of 3 in each cell": [
                {"reward/mean": 0.3 + at / 10, "entropy": 1.1 + at / 10},
                {"reward/mean": 0.6 + at / 10, "entropy": 1.4 + at / 10},
            ]
            for at in range(3)
        },
    ),
    "sections": (
        "## v1\nlr=1e-5\n\n| Step | Reward |\n|---|---|\n| 10 | 0.6 |\n| 20 | 0.1 |\n\n## v2\n\n"
        "| Step | avg reward | KL |\n|---|---|---|\n| 10 | 0.5 | 0.1 |\n| 20 | 0.7 | 0.2 |\n",
        {
            "v1": [{"reward/mean": 0.6}, {"reward/mean": 0.1}],
            "v2": [{"reward/mean": 0.5, "kl": 0.1}, {"reward/mean": 0.7, "kl": 0.2}],
        },
    ),
    "settings as names of runs": (
        "| Setting | Reward |\n|---|---|\n| no penalty | 0.4 |\n| long answers | 0.6 |\n",
        {"no penalty": [{"reward/mean": 0.4}], "long answers": [{"reward/mean": 0.6}]},
    ),
    "a column of changes": (
        "| Metric | ours | theirs | vs ours |\n|---|---|---|---|\n| reward | 0.2 | 0.3 | +50% |\n"
        "| entropy | 1.0 | 0.5 | -50% |\n",
        {"ours": [{"reward/mean": 0.2, "entropy": 1.0}], "theirs": [{"reward/mean": 0.3, "entropy": 0.5}]},
    ),
    "rows of whatever, by two metrics": (
        "| cell | reward | entropy |\n|---|---|---|\n| lr1e6 | 0.7 | 0.4 |\n| lr3e7 | 0.2 | 0.5 |\n",
        {"lr1e6": [{"reward/mean": 0.7, "entropy": 0.4}], "lr3e7": [{"reward/mean": 0.2, "entropy": 0.5}]},
    ),
    "lists in sections": (
        "## v1\n\n- Step 10: reward `0.6`, KL `0.01`\n- Step 20: reward `0.1`, KL `0.5`\n\n"
        "## v2\n\n- Step 10: reward `0.5`\n- Step 20: reward `0.7`\n",
        {
            "v1": [{"reward/mean": 0.6, "kl": 0.01}, {"reward/mean": 0.1, "kl": 0.5}],
            "v2": [{"reward/mean": 0.5}, {"reward/mean": 0.7}],
        },
    ),
    "checkpoints of two runs": (
        "| | reward |\n|---|---|\n| base | 0.1 |\n| strict, step 100 | 0.2 |\n| strict, step 200 | 0.3 |\n"
        "| async, step 100 | 0.4 |\n| async, step 200 | 0.5 |\n",
        {
            "strict": [{"reward/mean": 0.1}, {"reward/mean": 0.2}, {"reward/mean": 0.3}],
            "async": [{"reward/mean": 0.1}, {"reward/mean": 0.4}, {"reward/mean": 0.5}],
        },
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_table_of_several_runs_is_each_of_them(name: str, tmp_path: Path) -> None:
    text, expected = RUNS[name]
    file = tmp_path / "table.md"
    file.write_text(text)
    first = open_source(Source(name=str(file), path=file))
    told = {
        one.run: [
            {metric: value for metric, value in row.items() if metric not in ("step", "update", "eval/slices/accuracy")}
            for row in one.case.rows
        ]
        for one in (first, *first.further)
    }
    assert told == {run: [pytest.approx(row) for row in rows] for run, rows in expected.items()}
    assert first.source == f"{file} ({first.run})"


def test_a_table_printed_again_in_another_section_is_no_other_run(tmp_path: Path) -> None:
    table = "| step | reward | kl |\n|---|---|---|\n| 1 | 0.1 | 0.2 |\n| 2 | 0.2 | 0.3 |\n"
    file = tmp_path / "report.md"
    file.write_text(f"## All\n\n{table}\n## Again\n\n{table}")
    found = open_source(Source(name=str(file), path=file))
    assert (found.run, found.further, len(found.case.rows)) == ("", (), 2)


@pytest.mark.parametrize("headings", [("Training", "Held-out"), ("Epoch 1", "Epoch 2"), ("rank 0", "rank 1")])
def test_a_section_of_a_part_is_no_other_run(headings: tuple[str, str], tmp_path: Path) -> None:
    table = "| step | reward |\n|---|---|\n| 1 | 0.{0} |\n| 2 | 0.{0}5 |\n\n"
    file = tmp_path / "report.md"
    file.write_text("".join(f"## {name}\n\n{table.format(at)}" for at, name in enumerate(headings, 1)))
    assert open_source(Source(name=str(file), path=file)).further == ()


def test_sections_of_a_log_are_no_runs(tmp_path: Path) -> None:
    """A completion may have a heading in it: `#### 42` ends an answer to GSM8K."""
    text = "#### 1\nstep 1 reward=0.1\nstep 2 reward=0.2\n#### 2\nstep 1 reward=0.3\nstep 2 reward=0.4\n"
    for name, runs in (("train.log", 0), ("notes.md", 1)):
        file = tmp_path / name
        file.write_text(text)
        assert len(open_source(Source(name=str(file), path=file)).further) == runs


def test_tables_that_tell_one_reward_by_two_names_are_of_one_run(tmp_path: Path) -> None:
    rows = rows_of(
        "| step | mean_reward | kl |\n|---|---|---|\n| 1 | 0.1 | 0.2 |\n| 2 | 0.2 | 0.3 |\n\n"
        "| step | avg_reward | entropy |\n|---|---|---|\n| 1 | 0.1 | 1.2 |\n| 2 | 0.2 | 1.3 |\n",
        tmp_path,
    )
    assert [(row["reward/mean"], row["kl"], row["entropy"]) for row in rows] == [(0.1, 0.2, 1.2), (0.2, 0.3, 1.3)]


@pytest.mark.parametrize(
    ("header", "labels"),
    [
        ("Rollouts", [64, 128, 192, 256]),
        ("Generations", [1, 2, 3, 4]),
        ("lr", ["1.9e-6", "1.8e-6", "1.7e-6", "1.6e-6"]),  # a schedule
        ("beta", [0.99, 0.98, 0.97, 0.96]),
    ],
)
def test_what_counts_or_is_scheduled_names_no_runs(header: str, labels: list[object], tmp_path: Path) -> None:
    lines = "".join(f"| {label} | 0.{at} | 0.0{at} |\n" for at, label in enumerate(labels, 1))
    rows = rows_of(f"| {header} | reward | kl |\n|---|---|---|\n{lines}", tmp_path)
    assert [row["reward/mean"] for row in rows] == [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("column", ["CPU", "MFU", "Utilisation", "cache hit", "Refused"])
def test_percentages_of_machines_are_no_evaluations(column: str, tmp_path: Path) -> None:
    lines = "".join(f"| {at} | 0.{at + 1} | 5{at}% |\n" for at in range(1, 5))
    rows = rows_of(f"| step | reward | {column} |\n|---|---|---|\n| 0 | - | 50% |\n{lines}", tmp_path)
    assert not any(name.startswith("eval/") for row in rows for name in row)


def test_a_table_with_a_row_of_each_run_is_read_only_where_nothing_else_is(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text(
        RUNS["rows of configurations"][0] + "\nThe last run:\n\n| step | reward |\n|---|---|\n| 1 | 0.5 |\n"
    )
    found = open_source(Source(name=str(file), path=file))
    assert [row["reward/mean"] for row in found.case.rows] == [0.5]
    assert (found.run, found.further) == ("", ())


@pytest.mark.parametrize(
    "text",
    [
        "| Metric | Good | Bad |\n|---|---|---|\n| KL divergence | < 0.1 | > 10 |\n| Mean reward | rising | 0 |\n",
        "| Parameter | Value | Default |\n|---|---|---|\n| learning_rate | 1e-6 | 1e-5 |\n| beta | 0.1 | 0 |\n",
        "| GPU | throughput | loss |\n|---|---|---|\n| A100 | 300 | 0.1 |\n| H100 | 600 | 0.1 |\n",
        "| Provider | Cost | Success rate |\n|---|---|---|\n| here | 3 | 90% |\n| there | 2 | 80% |\n",
        "| Model | loss |\n|---|---|\n| a | 0.5 |\n| b | 0.4 |\n",  # of supervised learning, as like as not
    ],
)
def test_a_table_of_something_else_has_no_runs(text: str, tmp_path: Path) -> None:
    with pytest.raises(GrpoError):
        rows_of(text, tmp_path)


def test_a_row_of_a_whole_run_is_not_its_first(tmp_path: Path) -> None:
    def begins_later(text: str) -> bool:
        file = tmp_path / "table.md"
        file.write_text(text)
        return open_source(Source(name=str(file), path=file)).case.begins_later

    assert begins_later(RUNS["rows of configurations"][0])
    assert not begins_later(RUNS["models before and after training: an evaluation"][0])
    assert not begins_later("| step | reward |\n|---|---|\n| 1 | 0.5 |\n")


def test_what_an_evaluation_says_of_the_same_steps_is_no_other_run(tmp_path: Path) -> None:
    text = (
        "| Step | Reward mean | Zero-var | Format |\n|---|---|---|---|\n"
        "| 1 | 0.7 | 0.62 | 0.5 |\n| 2 | 0.8 | 0.72 | 0.6 |\n\n"
        "| Step | Val exact | Format |\n|---|---|---|\n"
        "| 1 | 0.72 | 0.9 |\n| 2 | 0.75 | 1.0 |\n| 3 | 0.76 | 1.0 |\n"
    )
    rows = rows_of(text, tmp_path)
    assert [row.get("rewards/format") for row in rows] == [0.5, 0.6, None]
    assert [row.get("groups/dead") for row in rows] == [0.62, 0.72, None]
    assert [row.get("eval/reward") for row in rows] == [0.72, 0.75, 0.76]


def test_two_tables_of_the_same_runs_are_joined_by_name(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text(
        "| run | reward |\n|---|---|\n| a | 0.5 |\n| b | 0.25 |\n\n| run | kl |\n|---|---|\n| b | 0.1 |\n| a | 0.2 |\n"
    )
    found = open_source(Source(name=str(file), path=file))
    told = [
        (one.run, one.case.rows[0].get("reward/mean"), one.case.rows[0].get("kl")) for one in (found, *found.further)
    ]
    assert told == [("a", 0.5, 0.2), ("b", 0.25, 0.1)]


@pytest.mark.parametrize(
    "text",
    [
        "| step | reward" + " " * 10**6 + "|\n|---|---|\n| 1 |" + " " * 10**6 + "x |\n",
        "\t".join(["step", *(f"reward {i}" for i in range(10**5))]) + "\n" + "\t".join(["1"] * (10**5 + 1)) + "\n",
        "a" * 10**6 + " from 0.1 to 0.4\n",
        "| step | reward |\n|--|--|\n| 1 | " + "(" * 10**6 + " |\n",
        "Step 1: ` **" + "1" * 10**5,
        "## reward\n\n| step" + " " * 10**5 + "x | A |\n|-|-|\n| 1 | 2 |\n",
        "| Model | acc |\n|-|-|\n| base" + " " * 10**5 + "x | 10% |\n| grpo | 20% |\n",
        "| a | Strict |\n|-|-|\n| base | 1" + " " * 10**5 + "x |\n| grpo | 20% |\n",
    ],
)
def test_endless_cells_lines_and_columns_take_no_time(text: str, tmp_path: Path) -> None:
    start = time.process_time()
    with suppress(GrpoError):
        rows_of(text, tmp_path)
    assert time.process_time() - start < 10


COURSES = {
    "stages in Korean, and a column of changes": (
        "| 지표 | 초반 | 최근(붕괴 후) | 변화 |\n|---|---|---|---|\n| reward | 0.60 | 0.39 | -35% |\n"
        "| kl | 0.004 | 0.24 | up |\n",
        [{"step": 1, "reward/mean": 0.60, "kl": 0.004}, {"step": 2, "reward/mean": 0.39, "kl": 0.24}],
    ),
    "steps in remarks": (
        "| metric | early (step 5) | late (step 200) | trend |\n|---|---|---|---|\n| reward | 0.3 | 0.5 | up |\n",
        [{"step": 5, "reward/mean": 0.3}, {"step": 200, "reward/mean": 0.5}],
    ),
    "one row with arrows": (
        "| | reward | KL |\n|---|---|---|\n| naive | 0.1 → 0.2 → 0.3 | 0 → 0.1 → 0.4 |\n",
        [
            {"step": 1, "reward/mean": 0.1, "kl": 0.0},
            {"step": 2, "reward/mean": 0.2, "kl": 0.1},
            {"step": 3, "reward/mean": 0.3, "kl": 0.4},
        ],
    ),
    "a header in brackets, a fence, and remarks": (
        "Per step (step / reward / kl):\n```\n 10 0.25 0.01\n 70 0.22 2.3 <- a spike\n```\n",
        [{"step": 10, "reward/mean": 0.25, "kl": 0.01}, {"step": 70, "reward/mean": 0.22, "kl": 2.3}],
    ),
    "stretches that meet": (
        "| step | reward |\n|---|---|\n| 1-100 | 0.1 → 0.2 |\n| 100-200 | 0.3 → 0.4 |\n| 200+ | 0.1 |\n",
        [
            {"step": 1, "reward/mean": 0.1},
            {"step": 100, "reward/mean": 0.2},
            {"step": 101, "reward/mean": 0.3},
            {"step": 200, "reward/mean": 0.4},
            {"step": 201, "reward/mean": 0.1},
        ],
    ),
    "groups of equal rewards": (
        "| step | reward | groups with zero reward spread |\n|---|---|---|\n| 10 | 0.4 | 8% |\n| 60 | 0.8 | 83% |\n",
        [{"step": 10, "reward/mean": 0.4, "groups/dead": 0.08}, {"step": 60, "reward/mean": 0.8, "groups/dead": 0.83}],
    ),
}


@pytest.mark.parametrize("name", COURSES)
def test_a_course_that_people_tell(name: str, tmp_path: Path) -> None:
    text, expected = COURSES[name]
    assert rows_of(text, tmp_path) == [pytest.approx(row) for row in expected]


def test_parts_of_a_run_do_not_follow_each_other(tmp_path: Path) -> None:
    file = tmp_path / "comment.md"
    file.write_text("| metric | start | end |\n|---|---|---|\n| reward | 0.6 | 0.4 |\n| kl | 0.004 | 0.24 |\n")
    assert open_source(Source(name=str(file), path=file)).case.averaged_over > 1
    file.write_text("| reward | kl |\n|---|---|\n| 0.6 | 0.004 |\n| 0.4 | 0.24 |\n")
    assert open_source(Source(name=str(file), path=file)).case.averaged_over == 1


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "Reward peaked 0.827 (step 74), then grad_norm exploded 4.6 → 473 and rollouts became loops.\n",
            [{"step": 1, "grad_norm": 4.6}, {"step": 2, "grad_norm": 473.0}],
        ),
        (
            "grad_norm exploded 215→**2525** (step 109), the reward fell 0.9 -> 0.2.\n",
            [{"step": 1, "grad_norm": 215, "reward/mean": 0.9}, {"step": 2, "grad_norm": 2525, "reward/mean": 0.2}],
        ),
    ],
)
def test_sentences_with_arrows(text: str, rows: list[Row], tmp_path: Path) -> None:
    assert rows_of(text, tmp_path) == [pytest.approx(row) for row in rows]


def test_one_last_of_its_kind_is_said_to_be_taken_for_the_whole(tmp_path: Path) -> None:
    file = tmp_path / "comment.md"
    file.write_text("| Run | Last Reward | KL |\n|---|---|---|\n| A | 0.5 | 0.1 |\n")
    assert "last is the only reward: it is taken for the whole of it" in open_source(Source(name="c", path=file)).notes
