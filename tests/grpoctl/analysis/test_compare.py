"""Two sides of runs: what differs, by how much, what must be said, and the verdict."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import ANY

import pytest

from core.errors import UserError
from core.health.statistics import Difference, Estimate
from grpoctl.analysis.caveats import changed_settings, how_many, knobs
from grpoctl.analysis.collect import RunRecord
from grpoctl.analysis.compare import Comparison, compare

LR = "stages.grpo.learning_rate"
K = "stages.grpo.num_generations"
FAULT = ["rollout-in-train-mode"]


def two_sides(build: Any, a: list[float], b: list[float], spec_b: dict[str, Any] | None = None) -> Comparison:
    """A comparison of runs with these final rewards, seeds from 0 on."""
    runs_a = [build(reward, seed) for seed, reward in enumerate(a)]
    b_is = {"spec": spec_b or {LR: 1e-5}, "recorded_as": "p31@1", "spec_sha": "bbbb"}
    runs_b = [build(reward, seed, run_id=f"p31-{seed}", **b_is) for seed, reward in enumerate(b)]
    return compare(runs_a, runs_b)


@pytest.mark.parametrize(
    ("a", "b", "changed"),
    [
        ({"x": 1}, {"x": 1}, {}),
        ({"x": 1}, {"x": 2}, {"x": (1, 2)}),
        ({"x": 1}, {"y": 2}, {"x": (1, None), "y": (None, 2)}),
        ({"faults": []}, {"faults": FAULT}, {"faults": ([], FAULT)}),
        # What only tells runs apart is no setting.
        *(({key: 1}, {key: 2}, {}) for key in ("name", "title", "question", "source", "revision", "expects", "seed")),
        ({"recorded.updates": 38}, {}, {}),
        # LoRA switched off: `model.lora: null` itself equals "not there".
        ({"model.lora": None}, {"model.lora.r": 64}, {"model.lora.r": (None, 64)}),
    ],
)
def test_changed_settings(a: dict[str, Any], b: dict[str, Any], changed: dict[str, Any]) -> None:
    assert changed_settings(a, b) == changed


@pytest.mark.parametrize(
    ("a", "b", "facts"),
    [
        # differences 0.10, 0.12, 0.14: mean 0.12, sd 0.02, half 4.302653 * 0.02 / sqrt(3) = 0.049683
        (
            [0.40, 0.50, 0.60],
            [0.50, 0.62, 0.74],
            ("B (p31@1) is better", "0.120 [0.070, 0.170]", "eval/reward", "paired", "n=3 seeds"),
        ),
        (
            [0.50, 0.62, 0.74],
            [0.40, 0.50, 0.60],
            ("A (p30@1) is better", "0.120 [0.070, 0.170]", "eval/reward", "paired", "n=3 seeds"),
        ),
        # differences 0.1, -0.1, 0.0: mean 0, sd 0.1, half 0.248414
        (
            [0.5, 0.5, 0.5],
            [0.6, 0.4, 0.5],
            ("no significant difference", "+0.000 [-0.248, +0.248]", "eval/reward", "paired", "n=3 seeds"),
        ),
        # Other seeds on a side: Welch. Means 0.5 and 0.7, variances 0.02 and 0.01, n 2 and 3:
        # standard error sqrt(0.01 + 0.01 / 3) = 0.115470, df = (0.0133333)^2 / (0.0001 + 0.00000556) = 1.684,
        # t(0.975, 1.684) = 5.176: half 0.598
        (
            [0.4, 0.6],
            [0.6, 0.7, 0.8],
            ("no significant difference", "+0.200 [-0.398, +0.798]", "eval/reward", "welch", "n=2 and 3 seeds"),
        ),
        (
            [0.4],
            [0.6],
            ("no significance test", "+0.200", "eval/reward", "n=1 seed", "--seeds 0,1,2"),
        ),
    ],
)
def test_verdict(build: Any, a: list[float], b: list[float], facts: tuple[str, ...]) -> None:
    verdict = two_sides(build, a, b).verdict
    assert [fact for fact in facts if fact not in verdict] == []


def test_no_verdict_without_the_reward(build: Any) -> None:
    comparison = compare([build(0.5)], [build(0.5, final={}, best={})])
    assert comparison.verdict == "no verdict: B has no eval/reward"
    assert comparison.document()["metrics"]["eval/reward"] == {  # type: ignore[index]
        "a": {"mean": 0.5, "interval": None, "n": 1},
        "b": {"mean": None, "interval": None, "n": 0},
        "difference": {"mean": None, "interval": None, "method": "none"},
    }


def test_a_seed_that_lacks_the_metric_is_left_out_and_not_paired(build: Any) -> None:
    a = [build(0.4, 0), build(0.5, 1), build(0.6, 2)]
    b = [build(0.6, 0), build(0.7, 1), build(float("nan"), 2)]
    row = compare(a, b).metrics["eval/reward"]
    b = row.estimates["b"]
    assert b is not None
    assert row.difference is not None
    assert (b.n, b.mean, row.difference.method) == (2, pytest.approx(0.65), "welch")


def test_document(build: Any) -> None:
    document = json.loads(json.dumps(two_sides(build, [0.4, 0.5], [0.5, 0.6]).document(), allow_nan=False))
    assert set(document) == {
        "schema", "verdict", "would_change", "left_out", "sides", "changed", "inert", "places", "metrics", "runs",
        "stages", "findings", "baselines", "picks_equal", "weights_mean_abs_diff", "notes",
    }  # fmt: skip
    assert document["baselines"] == {"a": {}, "b": {}}
    assert (document["picks_equal"], document["weights_mean_abs_diff"]) == (None, None)
    assert document["schema"] == 1
    assert document["changed"] == {LR: [2e-6, 1e-5]}
    assert document["runs"] == {"a": ["p30-tiny-s0-aaaa-1", "p30-tiny-s1-aaaa-1"], "b": ["p31-0", "p31-1"]}
    reward = document["metrics"]["eval/reward"]
    assert set(reward) == {"a", "b", "difference"}
    # 0.4, 0.5: mean 0.45, sd 0.0707107, standard error 0.05, t(0.975, 1) = 12.706205: half 0.635310
    assert reward["a"] == {"mean": 0.45, "interval": pytest.approx([-0.185310, 1.085310], abs=1e-6), "n": 2}
    assert document["metrics"]["best/eval/reward"]["a"]["mean"] == pytest.approx(0.55)  # the builder's final + 0.1
    assert document["metrics"]["completions"]["a"]["mean"] == 24  # 2 x 3 x 4
    assert "eval/reward_se" not in document["metrics"]


@pytest.mark.parametrize(
    ("result", "spec", "says"),
    [
        ({"profile": "full"}, {}, "profile tiny, B under full"),
        ({}, {"task.name": "arithmetic"}, "rewards of different tasks are not comparable"),
    ],
)
def test_what_is_not_compared(build: Any, result: dict[str, Any], spec: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        compare([build(0.5)], [build(0.5, spec=spec, **result)])


CUSTOM = {"task.name": "custom", "task.data.path": "a.jsonl", "task.rewards": [{"function": "a.py:f"}]}


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ({"task.rewards": [{"function": "b.py:g"}]}, "eval/reward is not the same measure on the sides (task.rewards)"),
        ({"task.data.path": "b.jsonl"}, "eval/reward is not the same measure on the sides (task.data.path)"),
        ({"task.eval_prompts": 8}, "no significance test"),
        ({"task.data.path": "b.jsonl", "task.rewards": [{"function": "b.py:g"}]}, None),
    ],
)
def test_tasks_of_ones_own_with_other_data_and_other_rewards_are_different_tasks(
    build: Any, other: dict[str, Any], verdict: str | None
) -> None:
    sides = [build(0.5, spec=CUSTOM)], [build(0.75, spec=CUSTOM | other)]
    if verdict is None:
        with pytest.raises(UserError, match="rewards of different tasks are not comparable"):
            compare(*sides)
    else:
        assert compare(*sides).verdict.startswith(verdict)


def test_a_side_is_one_spec_and_one_run_per_seed(build: Any) -> None:
    with pytest.raises(UserError, match="side B has no runs"):
        compare([build(0.5)], [])
    with pytest.raises(UserError, match=r"side A mixes runs of different spec_sha \(aaaa, bbbb\)"):
        compare([build(0.5), build(0.5, 1, spec_sha="bbbb")], [build(0.5)])
    with pytest.raises(UserError, match="side A mixes runs of different profile"):
        compare([build(0.5), build(0.5, 1, profile="full")], [build(0.5)])
    with pytest.raises(UserError, match="side A has a seed twice"):
        compare([build(0.5), build(0.6)], [build(0.5)])


ONE_SEED = ("A and B have one seed", "no significance test")


@pytest.mark.parametrize(
    ("spec", "result", "notes"),
    [
        ({LR: 1e-5}, {}, [ONE_SEED]),
        (
            {LR: 1e-5, "stages.grpo.beta": 0.1},
            {},
            [("2 settings differ",), ONE_SEED],
        ),
        ({}, {}, [("no setting differs",), ONE_SEED]),
        ({}, {"run_id": "p30-tiny-s0-aaaa-1"}, [("p30-tiny-s0-aaaa-1", "both sides"), ONE_SEED]),
        # 2 x 3 x 4 = 24 against 8 x 3 x 4 = 96
        (
            {K: 8},
            {},
            [
                ("unequal completions", "A sampled 24, B 96", "2 x 3 x 4 = 24 and 8 x 3 x 4 = 96"),
                ONE_SEED,
            ],
        ),
        # The fault comes first, whatever else is said.
        (
            {"faults": FAULT, LR: 1e-5},
            {},
            [
                ("B with rollout-in-train-mode", "A without any"),
                ("2 settings differ",),
                ONE_SEED,
            ],
        ),
        (
            {"task.operator_cost": 0.01},
            {},
            [("task.operator_cost", "eval/*"), ONE_SEED],
        ),
        ({"evaluation.eval_steps": 16}, {}, [ONE_SEED]),  # looked at more often, by the same measure
        # A guard acts by stopping only: with two runs that ended by themselves it is no second cause ...
        ({LR: 1e-5, "guards.collapse": "warn"}, {}, [ONE_SEED]),
        # ... and where it stopped one it is.
        (
            {LR: 1e-5, "guards.collapse": "warn"},
            {"status": "COLLAPSED"},
            [
                ("2 settings differ",),
                ONE_SEED,
                ("B: 1 of 1 run", "other COLLAPSED"),
            ],
        ),
    ],
)
def test_notes(build: Any, spec: dict[str, Any], result: dict[str, Any], notes: list[tuple[str, ...]]) -> None:
    """The notes in their order, each with its facts."""
    b = build(0.5, spec=spec, **{"run_id": "other", **result})
    found = compare([build(0.5)], [b]).notes
    assert len(found) == len(notes)
    assert [fact for note, facts in zip(found, notes, strict=True) for fact in facts if fact not in note] == []


@pytest.mark.parametrize("moved", [True, False])
def test_another_start_of_an_adaptive_beta_is_no_other_beta(build: Any, moved: bool) -> None:
    rule: dict[str, Any] = {"stages.grpo.adaptive_beta.rule": "threshold"} if moved else {}
    starts = [{"stages.grpo.beta.start": beta, "stages.grpo.beta.end": beta, **rule} for beta in (0.12, 0.15)]
    a, b = (build(0.5, spec=spec, run_id=f"run-{number}") for number, spec in enumerate(starts))
    notes = [note for note in compare([a], [b]).notes if "adaptive" in note]
    assert len(notes) == moved
    assert all("stages.grpo.beta.start" in note for note in notes)


def test_a_fault_on_both_sides_is_said(build: Any) -> None:
    a, b = build(0.5, spec={"faults": FAULT}), build(0.5, spec={"faults": FAULT, LR: 1e-5}, run_id="other")
    note = compare([a], [b]).notes[0]
    assert ("both" in note, "rollout-in-train-mode" in note) == (True, True)


def test_completions_that_differ_by_an_early_end_are_said(build: Any) -> None:
    short = build(0.5, run_id="other", status="STOPPED_EARLY", spec={LR: 1e-5})
    short = RunRecord(result=short.result, spec=short.spec, rows=short.rows[:3])  # two steps of six
    notes = compare([build(0.5)], [short]).notes
    assert [fact for fact in ("A sampled 24", "B 12") if fact not in notes[0]] == []


def test_other_seeds_are_said(build: Any) -> None:
    a = [build(0.5, 0), build(0.5, 1)]
    b = [build(0.5, 0, run_id="x", spec={LR: 1e-5}), build(0.5, 2, run_id="y", spec={LR: 1e-5})]
    (note,) = compare(a, b).notes
    assert [fact for fact in ("A 0, 1", "B 0, 2") if fact not in note] == []


T = "stages.grpo.temperature"


@pytest.mark.parametrize(
    ("a", "b", "decisions"),
    [
        ({"x.lr": 1, "x.beta": 1}, {"x.lr": 2, "x.beta": 2}, ["x.beta", "x.lr"]),
        (
            {f"{T}.start": 0.3, f"{T}.end": 0.15, f"{T}.steps": 100},
            {f"{T}.start": 1.0, f"{T}.end": 1.0, f"{T}.steps": 0},
            [T],
        ),
        ({"model.lora": None}, {"model.lora.r": 64, "model.lora.lora_alpha": 64}, ["model.lora"]),
        (
            {"model.lora.r": 8, "model.lora.a": 8},
            {"model.lora.r": 64, "model.lora.a": 64},
            ["model.lora.a", "model.lora.r"],
        ),
    ],
)
def test_knobs_counts_decisions(a: dict[str, Any], b: dict[str, Any], decisions: list[str]) -> None:
    assert knobs(changed_settings(a, b), a, b) == decisions


def test_a_side_with_an_error_is_named_before_its_numbers_are_believed(build: Any) -> None:
    """What only warns is in the document and makes no comparison unsafe."""
    error = {"id": "policy-collapse", "severity": "error", "summary": "35 of 35"}
    warning = {"id": "dead-groups", "severity": "warning", "summary": "half"}
    milder = {**warning, "severity": "info"}
    a = [build(0.5, 0, findings=[milder]), build(0.5, 1, findings=[error, warning])]
    comparison = compare(a, [build(0.5, seed, findings=[warning], run_id=f"b-{seed}") for seed in (0, 1)])
    assert comparison.notes[0].startswith("A ")
    assert "1 of 2 runs (policy-collapse)" in comparison.notes[0]
    assert comparison.notes[0].endswith("grpoctl diagnose p30-tiny-s1-aaaa-1")
    assert not any("B has an error" in note for note in comparison.notes)
    first, second = "p30-tiny-s0-aaaa-1", "p30-tiny-s1-aaaa-1"
    findings: Any = comparison.document()["findings"]
    assert findings == {
        "a": {
            "policy-collapse": {"severity": "error", "at_severity": [second], "runs": [second]},
            "dead-groups": {"severity": "warning", "at_severity": [second], "runs": [second, first]},
        },
        "b": {"dead-groups": {"severity": "warning", "at_severity": ["b-0", "b-1"], "runs": ["b-0", "b-1"]}},
    }
    assert how_many(findings["a"]["dead-groups"], 2) == "1 of 2 (milder in 1)"
    assert how_many(findings["b"]["dead-groups"], 2) == "2 of 2"


def test_a_key_that_is_not_written_at_its_default_has_that() -> None:
    a = {"stages.grpo.kind": "grpo", "stages.grpo.beta": 0.1, "stages.grpo.candidate_choice": "stratified"}
    b = {"stages.grpo.kind": "grpo", "stages.grpo.beta": 0.1}
    assert changed_settings(a, b) == {"stages.grpo.candidate_choice": ("stratified", "best")}
    # Of a part that is not there nothing is known.
    c = {**b, "stages.grpo.adaptive_beta": None}
    d = {**b, "stages.grpo.adaptive_beta.max_beta": 9.0, "stages.grpo.adaptive_beta.factor": 2.0}
    assert changed_settings(c, d)["stages.grpo.adaptive_beta.factor"] == (None, 2.0)


def test_unsound_runs_are_left_out_and_named(build: Any) -> None:
    broken = {"id": "rollout-mode", "severity": "error", "summary": "35 of 35"}
    a = [build(0.5, 0), build(0.52, 1), build(0.0, 2, findings=[broken])]
    b = [build(0.6, seed, run_id=f"b-{seed}", spec={LR: 1e-5}) for seed in (0, 1)]
    b.append(build(0.1, 2, run_id="b-2", spec={LR: 1e-5}, status="INVALID_ROLLOUT"))
    comparison = compare(a, b)
    assert [side.seeds for side in comparison.sides] == [(0, 1), (0, 1)]
    assert comparison.sides[0].excluded == {"p30-tiny-s2-aaaa-1": "rollout-mode"}
    assert comparison.sides[1].excluded == {"b-2": "INVALID_ROLLOUT"}
    assert "p30-tiny-s2-aaaa-1 (rollout-mode)" in comparison.notes[0]
    assert "b-2 (INVALID_ROLLOUT)" in comparison.notes[1]
    assert comparison.metrics["eval/reward"].document()["a"] == {"mean": pytest.approx(0.51), "interval": ANY, "n": 2}


def test_a_side_without_a_sound_run_has_numbers_and_no_verdict(build: Any) -> None:
    broken = {"id": "rollout-integrity", "severity": "error", "summary": "nats"}
    comparison = compare([build(0.5, 0, findings=[broken])], [build(0.6, 0, run_id="b")])
    assert comparison.verdict.startswith("no verdict")
    assert " A " in comparison.verdict
    assert comparison.metrics["eval/reward"].document()["a"]["mean"] == 0.5  # type: ignore[index]
    assert (comparison.sides[0].sound, comparison.would_change) == (False, ())


def test_a_side_that_is_unsound_or_lacks_the_reward_leaves_the_others_their_verdict(build: Any) -> None:
    broken = {"id": "rollout-mode", "severity": "error", "summary": "35 of 35"}
    rewards = {"a": (0.9, 0.9, 0.9), "b": (0.50, 0.51, 0.52), "c": (0.80, 0.81, 0.82), "d": (None, None, None)}
    sides = [
        [
            build(
                0.0 if reward is None else reward, seed, run_id=f"{key}-{seed}", spec={LR: place * 1e-6},
                findings=[broken] if key == "a" else [], recorded_as=f"{key}@1",
                **({"final": {}, "best": {}} if reward is None else {}),
            )
            for seed, reward in enumerate(of_side)
        ]
        for place, (key, of_side) in enumerate(rewards.items(), 1)
    ]  # fmt: skip
    comparison, alone = compare(*sides), compare(*sides[1:3])
    assert [
        fact for fact in ("C (c@1) is better by 0.300", "A is sound", "D has no") if fact not in comparison.verdict
    ] == []
    assert set(comparison.left_out) == {"a", "d"}
    assert set(comparison.sides[0].excluded) == {"a-0", "a-1", "a-2"}
    (place,) = comparison.places
    assert place.means == (None, pytest.approx(0.51), pytest.approx(0.81), None)
    assert set(place.contrasts) == {(1, 2)}  # two sides are judged, so no interval is widened for others
    assert place.contrasts[1, 2].family == pytest.approx(alone.places[0].contrasts[0, 1].family)
    assert comparison.document()["left_out"] == comparison.left_out
    # Of three that are left, the best against the others.
    more = compare(*sides[:3], [build(0.1, seed, run_id=f"e-{seed}", spec={LR: 9e-6}) for seed in range(3)])
    assert [
        fact for fact in ("C (c@1)", "than B, D", "all 3 differences", "A is sound") if fact not in more.verdict
    ] == []


def many(build: Any, *rewards: list[float]) -> Comparison:
    """Sides A, B, ... with these final rewards, seeds from 0 on."""
    return compare(
        *(
            [
                build(reward, seed, run_id=f"{number}-{seed}", recorded_as=f"p{number}@1", spec={LR: number * 1e-6})
                for seed, reward in enumerate(of_side)
            ]
            for number, of_side in enumerate(rewards, 1)
        )
    )


def test_three_sides_and_the_best_of_them(build: Any) -> None:
    comparison = many(build, [0.50, 0.51, 0.52], [0.80, 0.81, 0.82], [0.50, 0.52, 0.54])
    (place,) = comparison.places
    assert place.best == 1
    assert set(place.contrasts) == {(0, 1), (0, 2), (1, 2)}
    facts = ("B (p2@1) is better", "than A, C", "all 3 differences")
    assert [fact for fact in facts if fact not in comparison.verdict] == []
    back = place.over(1, 2)  # turned round: B over C
    assert back.mean == pytest.approx(0.29)
    assert back.improvement.value == 1.0
    assert place.contrasts[1, 2].mean == pytest.approx(-0.29)
    document = comparison.document()
    assert set(document["places"][0]["contrasts"]) == {"b-a", "c-a", "c-b"}  # type: ignore[index]
    assert set(document["metrics"]["eval/reward"]) == {"a", "b", "c"}  # type: ignore[index]
    assert document["changed"][LR] == [1e-6, 2e-6, 3e-6]  # type: ignore[index]


def test_seeds_that_gave_the_same_numbers_are_no_test(build: Any) -> None:
    made = two_sides(build, [0.5, 0.5, 0.5], [0.7, 0.7, 0.7])
    said = "no significance test (n=3 seeds): B - A is +0.200 on eval/reward, and the seeds of each side gave the same "
    assert made.verdict == f"{said}numbers"
    row = made.metrics["eval/reward"]
    assert (row.estimates["a"], row.difference) == (
        Estimate(mean=0.5, interval=None, n=3), Difference(mean=pytest.approx(0.2), interval=None, method="none")
    )  # fmt: skip
    assert made.would_change == ("seeds that act: a command gets its seed by {seed} in trainer.command",)
    one_differs = two_sides(build, [0.5, 0.5, 0.5], [0.7, 0.7, 0.71])
    assert "B (p31@1) is better" in one_differs.verdict
    assert "it is narrow: without seed 2 it would not be clear" in one_differs.would_change


def test_a_side_of_one_seed_leaves_the_others_their_verdict(build: Any) -> None:
    best, same, low = [0.80, 0.81, 0.82], [0.79, 0.83, 0.80], [0.50, 0.52, 0.54]
    comparison = many(build, low, [0.60], best)
    assert comparison.verdict.startswith("C (p3@1) is better on eval/reward than A: than the nearest by 0.290 ")
    assert comparison.verdict.endswith("; not tested: B has one seed")
    assert any(text.startswith("more seeds") for text in comparison.would_change)
    three = many(build, low, [0.60], best, same).verdict
    assert [fact for fact in ("than A, and not told apart from D", "all 3 differences") if fact not in three] == []
    # The highest itself has one seed, or every other has: nothing can be told from it.
    for rewards, who in (((low, [0.9], best), "B has one seed"), (([0.4], [0.5], best), "A, B have one seed")):
        comparison = many(build, *rewards)
        assert comparison.verdict.startswith(f"no significance test: {who}; ")
        assert len(comparison.would_change[:2]) == 1


def test_a_trial_goes_by_its_name_not_by_what_its_sweep_sets(build: Any) -> None:
    swept = ["lr_clock=steps", "learning_rate=0.003"]
    a, b = (
        [build(0.5, seed, run_id=f"lr-study-tiny-0123abcd-1-t000{trial}-s{seed}", overrides=swept) for seed in range(2)]
        for trial in (3, 4)
    )
    assert [side.name for side in compare(a, b).sides] == [f"lr-study-tiny-0123abcd-1-t000{trial}" for trial in (3, 4)]
    assert compare([build(0.5, overrides=swept)], a).sides[0].name == "p30@1 with lr_clock=steps, learning_rate=0.003"


def test_of_runs_that_came_to_the_same_more_seeds_show_nothing(build: Any) -> None:
    (text,) = two_sides(build, [0.5, 0.52, 0.56], [0.5, 0.52, 0.56]).would_change[:1]
    assert "the same" in text
    assert "4 of 5" not in text


def test_a_noisy_side_that_hides_a_difference_of_two_others_is_told(build: Any) -> None:
    a, b, noisy = [0.50, 0.51, 0.52], [0.55, 0.56, 0.57], [0.2, 0.4, 0.6]
    assert "B (p2@1) is better" in many(build, a, b).verdict
    hidden = many(build, a, b, noisy)
    assert hidden.verdict.startswith("no significant difference")
    (text,) = (text for text in hidden.would_change if text.startswith("B and A alone: ["))
    assert "all pairs of sides" in text
    assert not any("A alone" in text for text in many(build, a, b).would_change)


def test_the_best_of_many_must_be_further_away_than_one_of_two(build: Any) -> None:
    """0.08 above another of the same noise: clear of one, and not of the nearest of eight that might have been it."""
    noisy = [[0.50, 0.52, 0.54, 0.56, 0.58]] * 7
    best = [0.55, 0.58, 0.61, 0.64, 0.55]
    two, eight = many(build, noisy[0], best).places[0], many(build, *noisy, best).places[0]
    pair = two.contrasts[0, 1]
    assert eight.contrasts[0, 7].interval == pair.interval
    assert pair.family == pair.interval
    wide, narrow = eight.contrasts[0, 7].family, pair.family
    assert wide is not None
    assert narrow is not None
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def drawing(build: Any, seed: int, per_step: int, values: list[float], **more: Any) -> RunRecord:
    """A run that draws so many completions a step, with an evaluation after each."""
    made = build(values[-1] + 0.01 * seed, seed, **more)
    rows = [
        {"step": step, "completions": step * per_step, "eval/reward": value + 0.01 * seed}
        for step, value in enumerate(values)
    ]
    return RunRecord(result=made.result, spec=made.spec, rows=tuple(rows))


def test_where_budgets_differ_both_are_read_at_the_smaller_one(build: Any) -> None:
    """A draws 24 completions, B 48; B stands at 0.5 after 24 and at 0.9 in the end."""
    a = [drawing(build, seed, 6, [0.4, 0.5, 0.6, 0.65, 0.7]) for seed in range(3)]
    b = [drawing(build, seed, 12, [0.4, 0.45, 0.5, 0.7, 0.9], run_id=f"b{seed}", spec={K: 4}) for seed in range(3)]
    comparison = compare(a, b)
    equal, end = comparison.places
    assert (equal.completions, end.completions) == (24.0, None)
    assert equal.means == pytest.approx((0.71, 0.51))
    assert end.means == pytest.approx((0.71, 0.91))
    assert comparison.verdict.startswith("at 24 completions each: A ")
    assert "at the end (A 24, B 48): B " in comparison.verdict
    assert any("at the end B" in text for text in comparison.would_change)


def test_a_run_that_was_pruned_half_way_decides_where_all_are_read(build: Any) -> None:
    """One of B's runs ended after 24 of 48 completions, where it stood at 0.5 like the others; those end at 0.9."""
    whole = [0.4, 0.45, 0.5, 0.7, 0.9]
    a = [drawing(build, seed, 12, [0.4, 0.5, 0.6, 0.6, 0.6]) for seed in range(3)]
    b = [drawing(build, seed, 12, whole, run_id=f"b{seed}", spec={K: 4}) for seed in range(2)]
    b.append(drawing(build, 2, 12, whole[:3], run_id="b2", spec={K: 4}, status="PRUNED"))
    comparison = compare(a, b)
    equal, end = comparison.places
    assert (equal.completions, end.completions) == (24.0, None)
    assert equal.means == pytest.approx((0.61, 0.51))
    assert "at the end (A 48, B 24 to 48)" in comparison.verdict


def test_a_run_that_a_guard_ended_does_not_set_where_all_are_read(build: Any) -> None:
    whole = [0.4, 0.45, 0.5, 0.7, 0.9]
    a = [drawing(build, seed, 12, [0.4, 0.5, 0.6, 0.6, 0.6]) for seed in range(3)]
    b = [drawing(build, seed, 12, whole, run_id=f"b{seed}", spec={K: 4}) for seed in range(2)]
    b.append(drawing(build, 2, 12, whole[:3], run_id="b2", spec={K: 4}, status="COLLAPSED"))
    assert [place.completions for place in compare(a, b).places] == [None]


def test_one_side_is_not_compared_and_27_are_too_many(build: Any) -> None:
    with pytest.raises(UserError, match="got 1 side; 2 to 26"):
        compare([build(0.5)])
    with pytest.raises(UserError, match="got 27 sides"):
        compare(*[[build(0.5)]] * 27)


def test_what_would_change_an_open_verdict(build: Any) -> None:
    (text,) = two_sides(build, [0.5, 0.5, 0.5], [0.6, 0.4, 0.55]).would_change[:1]
    assert [fact for fact in ("4 of 5", "seeds") if fact not in text] == []
