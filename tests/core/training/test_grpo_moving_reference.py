"""`sync_ref_model`: reference <- alpha policy + (1 - alpha) reference, every so many steps of the stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from core.config import RunSpec
from core.config.policy import PointerConfig, RestorationConfig
from core.config.run import check_fit
from core.errors import SpecError
from core.policies.base import OF_REFERENCE, Policy
from core.policies.lm.build import build
from core.policies.pointer.policy import PointerPolicy
from core.training.checkpoint import initial_weights
from core.training.trainer import drive
from tests.core.policies.lm.test_causal_lm import learn, sampled, scored
from tests.fakes import (
    PricedTask,
    Recorder,
    grpo_stage,
    small_policy,
    trainer_of,
    with_moving_reference,
)

KINDS = [pytest.param(None, id="full"), pytest.param(0.0, id="lora")]
TASK = PricedTask(lambda prompt, output: sum(map(ord, output)) % 7 / 6)
TINY = {
    "name": "follows", "title": "Follows", "model": {"source": "builtin:tiny"}, "task": {"name": "arithmetic"},
}  # fmt: skip


def of_reference(policy: Policy) -> Mapping[str, Tensor]:
    """What a checkpoint has of the reference."""
    state = policy.state()
    return {name.removeprefix(OF_REFERENCE): state[name] for name in state if name.startswith(OF_REFERENCE)}


def current(policy: Policy) -> Mapping[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in policy.trainable().items()}


def assert_mixed(policy: Policy, alpha: float, before: Mapping[str, Tensor]) -> None:
    """TRL's own formula (SyncRefModelCallback), in its order of operations."""
    now, after = current(policy), of_reference(policy)
    assert set(after) == set(before)
    for name, weight in before.items():
        assert after[name].equal(weight.clone().mul_(1.0 - alpha).add_(now[name], alpha=alpha))
    assert any(not after[name].equal(before[name]) for name in before)


@pytest.mark.parametrize("dropout", KINDS)
def test_the_formula(dropout: float | None) -> None:
    policy = with_moving_reference(small_policy(lora_dropout=dropout))
    for alpha in (0.6, 0.1, 1.0):
        learn(policy)
        before = of_reference(policy)
        policy.sync_reference(alpha)
        assert_mixed(policy, alpha, before)
    rollout = sampled(policy)  # at alpha 1 the reference is the policy
    torch.testing.assert_close(scored(policy, rollout, "reference"), scored(policy, rollout), rtol=0, atol=1e-5)


def test_a_fresh_adapter_that_may_move_is_the_base() -> None:
    plain, moving = small_policy(lora_dropout=0.0), with_moving_reference(small_policy(lora_dropout=0.0))
    rollout = sampled(plain)
    learn(plain)
    learn(moving)
    assert scored(moving, rollout, "reference").equal(scored(plain, rollout, "reference"))


@pytest.mark.parametrize("settings", [PointerConfig(kind="pointer", width=8, hidden=8)])
def test_a_pointers_reference_moves_too(settings: PointerConfig) -> None:
    policy = PointerPolicy(settings, seed=0)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_(1.0)
    before = of_reference(policy)
    policy.sync_reference(0.25)
    assert_mixed(policy, 0.25, before)


@pytest.mark.parametrize("dropout", KINDS)
def test_it_moves_every_so_many_steps_of_the_stage(dropout: float | None) -> None:
    policy = with_moving_reference(small_policy(lora_dropout=dropout))
    stage = grpo_stage(max_steps=7, beta=0.1, sync_ref_model=True, ref_model_sync_steps=3, ref_model_mixup_alpha=0.25)
    references, policies = [of_reference(policy)], [current(policy)]

    class Watching(Recorder):
        def step_done(self, *args: Any, **words: Any) -> None:
            super().step_done(*args, **words)
            references.append(of_reference(policy))
            policies.append(current(policy))

    drive(trainer_of(policy, TASK, stage).steps(), Watching())
    references, policies = references[1:], policies[1:]  # one for each of the steps 0 to 7
    assert len(references) == 8
    for step in range(1, 8):
        for name, weight in references[step - 1].items():
            expected = weight
            if step in (3, 6):
                expected = weight.clone().mul_(0.75).add_(policies[step][name], alpha=0.25)
            assert references[step][name].equal(expected), (step, name)
    assert any(not references[7][name].equal(weight) for name, weight in references[0].items())


def spec_of(stage: dict[str, Any], **changes: Any) -> RunSpec:
    plain = {"max_steps": 2, "prompts_per_step": 1, "num_generations": 2, "learning_rate": 0.01, "beta": 0.1}
    return RunSpec.model_validate({**TINY, "stages": {"grpo": {**plain, **stage}}, **changes})


def test_only_a_reference_that_moves_is_in_a_checkpoint() -> None:
    model = {"source": "builtin:tiny", "lora": {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}}
    still, _ = build(spec_of({}, model=model))
    moving, _ = build(spec_of({"sync_ref_model": True}, model=model))
    assert of_reference(still) == {}
    assert set(of_reference(moving)) == set(moving.trainable())
    moving.load(still.state())  # taken before any stage that moves it
    still.load(moving.state())  # as `eval` and `sample` load a checkpoint of such a run
    assert set(of_reference(moving)) == set(moving.trainable())


def test_another_runs_reference_is_not_taken() -> None:
    theirs, policy = (with_moving_reference(small_policy(lora_dropout=0.0)) for _ in range(2))
    learn(theirs)
    theirs.sync_reference(1.0)
    before = of_reference(policy)
    counts = initial_weights(policy, theirs.state())
    assert counts == {"init/taken": len(policy.trainable()), "init/missing": 0, "init/odd_shape": 0, "init/unknown": 0}
    assert all(weight.equal(before[name]) for name, weight in of_reference(policy).items())
    assert all(weight.equal(theirs.state()[name]) for name, weight in current(policy).items())
    assert initial_weights(small_policy(lora_dropout=0.0), theirs.state()) == counts


def test_without_anything_that_reads_it_it_is_refused() -> None:
    grpo_stage(sync_ref_model=True, beta=0.1)
    grpo_stage(sync_ref_model=True, old_policy="reference")
    grpo_stage(sync_ref_model=True, beta={"start": 0.0, "end": 0.1, "steps": 5})
    with pytest.raises(ValidationError) as refused:
        grpo_stage(sync_ref_model=True, beta=0.0)
    assert refused.value.errors()[0]["ctx"]["key"] == "sync_ref_model"


def test_a_policy_that_cannot_is_told_so() -> None:
    for kind in (PointerConfig, RestorationConfig):
        assert kind.syncs
    spec = spec_of({"sync_ref_model": True})
    check_fit(spec)
    stiff = type("Stiff", (type(spec.policy),), {"syncs": False})()
    with pytest.raises(SpecError) as refused:
        check_fit(spec.model_copy(update={"policy": stiff}))
    assert refused.value.key == "stages.grpo.sync_ref_model"
