"""`--propose`: the deciding experiment as a spec that loads, with each setting where its base has it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import GrpoStage, RunSpec
from core.errors import UserError
from core.health.case import Settings
from core.health.finding import Decider, Finding
from grpoctl.config import Library, load
from grpoctl.diagnose.propose import propose
from tests.grpoctl.diagnose.conftest import GRAVE, MILD, Diagnosed

TINY = {"profile": "tiny", "overrides": ["learning_rate=0.002", "num_generations=2"]}


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(user=tmp_path / "experiments")


def stage(spec: RunSpec) -> GrpoStage:
    found = spec.stages["grpo"]
    assert isinstance(found, GrpoStage)
    return found


def test_a_run_of_ours(diagnosed: Diagnosed, library: Library) -> None:
    """K is the base's own setting in every profile, the rate is one that tiny scales: each is set where it was."""
    made = propose(diagnosed(GRAVE, MILD, spec="p31@1", document=TINY), "next-one", library)
    assert (made.name, made.finding, made.profile) == ("next-one", "rollout-mode", "tiny")
    tiny, full = (load(made.file, profile=profile, library=library).spec for profile in ("tiny", "full"))
    assert (stage(tiny).num_generations, stage(tiny).learning_rate) == (4, 0.002)
    assert (stage(full).num_generations, stage(full).learning_rate) == (4, 2e-6)
    assert (tiny.expects, tiny.question, tiny.recorded) == (("collapse_rate < 0.05",), "Is it the sampler?", {})
    assert tiny.source == "grpoctl diagnose old.log"
    text = made.file.read_text()
    assert "extends: p31\n" in text
    assert "num_generations: 4  # what decides\n" in text
    assert "learning_rate: 0.002  # as in the run\n" in text
    assert re.search(r"# finding +error rollout-mode \(strong\): 3 of 3 steps", text)
    assert "# run under       profile tiny, as the run was\n" in text


def test_a_stage_that_only_the_runs_profile_has(diagnosed: Diagnosed, library: Library) -> None:
    longer = replace(GRAVE, decider=Decider(question="?", overrides=("max_completion_length=128",)))
    of_grpo = {"spec": "g10@1", "document": {"profile": "tiny"}, "settings": Settings(stage=1)}
    made = propose(diagnosed(longer, **of_grpo), "longer", library)
    stages = load(made.file, profile="tiny", library=library).spec.stages
    assert (stages["supervised"].max_completion_length, stages["grpo"].max_completion_length) == (64, 128)


def test_a_foreign_log(diagnosed: Diagnosed, library: Library) -> None:
    """What is known is taken over, what a spec cannot hold (eps 0) is named, and so is what is the base's."""
    known = Settings(
        num_generations=6, prompts_per_step=4, learning_rate=1e-5, beta=0.04, kl_estimator="k3", scale_rewards="none",
        eps=0.0, temperature=0.7, dtype="bfloat16", offline=False, dynamic_sampling=False, updates_per_rollout=1,
    )  # fmt: skip
    made = propose(diagnosed(GRAVE, settings=known), "foreign", library)
    spec = stage(load(made.file, library=library).spec)
    assert (spec.num_generations, spec.prompts_per_step, spec.learning_rate) == (4, 4, 1e-5)
    assert (spec.beta.start, spec.kl_estimator, spec.advantage.scale_rewards) == (0.04, "k3", "none")
    text = made.file.read_text()
    assert made.profile is None
    assert "extends: p30-sound\n" in text
    assert "stages.grpo.advantage.eps" in text
    assert "num_generations: 6" not in text
    assert "change them to your own" in text
    bare = propose(diagnosed(GRAVE), "bare", library)
    assert "extends: p31\n" in bare.file.read_text()  # nothing is known of K


def test_profiles_that_would_undo_what_decides_are_named(diagnosed: Diagnosed, library: Library) -> None:
    """tiny and small scale the learning rate; K is only small-memory's own, which no machine gets by itself."""
    rate = replace(GRAVE, decider=Decider(question="?", overrides=("learning_rate=3e-3",)))
    made = propose(diagnosed(rate), "rate", library)
    assert made.profile == "full"
    assert "any profile but tiny, small: there what decides is set otherwise" in made.file.read_text()
    assert propose(diagnosed(rate, spec="p31", document={"profile": "tiny"}), "tiny-rate", library).profile == "tiny"
    group = propose(diagnosed(GRAVE), "group", library)
    assert (group.profile, "any profile but small-memory:" in group.file.read_text()) == (None, True)


def test_what_the_base_says_already_is_not_repeated(diagnosed: Diagnosed, library: Library) -> None:
    """p30-sound samples at 0.3 at first and cools down: a log that says 0.3 is no reason to stop that."""
    known = Settings(num_generations=2, temperature=0.3, scale_rewards="group", ddof=0)
    made = propose(diagnosed(GRAVE, settings=known), "same", library)
    assert "as in the run" not in made.file.read_text()


def test_a_fault_of_the_base_is_taken_out(diagnosed: Diagnosed, library: Library) -> None:
    made = propose(diagnosed(GRAVE, spec="p30", document={"profile": "tiny"}), "sound", library)
    assert load("p30", profile="tiny").spec.faults
    assert load(made.file, profile="tiny", library=library).spec.faults == ()


def test_a_profile_that_does_not_fit_is_taken_away(diagnosed: Diagnosed, library: Library) -> None:
    """Running statistics are of rewards, and the profile odd ranks them; the run's own profile must fit."""
    library.user.mkdir()
    odd = "profiles:\n  odd: {stages: {grpo: {advantage: {transform: rank}}}}\n"
    (library.user / "base.yaml").write_text(f"name: base\nextends: p31\n{odd}")
    finding = replace(GRAVE, decider=Decider(question="?", overrides=("advantage.baseline=running",)))
    made = propose(diagnosed(finding, spec="base"), "mine", library)
    assert load(made.file, library=library).profiles == ("full", "tiny", "small", "medium", "small-memory")
    assert "odd: null  # base's own does not fit these settings" in made.file.read_text()
    with pytest.raises(UserError, match="makes no run on top of base"):
        propose(diagnosed(finding, spec="base", document={"profile": "odd"}), "other", library)


@pytest.mark.parametrize(
    ("findings", "read", "name", "message"),
    [
        ((), {}, "a", "no finding of old.log has an experiment that decides it; nothing is written"),
        ((MILD,), {}, "a", "no finding of old.log"),
        ((GRAVE,), {}, "p31", "there is an experiment p31 already"),
        ((GRAVE,), {}, "../a", "lower-case letters"),
        ((GRAVE,), {"spec": "gone"}, "a", "the run's experiment gone is neither in ./experiments nor shipped"),
        ((GRAVE,), {"spec": "p31", "document": {"profile": "huge"}}, "a", "the run's profile huge is not one of p31"),
        (
            (replace(GRAVE, decider=Decider(question="?", overrides=("num_generations=0",))),), {"spec": "p31"}, "a",
            "the deciding experiment makes no run on top of p31: .*num_generations",
        ),
        (
            (replace(GRAVE, decider=Decider(question="?", overrides=("no_such_key=1",))),), {}, "a",
            "unknown key",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_nothing_behind(
    diagnosed: Diagnosed,
    library: Library,
    findings: tuple[Finding, ...],
    read: dict[str, object],
    name: str,
    message: str,
) -> None:
    with pytest.raises(UserError, match=message):
        propose(diagnosed(*findings, **read), name, library)
    assert not library.user.exists()


def test_nothing_is_overwritten(diagnosed: Diagnosed, library: Library) -> None:
    propose(diagnosed(GRAVE, spec="p31"), "mine", library)
    with pytest.raises(UserError, match="there is an experiment mine already"):
        propose(diagnosed(GRAVE, spec="p31"), "mine", library)
