"""The settings of the policy `restoration`: sizes, weights, temperatures, and what a run of it is refused for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from core.config import RunSpec
from core.config.policy import RestorationConfig
from core.config.run import check_fit
from core.errors import SpecError
from core.policies.registry import check_policy

STAGE: dict[str, Any] = {"max_steps": 1, "prompts_per_step": 1, "num_generations": 2, "learning_rate": 1e-3}
SMALL: dict[str, Any] = {"kind": "restoration", "width": 8}


def spec(policy: dict[str, Any] = SMALL, stage: dict[str, Any] | None = None, **top: Any) -> RunSpec:
    run = {"name": "mine", "title": "", "policy": policy, "task": {"name": "restoration"}}
    return RunSpec.model_validate({**run, "stages": {"grpo": {**STAGE, **(stage or {})}}, **top})


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"width": 7}, "width"),
        ({"width": 6, "heads": [1, 2, 4, 7]}, "heads"),  # 48 channels at 1/8
        ({"weights": "model.pt"}, "weights"),
        ({"weights": "model.pkl"}, "weights"),
    ],
)
def test_what_no_network_can_be_made_of_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RestorationConfig.model_validate({**SMALL, **changes})
    (error,) = caught.value.errors()
    assert error["ctx"]["key"] == key
    assert "\n" not in error["msg"]


def test_the_originals_size_may_be_listed_and_starts_only_from_weights() -> None:
    listed = spec({"kind": "restoration"})
    check_fit(listed)
    with pytest.raises(SpecError, match=r"policy\.weights: .*learning rates fine-tune.*policy\.weights.*tiny or small"):
        check_policy(listed)
    with pytest.raises(SpecError, match=r"policy\.weights: cannot read .*none\.safetensors"):
        check_policy(spec({"kind": "restoration", "weights": "none.safetensors"}))
    check_policy(spec({"kind": "restoration"}, init_from="p51@1"))
    check_policy(spec({"kind": "restoration", "width": 46, "heads": [1, 1, 1, 1]}))


@pytest.mark.parametrize("temperature", [0.7, {"start": 1.0, "end": 0.5, "steps": 4}])
def test_its_draws_have_no_temperature(temperature: Any) -> None:
    check_fit(spec(stage={"temperature": 1.0}))
    with pytest.raises(SpecError, match=r"stages\.grpo\.temperature: .*allowed: 1$"):
        check_fit(spec(stage={"temperature": temperature}))


def test_an_evaluation_draws_or_takes_the_means() -> None:
    for temperature in (0.0, 1.0):
        check_fit(spec(evaluation={"temperature": temperature, "num_generations_eval": 1}))
    with pytest.raises(SpecError, match=r"evaluation\.temperature: got 0\.5"):
        check_fit(spec(evaluation={"temperature": 0.5}))


def test_its_losses_are_weighed_by_name() -> None:
    check_fit(spec(stage={"loss_weights": {"supervised": 1.0, "consistency": 0.1, "penalty": 0.01}}))
    with pytest.raises(SpecError, match="consistency, penalty, supervised"):
        check_fit(spec(stage={"loss_weights": {"perceptual": 1.0}}))


@pytest.mark.parametrize("fault", ["dead-masks", "leaking-samples", "unused-heads"])
def test_its_faults_are_of_no_other_policy(fault: str) -> None:
    check_fit(spec(faults=[fault]))
    model = {"policy": {"kind": "lm"}, "model": {"source": "builtin:tiny"}, "task": {"name": "workflow-dsl"}}
    with pytest.raises(SpecError, match=f"faults: got {fault}, a fault of the policy restoration"):
        check_fit(spec(faults=[fault], **model))
    selector = {"policy": {"kind": "pointer"}, "task": {"name": "example-selection"}}
    with pytest.raises(SpecError, match="this one is pointer"):
        check_fit(spec(faults=[fault], **selector))


def test_a_fault_of_any_update_is_of_this_one_too_and_one_of_language_models_is_not() -> None:
    check_fit(spec(faults=["clip-before-backward", "frozen-log-probs"]))
    with pytest.raises(SpecError, match="a fault of language models"):
        check_fit(spec(faults=["missing-eos"]))
