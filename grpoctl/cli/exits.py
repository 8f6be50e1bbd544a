"""What the command line's exit code says. Printing, and catching the errors, is not here (grpoctl.app)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from core.errors import UserError
from grpoctl.runs.status import Status, StudyStatus

OK = 0
FINDING = 1  # `diagnose --fail-on`: a finding of that severity or a worse one is there
USAGE = 2
FAILED = 3
GUARD = 4
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_MILDEST_FIRST = (OK, USAGE, GUARD, FAILED, INTERRUPTED)


def exit_code(status: str) -> int:
    """The exit code of a run that ended with this status. Raises ValueError for a status that is no ending."""
    ending = Status(status)
    match ending:
        case Status.COMPLETED | Status.STOPPED_EARLY | Status.PRUNED:
            return OK
        case Status.COLLAPSED | Status.INVALID_ROLLOUT:
            return GUARD
        case Status.FAILED:
            return FAILED
        case Status.INTERRUPTED:
            return INTERRUPTED
        case Status.RUNNING:
            endings = ", ".join(other for other in Status if other.ended)
            raise ValueError(f"got status {status!r}, an ending is one of {endings}")
        case _:
            assert_never(ending)


def exit_code_of_study(status: str) -> int:
    """The exit code of a sweep whose study ended with this status. Raises ValueError for one that is no ending."""
    ending = StudyStatus(status)
    match ending:
        case StudyStatus.COMPLETED | StudyStatus.STOPPED:
            return OK
        case StudyStatus.FAILED:
            return FAILED
        case StudyStatus.INTERRUPTED:
            return INTERRUPTED
        case StudyStatus.RUNNING:
            raise ValueError(f"got status {status!r}, which is no ending of a study")
        case _:
            assert_never(ending)


def exit_code_of_error(error: BaseException) -> int:
    """2 where the user can mend it and nothing was started, 130 for Ctrl-C, 3 for everything else."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return USAGE if isinstance(error, UserError) else FAILED


def worst_exit_code(statuses: Iterable[str]) -> int:
    """The worst code of several runs: interrupted, then failed, then stopped by a guard; 0 where there are none."""
    return max((exit_code(status) for status in statuses), key=_MILDEST_FIRST.index, default=OK)
