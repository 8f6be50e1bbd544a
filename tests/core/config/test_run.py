"""What the parts of a RunSpec accept and refuse, without any file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.config import AdvantageSpec, GrpoStage, ModelSpec, RunSpec, Schedule
from core.config.expectation import parse

STAGE: dict[str, Any] = {"max_steps": 10, "num_generations": 2, "prompts_per_step": 3, "learning_rate": 1e-3}
RUN: dict[str, Any] = {
    "name": "x",
    "title": "x",
    "model": {"source": "builtin:tiny"},
    "task": {"name": "workflow-dsl"},
    "stages": {"grpo": STAGE},
}

OWN = {"name": "custom", "data": {"path": "x.jsonl"}, "prompt": "{q}", "rewards": [{"function": "module:reward"}]}


def refused(change: dict[str, Any]) -> dict[str, Any]:
    """The one error of a run with these top-level keys changed."""
    with pytest.raises(ValidationError) as caught:
        RunSpec.model_validate({**RUN, **change})
    (error,) = caught.value.errors()
    return dict(error)


def test_the_run_these_tests_change_is_valid() -> None:
    assert RunSpec.model_validate(RUN).stages["grpo"].max_steps == 10


@pytest.mark.parametrize(
    ("warmup", "scheduled", "accepted"),
    [
        (10, None, True),  # the horizon is max_steps = 10
        (11, None, False),
        (11, 12, True),  # the horizon is lr_scheduler_steps
        (9, 8, False),
        (0, 1, True),
    ],
)
def test_warmup_ends_within_the_horizon(warmup: int, scheduled: int | None, accepted: bool) -> None:
    stage = {**STAGE, "warmup_steps": warmup, "lr_scheduler_steps": scheduled}
    if accepted:
        assert GrpoStage.model_validate(stage).lr_horizon == (scheduled or 10)
        return
    error = refused({"stages": {"grpo": stage}})
    assert error["ctx"]["key"] == "warmup_steps"
    assert f"got {warmup}" in error["msg"]


@pytest.mark.parametrize(
    ("domains", "accepted"),
    [
        ({"math": 2, "qa": 1}, True),
        ({"math": 0, "qa": 1e-9}, True),
        ({"math": 0, "qa": 0.0}, False),
        ({}, False),
        ({"maths": 1}, False),
        ({"math": -1}, False),
    ],
)
def test_some_domain_has_weight(domains: dict[str, float], accepted: bool) -> None:
    task = {"name": "workflow-dsl", "domains": domains}
    if accepted:
        assert RunSpec.model_validate({**RUN, "task": task})
    else:
        refused({"task": task})


def test_a_step_needs_no_more_prompts_than_there_are() -> None:
    assert RunSpec.model_validate({**RUN, "task": {"name": "workflow-dsl", "train_prompts": 3}})
    error = refused({"task": {"name": "workflow-dsl", "train_prompts": 2}})
    assert error["ctx"]["key"] == "stages.grpo.prompts_per_step"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"recorded": {"updates": 38, "updatez": 1}}, "recorded.updatez"),
        ({"faults": ["rollout-in-train-mode", "rollout-in-train-mode"]}, "faults"),
        ({"faults": ["rollout-in-train-mode", "missing-eos"]}, "faults"),  # both are the policy's
        ({"faults": ["constant-reward"], "task": OWN}, "faults"),
    ],
)
def test_recorded_metrics_are_declared_and_faults_named_once(change: dict[str, Any], key: str) -> None:
    assert refused(change)["ctx"]["key"] == key


@pytest.mark.parametrize(
    ("budget", "key", "problem"),
    [
        ({}, "completions", "got neither of completions and tokens; allowed: one, null for the other"),
        ({"completions": 8, "tokens": 9}, "completions", "got both of completions and tokens; allowed: one, null for "
         "the other"),
    ],
)  # fmt: skip
def test_a_budget_is_of_completions_or_of_tokens(budget: dict[str, int], key: str, problem: str) -> None:
    error = refused({"budget": budget})
    assert (error["loc"], error["ctx"]["key"], error["msg"]) == (("budget",), key, problem)
    spec = RunSpec.model_validate({**RUN, "budget": {"completions": None, "tokens": 9}})
    assert spec.budget is not None
    assert (spec.budget.unit, spec.budget.amount) == ("tokens", 9)


def test_a_budget_needs_a_last_stage_that_samples() -> None:
    own = {key: value for key, value in STAGE.items() if key != "num_generations"}
    stages = {"grpo": STAGE, "warm": {**own, "kind": "sft"}}
    error = refused({"budget": {"completions": 8}, "stages": stages})
    assert error["ctx"]["key"] == "budget"
    assert error["msg"] == "got a budget, and the last stage, warm, samples nothing; allowed: null"
    first = {"warm": stages["warm"], "grpo": STAGE}
    assert RunSpec.model_validate({**RUN, "budget": {"completions": 8}, "stages": first})


@pytest.mark.parametrize("value", [True, False, 1.0, 0.0, "1", 2, None])
def test_ddof_is_the_integer_0_or_1(value: object) -> None:
    with pytest.raises(ValidationError):
        AdvantageSpec.model_validate({"ddof": value})
    assert AdvantageSpec.model_validate({"ddof": 0}).ddof == 0


@pytest.mark.parametrize("value", [True, "1", -1.0, float("nan"), float("inf"), 10**400, None, [1], {"start": 1}])
def test_a_schedule_is_a_number_or_complete(value: object) -> None:
    with pytest.raises(ValidationError):
        Schedule.model_validate(value)


@pytest.mark.parametrize(
    ("value", "positive", "any_"),
    [
        (0, False, True),
        ({"start": 1, "end": 0, "steps": 3}, False, True),
        ({"start": 0, "end": 1, "steps": 1}, False, True),
        ({"start": 1, "end": 2}, False, False),
        ({"start": 1, "end": 0, "shape": "exponential"}, False, False),  # an exponential never arrives at 0
        ({"start": 1, "end": 0.1, "steps": 2, "shape": "exponential", "warmup": 4}, True, True),
    ],
)
def test_what_must_be_positive_is_so_at_both_ends(value: object, positive: bool, any_: bool) -> None:
    for key, accepted in (("temperature", positive), ("beta", any_)):
        stages = {"stages": {"grpo": {**STAGE, key: value}}}
        if accepted:
            assert RunSpec.model_validate({**RUN, **stages})
        else:
            assert refused(stages)["loc"][3] == key


def test_a_number_is_a_constant_schedule() -> None:
    assert Schedule.model_validate(1) == Schedule(start=1.0, end=1.0, steps=0)


def test_a_number_with_a_plateau_is_written_out() -> None:
    rule = {"metric": "eval/reward", "patience": 3, "factor": 0.5, "min_delta": 0.0}
    still = {"start": 0.2, "end": 0.2, "steps": 0, "shape": "linear", "warmup": 0}
    plain = Schedule.model_validate({"start": 0.2, "end": 0.2, "plateau": None})
    assert (plain.constant, plain.model_dump()) == (True, 0.2)
    moved = Schedule.model_validate({"start": 0.2, "end": 0.2, "plateau": {"patience": 3}})
    assert (moved.constant, moved.model_dump()) == (False, {**still, "plateau": rule})
    assert Schedule.model_validate(moved.model_dump()) == moved


@pytest.mark.parametrize(
    ("changes", "key", "problem"),
    [
        (
            {"beta": {"start": 0, "end": 0, "plateau": {"patience": 3}}}, "plateau",
            "got a plateau of a number that is 0 throughout; allowed: null",
        ),
        (
            {
                "beta": {"start": 0.1, "end": 0.1, "plateau": {"patience": 3}},
                "adaptive_beta": {"rule": "threshold"},
            },
            "adaptive_beta", "needs a beta above 0 that is a plain number: it starts there and moves itself",
        ),
        (
            {"entropy_coef": {"start": 0.1, "end": 0.1, "plateau": {"patience": 3}}, "adaptive_entropy": {}},
            "adaptive_entropy", "needs an entropy_coef that is a plain number: it starts there and moves itself",
        ),
    ],
)  # fmt: skip
def test_where_a_plateau_has_no_place(changes: dict[str, Any], key: str, problem: str) -> None:
    error = refused({"stages": {"grpo": {**STAGE, **changes}}})
    assert (error["ctx"]["key"], error["msg"]) == (key, problem)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("kl<0.123456789", "kl < 0.123456789"),  # six digits would make it 0.123457
        ("  eval/reward   >=  1.0 ", "eval/reward >= 1"),
        ("collapse_rate < 5e-2", "collapse_rate < 0.05"),
        ("reward/mean > -0.5", "reward/mean > -0.5"),
        ("eval/reward  gain>0.0", "eval/reward gain > 0"),
        (" eval/reward gain  of grpo >= .05", "eval/reward gain of grpo >= 0.05"),
    ],
)
def test_an_expectation_is_kept_exactly(written: str, kept: str) -> None:
    spec = RunSpec.model_validate({**RUN, "expects": [written]})
    assert spec.expects == (kept,)
    assert parse(kept) == parse(written)


@pytest.mark.parametrize(
    ("text", "observed", "met"),
    [
        ("kl < 1", 0.5, True), ("kl < 1", 1.0, False), ("kl <= 1", 1.0, True), ("kl > 1", 1.0, False),
        ("kl >= 1", 1.0, True), ("kl > 1", 2.0, True), ("kl < 1", float("nan"), False),
    ],
)  # fmt: skip
def test_an_expectation_is_met_or_not(text: str, observed: float, met: bool) -> None:
    assert parse(text).holds(observed) is met


@pytest.mark.parametrize(
    ("text", "interval", "met"),
    [
        ("eval/reward gain > 0", (0.01, 0.2), True),
        ("eval/reward gain > 0", (0.0, 0.2), False),  # above 0, not at it
        ("eval/reward gain of grpo >= 0", (0.0, 0.2), False),
        ("eval/reward gain > 0.05", (0.01, 0.2), False),
        ("eval/reward gain < 0", (-0.2, -0.01), True),
        ("eval/reward gain < 0", (-0.2, 0.01), False),
    ],
)
def test_a_gain_is_met_by_its_whole_interval(text: str, interval: tuple[float, float], met: bool) -> None:
    assert parse(text).holds_for(interval) is met


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("kl gain > 0", ("kl", "eval/reward")),  # no noise of it is recorded
        ("eval/reward gain of nowhere > 0", ("nowhere", "grpo")),  # a stage that is not there, and those that are
        ("eval/reward gain of > 0", ("gain of",)),
    ],
)
def test_a_gain_of_what_has_none_is_refused(text: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({**RUN, "expects": [text]})
    assert all(fact in str(refused.value) for fact in facts)


@pytest.mark.parametrize("text", ["kl", "kl = 1", "kl < x", "kl < nan", "kl < inf", "foo < 1", "advantage/sdt > 1", ""])
def test_what_is_no_expectation_is_refused(text: str) -> None:
    assert refused({"expects": [text]})["loc"] == ("expects", 0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "bfloat16"),  # auto, and no machine was asked yet: the coarser limit accuses nobody
        ({"dtype": "float32"}, "float32"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float32", "mixed_precision": "bf16"}, "bfloat16"),
        # loaded so: the rounding of bfloat16 is no fault of the sampler
        ({"dtype": "float32", "load_in_4bit": "always"}, "bfloat16"),
        ({"dtype": "float32", "load_in_4bit": "auto"}, "float32"),
    ],
)
def test_the_precision_that_rounding_is_expected_from(settings: dict[str, Any], expected: str) -> None:
    lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    assert ModelSpec.model_validate({"source": "a/b", "lora": lora, **settings}).computes_in == expected
