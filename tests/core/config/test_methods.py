"""Named methods: what each stands for, and that whatever a spec says itself comes before it."""

from __future__ import annotations

from typing import Any

import pytest

from core.config import METHODS, GrpoStage, RunSpec, named_point
from core.config.methods import AXES, filled, set_aside
from tests.core.config.valid_run import RUN, STAGE


def stage(**settings: Any) -> GrpoStage:
    return GrpoStage.model_validate({**STAGE, **settings})


@pytest.mark.parametrize("method", METHODS)
def test_a_row_states_axes_that_differ_from_grpo(method: str) -> None:
    plain = stage().model_dump()
    for key, value in METHODS[method].axes.items():
        assert key in {*AXES, "beta"}
        if isinstance(value, dict):
            assert all((plain[key] or {}).get(name) != one for name, one in value.items()), key
        else:
            assert plain[key] != value or method == "dapo", key  # dapo says "no KL" although that is the default


@pytest.mark.parametrize("method", METHODS)
def test_the_point_of_a_name_is_what_a_stage_of_it_gets(method: str) -> None:
    found = stage(method=method)
    for key, value in METHODS[method].axes.items():
        part = found.model_dump()[key]
        assert {**part, **value} == part if isinstance(value, dict) else part == value
    assert named_point(method).keys() >= set(AXES)


def test_no_two_names_are_the_same_point() -> None:
    points = [repr(named_point(method)) for method in METHODS]
    assert len(set(points)) == len(points)


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({"method": "dapo", "reduction": "sequence_mean"}, "reduction", "sequence_mean"),
        ({"method": "dapo", "beta": 0.1}, "beta", 0.1),
        ({"method": "dapo", "dynamic_sampling": None}, "dynamic_sampling", None),
        ({"method": "dapo"}, "reduction", "token_mean"),
        ({"method": "gspo", "epsilon": 0.01}, "epsilon_high", 4e-4),  # one axis overridden, the other the method's
    ],
)
def test_what_a_spec_says_comes_before_its_method(settings: dict[str, Any], key: str, value: object) -> None:
    assert stage(**settings).model_dump()[key] == value


def test_one_key_of_a_part_leaves_the_others_to_the_method() -> None:
    advantage = stage(method="reinforce_pp", advantage={"ddof": 1}).advantage
    assert (advantage.ddof, advantage.baseline, advantage.eps) == (1, "batch", 1e-8)


def test_a_resolved_stage_reads_back_as_it_is() -> None:
    for method in METHODS:
        resolved = stage(method=method).model_dump()
        assert GrpoStage.model_validate(resolved).model_dump() == resolved


def test_an_unknown_method_fills_nothing_and_sets_aside_the_axes_only() -> None:
    assert filled({"method": "nope"}) == {"method": "nope"}
    assert set_aside({"beta": 1, "epsilon": 2, "max_steps": 3}, "nope") == {"beta": 1, "max_steps": 3}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"beta": 0.1, "kl_estimator": "k1"}, "kl_estimator"),
        ({"kl_in": "reward", "kl_estimator": "k3_ratio"}, "kl_estimator"),
        ({"minibatches": 4}, "minibatches"),  # of 3 prompts
        ({"adaptive_beta": {"rule": "threshold"}}, "adaptive_beta"),  # beta is 0: nothing to start from
        ({"beta": {"start": 1, "end": 0, "steps": 2}, "adaptive_beta": {"rule": "threshold"}}, "adaptive_beta"),
        ({"beta": 1, "adaptive_beta": {"rule": "threshold", "low": 0.2}}, "adaptive_beta.low"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"advantage": {"transform": "rank", "baseline": "running"}}, "transform"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=r"got|needs") as caught:
        stage(**settings)
    (error,) = caught.value.errors()  # type: ignore[attr-defined]
    assert error["ctx"]["key"] == key


@pytest.mark.parametrize(("epochs", "steps"), [(1, 4), (2.5, 9), (0.01, 1), (0.75, 3)])
def test_epochs_give_steps(epochs: float, steps: int) -> None:
    """10 prompts, 3 a step: one pass is 10/3 steps, the last one begun counted whole."""
    task = {"name": "workflow-dsl", "train_prompts": 10}
    said = {key: value for key, value in STAGE.items() if key != "max_steps"}
    spec = RunSpec.model_validate({**RUN, "task": task, "stages": {"grpo": {**said, "epochs": epochs}}})
    assert spec.stages["grpo"].max_steps == steps == spec.max_steps
    assert RunSpec.model_validate(spec.model_dump()) == spec
    with pytest.raises(ValueError, match=f"epochs = {float(epochs)} gives {steps}"):
        RunSpec.model_validate({**RUN, "task": task, "stages": {"grpo": {**STAGE, "max_steps": 77, "epochs": epochs}}})


def test_null_takes_a_stage_away_and_one_must_be_left() -> None:
    sft = {"kind": "sft", "max_steps": 2, "prompts_per_step": 1, "learning_rate": 1e-3}
    spec = RunSpec.model_validate({**RUN, "stages": {"grpo": None, "warm": sft}})
    assert list(spec.stages) == ["warm"]
    with pytest.raises(ValueError, match="at least one must be left"):
        RunSpec.model_validate({**RUN, "stages": {"grpo": None}})
