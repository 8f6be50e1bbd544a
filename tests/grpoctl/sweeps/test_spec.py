"""What the keys of a sweep allow, what follows where they are left out, and what they say of each other."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.metrics import METRICS
from grpoctl.sweeps.spec import PRUNERS, Axis, PrunerSpec, SweepBudget, SweepSpec

BETA, KL = "stages.grpo.beta", "stages.grpo.kl_estimator"


def of(**keys: Any) -> SweepSpec:
    given = {"name": "mine", "title": "Mine", "experiment": "p31", "axes": {BETA: [0, 0.1]}, **keys}
    return SweepSpec.model_validate({key: value for key, value in given.items() if value != {}})


def refused(**keys: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        of(**keys)
    (first, *_) = caught.value.errors()
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def test_what_is_left_out_follows() -> None:
    spec = of()
    assert (spec.sampler, spec.pruner.name, spec.metric, spec.direction) == (
        "tpe",
        "patient-median",
        "eval/reward",
        "maximize",
    )
    assert (spec.worst, spec.take, spec.seeds, spec.trials) == (0.0, "final", (0, 1, 2), None)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        # who lists every point wants to see every point: nothing is pruned unless it is asked for
        ({"sampler": "grid"}, ("grid", "none")),
        ({"sampler": "random"}, ("random", "patient-median")),
        ({"axes": {}, "candidates": {"a": {BETA: 0}}}, ("grid", "none")),
        ({"axes": {}, "ladder": [{"name": "A"}, {"name": "B", "experiment": "p32"}]}, ("ladder", "none")),
        ({"metric": "collapse_rate"}, ("tpe", "none")),  # known at the end only: there is no curve to prune by
    ],
)
def test_sampler_and_pruner_follow_from_the_space_and_the_metric(
    keys: dict[str, Any], expected: tuple[str, str]
) -> None:
    spec = of(**keys)
    assert (spec.sampler, spec.pruner.name) == expected


@pytest.mark.parametrize(
    ("metric", "direction", "worst"),
    [
        ("eval/reward", "maximize", 0.0),  # rewards are in 0 to 1
        ("eval/valid", "maximize", 0.0),  # a share
        ("collapse_rate", "minimize", 1.0),  # a share, lower is better
        ("groups/dead", "minimize", 1.0),
    ],
)
def test_direction_and_worst_follow_from_the_metric(metric: str, direction: str, worst: float) -> None:
    spec = of(metric=metric)
    assert (spec.direction, spec.worst) == (direction, worst)


def test_what_a_run_without_bounds_is_worth_must_be_said() -> None:
    assert METRICS["reward/mean"].better == "higher"
    assert "worst" in refused(metric="reward/mean")  # a penalty takes it below 0
    assert of(metric="reward/mean", worst=-1).worst == -1
    assert "direction" in refused(metric="kl", worst=10)
    assert of(direction="minimize").worst == 1.0  # the best, where less is better


def test_a_rung_has_the_sweeps_experiment_and_the_sweep_the_first_rungs() -> None:
    ladder = [{"name": "A"}, {"name": "B", "experiment": "p32"}]
    assert [rung.experiment for rung in of(axes={}, ladder=ladder).ladder] == ["p31", "p32"]
    assert of(axes={}, ladder=ladder).experiments == ("p31", "p32")
    spec = of(axes={}, experiment=None, ladder=list(reversed(ladder)))
    assert (spec.experiment, [rung.experiment for rung in spec.ladder]) == ("p32", ["p32", "p32"])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"axes": {}}, "axes, candidates and ladder"),
        ({"candidates": {"a": {}}}, "got axes and candidates"),
        ({"sampler": "ladder"}, "allowed with axes: grid, random, tpe"),
        ({"axes": {}, "candidates": {"a": {}}, "sampler": "tpe"}, "allowed with candidates: grid"),
        ({"axes": {}, "ladder": [{"name": "A"}, {"name": "A"}]}, "each name once"),
        ({"axes": {}, "ladder": [{"name": "A"}], "pruner": "patient-median"}, "climbed to its end"),
        ({"seeds": [0, 0]}, "each seed once"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"metric": "eval/rewrd"}, "did you mean eval/reward"),
        ({"metric": "init/taken"}, "before the first step"),
        ({"metric": "collapse_rate", "pruner": "patient-median"}, "known at the end only"),
        ({"metric": "collapse_rate", "take": "best"}, "allowed: final"),
        ({"budget": {"completions": 10, "tokens": 10}}, "set one"),
        ({"trials": 0}, "trials"),
        ({"max_hours": 0}, "max_hours"),
        ({"pruner": {"name": "none", "patience": 2}}, "the pruner none has no use for it"),
        ({"pruner": {"reduction": 3}}, "the pruner patient-median has no use for it"),
        ({"n_trials": 3}, "n_trials"),
        ({"name": "No Name"}, "name"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], said: str) -> None:
    assert said in refused(**keys)


@pytest.mark.parametrize("name", PRUNERS)
def test_a_pruner_has_the_options_it_reads_and_no_others(name: str) -> None:
    options = PrunerSpec.model_validate(name).model_dump(exclude={"name"})
    assert {key for key, value in options.items() if value is not None} == set(PRUNERS[name])  # type: ignore[index]
    assert PrunerSpec.model_validate({"name": name, **options}) == PrunerSpec.model_validate(name)


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ([], "empty list"),
        ([1, 1.0], "got 1 twice"),
        ([None, None], "got null twice"),
        ([[1], [1]], "got [1] twice"),
        ({"values": [1], "low": 2}, "beside values"),
        ({"values": [1], "log": True}, "beside values"),
        ({}, "is missing"),
        ({"low": 1}, "is missing"),
        ({"low": 2, "high": 2}, "below high = 2"),
        ({"low": 0, "high": 2, "log": True}, "> 0"),
        ({"low": 0.1, "high": 0.5, "step": 0.3}, "top value"),
        ({"low": 0.1, "high": 0.5, "step": -0.1}, "> 0"),
        ({"low": 1, "high": 9, "log": True, "step": 2}, "beside log"),
        ({"low": 0.5, "high": 9, "type": "int"}, "not of integers"),
        ({"low": "1", "high": 9}, "valid"),
        ({"low": True, "high": 9}, "valid"),
        ({"low": float("inf"), "high": 9}, ""),
        ({"values": [1], "when": {"x": []}}, "at least 1"),
    ],
)
def test_an_axis_is_a_list_or_a_range(axis: object, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Axis.model_validate(axis)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("axis", "kind"),
    [
        ({"low": 1, "high": 4}, "int"),
        ({"low": 1, "high": 4.0}, "float"),
        ({"low": 1, "high": 4, "step": 0.5}, "float"),
        ({"low": 1, "high": 4, "type": "float"}, "float"),
        ([1, 2], None),
    ],
)
def test_a_range_is_of_integers_where_all_its_numbers_are(axis: object, kind: str | None) -> None:
    assert Axis.model_validate(axis).type == kind


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({BETA: [0, 0.1], KL: {"values": ["k2"], "when": {"stages.grpo.bta": 0}}}, f"did you mean {BETA}?"),
        ({BETA: [0, 0.1], KL: {"values": ["k2"], "when": {BETA: 0.2}}}, "values of stages.grpo.beta: 0, 0.1"),
        ({BETA: {"low": 0, "high": 1}, KL: {"values": ["k2"], "when": {BETA: 1}}}, "is a range"),
        ({KL: {"values": ["k2"], "when": {KL: "k2"}}}, "circle"),
        (
            {BETA: {"values": [0], "when": {KL: "k2"}}, KL: {"values": ["k2"], "when": {BETA: 0}}},
            f"in a circle: {BETA}, {KL}",
        ),
    ],
)
def test_conditions_name_values_of_axes_and_no_circle(axes: dict[str, Any], said: str) -> None:
    assert said in refused(axes=axes)


def test_a_condition_takes_one_value_or_several() -> None:
    for written in (0.1, [0.1]):
        spec = of(axes={BETA: [0, 0.1], KL: {"values": ["k2", "k3"], "when": {BETA: written}}})
        assert spec.axes[KL].when == {BETA: (0.1,)}


def test_a_budget_may_say_nothing_of_its_unit() -> None:
    assert SweepBudget.model_validate({"generation_batch_size": 16}).completions is None
