"""`grpoctl check --simulate` through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.config import GrpoStage
from core.health.case import Sample
from core.health.simulation.report import settings
from grpoctl.cli.check_simulation import groups_of
from grpoctl.config import load
from tests.grpoctl.cli.conftest import Grpoctl
from tests.grpoctl.diagnose.readers.told import HEAD, told


def simulated(grpoctl: Grpoctl, *argv: str) -> dict[str, Any]:
    said = grpoctl("check", *argv, "--simulate", "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = said.document["simulation"]
    return found


def test_two_against_eight_is_a_number(grpoctl: Grpoctl) -> None:
    stage = simulated(grpoctl, "p30", "--pass-rate", "0.5")["grpo"]
    own, *others = stage["settings"]
    (eight,) = (one for one in others if one["num_generations"] == 8)
    assert (own["num_generations"], own["prompts_per_step"], own["dead"]) == (2, 3, 0.5)
    assert own["live"] == pytest.approx(3.0)
    assert eight["overrides"] == ["stages.grpo.num_generations=8", "stages.grpo.prompts_per_step=1"]
    assert eight["worth"]["value"] == pytest.approx(1.69, abs=0.03)
    assert eight["worth"]["se"] == 0.0
    assert "one of K=8 is worth 1.69" in stage["conclusion"] or "one of K=8 is worth 1.7" in stage["conclusion"]


def test_pass_rates_may_be_many_and_have_a_default(grpoctl: Grpoctl) -> None:
    one = simulated(grpoctl, "p31", "--pass-rate", "0.1", "--pass-rate", "0.9")["grpo"]["rewards"]
    assert (one["prompts"], one["mean"], one["source"]) == (2, 0.5, "pass rate 0.1, 0.9")
    assert "0.1, 0.3, 0.5, 0.7, 0.9" in simulated(grpoctl, "p31")["grpo"]["rewards"]["source"]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("p56", "-p", "tiny"), "the restoration policy draws continuous actions"),
        (("p31", "policy_weight=0", "loss_weights={}"), "every GRPO stage has policy_weight: 0"),
    ],
)
def test_what_a_bandit_says_nothing_of_is_refused(grpoctl: Grpoctl, argv: tuple[str, ...], why: str) -> None:
    said = grpoctl("check", *argv, "--simulate")
    assert said.code == 2
    assert why in said.err
    assert said.out == ""


def test_the_overrides_are_taken_as_they_stand() -> None:
    spec = load("p30").spec.stages["grpo"]
    assert isinstance(spec, GrpoStage)
    for other in settings(spec):
        given = [f"stages.grpo.{one}" for one in other.overrides]
        assert load("p30", overrides=given).spec.stages["grpo"] == other.stage, other.overrides


def test_what_a_run_earned(grpoctl: Grpoctl, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(HEAD + told(1, rewards=(1.0, 0.2, 0.4, 0.4, 0.0, 0.0)) + told(2, rewards=(0.0, 0.2) * 3))
    rewards = simulated(grpoctl, "p30", "--rewards", str(log))["grpo"]["rewards"]
    assert rewards["levels"] == [0.0, 0.2, 0.4, 1.0]
    assert rewards["mean"] == pytest.approx((2.0 + 0.6) / 12, abs=1e-3)
    assert rewards["source"].endswith("run.log, 12 rewards in 6 groups")


def test_groups_are_a_prompt_on_a_step() -> None:
    rewards = [
        (1, "a", 1.0),
        (1, "b", 0.0),
        (1, "a", 0.5),
        (2, "a", 0.2),
        (2, "a", None),
        (3, None, 0.7),
        (3, None, 0.8),
    ]
    samples = [Sample(step=step, group=group, reward=reward) for step, group, reward in rewards]
    assert groups_of([*samples, Sample(step=4, reward=float("nan"))]) == [[1.0, 0.5], [0.0], [0.2], [0.7], [0.8]]


def test_in_words_it_fits_80_columns(grpoctl: Grpoctl) -> None:
    for argv in (("p30",), ("p31", "advantage.scale_rewards=batch"), ("p31", "method=dapo", "--pass-rate", "0.01")):
        said = grpoctl("check", *argv, "--simulate")
        assert said.code == 0, said.err
        assert max(map(len, said.out.splitlines())) <= 80
        assert "is worth" in " ".join(said.out.split())


@pytest.mark.parametrize("rate", ["1.5", "-0.1", "0", "1", "nan"])
def test_a_pass_rate_that_is_none_is_refused(grpoctl: Grpoctl, rate: str) -> None:
    said = grpoctl("check", "p31", "--simulate", f"--pass-rate={rate}")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "--pass-rate" in said.err


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (("p31", "--pass-rate", "0.5"), "--simulate"),
        (("p31", "--rewards", "x"), "--simulate"),
        (("p31", "--simulate", "--pass-rate", "0.5", "--rewards", "x"), "leave one"),
        (("p31", "--simulate", "--rewards", "nowhere"), "nowhere"),
        (("p31", "--simulate", "--rewards", "metrics.csv"), "no rewards"),
        (("rce-only", "--simulate"), "none"),
        (("advantage-study", "--simulate"), "sweep"),
    ],
    ids=" ".join,
)
def test_what_it_cannot_look_at_is_said_in_one_line(
    grpoctl: Grpoctl, tmp_path: Path, argv: tuple[str, ...], word: str
) -> None:
    (tmp_path / "metrics.csv").write_text("step,reward\n1,0.5\n2,0.6\n", encoding="utf-8")
    said = grpoctl("check", *argv)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert word in said.err


def test_what_the_bandit_would_say_wrongly_is_refused(grpoctl: Grpoctl) -> None:
    online = ("stages.rce=null", "stages.grpo.groups=online")
    for argv, word in (
        (("p40",), "--data"),
        (("p40-ranks", *online), "rank_by_order"),
        (("p49", *online), "stratified"),
    ):
        said = grpoctl("check", *argv, "--simulate")
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert word in said.err
    assert grpoctl("check", "p40", "-p", "tiny", *online, "--simulate").code == 0
