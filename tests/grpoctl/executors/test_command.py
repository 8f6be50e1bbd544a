"""What a program's log becomes as rows of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.health.guard import collapse_finding
from grpoctl.config import load
from grpoctl.executors.command import LOG, Log
from grpoctl.runs.run_dir import RunDir

SPEC = """
name: mine
title: Mine
trainer: {kind: command, command: "python3 train.py", map: {tokens: seen}}
stages:
  grpo: {num_generations: 4, prompts_per_step: 2, max_steps: 8, learning_rate: 0.01}
"""
NAN = float("nan")


def recorded(folder: Path, lines: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """The rows of a run whose program printed these dictionaries."""
    (folder / "mine.yaml").write_text(SPEC)
    (folder / LOG).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    log = Log(load(str(folder / "mine.yaml")).spec, RunDir(path=folder), after=-1)
    return list(log.new_rows(all_of_it=True))


@pytest.mark.parametrize(
    ("lines", "metric", "values"),
    [
        ([{"loss": 0.1}, {"loss": NAN}, {"loss": 0.2}], "loss", [0.1, None, 0.2]),
        ([{"grad_norm": 1.0}, {"grad_norm": float("inf")}], "grad_norm", [1.0, None]),
        ([{"loss": 0.1, "grad_norm": float("inf")}, {"loss": 0.1, "grad_norm": 1.0}], "grad_norm", ["absent", 1.0]),
        ([{"loss": 0.1, "grad_norm": 1.0}, {"loss": NAN, "grad_norm": NAN}], "grad_norm", [1.0, None]),
        ([{"loss": NAN}, {"loss": NAN}], "loss", [None, None]),  # an update needs it
        ([{"kl": NAN}, {"kl": NAN}], "kl", ["absent", "absent"]),  # never a number: not measured
        ([{"kl": NAN}, {"kl": 0.1}, {"kl": NAN}], "kl", ["absent", 0.1, None]),
    ],
)
def test_a_value_that_is_no_finite_number_is_none(
    tmp_path: Path, lines: list[dict[str, float]], metric: str, values: list[object]
) -> None:
    rows = recorded(tmp_path, [{"step": step, "reward": 0.5, **line} for step, line in enumerate(lines, 1)])
    assert [row.get(metric, "absent") for row in rows] == values


def test_the_guard_finds_a_loss_that_is_no_number_and_says_nothing_of_updates(tmp_path: Path) -> None:
    rows = recorded(tmp_path, [{"step": step, "reward": 0.5, "loss": NAN if step == 3 else 0.1} for step in (1, 2, 3)])
    guards = load(str(tmp_path / "mine.yaml")).spec.guards
    assert collapse_finding(rows[:2], guards) is None
    found = collapse_finding([{**row, "update": None} for row in rows], guards)
    assert found is not None
    assert (found.id, found.summary) == ("numerical", "step 3: loss is not a finite number")


def test_completions_follow_from_the_spec_and_tokens_from_the_log_alone(tmp_path: Path) -> None:
    first, second, third = recorded(
        tmp_path, [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.5, "seen": 70}, {"step": 3, "reward": 0.5}]
    )
    assert [row["completions"] for row in (first, second, third)] == [8, 16, 24]  # 4 of each of 2 prompts
    assert "tokens" not in first
    assert (second["tokens"], third["tokens"]) == (70, 70)
