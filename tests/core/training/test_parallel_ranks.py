"""Two processes compute what one does: the same losses, gradients, metrics and samples."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from core.training import parallel
from grpoctl.children import child_environment
from tests.core.training import ranks

RELATIVE = 1e-6  # of a metric, and of the largest gradient of a tensor
CUT = 1e-5  # the same where groups are cut: their prompts are run in another company
ROUNDING = 1e-7  # fp32 rounding of sums that are nearly 0, and of what stands beside another padding
# The gap between two nearly equal numbers: it is all rounding, which other padding changes.
NOISE = (
    "rollout/logprob_gap", "rollout/logprob_gap_max", "rollout/logit_gap", "rollout/logit_gap_early",
    "rollout/logit_gap_late", "eval/logprob_gap", "canary/logit_gap", "rollout/noise", "rollout/noise_mean",
    "rollout/rescoring_gap",
)  # fmt: skip


@functools.cache
def alone(name: str) -> dict[str, Any]:
    """What one process finds."""
    torch.set_num_threads(1)
    return ranks.found(ranks.SCENARIOS[name])


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank found in every scenario: this process is the first, the other is a child."""
    size, folder = 2, tmp_path_factory.mktemp("ranks")
    environment = {**child_environment(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[3]), environment.get("PYTHONPATH", "")])
    other = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.core.training.ranks", "1", str(size), folder / "met", folder],
        env=environment,
        stderr=subprocess.PIPE,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "PATIENCE", timedelta(seconds=120))
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        try:
            ranks.main(0, size, folder / "met", folder)
            said = other.communicate(timeout=120)[1].decode()
        finally:
            other.kill()
    assert other.returncode == 0, said
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


@pytest.mark.parametrize("name", ranks.SCENARIOS)
def test_metrics_are_those_of_one_process(name: str, by_rank: list[dict[str, Any]]) -> None:
    for rank in by_rank:
        together = rank[name]
        assert len(together["rows"]) == len(alone(name)["rows"])
        for row, expected in zip(together["rows"], alone(name)["rows"], strict=True):
            assert set(row) == set(expected)
            for metric, value in expected.items():
                close = pytest.approx(value, rel=RELATIVE, abs=1e-5 if metric in NOISE else ROUNDING)
                assert row[metric] == close, (metric, row["step"])


@pytest.mark.parametrize("name", ranks.SCENARIOS)
def test_gradients_and_weights_are_those_of_one_process(name: str, by_rank: list[dict[str, Any]]) -> None:
    for rank in by_rank:
        for kind in ("moments", "weights"):
            assert set(rank[name][kind]) == set(alone(name)[kind])
            for one, expected in alone(name)[kind].items():
                atol = (CUT if name == "short of memory" else RELATIVE) * float(expected.abs().max())
                torch.testing.assert_close(rank[name][kind][one], expected, rtol=0, atol=atol, msg=f"{kind} {one}")


@pytest.mark.parametrize("name", ranks.SCENARIOS)
def test_all_ranks_hold_the_very_same(name: str, by_rank: list[dict[str, Any]]) -> None:
    first = by_rank[0][name]
    for rank in by_rank[1:]:
        assert rank[name]["samples"] == first["samples"]
        assert all(torch.equal(rank[name]["weights"][one], value) for one, value in first["weights"].items())


@pytest.mark.parametrize("name", ranks.SCENARIOS)
def test_the_completions_are_those_of_one_process(name: str, by_rank: list[dict[str, Any]]) -> None:
    for sample, expected in zip(by_rank[0][name]["samples"], alone(name)["samples"], strict=True):
        assert sample["text"] == expected["text"]
        assert sample["advantage"] == pytest.approx(expected["advantage"], rel=RELATIVE)
