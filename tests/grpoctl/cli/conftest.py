"""The command line in this process: its exit code and its two streams. Nothing here trains or starts a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpoctl.app import main
from grpoctl.runs.run_dir import Home


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


Grpoctl = Callable[..., Said]


@pytest.fixture
def grpoctl(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grpoctl:
    """Runs `grpoctl ARGV` in an empty folder whose home is `home`."""
    for name in ("GRPOCTL_HOME", "GRPOCTL_DEBUG", "MLFLOW_TRACKING_URI", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["grpoctl", *argv])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert end.value.code is None or isinstance(end.value.code, int)
        return Said(code=end.value.code or 0, out=out, err=err)

    return run
