"""`grpoctl promote`: what it prints, and that the new experiment is there for the other commands."""

from __future__ import annotations

import pytest

from grpoctl.runs.run_dir import Home
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
