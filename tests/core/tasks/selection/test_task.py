"""The task over the built-in generator: examples, scoring, targets, what is recorded and shown."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from core.config.task import ArithmeticTaskSpec, ExampleSelectionTaskSpec
from core.errors import SpecError, TaskError
from core.faults import ConstantReward
from core.tasks.arithmetic import ArithmeticTask
from core.tasks.base import Example
from core.tasks.registry import build
from core.tasks.selection.task import ExampleSelectionTask

WORLD = {"width": 8, "bank": 30, "candidates": 9, "likeness": 0.5}


def task(**changes: Any) -> ExampleSelectionTask:
    spec = {"name": "example-selection", "train_prompts": 8, "eval_prompts": 4, "world": WORLD, **changes}
    built = build(ExampleSelectionTaskSpec.model_validate(spec))
    assert isinstance(built, ExampleSelectionTask)
    return built


TASK = task()
FIRST = TASK.examples("train")[0]
ALL_PICKS = list(itertools.permutations(range(9), 2))


def test_examples_are_split_in_order_and_share_their_arrays() -> None:
    ids = [example.id for split in ("train", "eval") for example in TASK.examples(split)]
    assert ids == sorted(ids)
    assert [len(TASK.examples("train")), len(TASK.examples("eval")), len(TASK.examples("test"))] == [8, 4, 0]
    query, candidates = (np.asarray(FIRST.inputs[name]) for name in ("query", "candidates"))
    assert (query.shape, candidates.shape) == ((8,), (9, 8))
    assert query.dtype == candidates.dtype == np.float32
    assert "choices" not in TASK.examples("eval")[0].inputs  # any picks can be scored
    ids_of_first = FIRST.inputs["ids"]
    assert isinstance(ids_of_first, tuple)
    assert np.array_equal(candidates, TASK.data.candidate_embeddings[list(ids_of_first)])
    with_all = task(pool="all").examples("train")
    assert with_all[0].inputs["candidates"] is with_all[1].inputs["candidates"]
    assert with_all[0].inputs["ids"] == tuple(sorted({i for q in TASK.data.queries for i in q.pool}))


def test_what_is_picked_scores_the_same_from_either_pool() -> None:
    other = task(pool="all")
    of_all = other.examples("train")[0]
    for one, same in zip(TASK.stored(FIRST), other.stored(of_all), strict=True):
        assert TASK.score([FIRST], [one]) == other.score([of_all], [same])


def test_the_expected_accuracy_is_the_same_in_every_reward_mode() -> None:
    modes = ("hard_plus_soft", "separated", "hard_only", "alpha_beta")
    scored = {mode: task(reward_mode=mode).score([FIRST] * 72, ALL_PICKS) for mode in modes}
    expected = [outcome.expected for outcome in scored["hard_only"]]
    assert all([outcome.expected for outcome in outcomes] == expected for outcomes in scored.values())
    for soft, hard in zip(scored["hard_plus_soft"], scored["hard_only"], strict=True):
        assert soft.valid
        assert hard.reward == soft.parts["correct"]
        assert soft.reward == soft.parts["correct"] + soft.parts["accuracy"]


def test_longer_picks_have_an_accuracy_of_each_length_and_the_reward_of_their_first() -> None:
    """Lengths may be mixed in one call; the rewards come back in its order."""
    longer, short, single = TASK.score([FIRST] * 3, [(3, 1, 7), (1, 3), (3,)])
    assert list(longer.parts) == ["accuracy_1", "accuracy_2", "accuracy_3"]
    assert (longer.reward, longer.expected) == (short.reward, short.expected)
    assert (longer.parts["accuracy_1"], longer.parts["accuracy_2"]) == (single.expected, short.expected)
    assert len({*longer.parts.values()}) == 3


def test_no_picks_do_better_than_the_best_and_every_length_has_baselines() -> None:
    held_out = TASK.examples("eval")
    for shots in (1, 2, 3, 4):
        baselines = task(shots=shots).baselines_at(shots)
        assert set(baselines) == {"random", "nearest", "best"}
        picks = [tuple(range(shots))] * len(held_out)
        reached = [outcome.expected for outcome in task(shots=shots).score(held_out, picks)]
        assert np.mean(reached) <= baselines["best"] + 1e-12
    best = np.mean([max(o.expected for o in TASK.score([example] * 72, ALL_PICKS)) for example in held_out])
    assert TASK.baselines_at(2)["best"] == pytest.approx(best)


def test_baselines_are_named_as_an_evaluation_of_them_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    baselines = TASK.baselines()
    assert list(baselines) == ["random", "nearest", "best_possible"]
    for name, exact in (("random", "random"), ("nearest", "nearest"), ("best_possible", "best")):
        assert baselines[name] == {
            "eval/reward": TASK.baselines_at(2)[exact],  # of as many picks as are rewarded
            **{f"eval/rewards/accuracy_{shots}": TASK.baselines_at(shots)[exact] for shots in (1, 2, 3, 4)},
        }
    assert ConstantReward(TASK).baselines() == baselines
    # Two sets a query: all sets of 1, 3 or 4 picks are more, those of the rewarded 2 are looked at whatever they cost.
    monkeypatch.setattr("core.tasks.selection.task.MOST_BESIDE", 2 * 4)
    assert set(task().baselines()["random"]) == {"eval/reward", "eval/rewards/accuracy_2"}
    assert len(task().baselines()["nearest"]) == 5


def test_a_task_of_text_has_no_baselines() -> None:
    assert ArithmeticTask(ArithmeticTaskSpec(name="arithmetic")).baselines() == {}


def test_the_target_is_the_beam_with_the_highest_score() -> None:
    mode = task(reward_mode="alpha_beta", reward_alpha=0.01, reward_beta=0.0)  # the reward is the beam score
    for example, query in zip(mode.examples("train"), mode.data.queries, strict=False):
        stored, ids = mode.stored(example), example.inputs["ids"]
        assert isinstance(ids, tuple)
        beams = {tuple(ids.index(index) for index in one.picks) for one in query.stored if one.source == "beam"}
        outcomes = zip(stored, mode.score([example] * len(stored), stored), strict=True)
        rewards = {picks: outcome.reward for picks, outcome in outcomes if picks in beams}
        assert mode.target(example) == max(rewards, key=rewards.__getitem__)


def test_z_scores_have_mean_0_and_std_1_over_the_stored_picks_of_training() -> None:
    standard = task(reward_zscore=True)
    assert standard.spec.reward_range is None
    rows = [(example, picks) for example in standard.examples("train") for picks in standard.stored(example)]
    scored = standard.score([example for example, _ in rows], [picks for _, picks in rows])
    rewards = [outcome.reward for outcome in scored]
    assert np.mean(rewards) == pytest.approx(0, abs=1e-12)
    assert np.std(rewards, ddof=1) == pytest.approx(1)
    flat = task(reward_zscore=True, reward_mode="hard_only", hard_weight=0.0)
    with pytest.raises(SpecError, match="reward_zscore"):
        flat.score([FIRST], [(0, 1)])


def test_wrong_picks_with_a_low_beam_score_are_dropped_and_no_query_is_left_without() -> None:
    dropped = task(drop_wrong_below=0.0)  # every log-prob is below: what is right stays, else one
    for example in dropped.examples("train"):
        before = TASK.stored(example)
        correct = [outcome.parts["correct"] == 1 for outcome in TASK.score([example] * len(before), before)]
        kept = set(dropped.stored(example))
        assert {picks for picks, is_right in zip(before, correct, strict=True) if is_right} <= kept
        assert len(kept) <= sum(correct) + 1
        assert kept
        assert dropped.target(example) == TASK.target(example)
        assert example.facts["has_positive"] == any(correct)


@pytest.mark.parametrize("picks", [(), (0, 0), (0, 9), (-1, 0)])
def test_picks_that_are_none_are_refused(picks: tuple[int, ...]) -> None:
    with pytest.raises(TaskError, match=FIRST.id):
        TASK.score([FIRST], [picks])


def test_an_example_of_another_task_is_refused() -> None:
    with pytest.raises(TaskError, match="elsewhere"):
        TASK.score([Example(id="elsewhere", inputs={})], [(0, 1)])


def test_what_is_recorded_and_shown() -> None:
    assert TASK.record(np.array([3, 1])) == {"picks": [3, 1]}
    assert TASK.shown_output({"picks": [3, 1]}) == "picks 3, 1"
    assert "topic" in TASK.shown(FIRST)
    rows = [
        {"step": step, "prompt_id": "a", "picks": picks, "rewards": {"accuracy": accuracy, "correct": accuracy > 0}}
        for step, picks, accuracy in [(1, [0, 1], 0.0), (1, [1, 0], 0.6), (2, [0, 1], 1.0), (2, [0, 2], 1.0)]
    ]
    (table,) = TASK.tables(rows)
    assert table.rows == (
        ("1 to 1", "2", "30.0 %", "50.0 %", "50.0 %"),
        ("2 to 2", "2", "100.0 %", "100.0 %", "100.0 %"),
    )
    assert TASK.tables([])[0].rows == ()


def test_a_task_has_stored_outputs_or_says_that_it_has_none() -> None:
    assert ConstantReward(TASK).stored(FIRST) == TASK.stored(FIRST)
    arithmetic = ArithmeticTask(ArithmeticTaskSpec(name="arithmetic"))
    with pytest.raises(TaskError, match="stored"):
        arithmetic.stored(arithmetic.examples("train")[0])


def test_settings_that_cannot_be() -> None:
    for world in ({"candidates": 31}, {"topics": 2, "needs": 3}):
        with pytest.raises(ValueError, match="at most as many"):
            task(world={**WORLD, **world})


def test_building_it_loads_no_numpy() -> None:
    code = (
        "import sys; from core.config.task import ExampleSelectionTaskSpec as S; from core.tasks.registry import build;"
        "build(S(name='example-selection')); print(sorted({'numpy', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_fewer_queries_to_learn_from_leave_the_held_out_ones_the_same() -> None:
    few = task(train_prompts=3, held_out_from=8)
    assert [example.id for example in few.examples("train")] == [example.id for example in TASK.examples("train")[:3]]
    pairs = list(zip(few.examples("eval"), TASK.examples("eval"), strict=True))
    assert len(pairs) == 4
    for ours, theirs in pairs:
        assert ours.id == theirs.id
        assert np.array_equal(np.asarray(ours.inputs["candidates"]), np.asarray(theirs.inputs["candidates"]))
    assert few.baselines() == TASK.baselines()
    with pytest.raises(ValueError, match="got 7"):
        task(held_out_from=7)
