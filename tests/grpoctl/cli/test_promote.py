"""`grpoctl promote`: what it prints, and that the new experiment is there for the other commands."""

from __future__ import annotations

from typing import Any

import pytest

from grpoctl.cli.promote import confirmation_lines, confirmed
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.promote import PromotionRequest, Winner
from grpoctl.sweeps.promote import promote as write_experiment
from tests.grpoctl.cli.conftest import Grpoctl
from tests.promotable import WINNER, K, ended_study, swept


@pytest.fixture
def study(grpoctl: Grpoctl, home: Home) -> str:
    """The id of a study of two trials, the second the best, the first not told apart from it."""
    made = ended_study(home, swept("advantage-study", "tiny"), [{**WINNER, K: 8}, WINNER])
    text = made.state.read_text().replace('"indistinguishable": [1]', '"indistinguishable": [1, 0]')
    made.state.write_text(text)
    return made.id


def test_a_promoted_winner_is_an_experiment_like_others(grpoctl: Grpoctl, study: str) -> None:
    said = grpoctl("promote", "advantage-study", "--as", "my-grpo")
    assert said.code == 0
    first, second, third = said.out.splitlines()
    assert first == f"experiments/my-grpo.yaml: trial 1 of {study}, eval/reward 0.600 ± 0.050"
    assert "profile tiny" in second
    assert third == "next: grpoctl run my-grpo --profile tiny --seeds 3,4,5"
    assert said.err.startswith("note: trial 1 ")
    assert said.err.endswith("#0\n")
    assert grpoctl("validate", "my-grpo").code == 0
    shown = grpoctl("show", "my-grpo", "--profile", "tiny", "--json").document
    assert shown["spec"]["stages"]["grpo"]["num_generations"] == 4
    planned = grpoctl("run", "my-grpo", "--profile", "tiny", "--dry-run")
    assert "my-grpo-tiny-s0-" in planned.out
    assert "my-grpo" in [entry["name"] for entry in grpoctl("ls", "--json").document["experiments"]]


def test_one_document_on_standard_output(grpoctl: Grpoctl, study: str) -> None:
    document = grpoctl("promote", study, "--as", "my-grpo", "--trial", "0", "--json").document
    wanted = {"file": "experiments/my-grpo.yaml", "name": "my-grpo", "study": study, "trial": 0, "stages": {}}
    assert document == {"schema": 1, **wanted}


def results(*runs: tuple[str, float | None]) -> list[dict[str, object]]:
    """One result per fresh seed: how it ended and the reward that it ended with."""
    return [
        {"seed": 3 + place, "run_dir": f"run-{place}", "status": status, "final": {"eval/reward": reward}}
        for place, (status, reward) in enumerate(runs)
    ]


def lines(winner: Winner, asked: int, *runs: tuple[str, float | None]) -> tuple[dict[str, Any], dict[str, str]]:
    """The JSON of the confirmation by these runs, and what is printed, by label."""
    document, outcome = confirmed(winner, asked, results(*runs))
    return document, {line.label: line.text for line in confirmation_lines(winner, document, outcome)}


def test_a_collapse_on_a_fresh_seed_counts_as_worst(grpoctl: Grpoctl, study: str, home: Home) -> None:
    winner = write_experiment(PromotionRequest(study=study, name="my-grpo"), home).winner
    document, said = lines(winner, 3, ("COMPLETED", 0.5), ("COLLAPSED", 0.7), ("COMPLETED", 0.4))
    assert (document["values"], document["stopped"]) == ([0.5, 0.0, 0.4], 1)
    assert document["mean"] == pytest.approx(0.3)
    assert document["observed_bias"] == pytest.approx(0.6 - 0.3)
    assert "1 of 3" in said["Collapse"]
    assert "Next" not in said
    assert "better" in said["Confirm"]


def test_a_seed_that_did_not_come_to_its_end_is_left_for_the_next_time(
    grpoctl: Grpoctl, study: str, home: Home
) -> None:
    winner = write_experiment(PromotionRequest(study=study, name="my-grpo"), home).winner
    document, said = lines(winner, 3, ("COMPLETED", 0.7), ("FAILED", None), ("INTERRUPTED", 0.9))
    assert (document["values"], document["mean"]) == ([0.7, None, None], 0.7)
    assert "1 of 3" in said["Next"]
    assert "worse" in said["Confirm"]
    document, said = lines(winner, 2, ("INTERRUPTED", None))
    assert "mean" not in document
    assert list(said) == ["Next"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("advantage-study", "--as", "P31"), "there is an experiment p31 already"),
        (("advantage-study", "--as", "My Own"), "lower-case letters"),
        (("nothing", "--as", "mine"), "no study 'nothing'"),
        (("advantage-study", "--as", "mine", "--trial", "9"), "no trial 9"),
        (("advantage-study",), "--as"),
    ],
)
def test_what_is_refused_is_one_line_and_exit_code_2(
    grpoctl: Grpoctl, study: str, arguments: tuple[str, ...], message: str
) -> None:
    said = grpoctl("promote", *arguments)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert message in said.err
