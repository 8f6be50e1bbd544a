"""What a trainer lacks is refused by check, run and sweep, in one line by the spec's key, and nothing is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.grpoctl.cli.conftest import Grpoctl

COMMAND = """
name: mine
title: A program
trainer: {kind: command, command: "python3 train.py {learning_rate}"}
stages:
  grpo: {num_generations: 4, prompts_per_step: 2, max_steps: 8, learning_rate: 0.01}
"""
TRL = """
name: mine
title: By TRL
model: {source: "builtin:tiny"}
trainer: {kind: trl}
task:
  name: custom
  data: {path: ./rows.jsonl}
  prompt: "{question}"
  train_prompts: 4
  eval_prompts: 2
  rewards: [{function: "./rewards.py:short"}]
stages:
  grpo: {num_generations: 2, prompts_per_step: 2, max_steps: 2, learning_rate: 0.001}
"""
SWEEP = """
name: rates
revision: 1
title: Rates
experiment: mine
axes: {stages.grpo.learning_rate: [0.01, 0.02]}
sampler: grid
seeds: [0]
metric: reward/mean
worst: 0
budget: {completions: 16}
"""
COMMANDS = (
    ["check", "mine"],
    ["run", "mine", "--dry-run"],
    ["run", "mine"],
    ["check", "rates"],
    ["sweep", "rates", "--dry-run"],
    ["sweep", "rates"],
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for folder, name, text in (("experiments", "mine", TRL), ("sweeps", "rates", SWEEP)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.yaml").write_text(text)
    rows = "".join(f'{{"question": "What is {n}?"}}\n' for n in range(8))
    (tmp_path / "experiments" / "rows.jsonl").write_text(rows)
    (tmp_path / "experiments" / "rewards.py").write_text(
        "def short(completions, **_): return [1.0] * len(completions)\n"
    )
    return tmp_path


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("spec", "change", "key"),
    [
        (COMMAND, ("python3 train.py", "nosuchprogram"), "trainer.command"),
        (COMMAND, ("train.py", "a\\0b"), "trainer.command"),
        (COMMAND, ("{kind: command", "{kind: command, map: {reward/meen: r}"), "trainer.map"),
        (TRL, ("{kind: trl", "{kind: trl, args: {vllm_mode: foo}"), "trainer.args.vllm_mode"),
        (TRL, ("{kind: trl", "{kind: trl, accelerate_config: none.yaml"), "trainer.accelerate_config"),
        (TRL, ("{kind: trl", '{kind: trl, args: {tools: ["nomodule:f"]}'), "trainer.args.tools.0"),
        (TRL, (":short", ":shrot"), "task.rewards.0.function"),
    ],
)
def test_refused_before_anything_is_written(
    grpoctl: Grpoctl, files: Path, argv: list[str], spec: str, change: tuple[str, str], key: str
) -> None:
    assert change[0] in spec
    (files / "experiments" / "mine.yaml").write_text(spec.replace(*change))
    said = grpoctl(*argv, "-p", "full")
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert key in line
    assert not (files / ".grpoctl" / "runs").exists()
    assert not list((files / ".grpoctl").glob("sweeps/*/"))


def test_a_sweep_over_a_trainers_keys_tries_each(grpoctl: Grpoctl, files: Path) -> None:
    (files / "experiments" / "mine.yaml").write_text(COMMAND)
    axes = "{trainer.command: ['python3 a {learning_rate}', 'nosuchprogram {learning_rate}']}"
    text = SWEEP.replace("{stages.grpo.learning_rate: [0.01, 0.02]}", axes)
    (files / "sweeps" / "rates.yaml").write_text(text)
    said = grpoctl("sweep", "rates", "-p", "full", "--dry-run")
    assert said.code == 2
    assert "nosuchprogram" in said.err


@pytest.mark.parametrize(
    ("command", "seeds", "noted"),
    [("python3 a", "0,1", True), ("python3 a", "0", False), ("python3 a --seed {seed}", "0,1", False)],
)
def test_several_seeds_of_a_command_without_one_are_noted(
    grpoctl: Grpoctl, files: Path, command: str, seeds: str, noted: bool
) -> None:
    text = COMMAND.replace("python3 train.py {learning_rate}", command)
    (files / "experiments" / "mine.yaml").write_text(text)
    for argv in (["run", "mine"], ["sweep", "rates"]):
        said = grpoctl(*argv, "--seeds", seeds, "-p", "full", "--dry-run")
        assert said.code == 0, said.err
        assert (said.out + said.err).count("trainer.command has no {seed}") == noted


def test_a_spec_that_is_only_validated_may_name_what_another_machine_has(grpoctl: Grpoctl, files: Path) -> None:
    (files / "experiments" / "mine.yaml").write_text(COMMAND.replace("python3", "nosuchprogram"))
    assert grpoctl("validate", "mine").code == 0
    assert grpoctl("validate", "mine", "trainer.metrics=none.yaml").code == 0  # a setting, though it ends like a file


def test_the_specs_of_the_page_are_sound(grpoctl: Grpoctl, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.S) if block.startswith("name:")]
    names = []
    for block in blocks:
        name = block.partition("\n")[0].removeprefix("name:").strip()
        names.append(name)
        folder = tmp_path / ("sweeps" if "\nexperiment:" in block else "experiments")
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(block)
    assert names == ["mine", "mine-rates", "on-verl"]
    for name in names:
        said = grpoctl("validate", name)
        assert said.code == 0, (name, said.err)
