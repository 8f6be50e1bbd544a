"""What `grpoctl compare` prints of two sides of runs."""

from __future__ import annotations

import pytest

from grpoctl.cli.compare import print_comparison
from tests.grpoctl.printed import Capture, comparison

pytestmark = pytest.mark.usefixtures("plain_environment")


def test_comparison(capsys: Capture) -> None:
    print_comparison(comparison())
    lines = capsys.readouterr().out.splitlines()
    assert lines[:8] == [
        "A         p30@1, profile tiny, seeds 0, 1, 2 (3 COMPLETED)",
        "B         p30@1, profile tiny, seeds 0, 1, 2 (3 COMPLETED)",
        "",
        "Changed settings",
        "                               A   B",
        "─────────────────────────────────────",
        " stages.grpo.num_generations   2   8",
        "",
    ]
    # Rewards 0.50, 0.51, 0.52: sd 0.01, half 4.302653 * 0.01 / sqrt(3) = 0.025; the difference is 0.1 for every seed.
    assert "eval/reward 0.510 ± 0.025 0.610 ± 0.025 +0.100 ± 0.000 *" in [" ".join(line.split()) for line in lines]
    assert any("━" in line and "┤" in line for line in lines)
    assert lines[-1] == "Verdict   B (p30@1) is better by 0.100 [0.100, 0.100] on eval/reward (paired, n=3 seeds)"
