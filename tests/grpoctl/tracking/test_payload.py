"""What MLflow is told, on paper."""

from __future__ import annotations

import math

import pytest

from grpoctl.runs.status import Status, StatusRecord
from grpoctl.tracking.payload import Point, batches, mlflow_status, params, points, status_tags, tags, token


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"a": {"b": {"c": 2e-6}}}, {"a.b.c": "2e-06"}),
        ({"a": "tiny", "b": "", "c": None, "d": True}, {"a": "tiny", "b": "", "c": "null", "d": "true"}),
        ({"a": [0.9, "q"], "b": {}}, {"a": '[0.9, "q"]', "b": "{}"}),
        ({"a": "x" * 6000, "b": "y" * 6001}, {"a": "x" * 6000, "b": "y" * 5999 + "…"}),
    ],
)
def test_params_are_the_leaves_of_the_spec(spec: dict[str, object], expected: dict[str, str]) -> None:
    assert params(spec) == expected


def test_points_leave_out_what_is_missing_no_number_or_known() -> None:
    rows = [
        {"step": 1, "loss": 0.5, "kl": 0.1},
        {"step": 2, "loss": None, "kl": 1, "text": "x", "flag": True},
        {"step": 3, "loss": math.inf, "kl": math.nan},
        {"step": 4, "loss": 0.25},
    ]
    assert list(points(rows, {"loss": 1})) == [Point("kl", 0.1, 1), Point("kl", 1.0, 2), Point("loss", 0.25, 4)]


def test_step_zero_counts() -> None:
    assert list(points([{"step": 0, "eval/reward": 0.5}], {})) == [Point("eval/reward", 0.5, 0)]


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (3, [3]), (4, [3, 1]), (6, [3, 3])])
def test_batches(count: int, sizes: list[int]) -> None:
    cut = list(batches(range(count), 3))
    assert [len(batch) for batch in cut] == sizes
    assert [item for batch in cut for item in batch] == list(range(count))


# The mapping of DESIGN.md section 4.
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("RUNNING", "RUNNING"),
        ("COMPLETED", "FINISHED"),
        ("STOPPED_EARLY", "FINISHED"),
        ("PRUNED", "FINISHED"),
        ("COLLAPSED", "FAILED"),
        ("INVALID_ROLLOUT", "FAILED"),
        ("FAILED", "FAILED"),
        ("INTERRUPTED", "KILLED"),
    ],
)
def test_every_status_has_a_truthful_one_in_mlflow(ours: str, theirs: str) -> None:
    assert mlflow_status(Status(ours)) == theirs


def test_our_own_word_is_kept() -> None:
    record = StatusRecord(status=Status.COLLAPSED, pid=1, started=0.0, message="no valid completion for 5 steps")
    assert status_tags(record) == {
        "grpoctl.status": "COLLAPSED",
        "grpoctl.message": "no valid completion for 5 steps",
    }


def test_tags_tell_runs_apart() -> None:
    spec = {"name": "p31", "revision": 1, "profile": "tiny", "seed": 0}
    old, new = ({"git": {"commit": commit, "dirty": dirty}} for commit, dirty in (("aaa", True), ("bbb", False)))
    provenance = {"recorded_as": "p31@1+3fa2c1", "spec_sha": "3fa2c1", "attempts": [old, new]}
    assert tags("p31-tiny-s0-3fa2c1aa-1", spec, provenance) == {
        "grpoctl.experiment": "p31",
        "grpoctl.revision": "p31@1+3fa2c1",
        "grpoctl.spec_sha": "3fa2c1",
        "grpoctl.profile": "tiny",
        "grpoctl.seed": "0",
        "grpoctl.run_id": "p31-tiny-s0-3fa2c1aa-1",
        "grpoctl.attempt": "2",
        "grpoctl.git_dirty": "false",
        "mlflow.source.name": "grpoctl",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": "bbb",  # of the attempt that is running now
        "mlflow.source.git.dirty": "false",
    }


def test_tags_without_git_or_provenance() -> None:
    found = tags("r", {"name": "p31", "revision": 1}, {})
    assert found["grpoctl.revision"] == "1"
    assert not [key for key in found if "git" in key]


def test_a_token_stays_with_its_run() -> None:
    first = {"started": 1.5, "hostname": "h", "pid": 3}
    mine = token("r-1", {"attempts": [first]})
    assert mine == token("r-1", {"attempts": [first, {"started": 9.0}]})  # resumed
    others = [("r-2", first), ("r-1", {**first, "hostname": "i"}), ("r-1", {**first, "started": 1.6})]
    assert len({mine, *(token(run, {"attempts": [attempt]}) for run, attempt in others)}) == 4
