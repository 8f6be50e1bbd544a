"""How long something will take: from the clock of what was run before, with a range that the next one keeps to."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from core.health.statistics import t_quantile
from grpoctl.config import load
from grpoctl.files import read_json, replace_json
from grpoctl.runs.pace import (
    PRIOR_DF,
    PRIOR_SD,
    Like,
    Rate,
    budget_of,
    duration,
    rates_of_runs,
    rates_of_studies,
    spread,
)
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import create_study
from tests.conftest import Recorded

LIKE = Like(experiment="p31", profile="tiny", trainer="grpoctl", unit="completions")


def rate(seconds: float, *, alone: bool = False) -> Rate:
    return Rate(name="one", seconds=seconds, alone=alone)


def test_one_measurement_gives_a_wide_range_and_many_a_narrow_one() -> None:
    one = duration([rate(0.5)], 120)
    assert one is not None
    factor = math.exp(t_quantile(0.975, PRIOR_DF) * PRIOR_SD * math.sqrt(2))
    assert one.seconds == pytest.approx(60)
    assert (one.low, one.high) == (pytest.approx(60 / factor), pytest.approx(60 * factor))
    several = duration([rate(0.5)] * 10, 120)
    assert several is not None
    assert one.low < several.low < 60 < several.high < one.high


def test_nothing_measured_is_no_time() -> None:
    assert duration([], 100) is None


def test_of_workers_that_were_never_seen_together_the_range_reaches_from_all_to_no_gain() -> None:
    together, alone = (duration([rate(1.0, alone=alone)] * 9, 100, workers=4) for alone in (False, True))
    assert together is not None
    assert alone is not None
    assert together.seconds == pytest.approx(25)
    assert alone.low == pytest.approx(together.low)  # no worker disturbs another
    assert alone.high == pytest.approx(together.high * 4)  # they take turns


@pytest.mark.parametrize("measured", [1, 2, 5, 10])
@pytest.mark.parametrize("sd", [0.1, 0.3])
def test_the_next_one_is_in_the_range_in_95_of_100(measured: int, sd: float) -> None:
    numbers, kept = random.Random(measured), 0
    for _ in range(1000):
        logs = [numbers.gauss(0, sd) for _ in range(measured)]
        kept += abs(numbers.gauss(0, sd) - sum(logs) / measured) <= math.log(spread(logs))
    assert kept >= 930


def test_the_mean_of_many_is_nearer_than_one() -> None:
    assert spread([0.0, 0.1], ahead=20) < spread([0.0, 0.1])


def test_runs_count_from_start_to_end_and_those_that_were_resumed_do_not(recorded: Recorded, home: Home) -> None:
    runs = [recorded(seed=seed) for seed in range(3)]
    for run, (completions, attempts) in zip(runs, ((100, 1), (0, 1), (100, 2)), strict=True):
        result, provenance = read_json(run.result), read_json(run.provenance)
        assert result is not None
        assert provenance is not None
        replace_json(run.result, {**result, "final": {"completions": completions}})
        replace_json(run.provenance, {**provenance, "attempts": [{}] * attempts})
    # started at 1000 + seed, ended at 2000; of these 1000 seconds it trained for 1.0
    assert rates_of_runs(home, LIKE) == [Rate(name=runs[0].id, seconds=0.01, alone=True, start=999.0)]
    assert rates_of_runs(home, replace(LIKE, profile="full")) == []


def test_a_study_counts_its_workers_and_an_older_one_that_does_not_say_is_left_out(home: Home) -> None:
    trials = [{"completions": 300}, {"completions": 100}, {"completions": None}]
    known = {"schema": 2, "experiment": "p31", "profile": "tiny", "seconds": 50.0, "trials": trials}
    for workers in ({"workers": 4}, {}):
        study = create_study(home, "lr-study-tiny-0123abcd")
        study.spec.write_text("name: lr-study\n")
        replace_json(study.state, {**known, **workers})
    assert [(found.seconds, found.start) for found in rates_of_studies(home, LIKE)] == [(0.5, 0.0)]
    assert rates_of_studies(home, replace(LIKE, experiment="p30")) == []
    # 4 workers of 50 seconds each, and 120 of these 200 in runs: each took 20 to start
    replace_json(study.state, {**known, "workers": 4, "trials": [{"completions": 400, "seconds": 120.0}]})
    newest = rates_of_studies(home, LIKE)[0]
    assert (newest.seconds, newest.start) == (pytest.approx(0.3), pytest.approx(20.0))
    twice = duration([newest], 800, workers=4)
    assert twice is not None
    assert twice.seconds == pytest.approx(20 + 0.3 * 800 / 4)


def test_a_short_run_says_what_a_long_one_takes_and_the_other_way_round() -> None:
    """Ten seconds to start and a hundredth for each completion, whatever was measured."""
    for measured in (32, 1536):
        one = Rate.of("one", took=10 + 0.01 * measured, trained=0.01 * measured, spent=measured)
        for amount, seconds in ((32, 10.32), (1536, 25.36)):
            made = duration([one], amount)
            assert made is not None
            assert made.seconds == pytest.approx(seconds)


@pytest.mark.parametrize("trainer", ["trl", "command"])
def test_another_trainer_has_another_clock(recorded: Recorded, home: Home, trainer: str) -> None:
    own, other = recorded(seed=0), recorded(seed=1)
    for run, more in ((own, {}), (other, {"trainer": trainer})):
        result = read_json(run.result)
        assert result is not None
        replace_json(run.result, {**result, "final": {"completions": 100}, **more})
    assert [found.name for found in rates_of_runs(home, LIKE)] == [own.id]
    assert [found.name for found in rates_of_runs(home, replace(LIKE, trainer=trainer))] == [other.id]
    assert Like.of(load("p31", profile="tiny", overrides=["trainer.kind=trl"]).spec).trainer == "trl"


@pytest.mark.parametrize(
    ("said", "params", "seen"),
    [
        (None, {}, ["grpoctl"]),
        ("grpoctl", {}, ["grpoctl"]),
        ("trl", {}, ["trl"]),
        ("trl", {"trainer.kind": "trl"}, []),  # its trials are of both
    ],
)
def test_a_study_is_of_the_trainer_of_its_runs(
    home: Home, said: str | None, params: dict[str, str], seen: list[str]
) -> None:
    known = {"schema": 2, "experiment": "p31", "profile": "tiny", "seconds": 50.0, "workers": 2}
    study = create_study(home, "lr-study-tiny-0123abcd")
    study.spec.write_text("name: lr-study\n")
    replace_json(study.state, {**known, "trials": [{"completions": 300, "params": params}]})
    if said is not None:
        run = study.run(0, 0)
        run.path.mkdir(parents=True)
        run.spec.write_text("name: p31\n")
        replace_json(run.result, {} if said == "grpoctl" else {"trainer": said})
    trainers = ("grpoctl", "trl", "command")
    assert [one for one in trainers if rates_of_studies(home, replace(LIKE, trainer=one))] == seen


def test_what_a_run_spends() -> None:
    assert budget_of(load("p31", profile="tiny").spec) == ("completions", 96 * 16)
    assert budget_of(load("p31", profile="tiny", overrides=["budget.tokens=5000"]).spec) == ("tokens", 5000)


@pytest.mark.parametrize(("seconds", "text"), [(30, "30 seconds"), (90, "1.5 minutes"), (5400, "1.5 hours")])
def test_the_words(seconds: float, text: str) -> None:
    made = duration([rate(1.0)], seconds)
    assert made is not None
    assert made.text.startswith(f"about {text} (")
    assert "95 %" in made.text
