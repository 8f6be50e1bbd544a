"""What the tests of printed text share: a stream that says it is a terminal, a result and a comparison to print."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from grpoctl.analysis.collect import RunRecord
from grpoctl.analysis.compare import Comparison, compare

Capture = pytest.CaptureFixture[str]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output as an 80-column terminal. No fixture: pytest puts its own stream back before the test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "80")
    return stream


def result(**changes: Any) -> dict[str, Any]:
    return {
        "recorded_as": "p30@1",
        "spec_sha": "aaaa",
        "profile": "tiny",
        "seed": 0,
        "run_id": "p30-tiny-s0-aaaa-1",
        "run_dir": "/home/ada/a-rather-long-folder-name/workflows/.grpoctl/runs/p30-tiny-s0-aaaaaaaa-1",
        "status": "COMPLETED",
        "steps": 96,
        "updates": 39,
        "seconds": 5.0,
        "start": {"eval/reward": 0.4, "eval/reward_se": 0.03},
        "final": {"eval/reward": 0.6, "eval/reward_se": 0.04, "collapse_rate": 1.0},
        "best": {"eval/reward": 0.61},
        "expects": [{"expectation": "collapse_rate < 0.05", "observed": 1.0, "met": False}],
        "findings": [
            {"id": "rollout-mode", "severity": "error", "summary": "samples [B, K] come from train mode. " * 4}
        ],
    } | changes


def comparison() -> Comparison:
    """Three seeds of K=2 against three of K=8, the reward 0.1 higher."""

    def run(seed: int, k: int, gain: float) -> RunRecord:
        rewards = [0.4 + 0.01 * seed, 0.5 + 0.01 * seed + gain]
        rows = tuple({"completions": 30 * at, "eval/reward": reward} for at, reward in enumerate(rewards))
        document = result(seed=seed, run_id=f"k{k}-s{seed}", final={"eval/reward": rewards[1]}, findings=[])
        return RunRecord(result=document, spec={"stages.grpo.num_generations": k, "faults": []}, rows=rows)

    return compare([run(seed, 2, 0.0) for seed in range(3)], [run(seed, 8, 0.1) for seed in range(3)])


def plain(text: str) -> list[str]:
    return COLOUR.sub("", text).splitlines()
