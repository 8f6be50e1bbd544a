"""What the command line's exit code says. Printing, and catching the errors, is not here (grpoctl.app)."""

from __future__ import annotations

from collections.abc import Iterable

from core.errors import UserError

OK = 0
FOUND = 1  # `diagnose --fail-on`: a finding at least as grave is there
USAGE = 2
FAILED = 3
GUARD = 4
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_OF_STATUS = {
    "COMPLETED": OK,
    "STOPPED_EARLY": OK,
    "PRUNED": OK,
    "COLLAPSED": GUARD,
    "INVALID_ROLLOUT": GUARD,
    "FAILED": FAILED,
    "INTERRUPTED": INTERRUPTED,
}
_MILDEST_FIRST = (OK, USAGE, GUARD, FAILED, INTERRUPTED)


def exit_code(status: str) -> int:
    """The exit code of a run that ended with this status. Raises ValueError for a status that is no ending."""
    if status not in _OF_STATUS:
        raise ValueError(f"got status {status!r}, an ending is one of {', '.join(_OF_STATUS)}")
    return _OF_STATUS[status]


def exit_code_of_error(error: BaseException) -> int:
    """2 where the user can mend it and nothing was started, 130 for Ctrl-C, 3 for everything else."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return USAGE if isinstance(error, UserError) else FAILED


def worst_exit_code(statuses: Iterable[str]) -> int:
    """The worst code of several runs: interrupted, then failed, then stopped by a guard; 0 where there are none."""
    return max((exit_code(status) for status in statuses), key=_MILDEST_FIRST.index, default=OK)
