"""A run that trains a part of a model: what is frozen stays as it was, and the origin of the weights is noted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.assemble import assemble, build_policy, open_checkpoints
from core.config import RunSpec
from core.errors import SpecError
from core.policies.lm.causal_lm import CausalLMPolicy
from core.training.trainer import drive
from grpoctl.config import load


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
