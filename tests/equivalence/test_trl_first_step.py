"""The first step of a run of `kind: trl` is ours: prompts, adapter and, on one batch, loss and gradient."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.trl_step.equality import moved
from benchmarks.trl_step.first import first_step, one_step, theirs
from core.config import GrpoStage
from core.tasks import registry
from core.training.metrics import integrity_metrics
from grpoctl.config import load
from grpoctl.executors.trl_process import build_trainer
from grpoctl.runs.run_dir import RunDir

TOLERANCE = 1e-3
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")


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
    assert norm > 0.001  # else this says nothing
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
