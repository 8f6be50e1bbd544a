"""Suggestions repeat themselves, never a point, and get better with what was seen."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from grpoctl.sweeps import candidates, samplers
from grpoctl.sweeps.optuna_conversion import EndedTrial
from grpoctl.sweeps.samplers import Memory, Suggester, startup
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Point

SMALL = {"k": [4, 8, 16], "scale": ["none", "group", "batch"], "beta": [0.0, 0.01, 0.04]}  # 27 points
MIXED: dict[str, Any] = {
    "k": [2, 4, 8, 16],
    "lr": {"low": 1e-4, "high": 2e-3, "log": True},
    "beta": [0.0, 0.01, 0.04],
    "estimator": {"values": ["k2", "k3"], "when": {"beta": [0.01, 0.04]}},
    "ceiling": {"low": 0.1, "high": 0.9, "when": {"estimator": ["k3"]}},
    "epochs": {"low": 1, "high": 9, "step": 2},
    "faults": [[], ["rollout-in-train-mode"]],
}


def sweep(axes: Mapping[str, Any], **more: Any) -> SweepSpec:
    return SweepSpec.model_validate({"name": "s", "title": "t", "experiment": "p31", "axes": axes, **more})


def ended(number: int, params: Mapping[str, Any], value: float, state: Any = "COMPLETE") -> EndedTrial:
    curve = tuple(Point(0, n / 4, value * n / 4) for n in range(1, 5))
    return EndedTrial(
        number=number, params=params, state=state, value=None if state == "FAIL" else value, seeds=(0,), curve=curve
    )


def played(
    of: SweepSpec, trials: int, value: Callable[[Mapping[str, Any]], float], lag: int = 2
) -> list[dict[str, Any] | None]:
    """The points of a study in which trial n learns from trials 0 to n - lag."""
    suggester, points, past, taken = Suggester(of), [], [], set()
    for number in range(trials):
        point = suggester.suggest(number, past[: max(0, number - lag + 1)], taken)
        points.append(point)
        if point is not None:
            past.append(ended(number, point, value(point), "PRUNED" if number % 5 == 4 else "COMPLETE"))
            taken.add(candidates.identity(point))
    return points


def reward(params: Mapping[str, Any]) -> float:
    """Best at k 8, lr 6e-4 and a little beta."""
    near = 1 - abs(math.log10(params.get("lr", 6e-4) / 6e-4))
    return near + 0.1 * {2: 0, 4: 1, 8: 3, 16: 2}[params["k"]] - 3 * abs(params["beta"] - 0.01)


@pytest.mark.parametrize("sampler", ["random", "tpe", "grid"])
@pytest.mark.parametrize("seed", range(4))
def test_a_finite_space_is_walked_without_repeats_until_nothing_is_left(sampler: str, seed: int) -> None:
    points = played(sweep(SMALL, sampler=sampler, study_seed=seed), 29, reward)
    assert len({candidates.identity(point) for point in points[:27] if point is not None}) == 27
    assert points[27:] == [None, None]


@pytest.mark.parametrize("lag", [1, 2, 4])
def test_so_many_trials_are_drawn_at_random_before_results_count(lag: int) -> None:
    """Upside-down results change no point among the first `startup`, and some point soon after."""
    of = sweep({"lr": MIXED["lr"]}, sampler="tpe")
    drawn = startup("tpe", lag)
    assert drawn is not None
    up = played(of, drawn + 3, lambda params: params["lr"], lag)
    down = played(of, drawn + 3, lambda params: -params["lr"], lag)
    assert up[:drawn] == down[:drawn]
    assert up[drawn : drawn + 3] != down[drawn : drawn + 3]
    assert startup("random", lag) is None  # it never learns, and says so by its name


def test_the_grid_is_in_order() -> None:
    of = sweep(SMALL, sampler="grid")
    assert played(of, 27, reward) == candidates.points(of)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_the_same_call_gives_the_same_point_whatever_was_asked_before(sampler: str) -> None:
    """Trial by trial in one process, and each trial alone in a new one (a new Suggester, every past built anew)."""
    of = sweep(MIXED, sampler=sampler)
    points = played(of, 30, reward)
    past = [ended(n, p, reward(p), "PRUNED" if n % 5 == 4 else "COMPLETE") for n, p in enumerate(points) if p]
    for number in (29, 3, 17, 10):
        taken = {candidates.identity(point) for point in points[:number] if point}
        assert Suggester(of).suggest(number, past[: max(0, number - 1)], taken) == points[number]


def test_what_is_kept_between_calls_is_not_seen_in_the_points() -> None:
    """The memory is fed a past that grows, shrinks and changes: each answer is that of a new one."""
    of, rng = sweep(MIXED, sampler="tpe"), random.Random(0)
    points = [point for point in played(of, 25, reward) if point]
    past = [ended(n, point, reward(point)) for n, point in enumerate(points)]
    kept = Suggester(of)
    for _ in range(12):
        some = past[: rng.randint(8, 25)]
        if rng.random() < 0.5:
            some = [*some[:3], ended(3, points[3], rng.random(), rng.choice(["FAIL", "PRUNED"])), *some[4:]]
        assert kept.suggest(99, some, set()) == Suggester(of).suggest(99, some, set())


def test_only_what_is_new_is_added_to_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    of, made = sweep(SMALL, sampler="tpe"), []
    build = Memory._frozen
    monkeypatch.setattr(Memory, "_frozen", lambda self, one: made.append(one.number) or build(self, one))
    kept, past = Suggester(of), [ended(n, {"k": 4, "scale": "none", "beta": 0.0}, n) for n in range(2000)]
    for number in range(1990, 2000):
        kept.suggest(number, [*past[:number]], set())
    assert made == list(range(1999))  # trial 1999 was never learned from, and each other one was added once


def test_another_number_another_study_and_another_past_give_other_points() -> None:
    of, other = sweep(MIXED, sampler="tpe"), sweep(MIXED, sampler="tpe", study_seed=1)
    assert len({candidates.identity(Suggester(of).suggest(number, [], set()) or {}) for number in range(20)}) == 20
    assert Suggester(of).suggest(5, [], set()) != Suggester(other).suggest(5, [], set())
    points = [point for point in played(of, 20, reward) if point]
    liked = [ended(n, point, reward(point)) for n, point in enumerate(points)]
    disliked = [ended(n, point, -reward(point)) for n, point in enumerate(points)]
    assert Suggester(of).suggest(20, liked, set()) != Suggester(of).suggest(20, disliked, set())


def test_the_points_are_on_the_axes_with_conditional_ones_where_they_act() -> None:
    for sampler in ("random", "tpe"):
        points = played(sweep(MIXED, sampler=sampler), 60, reward)
        for point in points:
            assert point is not None
            assert list(point) == [key for key in MIXED if key in point]
            assert ("estimator" in point) == (point["beta"] > 0)
            assert ("ceiling" in point) == (point.get("estimator") == "k3")
            assert 1e-4 <= point["lr"] <= 2e-3
            assert point["epochs"] in (1, 3, 5, 7, 9)
            assert point["faults"] in ([], ["rollout-in-train-mode"])
            assert type(point["k"]) is int
        assert {point["epochs"] for point in points if point} == {1, 3, 5, 7, 9}  # the top value, too


def test_a_trial_that_failed_teaches_nothing() -> None:
    of = sweep(MIXED, sampler="tpe")
    points = [point for point in played(of, 20, reward) if point]
    past = [ended(n, point, reward(point)) for n, point in enumerate(points)]
    failed = [ended(20 + n, point, 9.0, "FAIL") for n, point in enumerate(points)]
    assert Suggester(of).suggest(40, [*past, *failed], set()) == Suggester(of).suggest(40, past, set())


def chosen(of: SweepSpec, at: Mapping[str, float], states: Mapping[str, Any] | None = None) -> float:
    """How often TPE goes for the scale `group`, where each scale's trials had these values."""
    values = [(scale, k) for scale in SMALL["scale"] for k in SMALL["k"] for _ in range(2)]
    past = [
        ended(n, {"k": k, "scale": scale, "beta": 0.0}, at[str(scale)], (states or {}).get(str(scale), "COMPLETE"))
        for n, (scale, k) in enumerate(values)
    ]
    points = [Suggester(of).suggest(number, past, set()) for number in range(100, 140)]
    return statistics.mean(point is not None and point["scale"] == "group" for point in points)


def test_it_goes_where_the_values_are_better_by_the_direction() -> None:
    up, down = sweep(SMALL, sampler="tpe"), sweep(SMALL, sampler="tpe", direction="minimize")
    good = {"none": 0.1, "group": 0.9, "batch": 0.2}
    bad = {"none": 0.9, "group": 0.1, "batch": 0.8}
    assert (chosen(up, good) > 0.7, chosen(up, bad) < 0.3) == (True, True)
    assert (chosen(down, bad) > 0.7, chosen(down, good) < 0.3) == (True, True)


def test_pruned_trials_count_as_worse_than_completed_ones() -> None:
    of = sweep(SMALL, sampler="tpe")
    assert chosen(of, {"none": 0.5, "group": 0.9, "batch": 0.5}, {"group": "PRUNED"}) < 0.3


def test_tpe_finds_better_points_than_chance() -> None:
    """Twelve studies of 40 trials each, the best point of each: tpe's are better on the whole."""
    best: dict[str, list[float]] = {"tpe": [], "random": []}
    axes = {key: MIXED[key] for key in ("k", "lr", "beta")}
    for name, found in best.items():
        for seed in range(12):
            points = played(sweep(axes, sampler=name, study_seed=seed), 40, reward)
            found.append(max(reward(point) for point in points if point))
    assert statistics.mean(best["tpe"]) > statistics.mean(best["random"]) + 0.01
    assert sum(a > b for a, b in zip(best["tpe"], best["random"], strict=True)) >= 8


def test_a_space_too_large_to_be_listed_is_drawn_from_until_a_point_is_new() -> None:
    of = sweep({"a": {"low": 1, "high": 200}, "b": {"low": 1, "high": 200}}, sampler="random")
    first = Suggester(of).suggest(0, [], set())
    assert first is not None
    second = Suggester(of).suggest(0, [], {candidates.identity(first)})
    assert second is not None
    assert second != first


def test_no_point_is_read_from_a_process_wide_dice(monkeypatch: pytest.MonkeyPatch) -> None:
    of = sweep(SMALL, sampler="tpe")
    random.seed(1)
    first = played(of, 24, reward)
    random.seed(2)
    assert played(of, 24, reward) == first
    monkeypatch.setattr(samplers, "DRAWS", 0)  # every point is then one of those left
    left = played(of, 24, reward)
    random.seed(3)
    assert played(of, 24, reward) == left
    assert len({candidates.identity(point) for point in left if point}) == 24
