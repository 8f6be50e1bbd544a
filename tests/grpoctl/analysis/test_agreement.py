"""Two runs of a seed: how many greedy outputs are the same, and how far their trained weights are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from grpoctl.analysis.agreement import agreement, equal_outputs, weights_difference
from grpoctl.analysis.collect import RunRecord, load_run
from grpoctl.analysis.compare import compare
from grpoctl.config import load
from grpoctl.executors.execution import execute
from grpoctl.executors.hooks import Hooks
from grpoctl.files import read_rows, replace_rows
from grpoctl.runs.launch import Launch, prepare
from grpoctl.runs.run_dir import Home

POINTER = {"policy.kind": "pointer"}


@pytest.fixture
def made(build: Any, tmp_path: Path) -> Any:
    """Builds a run of four steps in a directory of its own: greedy picks, and the last checkpoint's weights."""

    def make(
        name: str,
        picks: Sequence[Sequence[int]],
        weights: Mapping[str, Sequence[float]] | None = None,
        *,
        seed: int = 0,
        trained: Sequence[str] = ("w",),
        problems: str = "p",
        spec: Mapping[str, object] = POINTER,
    ) -> RunRecord:
        folder = tmp_path / name
        checkpoint = folder / "checkpoints" / "step-000004"
        checkpoint.mkdir(parents=True)
        rows = [
            {"prompt_id": f"q{at}", "problem": f"{problems}{at}", "output": {"picks": list(of)}}
            for at, of in enumerate(picks)
        ]
        replace_rows(folder / "greedy.jsonl", rows)
        if weights is not None:
            arrays = {key: np.array(values, dtype=np.float32) for key, values in weights.items()}
            save_file(arrays, checkpoint / "weights.safetensors")
            moments = {f"{key}.exp_avg": np.zeros(1) for key in trained}
            save_file(moments, checkpoint / "optimizer.safetensors")
        run = build(0.5, seed, spec=dict(spec), run_id=name)
        assert isinstance(run, RunRecord)
        return replace(run, path=folder)

    return make


def test_problems_with_the_same_output_are_counted_in_the_order_picked(made: Any) -> None:
    a, b = made("a", [(1, 2), (3, 4), (5, 6)]), made("b", [(1, 2), (4, 3), (5, 6)])
    assert equal_outputs(a, b) == (2, 3)
    assert agreement([a], [b]).document()["picks_equal"] == {
        "equal": 2, "of": 3, "seeds": {"0": {"equal": 2, "of": 3}},
    }  # fmt: skip


def test_the_difference_is_the_mean_over_trained_weights(made: Any) -> None:
    kept = [9.0, 9.0]  # what the policy keeps beside them does not count
    a = made("a", [(1,)], {"w": [1.0, 2.0, 3.0], "v": [0.0], "reference.w": kept}, trained=("w", "v"))
    b = made("b", [(1,)], {"w": [1.5, 2.0, 2.0], "v": [0.5], "reference.w": [0.0, 0.0]}, trained=("w",))
    assert weights_difference(a, b) == pytest.approx((0.5 + 0.0 + 1.0 + 0.5) / 4)  # v was trained on one side


def test_seeds_are_paired_and_averaged(made: Any) -> None:
    a = [made(f"a{seed}", [(1,), (2,)], {"w": [0.0]}, seed=seed) for seed in (0, 1, 2)]
    b = [made(f"b{seed}", [(1,), (seed,)], {"w": [0.1 * seed]}, seed=seed) for seed in (1, 2, 3)]
    told = agreement(a, b).document()
    assert told["picks_equal"] == {
        "equal": 3, "of": 4, "seeds": {"1": {"equal": 1, "of": 2}, "2": {"equal": 2, "of": 2}},
    }  # fmt: skip
    assert told["weights_mean_abs_diff"] == {
        "mean": pytest.approx(0.15), "seeds": {"1": pytest.approx(0.1), "2": pytest.approx(0.2)},
    }  # fmt: skip


NOTHING = {"picks_equal": None, "weights_mean_abs_diff": None}


def test_where_nothing_can_be_told_there_is_nothing(made: Any, build: Any) -> None:
    a = made("a", [(1, 2)], {"w": [1.0]})
    assert agreement([a], [build(0.5, spec=POINTER)]).document() == NOTHING  # no directory
    assert agreement([a], [made("s", [(1, 2)], {"w": [1.0]}, seed=1)]).document() == NOTHING
    lm = made("lm", [(1, 2)], {"w": [1.0]}, spec={})
    assert agreement([lm], [lm]).document() == NOTHING
    other = made("other", [(1, 2)], {"w": [1.0, 1.0]}, problems="of another world ")
    assert agreement([a], [other]).document() == NOTHING  # ids that are equal do not make a problem the same
    assert agreement([a], [made("none", [], None)]).document() == NOTHING
    assert agreement([a], [made("named", [], {"v": [1.0]}, trained=("v",))]).document() == NOTHING


def test_damaged_weights_have_no_difference(made: Any) -> None:
    a, b = made("a", [(1,)], {"w": [1.0]}), made("b", [(1,)], {"w": [1.0]})
    assert weights_difference(a, b) == 0.0
    (b.path / "checkpoints" / "step-000004" / "weights.safetensors").write_bytes(b"torn")
    assert weights_difference(a, b) is None


SHORT = (
    "task.train_prompts=16", "task.eval_prompts=8", "task.world.likeness=0.3", "stages.sft.epochs=1",
    "stages.sft.warmup_steps=0", "stages.rce.epochs=1", "stages.grpo.epochs=1", "stages.grpo.learning_rate=0.01",
    "evaluation.eval_steps=16", "checkpoints.save_steps=16",
)  # fmt: skip


def short(name: str, home: Home) -> RunRecord:
    """A tiny run of 33 steps in this process."""
    run = prepare(Launch(loaded=load(name, profile="tiny", overrides=SHORT)), home).run
    assert execute(run, Hooks(), mirror=False).result["status"] == "COMPLETED"
    return load_run(run.path)


def test_beta_is_all_that_differs_between_p40_and_p41_and_what_it_does(tmp_path: Path) -> None:
    a, b = (short(name, Home(path=tmp_path)) for name in ("p40", "p41"))
    comparison = compare([a], [b])
    assert comparison.changed == {"stages.grpo.beta": (0.15, 0.1)}
    assert comparison.agreement.of == 8
    difference = comparison.agreement.weights_mean
    assert difference is not None
    assert 0 < difference < 2 * 16 * 0.01  # GRPO takes 16 steps of about 0.01 on either side
    reached = comparison.baselines["a"]
    assert {"start", "supervised", "final", "random", "nearest", "best_possible"} <= set(reached)
    assert all(reached["random"][metric] < reached["best_possible"][metric] for metric in reached["random"])
    assert reached["final"]["eval/reward"] == a.value("eval/reward")
    assert a.path is not None
    picks: list[Any] = [row["output"]["picks"] for row in read_rows(a.path / "greedy.jsonl")]
    assert {len(set(of)) for of in picks} == {4}  # a greedy evaluation's
