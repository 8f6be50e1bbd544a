"""The stage beside its alternatives: what they are, what they are worth, and what is said of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.health.simulation.report import SIZES, Simulation, settings, simulate
from core.health.simulation.rewards import RewardModel, of_pass_rates
from tests.core.health.simulation.test_signal import stage


def found(rates: tuple[float, ...] = (0.5,), **changed: Any) -> Simulation:
    return simulate(stage(**{"num_generations": 2, "prompts_per_step": 3, **changed}), of_pass_rates(rates))


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """Groups of 2 where half of the answers are right."""
    return found()


def test_the_settings_and_their_numbers(simulation: Simulation) -> None:
    rows = {(row.kind, row.label or row.signal.num_generations): row for row in simulation.rows}
    assert simulation.own is simulation.rows[0] is rows["own", "group z-score"]
    assert (simulation.own.worth.value, simulation.own.worth.se) == (1.0, 0.0)
    assert {key for kind, key in rows if kind == "size"} == {*SIZES} - {2}
    assert [rows["size", k].signal.prompts_per_step for k in (4, 8, 16, 32)] == [2, 1, 1, 1]
    eight = rows["size", 8].worth
    assert eight.answers == pytest.approx(1.74, abs=0.02)  # mean only: (7/8) / (1/2) = 1.75
    assert eight.value is not None
    assert 1.6 < eight.value < 1.75  # prompts take a little off
    assert eight.prompts == pytest.approx(0.49, abs=0.02)
    assert rows["normaliser", "mean only"].worth.value == pytest.approx(1.0)  # K = 2: only a learning rate
    sampling = rows["filter", "dynamic sampling"]
    assert sampling.signal.completions == pytest.approx(12, abs=0.1)  # half of the groups are dead
    assert sampling.worth.value == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.15, 0.2, 0.5, 0.85])
def test_a_z_score_is_near_the_mean_alone(rate: float) -> None:
    """docs/simulation.md: K=2 is worth within 3 % of (1/2) / (7/8) = 0.571 of K=8, the most at a rate of 0.15."""
    simulation = found((rate,), num_generations=8, prompts_per_step=2)
    (two,) = (row for row in simulation.rows if row.kind == "size" and row.signal.num_generations == 2)
    assert two.worth.answers == pytest.approx(4 / 7, rel=0.03)
    assert (two.worth.answers == pytest.approx(0.586, abs=5e-4)) == (rate in (0.15, 0.2, 0.85))


def test_other_sizes_have_as_many_completions() -> None:
    sizes = [one.stage for one in settings(stage(num_generations=8, prompts_per_step=4)) if one.kind == "size"]
    assert [(one.num_generations, one.prompts_per_step) for one in sizes] == [(2, 16), (4, 8), (16, 2), (32, 1)]


def test_the_conclusion_has_the_numbers(simulation: Simulation) -> None:
    said = simulation.conclusion
    for part in ("one of K=8 is worth 1.7", "0.8 % against 50.0 %", "12.0 completions a step against 6.0", "95 %"):
        assert part in said
    assert "one of K=2 is worth 0.59 of K=8" in found(num_generations=8, prompts_per_step=2).conclusion


def test_no_normaliser_is_worth_most_where_all_are_worth_the_same() -> None:
    """With K = 2 and one group a step every normaliser is a factor, so that each is worth exactly 1."""
    alike = found(prompts_per_step=1).conclusion
    assert "worth most" not in alike
    assert "no other normaliser is worth more (" in alike
    better = found((0.1, 0.9), num_generations=8, prompts_per_step=4, advantage={"scale_rewards": "batch"}).conclusion
    assert "is worth most, 1." in better


def test_where_there_is_nothing_to_learn_it_says_so() -> None:
    simulation = found((1.0,))
    assert simulation.conclusion.startswith("Nothing to learn")
    assert "100.0 %" in simulation.conclusion
    assert {row.worth.value for row in simulation.rows} == {None}
    json.dumps(simulation.as_json(), allow_nan=False)


def test_one_reward_level() -> None:
    alike = RewardModel(levels=(0.5,), prompts=((1.0,),), source="")
    assert simulate(stage(), alike).own.signal.dead == 1.0


def test_as_json_has_every_setting(simulation: Simulation) -> None:
    document = simulation.as_json()
    own, *others = document["settings"]
    assert (own["kind"], own["overrides"], own["worth"]["value"]) == ("own", [], 1.0)
    assert {one["kind"] for one in others} == {"size", "normaliser", "filter"}
    assert document["bandit"] == {"ways": 70, "sharing": 0.4}
    assert document["rewards"]["mean"] == 0.5
    assert len(document["limits"]) == 4


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"advantage": {"baseline": "batch", "scale_rewards": "batch"}},
        {"dynamic_sampling": {"max_attempts": 3}, "positive_reward": 0.5},
        {"advantage": {"baseline": "running", "scale_rewards": "running"}},
    ],
    ids=str,
)
def test_overrides_lead_to_the_setting(own: dict[str, Any]) -> None:
    mine, *others = settings(stage(**own))
    assert mine.overrides == ()
    for other in others:
        values = mine.stage.model_dump()
        for override in other.overrides:
            *path, last = (key := override.partition("=")[0]).split(".")
            part = values
            for name in path:
                part[name] = part[name] or {}
                part = part[name]
            text = override.removeprefix(key + "=")
            part[last] = None if text == "null" else int(text) if text.isdigit() else text
        assert mine.stage.model_validate(values) == other.stage, other.label
