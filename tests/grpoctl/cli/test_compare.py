"""What `grpoctl compare` prints of two sides of runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpoctl.analysis.agreement import Agreement
from grpoctl.cli.compare import print_comparison
from tests.conftest import Recorded
from tests.grpoctl.cli.conftest import Grpoctl
from tests.grpoctl.printed import Capture, comparison

pytestmark = pytest.mark.usefixtures("plain_environment")


def test_comparison(capsys: Capture) -> None:
    print_comparison(comparison())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Verdict   B (p30@1) is better by 0.100 [0.100, 0.100] on eval/reward (paired, n=3 seeds)"
    at = lines.index("")
    assert lines[at + 1 : at + 9] == [
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


def test_how_they_answer_comes_before_what_they_earn(capsys: Capture) -> None:
    made = comparison()
    length = replace(made.metrics["eval/reward"], difference=None)
    print_comparison(replace(made, metrics={**made.metrics, "eval/length": length}))
    said = capsys.readouterr().out
    assert said.index(" eval/length") < said.index("eval/reward at the end") < said.index("Means over seeds (")


def test_how_alike_two_policies_are(capsys: Capture) -> None:
    print_comparison(comparison())
    assert "Outputs" not in capsys.readouterr().out  # nothing is known, so nothing is said
    reached = {"final": {"eval/reward": 0.5, "eval/rewards/accuracy_1": 0.25}, "random": {"eval/reward": 0.125}}
    alike = Agreement(outputs={0: (900, 1000), 1: (100, 1000)}, weights={0: 0.0004, 1: 0.0006})
    print_comparison(replace(comparison(), agreement=alike, baselines={"a": reached, "b": reached}))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"A final 0.500 0.250", "B final 0.500 0.250", "random 0.125 -"} <= set(lines)
    (outputs,) = (line for line in lines if line.startswith("Outputs"))
    assert "1,000 of 2,000" in outputs
    (weights,) = (line for line in lines if line.startswith("Weights"))
    assert "0.0005 " in weights
    assert "2 seeds" in weights


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["p31", "nonsense"], ["nonsense", "grpoctl ls"]),
        (["p31", "p3l"], ["did you mean p31?"]),
        (["p31", "p32"], ["no finished run", "grpoctl run p32"]),
        (["p31", "p32", "-p", "tiny"], ["grpoctl run p32 -p tiny"]),
        (["p31", "lr-study"], ["is a sweep", "STUDY-t0000"]),
    ],
)
def test_a_side_that_is_not_there(grpoctl: Grpoctl, recorded: Recorded, names: list[str], words: list[str]) -> None:
    recorded()
    said = grpoctl("compare", *names)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert [word for word in words if word not in said.err] == []
    assert "grpoctl run nonsense" not in said.err
