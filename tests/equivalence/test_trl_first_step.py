"""The first step of a run of `kind: trl` is ours: prompts, adapter and, on one batch, loss and gradient.

Our completions of step 1 are handed to TRL's trainer; everything else of the step is its own, as a run has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.trl_step.equality import moved
from core.assemble import assemble, open_checkpoints
from core.config import GrpoStage, RunSpec
from core.policies.base import Rollout
from core.tasks import registry
from core.training.metrics import integrity_metrics
from core.training.parallel import Machine
from core.training.requests import Sample, StepDone
from grpoctl.config import load
from grpoctl.executors.trl_process import build_trainer
from grpoctl.runs.run_dir import RunDir

TOLERANCE = 1e-3
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")


@dataclass(frozen=True, kw_only=True, slots=True)
class First:
    """A first step of ours."""

    rollout: Rollout
    row: Mapping[str, float | None]
    before: Mapping[str, torch.Tensor]
    after: Mapping[str, torch.Tensor]


def first_step(spec: RunSpec, folder: Path, *, from_moved: bool) -> First:
    """Ours, as a run makes it; the evaluation before it included."""
    trainer = assemble(spec, open_checkpoints(spec, folder))
    if from_moved:  # an adapter that is not at its start, where there is no KL
        trainer.policy.load(moved(trainer.policy.state()))
    steps, answer, rollouts = trainer.steps(), None, list[Rollout]()
    before = trainer.policy.state()
    machine = Machine()
    while True:
        request = steps.send(answer)  # type: ignore[arg-type]
        if isinstance(request, StepDone):
            if request.row["step"] == 1:
                return First(rollout=rollouts[0], row=request.row, before=before, after=trainer.policy.state())
            answer = None
            continue
        answer = request.run(machine)
        if isinstance(request, Sample) and request.name == "sample":
            rollouts.append(answer)


def theirs(
    spec: RunSpec, first: First, folder: Path, *, from_moved: bool
) -> tuple[dict[str, float], Any, Sequence[Any]]:
    """TRL's logs of the same step, its trainer, and the prompts that it was going to ask."""
    stage = next(one for one in spec.stages.values() if isinstance(one, GrpoStage))
    trainer = build_trainer(spec, stage, registry.build(spec.task), RunDir(path=folder))
    asked: list[Any] = []
    start = {name: one.detach().clone() for name, one in trainer.model.named_parameters() if one.requires_grad}
    assert set(start) == set(first.before)
    if from_moved:
        for name, parameter in trainer.model.named_parameters():
            if parameter.requires_grad:
                parameter.data.copy_(first.before[name])
    else:  # the adapter's start is ours
        assert all(torch.equal(start[name], weight) for name, weight in first.before.items())
    ids = [row[mask].tolist() for row, mask in zip(
        first.rollout.actions["prompt_ids"], first.rollout.actions["prompt_mask"].bool(), strict=True
    )]  # fmt: skip

    def rollout(prompts: Sequence[Any], own: Any) -> dict[str, Any]:
        asked.extend(prompts)
        read = own._tokenize_prompts(list(prompts))[0]
        assert [list(row) for row in read] == ids  # TRL reads the prompts as the same tokens
        completions = [list(row) for row in first.rollout.tokens]
        return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}

    trainer.rollout_func = rollout
    return one_step(stage, trainer, float(first.row["learning_rate"] or 0)), trainer, asked


def one_step(stage: GrpoStage, trainer: Any, rate: float) -> dict[str, float]:
    """TRL's logs of its first step, driven as a run drives it."""
    from transformers import TrainerCallback

    logs: dict[str, float] = {}
    high = stage.epsilon if stage.epsilon_high is None else stage.epsilon_high
    values = {
        "learning_rate": rate, "temperature": stage.temperature.start,
        "beta": stage.beta.start, "epsilon": stage.epsilon.start,
        "epsilon_high": stage.cispo_max_weight if stage.surrogate == "cispo" else high.start,
    }  # fmt: skip

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            trainer.follow(values)
            trainer.set_rate()

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            trainer.before_optimiser()

        def on_log(self, args: Any, state: Any, control: Any, logs_: Any = None, **named: Any) -> None:
            if "loss" in named["logs"]:
                logs.update(named["logs"])

    trainer.add_callback(Watch())
    trainer.train()
    return logs


CASES = [
    [],
    ["seed=3", "advantage.ddof=1", "advantage.eps=1e-4", "kl_estimator=k3"],
    ["seed=3", "method=dr_grpo"],
    ["seed=3", "method=cispo", "gradient_accumulation_steps=4"],
    ["seed=3", "advantage.transform=rank", "overlong={buffer: 0.5}"],
]
MOVED = [
    ["seed=3", "beta=100.0", f"kl_estimator={estimator}", f"method={method}"]
    for estimator, method in (("k2", "grpo"), ("k2", "dr_grpo"), ("k1_ratio", "cispo"), ("k3_ratio", "grpo"))
]


@pytest.mark.parametrize("overrides", [*CASES, *MOVED], ids=" ".join)
def test_the_first_step_is_ours(tmp_path: Path, overrides: list[str]) -> None:
    from_moved = overrides in MOVED
    torch.set_num_threads(1)
    always = ["trainer.kind=trl", "max_steps=1", "lr_scheduler_type=constant", "task.eval_prompts=4"]
    spec = load("p31", profile="tiny", overrides=[*always, *overrides]).spec
    first = first_step(spec, tmp_path, from_moved=from_moved)
    logs, trainer, asked = theirs(spec, first, tmp_path, from_moved=from_moved)
    shown = [prompt[0]["content"] if isinstance(prompt, list) else prompt for prompt in asked]
    task = registry.build(spec.task)
    assert shown == [task.shown(first.rollout.prompts[index]) for index in first.rollout.prompt_N.tolist()]
    norm = float(first.row["grad_norm"] or 0)
    assert norm > 0.01  # else this says nothing
    assert not from_moved or 100 * float(first.row["kl"] or 0) > 0.01
    assert logs["loss"] == pytest.approx(float(first.row["loss"] or 0), abs=TOLERANCE)
    assert logs["grad_norm"] == pytest.approx(norm, abs=TOLERANCE)
    now = {name: one.detach() for name, one in trainer.model.named_parameters() if one.requires_grad}
    change = torch.cat([(first.after[name] - weight).flatten() for name, weight in first.before.items()])
    apart = torch.cat([(now[name] - first.after[name]).flatten() for name in first.before])
    assert float(apart.norm() / change.norm()) < 0.05  # Adam's first step is a sign: what is 0 rounds to either


@pytest.mark.parametrize("fault", ["none", "other weights", "other temperature"])
def test_the_gap_sees_a_sampler_that_is_not_the_policy(tmp_path: Path, fault: str) -> None:
    torch.set_num_threads(1)
    spec = load("p31", profile="tiny", overrides=["trainer.kind=trl", "max_steps=1", "seed=3"]).spec
    stage = next(one for one in spec.stages.values() if isinstance(one, GrpoStage))
    trainer = build_trainer(spec, stage, registry.build(spec.task), RunDir(path=tmp_path))
    weights = {name: one for name, one in trainer.model.named_parameters() if one.requires_grad}
    for name, value in moved({name: one.detach() for name, one in weights.items()}).items():
        weights[name].data.copy_(value)
    plain = trainer.model.generate

    def generate(**settings: Any) -> torch.Tensor:
        kept = {name: one.detach().clone() for name, one in weights.items()}
        for one in weights.values():
            one.data.zero_()
        try:
            drawn: torch.Tensor = plain(**settings)
        finally:
            for name, one in weights.items():
                one.data.copy_(kept[name])
        return drawn

    if fault == "other weights":
        trainer.model.generate = generate
    if fault == "other temperature":
        follow = trainer.follow

        def and_another_temperature(values: Mapping[str, float]) -> None:
            follow(values)
            trainer.generation_config.temperature = 0.7

        trainer.follow = and_another_temperature
    one_step(stage, trainer, 5e-4)
    sampled = trainer.sampled
    assert sampled.clean is not None
    gap = integrity_metrics(sampled.groups.rollout, list(sampled.clean_rows), sampled.clean)["rollout/logprob_gap"]
    assert gap < 1e-5 if fault == "none" else gap > 1e-3  # 1e-4 is the limit of float32
