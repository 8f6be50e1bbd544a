"""The commands that only look at files load nothing heavy, and start about as fast as their own libraries do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source import ROOT

pytestmark = pytest.mark.process

HEAVY = ("torch", "transformers", "trl", "mlflow", "optuna", "pandas", "peft", "accelerate", "numpy", "scipy",
         "matplotlib", "tokenizers", "safetensors", "huggingface_hub", "sqlalchemy", "PIL", "skimage",
         "sklearn", "ray")  # fmt: skip
COMPUTING = {"check": ("numpy",)}  # what a command may load of these: the advantages of a spec are computed
# Runs commands as the console script does, one after another, and says of each what it loaded beside those before it;
# `-P` keeps the working directory off sys.path.
RUN = """\
import contextlib, io, json, os, sys, traceback
from grpoctl.app import main
before = set()
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    code, printed, errors = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
    loaded = {name.partition(".")[0] for name in sys.modules}
    said = {"code": code, "printed": printed.getvalue(), "errors": errors.getvalue(), "files": os.listdir()}
    print(json.dumps({**said, "loaded": sorted(loaded - before)}))
    before = loaded
"""
LOOKING: list[tuple[str, ...]] = [
    ("--help",),
    ("--version",),
    ("ls",),
    ("ls", "--json"),
    ("show", "p31"),
    ("validate", "p31"),
    ("validate", "p31", "--json"),
    ("validate", "advantage-study"),
    ("run", "--help"),
    ("compare", "--help"),
    ("report", "--help"),
    ("eval", "--help"),
    ("sample", "--help"),
    ("export", "--help"),
    # What comes after these could load numpy unnoticed.
    ("check", "p31"),
    ("check", "p30", "beta=0.1", "--json"),
    ("check", "p31", "--simulate", "--pass-rate", "0.3"),
    ("check", "advantage-study", "-p", "tiny"),
    ("check", "p40", "-p", "tiny", "--data"),
]


def started(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A Python process that sees this checkout, in a folder of its own, with no home but the one it may make there."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("GRPOCTL_", "MLFLOW_"))}
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], dict[str, Any]]:
    """What each command loaded, printed and wrote: all of them in one process, in the order of the table."""
    process = started(RUN, json.dumps(LOOKING), cwd=tmp_path_factory.mktemp("looking"))
    assert process.returncode == 0, process.stderr
    return dict(zip(LOOKING, map(json.loads, process.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_a_command_that_only_looks_loads_nothing_heavy(
    arguments: tuple[str, ...], looked: dict[tuple[str, ...], dict[str, Any]]
) -> None:
    said = looked[arguments]
    assert said["code"] == 0, said["errors"]
    assert said["printed"].strip()
    assert [name for name in said["loaded"] if name in HEAVY and name not in COMPUTING.get(arguments[0], ())] == []
    assert said["files"] == []  # looking writes nothing


def test_the_commands_that_may_load_numpy_come_last() -> None:
    computing = [arguments[0] in COMPUTING for arguments in LOOKING]
    assert computing == sorted(computing)


def test_comparing_and_training_code_is_light_until_a_run_starts(tmp_path: Path) -> None:
    modules = "grpoctl.analysis.compare, grpoctl.cli.run_session, grpoctl.tracking.mirror, core.health.examine"
    process = started(f"import {modules}, json, sys; print(json.dumps(list(sys.modules)))", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert set(json.loads(process.stdout)) & set(HEAVY) == set()


def test_help_loads_no_renderer(looked: dict[tuple[str, ...], dict[str, Any]]) -> None:
    # rich's own help parses markdown and doubles the time of --help; benchmarks/startup.py measures it.
    assert LOOKING[0] == ("--help",)
    assert set(looked["--help",]["loaded"]) & {"markdown_it", "pygments", "ruamel", "pydantic"} == set()


def test_python_access_is_light_until_a_run_or_a_table_is_asked_for(tmp_path: Path) -> None:
    code = "import grpoctl, json, sys; grpoctl.load, grpoctl.run, grpoctl.compare; print(json.dumps(list(sys.modules)))"
    process = started(code, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert set(json.loads(process.stdout)) & set(HEAVY) == set()
    alone = started("import grpoctl, json, sys; print(json.dumps(list(sys.modules)))", cwd=tmp_path)
    assert {"core.config", "grpoctl.api", "pydantic"} & set(json.loads(alone.stdout)) == set()
