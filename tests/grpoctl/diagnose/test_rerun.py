"""The commands of a report: to be pasted, of the experiment and profile that was run, with what it was started with."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.finding import Decider, Row
from core.health.rules.integrity import integrity
from grpoctl.config import load
from grpoctl.diagnose import rerun
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, Diagnosed

TINY = {"profile": "tiny", "overrides": ["num_generations=2", "beta=0.1"]}


def test_a_run_of_ours_is_run_again_as_it_was_started(diagnosed: Diagnosed) -> None:
    read = diagnosed(GRAVE, spec="p31@2", document=TINY).read
    assert rerun.command(read, ["stages.grpo.num_generations=8"]) == (
        "grpoctl run p31 -p tiny beta=0.1 stages.grpo.num_generations=8"
    )
    assert rerun.command(diagnosed(spec="p31", document={"profile": "full"}).read, []) == "grpoctl run p31"


def test_stages_that_only_a_profile_has_are_told_apart(diagnosed: Diagnosed) -> None:
    """g10 has a supervised stage under tiny alone: an ending that is clear in the file is not in the run."""
    of_grpo = {"spec": "g10@1", "settings": Settings(stage=1)}
    read = diagnosed(GRAVE, document={"profile": "tiny"}, **of_grpo).read
    assert rerun.command(read, ["max_completion_length=128"]) == (
        "grpoctl run g10 -p tiny stages.grpo.max_completion_length=128"
    )


@pytest.mark.parametrize("before", ["beta=0.1", "stages.grpo.beta=0.1", "beta.start=0.1", "stages.grpo.beta.end=0"])
def test_what_is_set_anew_is_not_set_twice(diagnosed: Diagnosed, before: str) -> None:
    read = diagnosed(spec="p31", document={"overrides": [before, "max_grad_norm=1"]}).read
    assert rerun.started_with(read, ["stages.grpo.beta=0.2"]) == ["max_grad_norm=1"]


def test_a_foreign_log_has_no_experiment(diagnosed: Diagnosed) -> None:
    """Whatever a document of another tool says."""
    read = diagnosed(document=TINY).read
    assert rerun.command(read, ["beta=0.1"]) == "grpoctl run NAME beta=0.1"


def test_what_a_shell_would_read_is_quoted(diagnosed: Diagnosed) -> None:
    command = rerun.command(diagnosed().read, ["faults=[]", "title=a; rm -rf ~"])
    assert shlex.split(command)[2:] == ["NAME", "faults=[]", "title=a; rm -rf ~"]
    odd = diagnosed(GRAVE, source="my log; $(reboot).txt")
    command, _ = rerun.next_step(odd) or ("", "")
    assert shlex.split(command) == ["grpoctl", "diagnose", "my log; $(reboot).txt", "--propose", "NAME"]


def test_the_deciding_experiment_of_a_faulted_run_has_no_fault(diagnosed: Diagnosed) -> None:
    """p30 injects one; p30-sound, a foreign log and an experiment that is gone do not, as far as is known."""
    decider = Decider(question="?", overrides=("num_generations=8",))
    asked = {
        spec: rerun.deciding_overrides(diagnosed(spec=spec).read, decider) for spec in ("p30", "p31", "gone", None)
    }
    assert asked["p30"] == ("num_generations=8", "faults=[]")
    assert asked["p31"] == asked["gone"] == asked[None] == ("num_generations=8",)
    cured = diagnosed(spec="p30", document={"overrides": ["faults=[]"]}).read
    assert rerun.deciding_overrides(cured, decider) == ("num_generations=8",)
    assert rerun.decider_command(diagnosed(spec="p30").read, Decider(question="?")) == ""


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
