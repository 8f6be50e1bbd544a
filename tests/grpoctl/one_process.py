"""Several commands in one new process, which imports grpoctl once: half a CPU second for each further one is saved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
END = "\f"  # of what a command prints
PROGRAM = f"""
import sys
from grpoctl.app import main
for command in sys.argv[1:]:
    sys.argv = ["grpoctl", *command.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (command, end.code)
    print({END!r}, end="", flush=True)
"""


def outputs(
    commands: Sequence[str], folder: Path, *, before: Callable[[], None] | None = None, **environment: str
) -> list[str]:
    """What each command prints in the folder; that all succeed and standard error stays empty is checked.

    `before` is called in the new process before it begins.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GRPOCTL_", "MLFLOW_", "COLUMNS"))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *commands],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        preexec_fn=before,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.split(END)
    assert len(shown) == len(commands) + 1
    return shown[:-1]
