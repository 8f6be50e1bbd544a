"""The commands that only look at files load nothing heavy, and start about as fast as their own libraries do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

pytestmark = pytest.mark.process

HEAVY = ("torch", "transformers", "mlflow", "optuna", "pandas", "peft", "accelerate", "numpy", "scipy", "matplotlib",
         "tokenizers", "safetensors", "huggingface_hub", "sqlalchemy")  # fmt: skip
COMPUTING = {"check": ("numpy",)}  # what a command may load of these: the advantages of a spec are computed
# Runs a command as the console script does, then says what is loaded; `-P` keeps the working directory off sys.path.
RUN = """\
import json, sys
from grpoctl.app import main
try:
    main()
except SystemExit as end:
    code = end.code or 0
else:
    code = 0
print(json.dumps({"code": code, "loaded": sorted({name.partition(".")[0] for name in sys.modules})}), file=sys.stderr)
"""


def started(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A Python process that sees this checkout, in a folder of its own, with no home but the one it may make there."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("GRPOCTL_", "MLFLOW_"))}
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("ls",),
        ("ls", "--json"),
        ("show", "p31"),
        ("validate", "p31"),
        ("validate", "p31", "--json"),
        ("check", "p31"),
        ("check", "p30", "beta=0.1", "--json"),
        ("check", "p31", "--simulate", "--pass-rate", "0.3"),
        ("check", "advantage-study", "-p", "tiny"),
        ("check", "p40", "-p", "tiny", "--data"),
        ("validate", "advantage-study"),
        ("run", "--help"),
        ("compare", "--help"),
        ("eval", "--help"),
        ("sample", "--help"),
        ("export", "--help"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_looks_loads_nothing_heavy(arguments: tuple[str, ...], tmp_path: Path) -> None:
    process = started(RUN, *arguments, cwd=tmp_path)
    said = json.loads(process.stderr.splitlines()[-1])
    assert said["code"] == 0, process.stderr
    assert process.stdout.strip()
    assert [name for name in said["loaded"] if name in HEAVY and name not in COMPUTING.get(arguments[0], ())] == []
    assert list(tmp_path.iterdir()) == []  # looking writes nothing


def test_comparing_and_training_code_is_light_until_a_run_starts(tmp_path: Path) -> None:
    modules = "grpoctl.analysis.compare, grpoctl.cli.run_session, grpoctl.tracking.mirror, core.health.examine"
    process = started(f"import {modules}, json, sys; print(json.dumps(list(sys.modules)))", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert set(json.loads(process.stdout)) & set(HEAVY) == set()


def test_help_loads_no_renderer(tmp_path: Path) -> None:
    # rich's own help parses markdown and doubles the time of --help; benchmarks/startup.py measures it.
    said = json.loads(started(RUN, "--help", cwd=tmp_path).stderr.splitlines()[-1])
    assert set(said["loaded"]) & {"markdown_it", "pygments", "ruamel", "pydantic"} == set()
