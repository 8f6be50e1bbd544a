"""What is printed of a run that ended."""

from __future__ import annotations

import pytest

from grpoctl.cli.verdict import print_result
from tests.grpoctl.printed import Capture, result

pytestmark = pytest.mark.usefixtures("plain_environment")


def test_result(capsys: Capture) -> None:
    print_result(result(), {"updates": 38, "collapse_rate": 0.974})
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "Run       COMPLETED: p30@1, profile tiny, seed 0: 96 steps, 39 updates, 5.0 s",
        "Reached   eval/reward 0.400 -> 0.600, +0.200 ± 0.098, of its sampler: its rollouts are unsound",
        "",
        "               start           final    best",
        "─────────────────────────────────────────────",
        " eval/reward   0.400   0.600 ± 0.078   0.610",
        "  ±, [ ]: 95 % t interval over prompts; gains not paired",
        "",
        "Expected  refuted: collapse_rate < 0.05 (observed 1.000)",
        "Finding   ERROR: rollout-mode: " + " ".join(["samples [B, K] come from train mode."] * 4),
        "Evidence  grpoctl diagnose p30-tiny-s0-aaaa-1",
        "",
        "The record and this run",
        "                 record   this run",
        "───────────────────────────────────",
        " updates             38         39",
        " collapse_rate    0.974      1.000",
        "",
        "Files     /home/ada/a-rather-long-folder-name/workflows/.grpoctl/runs/p30-tiny-s0-aaaaaaaa-1",
    ]


def test_a_run_that_never_got_anywhere(capsys: Capture) -> None:
    bare = result(
        status="FAILED", steps=0, updates=0, seconds=None, start={}, final={}, best={}, expects=[], findings=[]
    )
    print_result(bare, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Run       FAILED: p30@1, profile tiny, seed 0: 0 steps, 0 updates"
    assert lines[1] == "Reached   no eval/reward at the start: nothing to compare"
    assert len(lines) == 3


def test_a_task_with_baselines_has_them_beside_the_evaluations_in_80_columns(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    metrics = ["eval/reward", *(f"eval/rewards/accuracy_{shots}" for shots in (1, 2, 3, 4))]
    names = ("start", "supervised", "final", "best", "random", "nearest", "best_possible")
    print_result(result(baselines={name: dict.fromkeys(metrics, 0.5) for name in names}), {})
    lines = capsys.readouterr().out.splitlines()
    start = next(at for at, line in enumerate(lines) if "baselines" in line)
    assert lines[start + 1].split() == ["reward", "accuracy_1", "accuracy_2", "accuracy_3", "accuracy_4"]
    rows = lines[start + 3 : start + 3 + len(names)]
    assert [line.split()[0] for line in rows] == ["start", "supervised", "final", "best", "random", "nearest", "best"]
    assert all(len(line) <= 80 and line.count("0.500") == 5 for line in rows)
