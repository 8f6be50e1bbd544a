"""Every sweep that is shipped: it loads, says where its values come from, and every setting of it arrives and acts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.assemble import assemble, open_checkpoints
from core.config.run import check_fit
from core.training.trainer import drive
from grpoctl.analysis.sweeps.wording import random_search_text
from grpoctl.config import Library, dump, plain, read_resolved, shipped_folder
from grpoctl.config.documents import read_document
from grpoctl.runs.prefixes import Prefixes
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sweeps import candidates
from grpoctl.sweeps.loading import dump_sweep, load_sweep, read_sweep, study_stem
from grpoctl.sweeps.prefixes import SharedPrefixes
from grpoctl.sweeps.preview import notes
from grpoctl.sweeps.samplers import startup_of
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.validation import some_points
from tests.fakes import Recorder
from tests.grpoctl.sweeps.mine import specs

SHIPPED = Library(user=Path("no-such-folder"), shipped=shipped_folder("sweeps"), kind="sweep")
BASES = Library(user=Path("no-such-folder"))
NAMES = sorted(SHIPPED.files())
WRITTEN: dict[str, Any] = {name: read_document(SHIPPED.files()[name][0]).tree for name in NAMES}  # in no profile
PROFILES = ("full", "tiny")
SELECTORS = {name for name in NAMES if name.startswith("selector-")}  # of stored outputs, which cost nothing to sample
NO_BUDGET = "no budget: a run lasts as long as its stages, whatever that costs"
STARTS = "no study of beta"  # what is said of starts of an adaptive beta, which selector-kl has beside fixed ones
K, FAULTS = "stages.grpo.num_generations", "faults"


@cache
def shipped(name: str, profile: str = "tiny", *overrides: str) -> SweepSpec:
    return load_sweep(name, profile=profile, overrides=overrides, library=SHIPPED, experiments=BASES).spec


def test_there_are_those_that_were_asked_for() -> None:
    asked = "advantage-study collapse-study lr-study kl-study reward-study epochs-study baseline p30-ladder"
    selectors = "batch data epochs frozen kl ladder lr reward sizes"
    assert set(NAMES) == {*asked.split(), "restoration-study", *(f"selector-{name}" for name in selectors.split())}


@pytest.mark.parametrize("name", NAMES)
def test_its_profile_has_the_axes_and_candidates_of_the_file(name: str) -> None:
    # The tests below go through those of the file.
    for kind in ("axes", "candidates"):
        assert set(getattr(shipped(name), kind)) == set(WRITTEN[name].get(kind, {}))


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_asks_and_where_its_values_come_from(name: str) -> None:
    own = WRITTEN[name]
    assert {"name", "revision", "title", "question", "source", "profiles", "seeds"} <= set(own)
    assert ("budget" in own) == (name not in SELECTORS)
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
    if name == "selector-kl":  # a beta of 0 cannot have a rule that moves it
        left = [note for note in left if STARTS not in note and "beta is 0" not in note]
    assert left == ([NO_BUDGET] if name in SELECTORS else [])
    assert len(spec.seeds) >= 3
    assert random_search_text(spec.trials or 0, startup_of(spec, 0), candidates.size(spec)) is None


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NAMES)
def test_every_value_stands_in_the_spec_of_its_run_and_all_cost_the_same(
    name: str, profile: str, tmp_path: Path
) -> None:
    spec = shipped(name, profile)
    made = candidates.Candidates.of(spec, library=BASES)
    tried = some_points(spec)
    (tmp_path / "spec.yaml").write_text(dump(made.spec(tried[-1])), encoding="utf-8")
    assert read_resolved(tmp_path / "spec.yaml") == made.spec(tried[-1])  # each key: config/test_overrides.py
    for point in tried[:: 1 + len(tried) // 16]:
        run = made.spec(point)
        check_fit(run)
        tree = plain(run)
        assert {key: value for key in point if (value := at(tree, key)) is not LATE} == {
            key: value for key, value in without_experiment(point).items() if at(tree, key) is not LATE
        }
        assert tree["profile"] == profile
        if name in SELECTORS:
            assert tree["budget"] is None
            continue
        assert tree["budget"] == {"completions": spec.budget.completions, "tokens": None}
        *before, last = run.stages.values()
        spent = sum(stage.max_steps * stage.rows_per_step for stage in before)
        left = tree["budget"]["completions"] - spent
        assert last.max_steps - 1 < left / last.rows_per_step <= last.max_steps


LATE = object()  # a key at its default that is not written


def at(tree: Any, key: str) -> Any:
    for word in key.split("."):
        tree = tree.get(word, LATE)
    return tree


def without_experiment(point: candidates.Params) -> candidates.Params:
    return {key: value for key, value in point.items() if key != candidates.EXPERIMENT}


def test_the_advantage_study_is_the_one_asked_for() -> None:
    spec = shipped("advantage-study")
    assert spec.axes[K].values == (2, 4, 8, 16)
    assert {key.split(".")[-1] for key in spec.axes} == {"num_generations", "scale_rewards", "learning_rate", "beta"}
    assert (spec.trials, spec.seeds) == (24, (0, 1, 2))


def test_the_small_rates_are_tried_without_a_warm_up_after_one_supervised_stage(tmp_path: Path) -> None:
    spec = shipped("lr-study", "small")
    made = candidates.Candidates.of(spec, library=BASES)
    runs: list[Any] = [made.spec(point) for point in candidates.points(spec)]
    assert (len(runs), len(spec.seeds), spec.budget.completions) == (4, 2, 128)
    assert {run.stages["grpo"].warmup_steps for run in runs} == {0}
    assert len({run.stages["grpo"].learning_rate for run in runs}) == 4
    prefixes = SharedPrefixes.of(made, StudyDir(path=tmp_path))
    prefixes.begin([])
    assert len(Prefixes(folder=tmp_path / "prefixes").wanted()) == 2  # of each seed the supervised stage, once


def test_the_collapse_study_is_a_table_of_two_by_two_that_nothing_cuts_short() -> None:
    spec = shipped("collapse-study")
    assert [(point[K], bool(point[FAULTS])) for point in candidates.points(spec)] == [
        (2, False), (2, True), (8, False), (8, True),
    ]  # fmt: skip
    assert (spec.metric, spec.direction, spec.worst, spec.pruner.name) == ("collapse_rate", "minimize", 1.0, "none")
    run = specs(spec, candidates.points(spec)[1], seeds=[0], library=BASES)[0].spec
    assert (run.guards.collapse, run.guards.rollout_integrity) == ("warn", "warn")


def test_the_kl_weights_are_those_of_document_004_and_none() -> None:
    assert shipped("kl-study").axes["stages.grpo.beta"].values == (0, 0.05, 0.1, 0.2)


def test_the_ladder_is_document_000s() -> None:
    spec = shipped("p30-ladder")
    assert [(rung.name, rung.experiment) for rung in spec.ladder] == [
        ("A", "p31"), ("A+B", "p32"), ("C", "p33"), ("E", "p35"),
    ]  # fmt: skip
    assert {rung.expects for rung in spec.ladder} == {("collapse_rate < 0.05", "eval/reward gain of grpo > 0")}


# Does it act? Two values of an axis, or a candidate against the first one, on the built-in model for a few steps.
# What only echoes a setting proves nothing.
ECHOES = ("learning_rate", "beta", "temperature", "stage", "step")
SMALL = ("task.eval_prompts=1", "num_generations_eval=1", "evaluation.eval_steps=1000")
OF_A_SELECTOR = (
    "task.train_prompts=16", "task.eval_prompts=4", "task.world.likeness=0.5", "evaluation.eval_steps=8",
    "stages.sft.epochs=1", "stages.sft.warmup_steps=0", "stages.rce.epochs=1",
)  # fmt: skip
OF_A_RESTORATION = (  # three steps of 8 completions, behind a supervised stage of two steps of 2
    "policy.width=4", "policy.heads=[1, 1, 1, 1]", "task.patch=16", "task.train_prompts=8", "task.eval_prompts=3",
    "evaluation.eval_steps=1000", "stages.pretrain.epochs=0.25", "stages.pretrain.warmup_steps=0",
    "stages.grpo.warmup_steps=0", "stages.grpo.policy_weight=1", "budget.completions=28",
    "axes.stages.grpo.advantage.running_after=[8, 1000000]",
)  # fmt: skip
Rows = list[dict[str, float | None]]


@pytest.fixture(scope="module")
def seen() -> dict[str, Rows]:
    """The rows of what was trained, by study and point: one point is compared with several others."""
    return {}


def trained(spec: SweepSpec, point: candidates.Params, folder: Path, seen: dict[str, Rows]) -> Rows:
    """The rows of a point's run, less what echoes its settings."""
    name = f"{study_stem(spec)} {candidates.identity(point)}"
    if name not in seen:
        run = specs(spec, point, seeds=[0], library=BASES)[0].spec
        recorder = Recorder()
        drive(assemble(run, open_checkpoints(run, folder)).steps(), recorder)
        seen[name] = [
            {key: value for key, value in row.items() if key not in ECHOES and not key.startswith("weight/")}
            for row in recorder.rows
        ]
    return seen[name]


def axes() -> list[Any]:
    """(sweep, key) of each axis; slow where a sweep before it has the same one."""
    seen: set[str] = set()
    found = []
    for name in NAMES:
        for key in WRITTEN[name].get("axes", {}):
            found.append(pytest.param(name, key, marks=pytest.mark.slow if key in seen else ()))
            seen.add(key)
    return found


@pytest.mark.parametrize(("name", "key"), axes())
def test_every_axis_changes_what_its_run_does(name: str, key: str, tmp_path: Path, seen: dict[str, Rows]) -> None:
    if name in SELECTORS:  # wrong candidates and equal ones are among those of 16 queries where they are not all alike
        spec = shipped(name, "tiny", *OF_A_SELECTOR)
    elif name == "restoration-study":
        spec = shipped(name, "tiny", *OF_A_RESTORATION)
    else:
        spec = shipped(name, "tiny", *SMALL, "budget.completions=32")  # two steps: at the first a KL is still 0
    axis, base = spec.axes[key], some_points(spec)[0]
    ends = (axis.values[0], axis.values[-1]) if axis.values else (axis.low, axis.high)
    first, last = (trained(spec, {**base, key: value}, tmp_path / str(value), seen) for value in ends)
    assert first != last


NAMED = [(name, other) for name in ("epochs-study", "baseline") for other in list(WRITTEN[name]["candidates"])[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "candidate"), NAMED)
def test_every_candidate_differs_from_the_first(
    name: str, candidate: str, tmp_path: Path, seen: dict[str, Rows]
) -> None:
    # 2 prompts: 2 supervised steps, 8 blended ones of 2 completions (16 in the longest), 10 in the last stage (2)
    spec = shipped(name, "tiny", *SMALL, "task.train_prompts=2", "budget.completions=36")
    first = trained(spec, next(iter(spec.candidates.values())), tmp_path / "first", seen)
    assert trained(spec, spec.candidates[candidate], tmp_path / "other", seen) != first
