"""Every sweep that is shipped: it loads, it says where its values come from, and every setting of it arrives and acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.assemble import assemble, open_checkpoints
from core.spec import RunSpec
from core.spec.fit import check_fit
from core.training.drive import drive
from grpoctl.specs import Library, dump, plain, read_resolved, shipped_folder
from grpoctl.specs.documents import read_document
from grpoctl.sweeps import candidates, space
from grpoctl.sweeps.arriving import some_points
from grpoctl.sweeps.checks import notes
from grpoctl.sweeps.loading import dump_sweep, load_sweep, read_sweep, study_stem
from grpoctl.sweeps.spec import SweepSpec
from tests.fakes import Recorder

SHIPPED = Library(user=Path("no-such-folder"), shipped=shipped_folder("sweeps"), kind="sweep")
BASES = Library(user=Path("no-such-folder"))
NAMES = sorted(SHIPPED.files())
PROFILES = ("full", "tiny")
K, FAULTS = "stages.grpo.num_generations", "faults"


def shipped(name: str, profile: str = "tiny", *overrides: str) -> SweepSpec:
    return load_sweep(name, profile=profile, overrides=overrides, library=SHIPPED, experiments=BASES).spec


def test_there_are_those_that_were_asked_for() -> None:
    asked = "advantage-study collapse-study lr-study kl-study reward-study epochs-study baseline p30-ladder"
    assert set(NAMES) == set(asked.split())


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_asks_and_where_its_values_come_from(name: str) -> None:
    own = read_document(SHIPPED.files()[name][0]).tree
    assert {"name", "revision", "title", "question", "source", "profiles", "seeds", "budget"} <= set(own)
    assert str(own["question"]).endswith("?")
    assert "document" in str(own["source"])


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NAMES)
def test_it_loads_comes_back_and_leaves_nothing_to_be_said(name: str, profile: str, tmp_path: Path) -> None:
    spec = shipped(name, profile)
    (tmp_path / "sweep.yaml").write_text(dump_sweep(spec), encoding="utf-8")
    assert study_stem(read_sweep(tmp_path / "sweep.yaml")) == study_stem(spec)
    assert read_sweep(tmp_path / "sweep.yaml") == spec
    left = [note for note in notes(spec, library=BASES) if "where a step has one prompt (K = 16)" not in note]
    assert left == []
    assert len(spec.seeds) >= 3


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NAMES)
def test_every_value_stands_in_the_spec_of_its_run(name: str, profile: str, tmp_path: Path) -> None:
    spec = shipped(name, profile)
    for point in some_points(spec)[:40]:
        run = candidates.specs(spec, point, seeds=[0], library=BASES)[0].spec
        check_fit(run)
        (tmp_path / "spec.yaml").write_text(dump(run), encoding="utf-8")
        tree = plain(read_resolved(tmp_path / "spec.yaml"))
        for key, value in point.items():
            if key != space.EXPERIMENT:
                assert at(tree, key) == value, key
        assert tree["profile"] == profile
        assert tree["budget"] == {"completions": spec.budget.completions, "tokens": None}


def at(tree: Any, key: str) -> Any:
    for word in key.split("."):
        tree = tree[word]
    return tree


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NAMES)
def test_every_trial_samples_as_much_as_the_others_and_reaches_its_last_stage(name: str, profile: str) -> None:
    spec = shipped(name, profile)
    runs = [candidates.specs(spec, point, seeds=[0], library=BASES)[0].spec for point in some_points(spec)[:40]]
    for run in runs:
        *before, last = run.stages.values()
        spent = sum(stage.max_steps * stage.rows_per_step for stage in before)
        assert spec.budget.completions is not None
        assert 0 <= spec.budget.completions - spent - last.max_steps * last.rows_per_step + last.rows_per_step
        assert last.max_steps * last.rows_per_step >= spec.budget.completions - spent


def test_the_advantage_study_is_the_one_asked_for() -> None:
    spec = shipped("advantage-study")
    assert spec.axes[K].values == (2, 4, 8, 16)
    assert {key.split(".")[-1] for key in spec.axes} == {"num_generations", "scale_rewards", "learning_rate", "beta"}
    assert (spec.trials, spec.seeds) == (24, (0, 1, 2))


def test_the_collapse_study_is_a_table_of_two_by_two_that_nothing_cuts_short() -> None:
    spec = shipped("collapse-study")
    assert [(point[K], bool(point[FAULTS])) for point in space.points(spec)] == [
        (2, False), (2, True), (8, False), (8, True),
    ]  # fmt: skip
    assert (spec.metric, spec.direction, spec.worst, spec.pruner.name) == ("collapse_rate", "minimize", 1.0, "none")
    run = candidates.specs(spec, space.points(spec)[1], seeds=[0], library=BASES)[0].spec
    assert (run.guards.collapse, run.guards.rollout_integrity) == ("warn", "warn")


def test_the_kl_weights_are_those_of_document_004_and_none() -> None:
    assert shipped("kl-study").axes["stages.grpo.beta"].values == (0, 0.05, 0.1, 0.2)


def test_the_ladder_is_document_000s() -> None:
    spec = shipped("p30-ladder")
    assert [(rung.name, rung.experiment) for rung in spec.ladder] == [
        ("A", "p31"), ("A+B", "p32"), ("C", "p33"), ("E", "p35"),
    ]  # fmt: skip
    assert {rung.expects for rung in spec.ladder} == {("collapse_rate < 0.05", "eval/reward > 0.5")}


# Does it act? Two values of an axis, or a candidate against the first one, on the built-in model for a few steps.
# What only echoes the setting proves nothing.
ECHOES = ("learning_rate", "beta", "temperature", "stage", "step")
SMALL = ("task.eval_prompts=2", "num_generations_eval=1", "evaluation.eval_steps=1000")


def rows(spec: RunSpec, folder: Path) -> list[dict[str, float | None]]:
    """The rows of a run, less what echoes its settings."""
    recorder = Recorder()
    drive(assemble(spec, open_checkpoints(spec, folder)).steps(), recorder)
    return [{key: value for key, value in row.items() if key not in ECHOES} for row in recorder.rows]


AXES = [(name, key) for name in NAMES for key in shipped(name).axes]


@pytest.mark.parametrize(("name", "key"), AXES)
def test_every_axis_changes_what_its_run_does(name: str, key: str, tmp_path: Path) -> None:
    spec = shipped(name, "tiny", *SMALL, "budget.completions=64")
    base = some_points(spec)[0]
    axis = spec.axes[key]
    first, last = (axis.values[0], axis.values[-1]) if axis.values else (axis.low, axis.high)
    found = []
    for value in (first, last):
        run = candidates.specs(spec, {**base, key: value}, seeds=[0], library=BASES)[0].spec
        found.append(rows(run, tmp_path / str(len(found))))
    assert found[0] != found[1]


NAMED = [(name, other) for name in ("epochs-study", "baseline") for other in list(shipped(name).candidates)[1:]]


@pytest.mark.parametrize(("name", "candidate"), NAMED)
def test_every_candidate_differs_from_the_first(name: str, candidate: str, tmp_path: Path) -> None:
    # 4 prompts: 4 supervised steps, 16 blended ones of 2 completions (32 in the longest), and what is left of the budget
    spec = shipped(name, "tiny", *SMALL, "task.train_prompts=4", "budget.completions=72")
    first = next(iter(spec.candidates))
    found = [
        rows(candidates.specs(spec, spec.candidates[one], seeds=[0], library=BASES)[0].spec, tmp_path / one)
        for one in (first, candidate)
    ]
    assert found[0] != found[1]
