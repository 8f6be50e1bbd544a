"""What runs answered, as comparisons take it: problem by problem, or cluster by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from grpoctl.analysis.collect import RunRecord
from grpoctl.analysis.contrasts import contrast
from grpoctl.analysis.problems import Answers, outcomes
from grpoctl.files import replace_rows
from grpoctl.runs.run_dir import RunDir


def answers(folder: Path, seed: int, rewards: Sequence[float], clusters: str | None) -> Answers:
    """A run of one evaluation; `clusters` has a letter for each problem."""
    run = RunDir(path=folder / f"{seed}-{clusters}")
    run.path.mkdir()
    rows = [
        {
            "step": 4, "place": place, "draw": 0, "prompt_id": f"e{place}", "problem": f"{place}", "reward": reward,
            "valid": True, "right": None, "output": "a", "prompt": "p",
            **({} if clusters is None else {"cluster": clusters[place]}),
        }
        for place, reward in enumerate(rewards)
    ]  # fmt: skip
    replace_rows(run.problem_rows, rows)
    made = {"run_id": run.path.name, "seed": seed}
    return Answers(RunRecord(result=made, spec={}, rows=({"step": 4, "completions": 8},), path=run.path))


def test_problems_of_a_cluster_are_one_column_and_the_mean_stays(tmp_path: Path) -> None:
    """Clusters of three and of one: columns 2 * 0.6 / 4 and 2 * 0.8 / 4, whose mean is that of the four, 0.35."""
    runs = [answers(tmp_path, seed, (0.1, 0.2, 0.3, 0.8), "aaab") for seed in (0, 1)]
    side = outcomes(runs, "eval/reward", {0: 0.35, 1: 0.35})
    assert side.clustered
    assert side.answers_SM is not None
    assert side.answers_SM == pytest.approx(np.array([[0.3, 0.4], [0.3, 0.4]]))
    assert side.problems == ("0+1+2", "3")
    of_problems = outcomes(
        [answers(tmp_path, seed, (0.1, 0.2, 0.3, 0.8), None) for seed in (0, 1)], "eval/reward", {0: 0.35, 1: 0.35}
    )
    assert (of_problems.clustered, len(of_problems.problems)) == (False, 4)


def test_patches_of_few_pictures_show_less_than_as_many_pictures(tmp_path: Path) -> None:
    """B is better by 0.1 on one picture's problems and equal on the other's: two pictures do not tell, eight would."""
    a, b = (0.5,) * 8, (0.6,) * 4 + (0.5,) * 4

    def gap(clusters: str | None) -> tuple[int | None, bool, bool]:
        folder = tmp_path / str(clusters)
        folder.mkdir()
        sides = []
        for name, rewards in (("a", a), ("b", b)):
            (folder / name).mkdir()
            runs = [answers(folder / name, seed, [one + seed / 1000 for one in rewards], clusters) for seed in range(3)]
            values = {seed: sum(rewards) / 8 + seed / 1000 for seed in range(3)}
            sides.append(outcomes(runs, "eval/reward", values))
        found = contrast(*sides)
        return found.problems, found.clustered, found.clear

    assert gap("aaaabbbb") == (2, True, False)
    assert gap(None) == (8, False, True)
