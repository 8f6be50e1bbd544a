"""Which axis decides: on studies whose answer is built in, and where there is none to give."""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from typing import Any

import pytest

from grpoctl.runs.status import TrialStatus
from grpoctl.sweeps.importances import importances
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Point, TrialRecord

AXES: dict[str, Any] = {
    "stages.grpo.num_generations": [2, 4, 8, 16],
    "stages.grpo.learning_rate": {"low": 1e-4, "high": 2e-3, "log": True},
    "faults": [[], ["rollout-in-train-mode"]],
}
K, LR, FAULTS = AXES


def sweep(axes: Any = None, **more: Any) -> SweepSpec:
    space = {} if "candidates" in more else {"axes": axes or AXES}
    return SweepSpec.model_validate({"name": "s", "title": "t", "experiment": "p31", **space, **more})


def study(decides: str, trials: int = 24, sign: float = 1.0, status: str = "COMPLETED") -> list[TrialRecord]:
    """Trials spread at random, whose score one axis decides, but for a little noise."""
    rng = random.Random(0)
    found = []
    for number in range(trials):
        share, k = rng.random(), rng.choice(AXES[K])
        params = {K: k, LR: 1e-4 * 20**share, FAULTS: rng.choice(AXES[FAULTS])}
        height = {K: 0.1 * math.log2(k), LR: 1 - abs(share - 0.6)}[decides]
        score = sign * (height + rng.gauss(0, 0.02))
        found.append(TrialRecord(number=number, params=params, seeds=(0,), status=TrialStatus(status), score=score))
    return found


@pytest.mark.parametrize("decides", [K, LR])
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_axis_that_decides_comes_first(decides: str, direction: str) -> None:
    shares = importances(sweep(direction=direction), study(decides, sign=1 if direction == "maximize" else -1))
    assert next(iter(shares)) == decides
    assert shares[decides] > 0.5
    assert set(shares) == set(AXES)
    assert math.fsum(shares.values()) == pytest.approx(1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_the_same_records_give_the_same_shares() -> None:
    assert importances(sweep(), study(K)) == importances(sweep(), study(K))


def test_it_needs_no_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert importances(sweep(), study(K))


def test_what_the_best_have_in_common_is_asked_not_what_the_worst_have() -> None:
    """Ten good trials share their rate, ten bad ones their K, and five between share nothing."""
    rng, records = random.Random(0), []
    for number in range(25):
        k, share = rng.choice(AXES[K]), rng.random()
        k, share = (k, 0.6) if number < 10 else (2, share) if number < 20 else (k, share)
        score = 0.9 if number < 10 else 0.1 if number < 20 else 0.5
        params = {K: k, LR: 1e-4 * 20**share, FAULTS: AXES[FAULTS][number % 2]}
        done = TrialStatus.COMPLETED
        records.append(TrialRecord(number=number, params=params, seeds=(0,), status=done, score=score))
    assert next(iter(importances(sweep(direction="maximize"), records))) == LR
    assert next(iter(importances(sweep(direction="minimize"), records))) == K


def test_a_pruned_trial_counts_as_what_it_was_when_it_was_given_up() -> None:
    """All trials with K 2 were given up: without them there would be K 16 alone, and K would have no share."""
    pruned: dict[str, Any] = {"status": TrialStatus.PRUNED, "score": None, "curve": (Point(0, 0.5, 0.05),)}
    records = [one for one in study(K, trials=48) if one.params[K] in (2, 16)]
    records = [dataclasses.replace(one, **pruned) if one.params[K] == 2 else one for one in records]
    assert next(iter(importances(sweep(), records))) == K


def test_failed_and_running_trials_do_not_count() -> None:
    records = study(LR)
    extra = [dataclasses.replace(one, number=24 + one.number) for one in study(K, status="FAILED")]
    extra += [dataclasses.replace(one, number=48 + one.number) for one in study(K, status="RUNNING")]
    assert importances(sweep(), [*records, *extra]) == importances(sweep(), records)


def test_an_axis_that_was_not_varied_has_no_share() -> None:
    axes = {**AXES, "stages.grpo.beta": [0.0], "stages.grpo.epsilon": [0.1, 0.2]}
    records = [
        dataclasses.replace(one, params={**one.params, "stages.grpo.beta": 0.0, "stages.grpo.epsilon": 0.2})
        for one in study(K)
    ]
    assert set(importances(sweep(axes), records)) == set(AXES)


def test_a_conditional_axis_does_no_harm() -> None:
    axes = {**AXES, "stages.grpo.kl_estimator": {"values": ["k2", "k3"], "when": {K: [8, 16]}}}
    records = []
    for one in study(K):
        params = {**one.params, **({"stages.grpo.kl_estimator": "k2"} if one.params[K] > 4 else {})}
        records.append(dataclasses.replace(one, params=params))
    shares = importances(sweep(axes), records)
    assert next(iter(shares)) == K


@pytest.mark.parametrize(
    "records",
    [
        [],
        study(K, trials=9),
        study(K, status="FAILED"),
        [dataclasses.replace(one, score=0.5) for one in study(K)],
        [dataclasses.replace(one, params=study(K)[0].params) for one in study(K)],
        [dataclasses.replace(one, params={**one.params, K: 5}) for one in study(K)],
    ],
    ids=["none", "few", "failed", "one value", "one point", "off the axis"],
)
def test_nothing_is_said_where_nothing_can_be(records: list[TrialRecord]) -> None:
    assert importances(sweep(), records) == {}


def test_named_candidates_have_none() -> None:
    of = sweep(candidates={f"c{n}": {LR: 1e-4 * (n + 1)} for n in range(12)})
    points = enumerate(of.candidates.values())
    done = TrialStatus.COMPLETED
    records = [TrialRecord(number=n, name=f"c{n}", params=one, seeds=(0,), score=n, status=done) for n, one in points]
    assert importances(of, records) == {}
