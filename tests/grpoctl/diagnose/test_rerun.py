"""The commands of a report: to be pasted, of the experiment and profile that was run, with what it was started with."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import core.health.rules
from core.health.case import Case, Settings
from core.health.finding import Decider, Row
from core.health.rules.integrity import integrity
from grpoctl.config import Library, load
from grpoctl.config.authored import Authored, read_authored
from grpoctl.config.loading import resolve
from grpoctl.diagnose import rerun
from grpoctl.diagnose.propose import propose
from grpoctl.diagnose.rerun import qualified
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, Diagnosed

TINY = {"profile": "tiny", "overrides": ["num_generations=2", "beta=0.1"]}


def test_a_run_of_ours_is_run_again_as_it_was_started(diagnosed: Diagnosed) -> None:
    read = diagnosed(GRAVE, spec="p31@2", document=TINY).reading
    assert rerun.command(read, ["stages.grpo.num_generations=8"]) == (
        "grpoctl run p31 -p tiny beta=0.1 stages.grpo.num_generations=8"
    )
    assert rerun.command(diagnosed(spec="p31", document={"profile": "full"}).reading, []) == "grpoctl run p31"


def test_stages_that_only_a_profile_has_are_told_apart(diagnosed: Diagnosed) -> None:
    """g10 has a supervised stage under tiny alone: an ending that is clear in the file is not in the run."""
    of_grpo = {"spec": "g10@1", "settings": Settings(stage=1)}
    read = diagnosed(GRAVE, document={"profile": "tiny"}, **of_grpo).reading
    assert rerun.command(read, ["max_completion_length=128"]) == (
        "grpoctl run g10 -p tiny stages.grpo.max_completion_length=128"
    )


@pytest.mark.parametrize("before", ["beta=0.1", "stages.grpo.beta=0.1", "beta.start=0.1", "stages.grpo.beta.end=0"])
def test_what_is_set_anew_is_not_set_twice(diagnosed: Diagnosed, before: str) -> None:
    read = diagnosed(spec="p31", document={"overrides": [before, "max_grad_norm=1"]}).reading
    assert rerun.own_overrides(read, ["stages.grpo.beta=0.2"]) == ["max_grad_norm=1"]


def test_a_foreign_log_has_no_experiment(diagnosed: Diagnosed) -> None:
    """Whatever a document of another tool says."""
    read = diagnosed(document=TINY).reading
    assert rerun.command(read, ["beta=0.1"]) == "grpoctl run NAME beta=0.1"


def test_what_a_shell_would_read_is_quoted(diagnosed: Diagnosed) -> None:
    command = rerun.command(diagnosed().reading, ["faults=[]", "title=a; rm -rf ~"])
    assert shlex.split(command)[2:] == ["NAME", "faults=[]", "title=a; rm -rf ~"]
    odd = diagnosed(GRAVE, source="my log; $(reboot).txt")
    command, _ = rerun.next_step(odd) or ("", "")
    assert shlex.split(command) == ["grpoctl", "diagnose", "my log; $(reboot).txt", "--propose", "NAME"]


def test_the_deciding_experiment_of_a_faulted_run_has_no_fault(diagnosed: Diagnosed) -> None:
    """p30 injects one; p30-sound, a foreign log and an experiment that is gone do not, as far as is known."""
    decider = Decider(question="?", overrides=("num_generations=8",))
    asked = {
        spec: rerun.deciding_overrides(diagnosed(spec=spec).reading, decider) for spec in ("p30", "p31", "gone", None)
    }
    assert asked["p30"] == ("num_generations=8", "faults=[]")
    assert asked["p31"] == asked["gone"] == asked[None] == ("num_generations=8",)
    cured = diagnosed(spec="p30", document={"overrides": ["faults=[]"]}).reading
    assert rerun.deciding_overrides(cured, decider) == ("num_generations=8",)
    assert rerun.decider_command(diagnosed(spec="p30").reading, Decider(question="?")) == ""


def test_the_first_finding_that_an_experiment_would_decide(diagnosed: Diagnosed) -> None:
    vague = replace(MILD, decider=Decider(question="is it?", expects=("kl < 1",)))
    found = rerun.deciding(diagnosed(MILD, vague, GRAVE))
    assert found is not None
    assert found[0].id == "rollout-mode"
    assert rerun.deciding(diagnosed(MILD, vague)) is None
    assert rerun.next_step(diagnosed(MILD)) is None


@pytest.mark.parametrize(("before", "later", "found"), [(0.5, 0.5, "scoring-noise"), (1e-8, 2e-3, "stale-sampler")])
def test_what_decides_on_a_gap_is_an_experiment_that_loads(before: float, later: float, found: str) -> None:
    """A rate of 0 would be none: a spec wants one above it. Steps 3 and 6 make no update."""
    known = {"temperature": 1.0, "completions/valid": 1.0}
    rows: list[Row] = [{"step": 0, "eval/logprob_gap": before, "eval/temperature": 1.0}]
    rows += [
        {"step": step, "update": int(step % 3 > 0), "rollout/logprob_gap": before if step == 1 else later, **known}
        for step in range(1, 11)
    ]
    (finding,) = integrity(Case(rows=rows, settings=Settings(dtype="float32")))
    assert finding.id == found
    assert finding.decider is not None
    load("p31", profile="tiny", overrides=finding.decider.overrides)


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
    assert rerun.decider_command(made.reading, decider) == (
        "grpoctl run staged -p tiny stages.blended.learning_rate=1e-3 stages.full.learning_rate=1e-12 "
        "guards.rollout_integrity=stop"
    )
    library = Library(user=tmp_path / "experiments")
    file = propose(made, "pp1", library).file
    stages = load(file, profile="tiny", library=library).spec.stages
    assert (stages["full"].learning_rate, stages["blended"].learning_rate) == (1e-12, 1e-3)
