"""`--notify COMMAND` of `run`, `sweep` and `watch`: a command of the user's gets JSON on its standard input.

It is split into words as a shell would and run without one; its failure is a warning and never changes an exit code.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from core.errors import GrpoError, UserError
from grpoctl import console
from grpoctl.cli import exits

SECONDS = 10.0
_STDERR = 2  # what the command prints must not stand inside a JSON document

AtTheEnd = Annotated[
    str | None,
    typer.Option(
        "--notify", metavar="COMMAND", help="Run this at the end, the outcome as JSON on its standard input. No shell."
    ),
]


def words_of(command: str | None) -> list[str] | None:
    """The command's words; None where there is none. Raises UserError for a quote that does not end, or nothing."""
    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--notify: got {command!r}: {error}") from None
    if not words:
        raise UserError("--notify: got nothing, expected a command, e.g. --notify 'tee -a outcome.json'")
    return words


def send(command: Sequence[str] | None, document: Mapping[str, Any], *, seconds: float = SECONDS) -> None:
    """Tell the command, and warn where it cannot be started, takes longer than `seconds`, or fails."""
    if command is None:
        return
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=_STDERR, start_new_session=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        console.print_note(f"warning: --notify: {command[0]} could not be started: {why}")
        return
    try:
        process.communicate((json.dumps(document, default=str) + "\n").encode(), timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        console.print_note(f"warning: --notify: {command[0]} was ended after {seconds:g} seconds")
        return
    if process.returncode:
        console.print_note(f"warning: --notify: {command[0]} ended with exit code {process.returncode}")


def telling(
    command: Sequence[str] | None,
    event: str,
    work: Callable[[], tuple[int, Mapping[str, Any]]],
    begun: Callable[[], bool] = lambda: True,
) -> int:
    """Do the work, which gives an exit code and what is told of its end; an error is told, too, and raised again.

    Nothing is told of what the user can mend where `begun` says that nothing had been started.
    """
    try:
        code, document = work()
    except GrpoError as error:
        if isinstance(error, UserError) and not begun():
            raise
        failed = {"status": "FAILED", "message": str(error), "exit_code": exits.exit_code_of_error(error)}
        send(command, {"schema": 1, "event": event, **failed})
        raise
    send(command, {"schema": 1, "event": event, **document, "exit_code": code})
    return code
