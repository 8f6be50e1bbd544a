"""Courses that sentences and lists tell: values at their steps, ends with arrows, lists along the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import GrpoError
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source

Row = dict[str, float]
VAL = "eval/reward"


def rows_of(text: str, folder: Path, name: str = "report.md") -> list[Row]:
    file = folder / name
    file.write_text(text)
    rows = open_source(Source(name=str(file), path=file)).case.rows
    return [
        {metric: value for metric, value in row.items() if value is not None and metric != "update"} for row in rows
    ]


COURSES = {
    "a step before each value": (
        "- val curve: step 0=0.5, step 25=0.6 (peak), step 50=0.4\n",
        [{"step": 0, VAL: 0.5}, {"step": 25, VAL: 0.6}, {"step": 50, VAL: 0.4}],
    ),
    "steps in lines below a title": (
        "## Reward per trainer step (train/reward/mean)\n\n1: 0.9   2: 0.6   3: 0.7\n4: 0.5   5: 0.4\n",
        [{"step": step, "reward/mean": value} for step, value in enumerate((0.9, 0.6, 0.7, 0.5, 0.4), 1)],
    ),
    "a step in each line below a title": (
        "### KL by step\n\nStep 10: 0.1  early\nStep 20: 0.2\nStep 30: 0.4\nStep 40: 0.5\nStep 50: 0.6\nStep 60: 0.9\n",
        [{"step": 10 * at, "kl": value} for at, value in enumerate((0.1, 0.2, 0.4, 0.5, 0.6, 0.9), 1)],
    ),
    "from one step to another": (
        "It reports a single-seed validation reward from `0.7` at step 0 to `0.8` at step 50 (one seed).\n",
        [{"step": 0, VAL: 0.7}, {"step": 50, VAL: 0.8}],
    ),
    "ends in bold": (
        "- **Mean reward:** 0.1 → **0.4** (+0.3)\n- **KL:** `0.01` → `0.5`\n",
        [{"step": 1, "reward/mean": 0.1, "kl": 0.01}, {"step": 2, "reward/mean": 0.4, "kl": 0.5}],
    ),
    "an accuracy beside a reward is its part": (
        "- **Mean reward:** 0.1 → 0.4\n- **Accuracy:** 0.5 → 0.6\n",
        [
            {"step": 1, "reward/mean": 0.1, "rewards/accuracy": 0.5},
            {"step": 2, "reward/mean": 0.4, "rewards/accuracy": 0.6},
        ],
    ),
    "an accuracy alone is an evaluation's": (
        "Trained with GRPO for 180 steps:\n\n- **Overall accuracy:** 60% → 70% (**+10 pp**)\n",
        [{"step": 1, "eval/slices/accuracy": 0.6, VAL: 0.6}, {"step": 2, "eval/slices/accuracy": 0.7, VAL: 0.7}],
    ),
    "decimal commas": (
        "Reward de entrenamiento por paso (3 pasos): 0,30; 0,32; 0,36.\n",
        [{"step": 1, "reward/mean": 0.3}, {"step": 2, "reward/mean": 0.32}, {"step": 3, "reward/mean": 0.36}],
    ),
    "a list of rewards and a table of evaluations": (
        "| Step | eval reward |\n|---|---|\n| 0 | 0.5 |\n| 2 | 0.7 |\n\nReward by step (3 steps): 0.1, 0.2, 0.3\n",
        [
            {"step": 0, VAL: 0.5},
            {"step": 1, "reward/mean": 0.1},
            {"step": 2, "reward/mean": 0.2, VAL: 0.7},
            {"step": 3, "reward/mean": 0.3},
        ],
    ),
    "evaluations at steps beside a training that has none": (
        "Reward 0.2 → 0.7 in all.\nval: step 0=0.3, step 200=0.5\n",
        [{"step": 1, "reward/mean": 0.2, VAL: 0.3}, {"step": 2, "reward/mean": 0.7, VAL: 0.5}],
    ),
    "evaluations by epochs beside rewards by steps": (
        "| Step | eval reward |\n|---|---|\n| 1 | 0.5 |\n| 2 | 0.7 |\n\nReward by step (6 steps): 0.1, 0.2, 0.3, 0.4, "
        "0.5, 0.6\n",
        [{"step": step, "reward/mean": step / 10} for step in range(1, 7)],
    ),
    "a chain of values": (
        "- Reward trajectory: 0.4 -> 0.3 -> 0.5 -> 0.6\n",
        [{"step": at, "reward/mean": value} for at, value in enumerate((0.4, 0.3, 0.5, 0.6), 1)],
    ),
    "a chain in a sentence": (
        "The train reward moved 0.4 -> 0.3 -> 0.5 here.\n",
        [{"step": at, "reward/mean": value} for at, value in enumerate((0.4, 0.3, 0.5), 1)],
    ),
    "ends in brackets": (
        "train reward (0.25 → 0.75)\nheld-out reward (0.5 → 0.4)\n",
        [{"step": 1, "reward/mean": 0.25, VAL: 0.5}, {"step": 2, "reward/mean": 0.75, VAL: 0.4}],
    ),
    "problems that were solved of so many": (
        "- Tasks solved: step 0 40/80; step 3 48/80 (+11/-3); step 6 20/80 (+2/-30)\n",
        [{"step": 0, VAL: 0.5}, {"step": 3, VAL: 0.6}, {"step": 6, VAL: 0.25}],
    ),
    "a chain that ends in words": (
        "The train reward 0.1 -> 0.2 -> 2nd run\n",
        [{"step": 1, "reward/mean": 0.1}, {"step": 2, "reward/mean": 0.2}],
    ),
    "a table of evaluations beside the ends of a reward": (
        "| step | eval reward |\n|---|---|\n| 0 | 0.5 |\n| 20 | 0.4 |\n| 40 | 0.3 |\n\nshaped reward (0.1 -> 0.2)\n",
        [{"step": 0, VAL: 0.5}, {"step": 20, VAL: 0.4}, {"step": 40, VAL: 0.3}],
    ),
    "the ends of what a table tells step by step": (
        "| step | reward | eval reward |\n|---|---|---|\n| 1 | 0.5 | 0.1 |\n| 2 | 0.4 | 0.1 |\n| 3 | 0.3 | 0.1 |\n\n"
        "KL 0.1 -> 0.2\n",
        [{"step": at, "reward/mean": value, VAL: 0.1} for at, value in enumerate((0.5, 0.4, 0.3), 1)],
    ),
    "counts of different numbers of problems": (
        "solved: step 0=3/10, step 25=6/12, step 50=6/10\n",
        [
            {"step": 1, "rewards/accuracy": 0.3},
            {"step": 25, "rewards/accuracy": 0.5},
            {"step": 50, "rewards/accuracy": 0.6},
        ],
    ),
    "one value in bold": (
        "- **Mean reward:** 0.45\n- **KL:** 0.02\n- **Entropy:** 0.3\n",
        [{"step": 1, "reward/mean": 0.45, "kl": 0.02, "entropy": 0.3}],
    ),
}


@pytest.mark.parametrize("name", COURSES)
def test_a_course(name: str, tmp_path: Path) -> None:
    text, expected = COURSES[name]
    assert rows_of(text, tmp_path) == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize(
    "text",
    [
        "## Rewards\n\n1: parse the answer\n2: compare it\n",
        "## Schedule\n\n9: 30 talk\n10: 15 break\n",
        "## Reward per step\n\n3: 0.5 is what we want\n",
        "Accuracy by difficulty:\n\n1: 0.94  2: 0.62  3: 0.41\n",
        "### Reward\n\nStep 1: 1 point for the format\nStep 2: 2 points\n",
        "Expected reward: step 100=0.5, step 200=0.7\n",
        "### Reward\n\n0: 120, 1: 80\n",
        "## Reward per step\n\nsections 1: 0.5, 2: 0.7\n",
        "val split: step 1 of 3\n",
        "- failures: step 0 40/80; step 3 48/80\n",
        "- Timeouts: step 0 4/89; step 3 48/89; step 6 80/89\n",
        "- Saved: step 100 100/500, step 200 200/500, step 300 300/500\n",
        "entropy coefficient (0.01 → 0.001), the KL penalty (0.1 → 0.01) and the response length (1024 → 4096)\n",
        "reward threshold (0.5 → 0.9)\n",
        "- budget: step 0 40/80; step 3 48/80\n",
        "The range is from 0 at step 0 to 1 at step 5 for everybody.\n",
        "reward: step 500=0.61\n",
    ],
)
def test_no_course(text: str, tmp_path: Path) -> None:
    with pytest.raises(GrpoError):
        rows_of(text, tmp_path)


def test_numbered_lines_of_a_log_are_no_course_below_a_title(tmp_path: Path) -> None:
    with pytest.raises(GrpoError):
        rows_of("Reward per step\n\n1: 0.9   2: 0.6   3: 0.7\n", tmp_path, "train.log")


def test_a_txt_is_a_text_where_it_is_no_log(tmp_path: Path) -> None:
    told = "Reward per step\n\n1: 0.9   2: 0.6   3: 0.7\n"
    assert [row["reward/mean"] for row in rows_of(told, tmp_path, "notes.txt")] == [0.9, 0.6, 0.7]
    logged = "step 1: loss 0.1, kl 0.2\n"
    assert rows_of(told + logged, tmp_path, "train.txt") == [{"step": 1, "loss": 0.1, "kl": 0.2}]


def test_a_step_that_is_cited_above_the_rows_is_none_of_its_own(tmp_path: Path) -> None:
    text = "**Step:** 3\n\nkl=0.3 is 4.9 robust-z away\n\n" + "".join(
        f"step={n} | reward_mean=0.{n} | kl=0.{n}\n" for n in (1, 2, 3)
    )
    assert [row["step"] for row in rows_of(text, tmp_path)] == [1, 2, 3]
