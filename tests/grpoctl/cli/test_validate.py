"""`grpoctl validate`: what this machine lacks is no fault of a spec, and a fault is told with the spec's name."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from grpoctl.executors import needs
from tests.grpoctl.cli.conftest import Grpoctl


def test_a_missing_package_is_no_fault_of_a_spec(grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> object:
        return None if name == "skimage" else find_spec(name)

    monkeypatch.setattr("core.tasks.restoration.pictures.find_spec", without)
    said = grpoctl("validate", "p50", "restoration-study")
    assert said.code == 0
    assert "p50: spec valid in profile" in said.out
    assert "its task was not tried: scikit-image is not installed" in said.out
    assert grpoctl("run", "p50", "-p", "tiny").code == 2  # which needs it


def test_a_trainer_that_is_not_installed_is_told_beside_a_sound_spec(
    grpoctl: Grpoctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = "grpo: {num_generations: 2, prompts_per_step: 2, max_steps: 2, learning_rate: 0.001}"
    spec = f"name: mine\ntitle: t\nmodel: {{source: small}}\ntask: {{name: arithmetic}}\nstages: {{{stage}}}\n"
    (tmp_path / "mine.yaml").write_text(f"{spec}trainer: {{kind: trl}}\n")
    monkeypatch.setattr(needs, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(needs.metadata, "version", lambda name: f"{needs.TRL}.0")
    assert grpoctl("validate", "mine.yaml").out == "mine.yaml: spec valid in profile full\n"
    monkeypatch.setattr(needs, "find_spec", lambda name: None if name == "trl" else find_spec(name))
    said = grpoctl("validate", "mine.yaml")
    assert said.code == 0
    assert "; its trainer was not tried: got trl, which is not installed: pip install 'grpoctl[trl]'" in said.out
    (entry,) = grpoctl("validate", "mine.yaml", "--json").document["specs"]
    assert (entry["not_tried"], entry["trainer_not_tried"][:7]) == (None, "got trl")
    assert "not tried" not in grpoctl("validate", "p31").out


def test_a_fault_is_told_with_the_name_of_its_spec(grpoctl: Grpoctl, tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    spec = "name: broken\ntitle: t\nquestion: q\nbase: p31\ntask: {eval_prompts: 1000000}\n"
    (tmp_path / "experiments" / "broken.yaml").write_text(spec)
    said = grpoctl("validate", "broken")
    assert said.code == 2
    assert "broken" in said.err


def test_a_setting_of_a_sweep_that_makes_no_run_is_blamed_and_no_axis(grpoctl: Grpoctl, tmp_path: Path) -> None:
    (tmp_path / "sweeps").mkdir()
    text = "name: s\ntitle: t\nquestion: q\nexperiment: p31\nbudget: {completions: 64}\n"
    text += "settings:\n  task.eval_prompts: 0\n"
    (tmp_path / "sweeps" / "s.yaml").write_text(f"{text}axes:\n  num_generations: [2, 4]\n")
    said = grpoctl("validate", "s")
    assert said.code == 2
    assert "settings.task.eval_prompts: got 0" in said.err
