"""A point's overrides: K x B and the budget held equal, worked out on paper for p31 (96 steps of 8 x 2) and staged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import SpecError
from grpoctl.config import load, plain
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.run_dir import Home
from grpoctl.sweeps.candidates import Candidates, active, count, identity, name_of, order, points, size, values
from grpoctl.sweeps.loading import load_sweep
from grpoctl.sweeps.spec import Axis, SweepSpec
from tests.grpoctl.sweeps.mine import specs, sweep, write

K, PROMPTS = "stages.grpo.num_generations", "stages.grpo.prompts_per_step"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shapes(spec: SweepSpec) -> list[tuple[int, int, int]]:
    """(K, B, steps) of every point's GRPO stage."""
    found = []
    for point in points(spec):
        stage = specs(spec, point, seeds=[0])[0].spec.stages["grpo"]
        found.append((stage.num_generations, stage.prompts_per_step, stage.max_steps))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # p31 has 8 x 2 = 16 completions a step: 16 / 2 = 8 prompts, 16 / 16 = 1; 1024 / 16 = 64 steps
        ("axes: {num_generations: [2, 8, 16]}\nbudget: {completions: 1024}", [(2, 8, 64), (8, 2, 64), (16, 1, 64)]),
        # 32 stated: 32 / 2 = 16 prompts; 1000 / 32 = 31.25, and a step begun is a step
        (
            "axes: {num_generations: [2, 8]}\nbudget: {completions: 1000, generation_batch_size: 32}",
            [(2, 16, 32), (8, 4, 32)],
        ),
        # who varies B too means it
        (f"axes: {{{K}: [2, 8], {PROMPTS}: [3]}}\nbudget: {{completions: 1024}}", [(2, 3, 64), (8, 3, 64)]),
        # left out: what p31 itself samples, 96 x 16
        ("axes: {num_generations: [8]}", [(8, 2, 96)]),
        # stated for a sweep that does not vary K
        ("axes: {beta: [0, 0.1]}\nbudget: {completions: 320, generation_batch_size: 32}", [(8, 4, 10), (8, 4, 10)]),
        # K as a setting is the sweep's own base: 4 x 2 = 8 a step, 64 / 8 = 8 steps
        ("settings: {num_generations: 4}\naxes: {beta: [0]}\nbudget: {completions: 64}", [(4, 2, 8)]),
        # a candidate's K keeps the step's size, too
        ("candidates: {two: {num_generations: 2}, plain: {}}\nbudget: {completions: 160}", [(2, 8, 10), (8, 2, 10)]),
        # another batch has the same clock, so that it is annealed and evaluated at the same shares of the budget
        ("axes: {prompts_per_step: [1, 4]}\nbudget: {completions: 160}", [(8, 1, 10), (8, 4, 10)]),
    ],
)
def test_a_step_and_the_budget_cost_the_same(text: str, expected: list[tuple[int, int, int]]) -> None:
    assert shapes(sweep(text)) == expected


def test_a_budget_in_tokens_keeps_the_steps_of_the_base_as_the_clock() -> None:
    spec = sweep("axes: {num_generations: [2, 8]}\nbudget: {tokens: 5000}")
    assert shapes(spec) == [(2, 8, 96), (8, 2, 96)]
    run = specs(spec, {K: 2}, seeds=[0])[0].spec
    assert run.budget is not None
    assert (run.budget.unit, run.budget.amount) == ("tokens", 5000)


STAGED = "name: mine\ntitle: Mine\nexperiment: staged\n"


def test_earlier_stages_are_paid_first() -> None:
    # staged tiny: 12 prompts; supervised 1 epoch samples nothing, blended 4 x 12 steps x 2 = 96 completions
    text = "axes: {stages.blended.epochs: [1, 4]}\nbudget: {completions: 216}"
    write(text, STAGED)
    spec = load_sweep("mine", profile="tiny").spec
    runs = [specs(spec, point, seeds=[0])[0].spec for point in points(spec)]
    steps = [[stage.max_steps for stage in run.stages.values()] for run in runs]
    assert steps == [[12, 12, (216 - 24) // 2], [12, 48, (216 - 96) // 2]]
    assert [run.stages["full"].epochs for run in runs] == [None, None]


def test_a_budget_that_never_reaches_the_last_stage_is_refused() -> None:
    write("axes: {stages.blended.epochs: [1, 4]}\nbudget: {completions: 96}", STAGED)
    with pytest.raises(SpecError, match="the stages before full take 96 of 96 completions"):
        load_sweep("mine", profile="tiny")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("axes: {num_generations: [2, 3]}", "3, which does not divide the 16 completions"),
        ("axes: {num_generations: [4]}\nbudget: {completions: 64, generation_batch_size: 6}", "does not divide the 6"),
        ("axes: {max_steps: [4, 8]}", "the budget says how long the last stage is"),
        ("settings: {max_steps: 50}\naxes: {beta: [0]}", "the budget says how long the last stage is"),
        ("settings: {stages.grpo.epochs: 1}\naxes: {beta: [0]}", "line 4: settings: stages.grpo.max_steps: got 96"),
        ("settings: {learning_rate: -1}\naxes: {beta: [0]}", "line 4: settings.stages.grpo.learning_rate: got -1"),
    ],
)
def test_what_would_not_be_fair_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        sweep(text)


def test_overrides_are_texts_that_mean_what_they_hold() -> None:
    axes = "axes: {overlong: [null, {buffer: 0.5, weight: 1.0}], faults: [[], [rollout-in-train-mode]]}"
    spec = sweep(f"settings: {{eval_steps: 7}}\n{axes}")
    point = {"stages.grpo.overlong": {"buffer": 0.5, "weight": 1.0}, "faults": ["rollout-in-train-mode"]}
    assert Candidates.of(spec).overrides(point) == [
        "evaluation.eval_steps=7",
        'stages.grpo.overlong={"buffer": 0.5, "weight": 1.0}',
        'faults=["rollout-in-train-mode"]',
        "budget.completions=1536",
        "stages.grpo.max_steps=96",
    ]
    runs = specs(spec, point)
    assert [run.spec.seed for run in runs] == [0, 1, 2]
    tree = plain(runs[0].spec)
    assert tree["faults"] == ["rollout-in-train-mode"]
    assert tree["stages"]["grpo"]["overlong"] == {"buffer": 0.5, "weight": 1.0}
    assert (tree["evaluation"]["eval_steps"], tree["profile"], tree["budget"]["completions"]) == (7, "tiny", 1536)


def test_a_rung_is_its_own_experiment() -> None:
    spec = sweep(
        "ladder: [{name: A}, {name: B, experiment: p30-sound, settings: {beta: 0.1}}]\nsettings: {eval_steps: 5}"
    )
    first, second = (specs(spec, point, seeds=[3])[0].spec for point in points(spec))
    assert (first.name, second.name, first.seed) == ("p31", "p30-sound", 3)
    assert (first.evaluation.eval_steps, second.evaluation.eval_steps) == (5, 5)
    assert second.stages["grpo"].beta.start == 0.1
    # 1536 completions are p31's own; p30-sound takes six a step
    assert (first.stages["grpo"].max_steps, second.stages["grpo"].max_steps) == (96, 256)


def test_a_study_goes_on_with_the_base_it_began_with(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    base = tmp_path / "experiments" / "base.yaml"
    base.write_text("name: base\nextends: p31\ntitle: Base\n")
    write("axes: {beta: [0, 0.1]}", "name: mine\ntitle: Mine\nexperiment: base\n")
    spec = load_sweep("mine", profile="tiny").spec
    assert len(specs(spec, {"stages.grpo.beta": 0})) == 3
    base.write_text("name: base\nextends: p31\ntitle: Base\nstages: {grpo: {learning_rate: 1.0e-5}}\n")
    assert len(specs(spec, {"stages.grpo.beta": 0})) == 3  # under tiny the rate is the profile's
    base.write_text("name: base\nextends: p31\ntitle: Base\nstages: {grpo: {weight_decay: 0.5}}\n")
    with pytest.raises(SpecError, match=r"base\.yaml: is not what it was when this study began"):
        specs(spec, {"stages.grpo.beta": 0})


def test_the_base_may_be_a_recorded_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPOCTL_HOME", str(tmp_path / "home"))
    revisions = revisions_of(Home.locate())
    p31 = load("p31")
    revisions.recorded_as(p31.spec, p31.authored)
    write("axes: {beta: [0, 0.1]}", "name: mine\ntitle: Mine\nexperiment: p31@2\n")
    spec = load_sweep("mine", profile="tiny", revisions=revisions).spec
    (run,) = specs(spec, {"stages.grpo.beta": 0.1}, seeds=[4])
    assert (run.spec.name, run.spec.seed, run.spec.stages["grpo"].beta.start) == ("p31", 4, 0.1)


A, B, C = "stages.grpo.beta", "stages.grpo.kl_estimator", "stages.grpo.epsilon"


def of(axes: dict[str, Any] | None = None, **keys: Any) -> SweepSpec:
    given = {"name": "mine", "title": "Mine", "experiment": "p31", "axes": axes or {}, **keys}
    return SweepSpec.model_validate(given)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ([3, 1, None, [1], {"a": 1}], [3, 1, None, [1], {"a": 1}]),
        ({"low": 2, "high": 5}, [2, 3, 4, 5]),
        ({"low": 2, "high": 8, "step": 3}, [2, 5, 8]),  # 2, 2 + 3, 2 + 6: the top is one of them
        ({"low": 0.1, "high": 0.3, "step": 0.1}, [0.1, 0.2, 0.3]),  # not 0.30000000000000004
        ({"low": -1, "high": 1, "step": 0.5}, [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ({"low": 1, "high": 3, "log": True}, [1, 2, 3]),
    ],
)
def test_the_values_of_an_axis(axis: object, expected: list[Any]) -> None:
    found = Axis.model_validate(axis)
    assert values(found) == expected
    assert [type(value) for value in values(found)] == [type(value) for value in expected]
    assert count(found) == len(expected)


def test_a_range_of_real_numbers_has_no_end() -> None:
    spec = of({A: {"low": 0.1, "high": 0.3}, B: ["k2", "k3"]})
    assert size(spec) is None
    with pytest.raises(SpecError, match=f"{A} is a range of real numbers"):
        points(spec)


def test_the_product_has_the_last_axis_fastest() -> None:
    spec = of({A: [0, 0.1], B: ["k2", "k3"]})
    assert size(spec) == 4
    assert points(spec) == [{A: 0, B: "k2"}, {A: 0, B: "k3"}, {A: 0.1, B: "k2"}, {A: 0.1, B: "k3"}]


def test_a_conditional_axis_is_there_where_its_condition_holds() -> None:
    spec = of({B: {"values": ["k2", "k3"], "when": {A: [0.1, 0.2]}}, A: [0, 0.1, 0.2], C: [0.2, 0.3]})
    # beta 0: 2 points of epsilon; beta 0.1 and 0.2: 2 estimators x 2 epsilons each
    assert size(spec) == 2 + 4 + 4
    assert points(spec)[:3] == [{A: 0, C: 0.2}, {A: 0, C: 0.3}, {B: "k2", A: 0.1, C: 0.2}]
    assert len({identity(point) for point in points(spec)}) == 10
    assert order(spec) == [A, B, C]
    assert [list(point) for point in points(spec)][-1] == [B, A, C]  # keys as the axes are written


def test_conditions_chain() -> None:
    spec = of({A: [0, 0.1], B: {"values": ["k2", "k3"], "when": {A: 0.1}}, C: {"values": [1, 2], "when": {B: "k3"}}})
    assert points(spec) == [{A: 0}, {A: 0.1, B: "k2"}, {A: 0.1, B: "k3", C: 1}, {A: 0.1, B: "k3", C: 2}]
    assert active(spec, {A: 0.1, B: "k3"}, C)
    assert not active(spec, {A: 0.1, B: "k2"}, C)
    assert not active(spec, {A: 0}, C)  # the axis it waits for is not there itself
    assert active(spec, {A: 0.10}, B)


def test_too_many_points_are_not_listed() -> None:
    spec = of({A: {"low": 0, "high": 1_000_000}})
    assert size(spec) == 1_000_001
    with pytest.raises(SpecError, match="more than 10000 points"):
        points(spec)
    two = of({A: {"low": 0, "high": 1_000_000}, B: {"values": ["k2"], "when": {C: 1}}, C: [1, 2]})
    assert size(two) == 10_001  # counted so far


def test_identity_is_of_values_not_of_their_writing() -> None:
    assert identity({"a": 1, "b": [1.0]}) == identity({"b": [1], "a": 1.0})
    assert identity({"a": True}) != identity({"a": 1})
    assert identity({"a": None}) != identity({})


def test_candidates_and_rungs_are_their_own_points() -> None:
    candidates = of(candidates={"plain": {}, "kl": {A: 0.1}})
    assert (size(candidates), points(candidates)) == (2, [{}, {A: 0.1}])
    assert [name_of(candidates, point) for point in points(candidates)] == ["plain", "kl"]
    ladder = of(ladder=[{"name": "A"}, {"name": "A+B", "experiment": "p32", "settings": {A: 0}}])
    assert points(ladder) == [{"experiment": "p31"}, {"experiment": "p32", A: 0}]
    assert name_of(ladder, {"experiment": "p32", A: 0.0}) == "A+B"
    assert name_of(of({A: [0, 1]}), {A: 0}) is None
