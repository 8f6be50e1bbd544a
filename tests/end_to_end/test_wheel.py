"""What is built: what it carries, and that once installed it runs p31 in an empty folder, also beside a folder `core`.

The environment is a new one that borrows the dependencies of this one; grpoctl itself comes from the wheel alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.process


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """An environment with the wheel in it."""

    folder: Path

    def call(self, name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; nothing of the caller's settings but its cache comes along."""
        ours = ("PYTHON", "GRPOCTL_", "MLFLOW_", "VIRTUAL_ENV")
        env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        command = [str(self.folder / "bin" / name), *arguments]
        # No CUDA device: `--profile auto` is then tiny on every machine.
        env |= {"CUDA_VISIBLE_DEVICES": ""}
        return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from the sdist and nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "install", *options, str(wheel)], check=True)
    # A path that a .pth file adds is searched last, and its own .pth files (an editable grpoctl) are not read.
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return Installed(folder=folder)


def test_the_wheel_carries_both_packages_and_the_shipped_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {f.relative_to(ROOT).as_posix() for package in ("core", "grpoctl") for f in (ROOT / package).rglob("*.py")}
    shipped = {f"grpoctl/shipped/experiments/{file.name}" for file in (ROOT / "experiments").glob("*.yaml")}
    shipped |= {f"grpoctl/shipped/sweeps/{file.name}" for file in (ROOT / "sweeps").glob("*.yaml")}
    assert "grpoctl/shipped/sweeps/advantage-study.yaml" in shipped
    templates = {str(file.relative_to(ROOT)) for file in (ROOT / "grpoctl").glob("*/templates/*")}
    assert "grpoctl/diagnose/templates/page.css" in templates
    assert source | templates | shipped | {"core/py.typed", "grpoctl/py.typed"} <= names
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"core", "grpoctl"}
    assert [name for name in names if "__pycache__" in name or ".grpoctl/" in name] == []


def test_the_sdist_carries_what_building_and_testing_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "constraints.txt", "Makefile", "README.md", "LICENSE", "experiments/p31.yaml"} <= names
    assert {"core/errors.py", "tests/architecture/test_import_order.py", ".ci/run"} <= names
    assert [name for name in names if name.startswith((".venv", ".grpoctl", ".git/"))] == []


def test_it_is_the_wheel_that_is_imported(installed: Installed, tmp_path: Path) -> None:
    process = installed.call(
        "python", "-c", "import grpoctl, core; print(grpoctl.__file__, core.__file__)", cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr
    places = [Path(place) for place in process.stdout.split()]
    assert [place.is_relative_to(installed.folder) for place in places] == [True, True]


def test_the_shipped_sweeps_come_with_it(installed: Installed, tmp_path: Path) -> None:
    process = installed.call("grpoctl", "check", "advantage-study", "--json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["sweep"]["trials"] == 24


@pytest.mark.slow
def test_it_runs_p31_beside_a_package_core_of_the_users_own(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("raise RuntimeError('the user\\'s own core was imported')\n")
    process = installed.call("grpoctl", "run", "p31", "--json", "stages.grpo.max_steps=3", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    told = {key: result[key] for key in ("schema", "experiment", "profile", "status", "steps")}
    assert told == {"schema": 1, "experiment": "p31", "profile": "tiny", "status": "COMPLETED", "steps": 3}
    run_dir = Path(result["run_dir"])
    assert run_dir.is_relative_to(tmp_path)
    assert len((run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 1 + 3  # step 0 evaluates
    mirrored = json.loads((run_dir / "mlflow.json").read_text(encoding="utf-8"))
    assert mirrored["state"] != "behind", mirrored  # another process writes to MLflow, with our `core`


def test_python_says_so_in_one_line_where_another_core_comes_first(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("print('imported')\n")
    (tmp_path / "script.py").write_text("import grpoctl\nprint(grpoctl.__version__)\n")
    refused = installed.call("python", "script.py", cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stdout == ""  # neither the script went on nor was the user's package executed
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("ImportError: another package called 'core'")
    assert str(tmp_path / "core") in last
    assert "python -P" in last
    advised = installed.call("python", "-P", "script.py", cwd=tmp_path)
    assert (advised.returncode, advised.stderr) == (0, "")


# As TRL's documentation has them: a conversational one, a plain one, and one with an extra column.
TRL_REWARDS = {
    "conversational": r'''
import re

def format_reward_func(completions, **kwargs):
    """Reward function that checks if the completion has a specific format."""
    pattern = r"^<think>.*?</think><answer>.*?</answer>$"
    completion_contents = [completion[0]["content"] for completion in completions]
    matches = [re.match(pattern, content) for content in completion_contents]
    return [1.0 if match else 0.0 for match in matches]
''',
    "plain": r'''
def reward_func(completion_ids, **kwargs):
    """Reward function that assigns higher scores to longer completions (in terms of token count)."""
    return [float(len(ids)) for ids in completion_ids]
''',
    "columns": r"""
import re

def reward_func(completions, ground_truth, **kwargs):
    # Regular expression to capture content inside \boxed{}
    matches = [re.search(r"\\boxed\{(.*?)\}", completion) for completion in completions]
    contents = [match.group(1) if match else "" for match in matches]
    # Reward 1 if the content is the same as the ground truth, 0 otherwise
    return [1.0 if c == gt else 0.0 for c, gt in zip(contents, ground_truth)]
""",
}
GOLD = {"conversational": "<think>t</think><answer>{ground_truth}</answer>", "columns": r"\boxed{{{ground_truth}}}"}
SPEC = """
name: {name}
title: A reward file of TRL's documentation
model: {{source: builtin:tiny}}
task:
  name: custom
  data: {{path: ../rows.jsonl}}
  train_prompts: 4
  eval_prompts: 2
  {asks}
  rewards: [{{function: "../{name}.py:{function}"}}]
  gold: {gold}
stages:
  grpo: {{max_steps: 2, prompts_per_step: 2, num_generations: 2, max_completion_length: 8, learning_rate: 1.0e-4}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("style", TRL_REWARDS)
def test_a_reward_file_of_trl_runs_unchanged(style: str, installed: Installed, tmp_path: Path) -> None:
    (tmp_path / f"{style}.py").write_text(TRL_REWARDS[style], encoding="utf-8")
    rows = [{"prompt": [{"role": "user", "content": f"{n}+1="}], "ground_truth": str(n + 1)} for n in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asks = "messages: prompt" if style == "conversational" else 'prompt: "{prompt[0][content]}"'
    function = "format_reward_func" if style == "conversational" else "reward_func"
    gold = json.dumps({"completion": GOLD[style]}) if style in GOLD else "null"
    (tmp_path / "experiments").mkdir()
    spec = SPEC.format(name=style, asks=asks, function=function, gold=gold)
    (tmp_path / "experiments" / f"{style}.yaml").write_text(spec, encoding="utf-8")
    checked = installed.call("grpoctl", "validate", style, "--rewards", "--json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    process = installed.call("grpoctl", "run", style, "--json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["status"] == "COMPLETED"
    recorded = (Path(result["run_dir"]) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = json.loads(recorded[-1])
    assert last["reward/missing"] == 0
    assert last[f"rewards/{function}"] == pytest.approx(last["reward/mean"])
    if style == "plain":
        assert last["reward/mean"] == pytest.approx(last["completions/length"])


@pytest.mark.slow
def test_a_task_of_your_own_starts_with_two_commands(installed: Installed, tmp_path: Path) -> None:
    assert installed.call("grpoctl", "new", "my-task", cwd=tmp_path).returncode == 0
    checked = installed.call("grpoctl", "validate", "my-task", "--rewards", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    process = installed.call("grpoctl", "run", "my-task", "--json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["profile"] == "tiny"
    # It starts near 0 and ends near 0.6: docs/tasks.md has the numbers.
    assert result["final"]["eval/reward"] > result["start"]["eval/reward"] + 0.3
