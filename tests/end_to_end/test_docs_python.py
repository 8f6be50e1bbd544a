"""Every example of docs/python.md runs as printed, in its order, and is accepted by a strict type checker."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grpoctl import api
from tests.end_to_end.cli import Cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
RUN = """\
import contextlib, io, json, sys
names = {"__name__": "example"}
for number, example in enumerate(json.loads(sys.argv[1])):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, f"<example {number}>", "exec"), names)
    print(json.dumps(printed.getvalue()))
"""


@pytest.mark.process
@pytest.mark.slow
def test_every_example_runs_as_printed(lone: Cli) -> None:
    lone.folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, json.dumps(EXAMPLES)],
        cwd=lone.folder, env=lone.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    trained, wrong, looked, seeds, watched, compared, swept, ended = map(json.loads, done.stdout.splitlines())
    assert "COMPLETED: p31@2 with max_steps=4" in trained  # not quiet: what the command prints
    assert "did you mean stages.grpo.learning_rate" in wrong
    assert "prompt_id" in looked
    assert seeds.startswith("(0, 1) [")
    # Two steps, whose evaluation was enough.
    assert [line.split()[0] for line in watched.splitlines()[:2]] == ["1", "2"]
    assert [line for line in watched.splitlines()[2:] if line == "STOPPED_EARLY" or "is enough" in line]
    assert watched.endswith("STOPPED_EARLY\n")
    assert "beta" in compared
    assert swept.startswith("COMPLETED")
    assert ended.splitlines()[-1].startswith("STOPPED trial 0 is good enough")


@pytest.mark.process
@pytest.mark.slow
def test_a_strict_type_checker_accepts_the_examples(tmp_path: Path) -> None:
    mistake = 'grpoctl.load("p31", "run").trials\n'
    for name, text in (("right", ""), ("wrong", mistake)):
        (tmp_path / f"{name}.py").write_text("".join(EXAMPLES) + text)
    checked = {
        name: subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"),
             str(tmp_path / f"{name}.py")],
            cwd=tmp_path, env=None, capture_output=True, text=True, check=False,
        )
        for name in ("right", "wrong")
    }  # fmt: skip
    assert checked["right"].returncode == 0, checked["right"].stdout
    assert '"LoadedRun" has no attribute "trials"' in checked["wrong"].stdout


def test_every_parameter_and_attribute_is_documented() -> None:
    for name in (*inspect.signature(api.run).parameters, "parallel", "inline"):
        assert f"`{name}`" in PAGE or f"`{name}=" in PAGE, name
    for kind in (api.LoadedRun, api.LoadedExperiment, api.LoadedStudy):
        names = [name for name, value in vars(kind).items() if isinstance(value, property) and name[0] != "_"]
        assert [name for name in names if f".{name}" not in PAGE] == []
    methods = {name for kind in (api.OnStep, api.OnEvaluation, api.OnEnd) for name in vars(kind) if name[:3] == "on_"}
    assert [name for name in methods if f"`{name}(" not in PAGE] == []
