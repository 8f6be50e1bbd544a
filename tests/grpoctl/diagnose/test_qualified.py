"""What rules write as overrides is what specs take, those of several stages included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import core.health.rules
from core.health.case import Settings
from core.health.finding import Decider
from grpoctl.config import Library, load
from grpoctl.config.authored import Authored, read_authored
from grpoctl.config.loading import resolve
from grpoctl.diagnose import rerun
from grpoctl.diagnose.propose import propose
from grpoctl.diagnose.qualified import qualified
from tests.grpoctl.diagnose.conftest import GRAVE, Diagnosed

_WHOLE, _BEGUN = re.compile(r"[a-z_.]+=[\w.+-]+"), re.compile(r"[a-z_.]+=")
_RULES = Path(core.health.rules.__file__).parent
_COUNTS = ("num_generations", "max_completion_length", "patience", "eval_prompts", "max_attempts", "eval_steps")


def written() -> Iterator[str]:
    """Every override that a rule writes, its value as it stands or an example of it."""
    for file in sorted(_RULES.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                if _WHOLE.fullmatch(node.value):
                    yield node.value
            elif isinstance(node, ast.JoinedStr) and (begun := _BEGUN.fullmatch(_first(node))):
                yield f"{begun[0]}{_example(begun[0][:-1])}"


def _first(node: ast.JoinedStr) -> str:
    first = node.values[0]
    return str(first.value) if isinstance(first, ast.Constant) else ""


def _example(key: str) -> str:
    return "4" if key.rpartition(".")[2] in _COUNTS else "0.1"


OVERRIDES = sorted(set(written()))


def test_all_are_looked_at() -> None:
    keys = {text.partition("=")[0] for text in OVERRIDES}
    assert keys >= {
        "learning_rate", "beta", "num_generations", "guards.rollout_integrity", "advantage.std_floor", "entropy_coef",
        "early_stopping.patience", "task.eval_prompts", "max_grad_norm", "num_iterations", "kl_estimator",
    }  # fmt: skip
    assert not [text for text in OVERRIDES if text.startswith("stages.")]  # which stage, the spec knows


@pytest.mark.parametrize("override", [*OVERRIDES, "max_grad_norm=1e+02"])
@pytest.mark.parametrize(("name", "stage"), [("p31", 0), ("staged", 2)])
def test_a_rules_override_is_one_of_the_spec(name: str, stage: int, override: str) -> None:
    authored = _authored(name)
    resolve(authored, profile="tiny", overrides=qualified([override], authored.base.tree, stage))  # or SpecError


@cache
def _authored(name: str) -> Authored:
    library = Library()
    return read_authored(library.find(name), library)


TREE = {
    "task": {"name": "workflow"},
    "stages": {"warm": {"kind": "sft"}, "gone": None, "one": {"kind": "grpo"}, "two": {"kind": "grpo"}},
}


@pytest.mark.parametrize(
    ("override", "stage", "expected"),
    [
        ("learning_rate=1e-6", 2, "stages.two.learning_rate=1e-6"),
        ("learning_rate=1e-6", 1, "stages.one.learning_rate=1e-6"),
        ("learning_rate=1e-6", 0, "stages.warm.learning_rate=1e-6"),
        ("advantage.std_floor=0", 2, "stages.two.advantage.std_floor=0"),
        ("early_stopping.patience=3", 2, "early_stopping.patience=3"),  # the run's own key, as it is written
        ("guards.rollout_integrity=stop", 2, "guards.rollout_integrity=stop"),
        ("beta=0.1", 0, "beta=0.1"),  # that stage has none: the parser says so
        ("no_such=1", 2, "no_such=1"),
        ("learning_rate=1e-6", None, "learning_rate=1e-6"),
    ],
)
def test_which_stage_is_meant(override: str, stage: int | None, expected: str) -> None:
    assert qualified([override], TREE, stage) == (expected,)


def test_the_commands_of_a_run_of_several_stages(diagnosed: Diagnosed, tmp_path: Path) -> None:
    decider = Decider(question="?", overrides=("learning_rate=1e-12", "guards.rollout_integrity=stop"))
    started = {"profile": "tiny", "overrides": ["stages.full.learning_rate=1e-3", "stages.blended.learning_rate=1e-3"]}
    made = diagnosed(replace(GRAVE, decider=decider), settings=Settings(stage=2), spec="staged@1", document=started)
    assert rerun.decider_command(made.read, decider) == (
        "grpoctl run staged -p tiny stages.blended.learning_rate=1e-3 stages.full.learning_rate=1e-12 "
        "guards.rollout_integrity=stop"
    )
    library = Library(user=tmp_path / "experiments")
    file = propose(made, "pp1", library).file
    stages = load(file, profile="tiny", library=library).spec.stages
    assert (stages["full"].learning_rate, stages["blended"].learning_rate) == (1e-12, 1e-3)
