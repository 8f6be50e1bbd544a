"""`grpoctl ui`: the command that it would start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from grpoctl.runs.run_dir import Home
from tests.grpoctl.cli.conftest import Grpoctl


def test_ui_says_what_it_would_start(grpoctl: Grpoctl) -> None:
    (line,) = grpoctl("ui", "--dry-run", "--port", "5005").out.splitlines()
    assert "-m mlflow ui --host 127.0.0.1 --port 5005" in line


@pytest.mark.parametrize("named", [None, "postgresql://u:s3cret@h/runs"])
def test_what_ui_would_start_can_be_pasted_whole(
    grpoctl: Grpoctl, home: Home, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    """On a narrow terminal too, with the environment that says which store; its password stays in the shell's own."""
    monkeypatch.setenv("COLUMNS", "40")
    if named is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", named)
    (line,) = grpoctl("ui", "--dry-run").out.splitlines()
    assert "s3cret" not in line
    words, _, rest = line.partition(f"{sys.executable} ")
    assert rest == "-P -m mlflow ui --host 127.0.0.1 --port 5000"
    printed = subprocess.run(["sh", "-c", f"{words}env"], capture_output=True, text=True, check=True).stdout
    assert f"MLFLOW_BACKEND_STORE_URI={named or f'sqlite:///{home.mlflow_store}'}" in printed.splitlines()
