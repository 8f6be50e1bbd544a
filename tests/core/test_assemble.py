"""What `assemble` puts together, with the real built-in model: every name in a spec ends up where it belongs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from core import faults
from core.assemble import assemble, build_policy, open_checkpoints
from core.config import RunSpec
from core.config.run import IN_A_RESTORATION, IN_THE_POLICY, IN_THE_TASK, Fault
from core.errors import CheckpointError, SpecError
from core.faults import RolloutInTrainMode
from core.policies.lm.causal_lm import CausalLMPolicy
from core.tasks.arithmetic import ArithmeticTask
from core.training.trainer import Trainer, drive
from grpoctl.config import load
from tests.fakes import Recorder, grpo_stage, run_spec

LORA = {"r": 2, "lora_alpha": 4.0, "lora_dropout": 0.1, "target_modules": ["q_proj"]}
STAGE = grpo_stage(max_steps=3, num_generations=2, prompts_per_step=1, max_completion_length=6, learning_rate=1e-3)
QUICK = {"eval_steps": 2, "num_generations_eval": 1}


def spec_of(**changes: Any) -> RunSpec:
    return run_spec(STAGE, evaluation=QUICK, checkpoints={"save_steps": 2}, **changes)


def assembled(spec: RunSpec, folder: Path) -> Trainer:
    return assemble(spec, open_checkpoints(spec, folder))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["RolloutIntegrity", "CollapseGuard", "Watching", "Checkpointing"]),
        (
            {"early_stopping": {"patience": 3}},
            ["RolloutIntegrity", "CollapseGuard", "Watching", "EarlyStopping", "Checkpointing"],
        ),
    ],
)
def test_checkpoints_are_written_after_all_others_were_asked(
    changes: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    callbacks = assembled(spec_of(**changes), tmp_path).callbacks
    assert [type(callback).__name__ for callback in callbacks] == expected


def test_without_an_adapter_every_weight_is_trained_against_a_frozen_copy(tmp_path: Path) -> None:
    policy = assembled(spec_of(), tmp_path).policy
    assert isinstance(policy, CausalLMPolicy)
    assert policy.reference is not None
    assert policy.reference is not policy.model
    assert len(policy.trainable()) == len(list(policy.model.parameters()))
    assert not policy.checkpointing


def test_an_adapter_is_its_own_reference(tmp_path: Path) -> None:
    spec = spec_of(model={"source": "builtin:tiny", "lora": LORA, "gradient_checkpointing": True})
    policy = assembled(spec, tmp_path).policy
    assert isinstance(policy, CausalLMPolicy)
    assert policy.reference is None
    assert policy.checkpointing
    assert len(policy.trainable()) == 2  # A and B of q_proj, in one layer
    assert all("q_proj.lora_" in name for name in policy.trainable())


def test_a_fault_is_there_only_where_the_spec_asks_for_it(tmp_path: Path) -> None:
    assert not isinstance(assembled(spec_of(), tmp_path).policy, RolloutInTrainMode)
    spec = spec_of(faults=["rollout-in-train-mode"])
    assert isinstance(assembled(spec, tmp_path).policy, RolloutInTrainMode)


def test_every_fault_that_a_spec_can_name_is_planted_somewhere() -> None:
    places = (faults.IN_THE_POLICY, faults.IN_THE_TASK, faults.IN_REQUESTS, faults.IN_ANSWERS)
    assert {fault: sum(fault in place for place in places) for fault in get_args(Fault)} == dict.fromkeys(
        get_args(Fault), 1
    )


@pytest.mark.parametrize("fault", [fault for fault in get_args(Fault) if fault not in IN_A_RESTORATION])
def test_a_fault_of_a_language_model_or_of_any_policy_is_where_it_belongs(fault: str, tmp_path: Path) -> None:
    model = {"model": {"source": "builtin:tiny", "lora": LORA}} if fault == "wrong-adapter" else {}
    trainer = assembled(spec_of(faults=[fault], **model), tmp_path)
    assert isinstance(trainer, faults.FaultyTrainer)
    wrapped = (type(trainer.policy), type(trainer.task))
    if fault in IN_THE_POLICY:
        assert wrapped == (faults.IN_THE_POLICY[fault], ArithmeticTask)
    elif fault in IN_THE_TASK:
        assert wrapped == (CausalLMPolicy, faults.IN_THE_TASK[fault])
    else:
        assert wrapped == (CausalLMPolicy, ArithmeticTask)


def test_a_restarted_trainer_stands_where_the_snapshot_was_taken(tmp_path: Path) -> None:
    spec = spec_of()
    recorder = Recorder()
    assert drive(assembled(spec, tmp_path).steps(), recorder).status == "COMPLETED"
    checkpoints = open_checkpoints(spec, tmp_path)
    assert checkpoints.steps() == [2, 3]
    again = assemble(spec, checkpoints, restart=checkpoints.load(2), table=recorder.rows[:3])
    assert again.progress.step == 2
    rest = Recorder()
    drive(again.steps(), rest)
    assert rest.rows == recorder.rows[3:]
    assert rest.samples == [sample for sample in recorder.samples if sample["step"] == 3]


def test_a_fresh_run_starts_from_the_weights_it_is_given_and_a_restarted_one_from_its_own(tmp_path: Path) -> None:
    spec = spec_of()
    checkpoints = open_checkpoints(spec, tmp_path)
    first = assembled(spec, tmp_path)
    theirs = {name: value + 1.0 for name, value in first.policy.state().items()}
    (dropped, *kept) = sorted(theirs)
    initial = {name: theirs[name] for name in kept}
    started = assemble(spec, checkpoints, initial=initial)
    mine = started.policy.state()
    assert all(torch.equal(mine[name], theirs[name]) for name in kept)
    assert torch.equal(mine[dropped], first.policy.state()[dropped])
    again = assemble(spec, checkpoints, restart=first.snapshot(), initial=initial)
    assert all(torch.equal(value, again.policy.state()[name]) for name, value in first.policy.state().items())
    rows = Recorder(stop_at=0)
    with pytest.raises(KeyboardInterrupt):
        drive(started.steps(), rows)
    counts = {name: value for name, value in rows.rows[0].items() if name.startswith("init/")}
    assert counts == {"init/taken": len(kept), "init/missing": 1, "init/odd_shape": 0, "init/unknown": 0}


def test_a_table_that_lost_rows_is_refused(tmp_path: Path) -> None:
    spec = spec_of()
    trainer, recorder = assembled(spec, tmp_path), Recorder()
    drive(trainer.steps(), recorder)
    snapshot = trainer.snapshot()
    with pytest.raises(CheckpointError, match="lost rows"):
        assembled(spec, tmp_path).restore(snapshot, recorder.rows[1:])


def partly(*patterns: str) -> RunSpec:
    """Two steps of p31 at the size of `tiny`, full fine-tuning of what the patterns name, with a KL term."""
    patterns_text = ", ".join(f"'{one}'" for one in patterns)
    changed = [
        "model.lora=null",
        f"model.trainable=[{patterns_text}]",
        "grpo.max_steps=2",
        "eval_prompts=2",
        "beta=0.1",
    ]
    return load("p31", profile="tiny", overrides=[*changed, "grpo.skip_without_signal=false"]).spec


class Nobody:
    """Records nothing."""

    def step_done(self, *_: object) -> None:
        """Takes a step."""


def test_only_what_the_patterns_name_moves(tmp_path: Path) -> None:
    spec = partly("model.layers.0.mlp.*")
    trainer = assemble(spec, open_checkpoints(spec, tmp_path))
    policy = trainer.policy
    assert isinstance(policy, CausalLMPolicy)
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    drive(trainer.steps(), Nobody())
    moved = {name for name, weight in policy.model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved == {f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down")}
    assert policy.reference is not None
    assert set(policy.reference) == moved
    assert all(torch.equal(weight, before[name]) for name, weight in policy.reference.items())
    assert set(policy.state()) == moved  # a checkpoint holds no more


def test_a_pattern_that_names_nothing_ends_the_run_before_it_starts() -> None:
    with pytest.raises(
        SpecError, match=r"model\.trainable: got 'layers\.0\.\*', .*did you mean 'model\.layers\.0\.\*'"
    ):
        build_policy(partly("layers.0.*"))


def test_a_trainer_knows_where_its_weights_came_from(tmp_path: Path) -> None:
    spec = partly("*")
    origin = assemble(spec, open_checkpoints(spec, tmp_path)).origin
    assert origin is not None
    assert (origin.source, origin.kind, origin.quantised) == ("builtin:tiny", "builtin", None)
    assert origin.path.is_dir()
    assert origin.as_json()["path"] == str(origin.path)
