"""What runs answered, as comparisons take it: problem by problem, or cluster by cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpoctl.analysis.collect import RunRecord
from grpoctl.analysis.contrasts import Outcomes, contrast
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


def side_of(folder: Path, rewards: Sequence[Sequence[float]], clusters: str | None) -> Outcomes:
    """A side with a run for each list of rewards."""
    folder.mkdir(parents=True)
    runs = [answers(folder, seed, of_run, clusters) for seed, of_run in enumerate(rewards)]
    known = [[one for one in of_run if one is not None] for of_run in rewards]
    return outcomes(runs, "eval/reward", {seed: sum(of_run) / len(of_run) for seed, of_run in enumerate(known)})


def test_clusters_of_other_sizes_are_no_noise(tmp_path: Path) -> None:
    """B is higher by 0.2 on each problem of clusters of three and of one, with a spread of 0.01 between them."""
    a = side_of(tmp_path / "a", [(0.1, 0.2, 0.3, 0.8)] * 3, "aaab")
    b = side_of(tmp_path / "b", [(0.3, 0.4, 0.5, 1.01)] * 3, "aaab")
    gap = contrast(a, b)
    assert (gap.problems, gap.clustered) == (2, True)
    # Deviations from 0.2025: -0.0075 of the three together, 0.0075: sqrt(2 * 2 * 0.0075^2) / 4 = 0.00375, of which half
    # the variance counts where seeds agree, with the 0.6 degrees of freedom of two such clusters.
    assert gap.error == pytest.approx(0.00375 * math.sqrt(0.5))
    assert gap.df == pytest.approx(0.6)


def test_a_missing_answer_costs_its_problem_and_not_its_cluster(tmp_path: Path) -> None:
    whole = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    a = side_of(tmp_path / "a", [whole] * 3, "aabbcc")
    b = side_of(tmp_path / "b", [[None, 0.3, 0.4, 0.5, 0.6, 0.7]] * 3, "aabbcc")  # type: ignore[list-item]
    assert contrast(a, b).problems == 3


def test_a_side_of_older_runs_has_the_clusters_of_the_other(tmp_path: Path) -> None:
    older = side_of(tmp_path / "a", [(0.1, 0.2, 0.3, 0.4)] * 3, None)
    newer = side_of(tmp_path / "b", [(0.2, 0.3, 0.3, 0.4)] * 3, "aabb")
    both = (contrast(older, newer), contrast(newer, older))
    assert [(gap.problems, gap.clustered) for gap in both] == [(2, True), (2, True)]


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
