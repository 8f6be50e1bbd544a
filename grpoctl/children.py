"""Processes of ours: Python modules that run this very code, in sessions of their own. What they do is not here."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpoctl.files import storage_errors

_COLOURS = ("FORCE_COLOR", "TTY_COMPATIBLE")  # a log is no terminal: `logs` would spell the codes out


def python_module(module: str, *arguments: str) -> list[str]:
    """The command `python -P -m MODULE ARGUMENTS` with this interpreter.

    -P: a folder called `core` in the user's current directory must not be taken for ours.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """The environment of this process, with this very code in the path where it is not installed."""
    root = str(Path(__file__).resolve().parents[1])
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return dict(os.environ)  # in front of the standard library, site-packages could replace parts of it
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root + (os.pathsep + path if path else "")}


def spawn(module_args: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """`python -P -m MODULE ARGUMENTS` as the leader of a session of its own, without stdin, its output added to `log`.

    It has no terminal, so neither Ctrl-C nor a hang-up reaches it. Raises StorageError where it cannot be started.
    """
    env = child_environment() if env is None else env
    with storage_errors("start a process that writes", log), log.open("ab") as output:
        return subprocess.Popen(
            python_module(*module_args),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={name: value for name, value in env.items() if name not in _COLOURS},
            start_new_session=True,
        )


def last_line(log: Path) -> str:
    """The last line of a log that says something; empty where none does."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
