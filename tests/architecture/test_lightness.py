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
        ("run", "--help"),
        ("compare", "--help"),
    ],
    ids=" ".join,
)
def test_a_command_that_only_looks_loads_nothing_heavy(arguments: tuple[str, ...], tmp_path: Path) -> None:
    process = started(RUN, *arguments, cwd=tmp_path)
    said = json.loads(process.stderr.splitlines()[-1])
    assert said["code"] == 0, process.stderr
    assert process.stdout.strip()
    assert [name for name in said["loaded"] if name in HEAVY] == []
    assert list(tmp_path.iterdir()) == []  # looking writes nothing


def test_comparing_and_training_code_is_light_until_a_run_starts(tmp_path: Path) -> None:
    modules = "grpoctl.analysis.compare, grpoctl.commands.session, grpoctl.tracking.launch_mirror, core.health.examine"
    process = started(f"import {modules}, json, sys; print(json.dumps(list(sys.modules)))", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert set(json.loads(process.stdout)) & set(HEAVY) == set()


def cpu_seconds(code: str, *arguments: str, cwd: Path) -> float:
    """CPU time of one Python process: unlike the wall clock it does not count what else the machine does."""
    measured = "import os, atexit\natexit.register(lambda: os.write(2, b'%f' % sum(os.times()[:2])))\n"
    process = started(measured + code, *arguments, cwd=cwd)
    assert process.returncode == 0, process.stderr
    return float(process.stderr.splitlines()[-1])


def test_help_costs_little_more_than_the_libraries_it_needs(tmp_path: Path) -> None:
    libraries = "import typer, rich, pydantic, ruamel.yaml"
    command = "from grpoctl.app import main\nmain()"
    pairs = [(cpu_seconds(libraries, cwd=tmp_path), cpu_seconds(command, "--help", cwd=tmp_path)) for _ in range(5)]
    baseline, ours = (min(times) for times in zip(*pairs, strict=True))
    assert ours < 1.5 * baseline, f"--help takes {ours:.2f} s of CPU, its libraries alone {baseline:.2f} s"
