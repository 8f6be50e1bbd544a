"""A run of stages with everything on that is handed from step to step: killed after ANY step it records the same.

Not here: what a killed process leaves behind (test_resume_is_exact).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from core.config import CheckpointSpec
from core.faults import RolloutInTrainMode
from core.policies.base import Policy
from core.training.callbacks import Checkpointing
from core.training.checkpoint import Checkpoints
from core.training.outcome import Ending
from core.training.trainer import Trainer, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, run_spec, small_policy, trainer_of

PROPORTIONAL = {"rule": "proportional", "target": 0.02, "horizon": 50}
THRESHOLD = {"rule": "threshold", "high": 0.02, "low": 0.01, "factor": 1.5}
PLATEAU = {"metric": "eval/valid", "patience": 1, "factor": 0.8}  # every output is valid: never better than the first
IN_LOSS = {"adaptive_beta": PROPORTIONAL}
IN_REWARD = {"adaptive_beta": THRESHOLD, "kl_in": "reward", "kl_estimator": "k1", "importance_sampling_cap": 1.5}


def stages(steps: Sequence[int], rate: float, **changes: object) -> dict[str, Any]:
    """Supervised, reward-weighted, then blended GRPO with running statistics and adaptive weights."""
    common = {"prompts_per_step": 2, "max_completion_length": 5, "learning_rate": rate, "weight_decay": 0.1}
    group = {**common, "num_generations": 3, "gradient_accumulation_steps": 2}
    sft, rce, grpo = steps
    return {
        "sft": {**common, "kind": "sft", "max_steps": sft, "warmup_steps": 1},
        "rce": {
            **group, "kind": "rce", "max_steps": rce, "lr_scheduler_type": "linear", "weight_decay": 0.3,
            "tau": {"start": 2.0, "end": 0.2, "steps": 3, "plateau": PLATEAU},
            "keep_candidates": {"start": 1, "end": 3, "steps": 3},
            "early_stopping": {"patience": 1},
        },
        "grpo": {
            **group, "max_steps": grpo, "max_grad_norm": 0.05, "lr_clock": "updates",
            "lr_plateau": {"patience": 1, "factor": 0.5},
            "supervised_weight": {"start": 1.0, "end": 0.0, "steps": 4, "plateau": PLATEAU},
            "temperature": {"start": 1.2, "end": 0.7, "steps": 6, "plateau": PLATEAU},
            "advantage": {"baseline": "running", "scale_rewards": "running", "running_decay": 0.8},
            "beta": 0.05, "entropy_coef": 0.01, "adaptive_entropy": {"target": 1.5, "delta": 0.002},
            "dynamic_sampling": {"max_attempts": 4}, "num_iterations": 2, "minibatches": 2, **changes,
        },
    }  # fmt: skip


def policy_of(kind: str) -> Policy:
    """A fresh policy, as a new process would build it."""
    if kind.startswith("table"):
        return TabularPolicy()
    if kind == "full":
        return small_policy()
    inner = small_policy(lora_dropout=0.3, checkpointing=True)
    return RolloutInTrainMode(inner) if kind == "fault" else inner


KINDS: Mapping[str, dict[str, Any]] = {
    "table, KL in the loss": stages((3, 6, 10), 0.1, **IN_LOSS),
    "table, KL in the reward": stages((3, 6, 10), 0.1, **IN_REWARD),
    "full": stages((2, 2, 3), 0.01, **IN_LOSS),
    "dropout": stages((2, 2, 3), 0.01, **IN_REWARD),
    "fault": stages((2, 2, 3), 0.01, **IN_LOSS),
    "table, completions": stages((3, 6, 10), 0.1, **IN_LOSS),
    "tokens": stages((2, 2, 3), 0.01, **IN_LOSS, lr_clock="steps"),
}
BUDGETS = {"table, completions": {"completions": 150}, "tokens": {"tokens": 300}}


def task_of(kind: str) -> PricedTask:
    """Three prompts of five pay the same for any text, so that groups are dead and replaced."""
    return PricedTask(
        lambda prompt, output: sum(map(ord, output)) % 7 / 6 if prompt in (1, 2) else 0.5,
        prompts=5,
        answer="2" if kind.startswith("table") else "abc",
    )


def trainer_in(folder: Path, kind: str) -> Trainer:
    run = {"stages": KINDS[kind], "budget": BUDGETS.get(kind), "evaluation": {"eval_steps": 2}}
    trainer = trainer_of(policy_of(kind), task_of(kind), **run)
    trainer.callbacks = [
        Checkpointing(Checkpoints(folder, keep=99), CheckpointSpec(save_steps=1), trainer.snapshot, trainer.over)
    ]
    return trainer


def driven(trainer: Trainer) -> tuple[Ending, Recorder]:
    recorder = Recorder()
    return drive(trainer.steps(), recorder), recorder


def after(records: Sequence[Mapping[str, object]], step: int) -> list[str]:
    return [json.dumps(record) for record in records if int(str(record["step"])) > step]


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def used(trainer: Trainer, recorder: Recorder) -> None:
    """The run really had what it is meant to have."""
    columns = {name: recorder.column(name) for name in ("stage", "beta", "groups/discarded", "learning_rate")}
    assert set(columns["stage"]) == {0, 1, 2}
    assert len({beta for beta in columns["beta"] if beta is not None}) > 1
    assert any(columns["groups/discarded"])
    lowest = [float(value or 0) for value in recorder.column("temperature")][-1]
    assert lowest < 0.7 * 0.81 or len(recorder.rows) < 12  # a plateau came, where there was room for one
    for name in ("supervised/loss", "rce/loss", "kl", "policy/clip_high"):
        assert any(value is not None for value in recorder.column(name)), name
    assert trainer.progress.prompts > 2 * len([stage for stage in columns["stage"] if stage])


# Each takes 4 CPU seconds or more. The tables stand beside them, a budget beside "tokens" in "table, completions", and
# one moment of the others in test_resume_is_exact.
SLOW = ("full", "dropout", "fault", "tokens")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind in SLOW else kind for kind in KINDS]
)
def test_a_run_killed_after_any_step_goes_on_as_it_would_have(kind: str, tmp_path: Path) -> None:
    undisturbed = trainer_in(tmp_path / "undisturbed", kind)
    ending, expected = driven(undisturbed)
    used(undisturbed, expected)
    last = undisturbed.progress.step
    saved = Checkpoints(tmp_path / "undisturbed", keep=99)
    assert saved.steps() == list(range(1, last + 1))
    for step in saved.steps():
        torch.manual_seed(99 + step)  # another process, another state of the global generator
        resumed = trainer_in(tmp_path / f"from-{step}", kind)
        resumed.restore(saved.load(step), [row for row in expected.rows if int(row["step"] or 0) <= step])
        got, rest = driven(resumed)
        assert got == ending
        assert after(rest.rows, 0) == after(expected.rows, step), step
        assert after(rest.samples, 0) == after(expected.samples, step), step
        assert resumed.progress == undisturbed.progress
        assert resumed.table == undisturbed.table
        assert same(resumed.policy.state(), undisturbed.policy.state()), step
        assert same(resumed.update.state(), undisturbed.update.state()), step


def test_the_numbers_handed_on_are_all_in_the_checkpoint(tmp_path: Path) -> None:
    # What is not there could not be told apart from a start: with it taken away, the run goes another way.
    kind = "table, KL in the loss"
    _, expected = driven(trainer_in(tmp_path / "undisturbed", kind))
    snapshot = Checkpoints(tmp_path / "undisturbed", keep=99).load(len(expected.rows) - 3)
    running = {f"running.{name}" for name in ("count", "rewards", "weight", "mean", "variance")}
    names = running | {"beta", "entropy_coef"}
    assert set(snapshot.progress.carried) == names
    assert all(snapshot.progress.carried.values())


def test_a_stage_that_stopped_early_is_over_for_the_resumed_run_too(tmp_path: Path) -> None:
    kind = "table, KL in the loss"
    spec = run_spec(stages=KINDS[kind])
    _, expected = driven(trainer_in(tmp_path, kind))
    assert expected.column("stage").count(1) < spec.stages["rce"].max_steps
