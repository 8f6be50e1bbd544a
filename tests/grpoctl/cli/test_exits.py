"""Exit codes: the table of README and docs/cli.md."""

from __future__ import annotations

import pytest

from core.errors import CheckpointError, GrpoError, NotFoundError, RunError, SpecError, StorageError, UserError
from grpoctl.cli import exits
from grpoctl.runs.status import Status

ENDINGS = [
    ("COMPLETED", 0),
    ("STOPPED_EARLY", 0),
    ("PRUNED", 0),
    ("COLLAPSED", 4),
    ("INVALID_ROLLOUT", 4),
    ("FAILED", 3),
    ("INTERRUPTED", 130),
]


@pytest.mark.parametrize(("status", "code"), ENDINGS)
def test_exit_code_of_an_ending(status: str, code: int) -> None:
    assert exits.exit_code(status) == code


def test_every_ending_has_a_code() -> None:
    assert {status for status, _ in ENDINGS} == {status.value for status in Status if status.ended}


def test_a_running_run_has_none() -> None:
    with pytest.raises(ValueError, match="RUNNING"):
        exits.exit_code("RUNNING")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("x"), 2),
        (SpecError("x"), 2),
        (NotFoundError("x"), 2),
        (RunError("x"), 3),
        (CheckpointError("x"), 3),
        (StorageError("x"), 3),
        (GrpoError("x"), 3),
        (RuntimeError("x"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_code_of_an_error(error: BaseException, code: int) -> None:
    assert exits.exit_code_of_error(error) == code


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 0),
        (["COMPLETED", "STOPPED_EARLY"], 0),
        (["COLLAPSED", "COMPLETED"], 4),
        (["COMPLETED", "FAILED", "COLLAPSED"], 3),  # 3 is worse than 4: a guard did its work, a failure did not
        (["INTERRUPTED", "FAILED"], 130),
    ],
)
def test_worst_of_several_runs(statuses: list[str], code: int) -> None:
    assert exits.worst_exit_code(statuses) == code
