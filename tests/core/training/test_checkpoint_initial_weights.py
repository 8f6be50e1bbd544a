"""Another run's weights: what fits is taken, what does not is counted, and nothing fits only where nothing does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core.errors import CheckpointError
from core.training.checkpoint import fit, initial_weights
from core.training.trainer import Parts, Trainer, drive
from tests.fakes import PricedTask, Recorder, TabularPolicy, grpo_stage, run_spec, small_policy

COUNTS = ("init/taken", "init/missing", "init/odd_shape", "init/unknown")


def test_how_weights_fit() -> None:
    mine = {"a": torch.zeros(2), "b": torch.zeros(2, 3), "c": torch.zeros(1)}
    theirs = {"a": torch.ones(2), "b": torch.ones(3, 2), "d": torch.ones(1), "e": torch.ones(1)}
    found = fit(mine, theirs)
    assert (found.taken, found.missing, found.odd_shape, found.unknown) == (["a"], ["c"], ["b"], ["d", "e"])
    missing, odd_shape, unknown = found.lines()
    assert ("1 weights" in missing, missing.endswith(": c")) == (True, True)
    assert ("1 weights" in odd_shape, odd_shape.endswith(": b")) == (True, True)
    assert ("2 weights" in unknown, unknown.endswith(": d, e")) == (True, True)
    assert fit(mine, mine).lines() == []
    assert fit(mine, {f"stranger{i}": mine["a"] for i in range(6)}).lines()[-1].endswith("stranger3, ...")


def test_what_fits_is_loaded_and_the_rest_stays() -> None:
    policy, other = small_policy(seed=0), small_policy(seed=1)
    before, theirs = policy.state(), dict(other.state())
    gone, odd = sorted(theirs)[0], sorted(theirs)[1]
    del theirs[gone]
    theirs |= {odd: torch.zeros(1), "stranger": torch.zeros(3)}
    counts = initial_weights(policy, theirs)
    assert [counts[name] for name in COUNTS] == [len(before) - 2, 1, 1, 1]
    for name, value in policy.state().items():
        assert torch.equal(value, before[name] if name in (gone, odd) else theirs[name]), name


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ({}, "none of the 0 weights"),
        ({"stranger": torch.zeros(4)}, "none of the 1 weights .*that run has 'stranger', this one 'logits'"),
        ({"logits": torch.zeros(5)}, r"none of the 1 weights .*'logits' has the shape \(5,\) there and \(4,\) here"),
    ],
)
def test_where_nothing_fits_it_is_refused(theirs: dict[str, torch.Tensor], told: str) -> None:
    policy = TabularPolicy()
    with pytest.raises(CheckpointError, match=told) as caught:
        initial_weights(policy, theirs)
    assert str(caught.value).startswith("init_from")
    assert policy.logits.tolist() == [0.0] * 4


def test_the_counts_stand_in_the_row_before_the_first_step() -> None:
    policy = TabularPolicy()
    start = initial_weights(policy, {"logits": torch.tensor([0.0, 0.0, 9.0, 0.0]), "stranger": torch.zeros(1)})
    task = PricedTask(lambda prompt, output: 1.0 if output == "2" else 0.0)
    parts: Any = Parts(spec=run_spec(grpo_stage(max_steps=2)), policy=policy, task=task, start=start)
    recorder = Recorder()
    drive(Trainer(parts).steps(), recorder)
    assert [recorder.rows[0][name] for name in COUNTS] == [1, 0, 0, 1]
    assert recorder.rows[0]["eval/reward"] == 1.0  # of the weights that were taken: arm 2 has them all
    assert not any(name in row for row in recorder.rows[1:] for name in COUNTS)
