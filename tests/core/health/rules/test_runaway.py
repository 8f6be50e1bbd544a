"""Entropy that is used up and gradients that explode, and what looks alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.health.case import Case, Settings
from core.health.rules.runaway import random_policy, runaway


def table(**columns: Sequence[float]) -> Case:
    length = len(next(iter(columns.values())))
    names = {"reward": "reward/mean"}
    return Case(
        rows=[
            {
                "step": float(i + 1),
                "update": 1.0,
                **{names.get(name, name): values[i] for name, values in columns.items()},
            }
            for i in range(length)
        ]
    )


FALLING = [0.8, 0.5, 0.3, 0.1, 0.05, 0.02, 0.01, 0.01]


def test_an_entropy_that_bought_nothing() -> None:
    (flat,) = runaway(table(entropy=FALLING, reward=[0.4] * 8))
    assert (flat.id, flat.severity, flat.confidence) == ("entropy-collapse", "warning", "strong")
    assert flat.evidence["entropy_end"] == 0.01
    (fell,) = runaway(table(entropy=FALLING, reward=[0.4, 0.4, 0.3, 0.3, 0.2, 0.1, 0.1, 0.1]))
    assert fell.severity == "error"
    (alone,) = runaway(table(entropy=FALLING))
    assert alone.confidence == "moderate"


def test_a_policy_that_learned_or_was_sure_is_not_accused() -> None:
    assert runaway(table(entropy=FALLING, reward=[0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.9])) == []
    assert runaway(table(entropy=[0.03] * 8, reward=[0.4] * 8)) == []
    assert runaway(table(entropy=[0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.3, 0.3], reward=[0.4] * 8)) == []


def test_few_rows_that_go_one_way_are_a_hint() -> None:
    (finding,) = runaway(table(entropy=[0.8, 0.1, 0.02], reward=[0.4, 0.4, 0.4]))
    assert (finding.id, finding.severity, finding.confidence) == ("entropy-collapse", "warning", "weak")
    (ends,) = runaway(table(entropy=[0.8, 0.02]))
    assert (ends.severity, ends.confidence) == ("warning", "weak")
    assert runaway(table(entropy=[0.8, 0.01, 0.3, 0.02])) == []  # up and down
    assert runaway(table(entropy=[0.8, 0.1, 0.02], reward=[0.4, 0.5, 0.6])) == []  # it bought something
    (alone,) = runaway(table(grad_norm=[0.4, 0.6, 35.0, 1240.0]))
    assert (alone.id, alone.severity, alone.confidence) == ("grad-explosion", "warning", "weak")
    (rose,) = runaway(table(grad_norm=[0.4, 0.6, 35.0, 1240.0], reward=[0.1, 0.5, 0.7, 0.8]))
    assert (rose.id, rose.severity, rose.confidence) == ("grad-explosion", "info", "weak")
    (fell,) = runaway(table(grad_norm=[0.4, 0.6, 35.0, 1240.0], reward=[0.2, 0.2, 0.02, 0.01]))
    assert (fell.severity, fell.confidence) == ("error", "moderate")
    assert runaway(table(grad_norm=[0.4, 1240.0, 0.5, 0.4])) == []
    (enormous,) = runaway(table(grad_norm=[215.0, 2520.0]))
    assert (enormous.id, enormous.severity) == ("grad-explosion", "warning")
    assert runaway(table(grad_norm=[21.0, 252.0])) == []
    assert runaway(table(grad_norm=[515.0, 2520.0])) == []
    assert runaway(table(grad_norm=[215.0] * 4 + [2520.0] * 4)) == []  # a course needs a hundred times


def test_gradients_that_explode() -> None:
    (finding,) = runaway(table(grad_norm=[0.5, 0.6, 0.5, 20.0, 90.0, 400.0, 900.0, 1000.0]))
    assert (finding.id, finding.severity, finding.evidence["first_step"]) == ("grad-explosion", "error", 5)
    assert runaway(table(grad_norm=[0.5, 0.6, 0.5, 900.0, 0.5, 0.6, 0.5, 0.5])) == []  # one spike
    silent = table(grad_norm=[0.0, 0.0, 0.0, 0.0, 12.0, 50.0, 900.0, 1000.0, 900.0, 1000.0])  # all groups dead at first
    (finding,) = runaway(replace(silent, rows=[{"step": 0.5, "update": 1.0}, *silent.rows]))
    assert finding.evidence["first_step"] == 5  # neither a row without a norm nor one of 0
    assert runaway(table(grad_norm=[1e-4, 1e-4, 0.5, 0.6, 0.5, 0.6, 0.5, 0.5])) == []  # usual in the end


BROKEN = [-0.15, 0.22, 0.06, 0.28, 0.19, 0.08, 0.41, 2.7, 24982.0, 14870.0, 45.0, -385.0]


def test_a_loss_that_explodes_where_no_norm_is_told() -> None:
    (finding,) = runaway(table(loss=BROKEN, reward=[0.6] * 12))
    assert (finding.id, finding.severity, finding.confidence) == ("grad-explosion", "warning", "moderate")
    assert (finding.evidence["first_step"], finding.evidence["column"]) == (9, "loss")
    assert finding.evidence["loss_start"] == pytest.approx(0.185)  # the median of 0.15 and 0.22, whatever the sign
    (of_policy,) = runaway(table(**{"policy/loss": BROKEN, "loss": [0.1] * 12, "eval/reward": [0.4] * 12}))
    assert of_policy.evidence["column"] == "policy/loss"
    assert runaway(table(loss=BROKEN, grad_norm=[0.5] * 12, reward=[0.6] * 12)) == []  # the gradients did not
    assert runaway(table(loss=BROKEN, reward=[i / 12 for i in range(12)])) == []  # what is earned grew
    assert runaway(table(loss=BROKEN)) == []  # of what is earned nothing is told
    assert runaway(table(loss=BROKEN[-5:], reward=[0.6] * 5)) == []  # too few rows
    valued = table(**{"loss": BROKEN, "critic/loss": [0.1] * 12, "eval/reward": [0.4] * 12})
    assert runaway(valued) == []  # a value function's, perhaps
    rises = [0.2 + i / 20 for i in range(12)]
    assert runaway(table(**{"loss": BROKEN, "eval/reward": rises})) == []
    assert runaway(table(**{"loss": BROKEN, "rewards/accuracy": rises})) == []
    assert runaway(table(loss=BROKEN, reward=[0.99] * 12)) == []  # solved
    at_one_ratio_first = [0.0] * 6 + [12.0, -12.0, 11.0, 12.0, -13.0, 12.0]
    assert runaway(table(loss=at_one_ratio_first, reward=[0.6] * 12)) == []  # as large from the first that is told
    assert runaway(table(loss=[*BROKEN[:8], 24982.0, 0.2, 0.1, 0.3], reward=[0.6] * 12)) == []  # one spike
    assert runaway(table(loss=[value / 1e4 for value in BROKEN], reward=[0.6] * 12)) == []  # small all the way


def test_a_stage_with_another_loss_has_gradients_of_another_size() -> None:
    norms = [0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 300.0, 200.0, 400.0, 300.0, 300.0, 200.0]
    staged = table(grad_norm=norms, stage=[0.0] * 6 + [1.0] * 6)
    assert runaway(replace(staged, settings=Settings(stage=1))) == []
    assert [finding.id for finding in runaway(staged)] == ["grad-explosion"]  # nobody says that it has stages


@pytest.mark.parametrize(("late", "accused"), [(0.36, True), (0.55, False)])
def test_a_little_gain_does_not_pay_for_the_entropy(late: float, accused: bool) -> None:
    """0.32 to 0.36 is 0.04 of the 0.68 that were left to earn."""
    entropy = [0.5 * 0.8**i for i in range(16)]
    reward = [0.32 + (late - 0.32) * min(1.0, i / 4) for i in range(16)]
    assert bool(runaway(table(entropy=entropy, reward=reward))) == accused


@pytest.mark.parametrize(
    ("dead", "reward", "accused"),
    [
        ([0.0, 0.6, 0.75, 0.75], [0.033, 0.024, 0.044, 0.044], True),
        ([0.7, 0.6, 0.75, 0.75], [0.033, 0.024, 0.044, 0.044], False),  # they were dead before
        ([0.0, 0.6, 0.75, 0.75], [0.2, 0.5, 0.7, 0.9], False),  # solved
    ],
)
def test_an_entropy_that_falls_while_groups_die(dead: list[float], reward: list[float], accused: bool) -> None:
    case = table(entropy=[0.42, 0.26, 0.19, 0.145], reward=reward, **{"groups/dead": dead})
    assert [one.confidence for one in runaway(case)] == ["weak"] * accused


SHRINKING = [3.2, 3.2, 2.9, 2.7, 2.3, 1.8, 1.4, 1.2, 1.0, 0.7]


def test_an_entropy_of_which_a_third_is_left() -> None:
    (alone,) = runaway(table(entropy=SHRINKING))
    assert (alone.id, alone.severity, alone.confidence) == ("entropy-collapse", "info", "weak")
    (flat,) = runaway(table(entropy=SHRINKING, reward=[0.3] * 10))
    assert (flat.severity, flat.confidence) == ("warning", "weak")
    (few,) = runaway(table(entropy=[3.2, 1.5, 0.8]))
    assert few.severity == "info"


def test_rewards_from_before_the_fall_do_not_excuse_it() -> None:
    entropy = [3.2, 3.1, 2.9, 2.7, *[0.8] * 6]
    rows = [dict(row) for row in table(entropy=entropy, reward=[0.1, 0.2, 0.3, 0.4, *[0.5] * 6]).rows]
    assert runaway(Case(rows=rows)) == []
    for row in rows[4:]:
        del row["reward/mean"]
    (finding,) = runaway(Case(rows=rows))
    assert (finding.id, finding.severity) == ("entropy-collapse", "info")


@pytest.mark.parametrize(
    "case",
    [
        table(entropy=SHRINKING, reward=[0.1 + 0.08 * i for i in range(10)]),  # it solves its task
        table(entropy=[3.2, 3.2, 2.9, 2.7, 2.3, 1.8, 1.6, 1.5, 1.4, 1.4]),  # less than half is left, more than a third
        table(entropy=[0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.1, 0.1]),  # as sure from the start on
        table(entropy=[3.2, 0.7, 3.1, 0.8, 3.0, 0.9, 3.2, 0.7, 3.1, 0.8]),  # up and down
        table(entropy=[3.2, 0.7, 3.1]),
    ],
)
def test_entropies_that_did_not_shrink_for_good(case: Case) -> None:
    assert runaway(case) == []


def one_length(**columns: list[float]) -> Case:
    """A run of 20 rows that comes to say one thing: lengths from 3 to 64 become 33 to 37 tokens."""
    names = {"longest": "completions/longest", "shortest": "completions/shortest", "length": "completions/length"}
    names |= {"accuracy": "rewards/accuracy", "held_out": "eval/reward"}
    names |= {"reward": "reward/mean", "truncated": "completions/truncated", "entropy": "entropy"}
    usual = {
        "longest": [64.0] * 10 + [50.0] * 5 + [37.0] * 5,
        "shortest": [3.0] * 10 + [20.0] * 5 + [33.0] * 5,
        "length": [40.0, 30.0] * 5 + [35.0] * 10,
        "entropy": [2.4] * 5 + [1.8] * 5 + [0.5] * 5 + [0.02] * 5,
        "reward": [-1.0 + 1.5 * i for i in range(20)],
    }
    courses = {names[name]: course for name, course in (usual | columns).items()}
    return Case(rows=[{"step": i + 1, **{name: course[i] for name, course in courses.items()}} for i in range(20)])


def test_one_answer_for_every_prompt() -> None:
    (finding,) = runaway(one_length())
    assert (finding.id, finding.severity, finding.confidence) == ("entropy-collapse", "warning", "moderate")
    assert "33 to 37 tokens (3 to 64 at the start)" in finding.summary
    assert "it pays for that answer" in finding.summary


@pytest.mark.parametrize(
    "columns",
    [
        {"longest": [64.0] * 20},  # answers differ in length
        {"longest": [40.0] * 15 + [37.0] * 5, "shortest": [30.0] * 15 + [33.0] * 5},  # they always were of one length
        {"longest": [64.0] * 15 + [4.0] * 5, "shortest": [1.0] * 15 + [4.0] * 5},  # a label
        {"length": [35.0] * 15 + [20.0, 50.0, 20.0, 50.0, 35.0]},  # of one length on each step, which has one prompt
        {"entropy": [2.4] * 5 + [1.8] * 5 + [1.0] * 10},
        {"truncated": [1.0] * 20},  # cut off at one length
        {"accuracy": [0.2] * 10 + [0.9] * 10},  # one text is not right for most prompts
        {"held_out": [0.2] * 10 + [0.8] * 10},
    ],
)
def test_completions_of_one_length_that_say_little(columns: dict[str, list[float]]) -> None:
    assert runaway(one_length(**columns)) == []


def test_few_right_answers_or_scores_of_another_scale_do_not_clear_one_answer() -> None:
    for columns in ({"accuracy": [0.2] * 10 + [0.4] * 10}, {"held_out": [1.0] * 10 + [3.0] * 10}):
        assert [finding.id for finding in runaway(one_length(**columns))] == ["entropy-collapse"]


def test_a_policy_that_solves_its_task_gets_sure_of_it() -> None:
    entropy = [0.35] * 2 + [0.002] * 8
    assert runaway(table(entropy=entropy, reward=[0.96, 0.97, *[0.99] * 8])) == []
    for stands in ([0.76, 0.77, *[0.79] * 8], [1.99, 2.0, *[2.01] * 8]):  # of how much a 2 is, nobody knows
        (finding,) = runaway(table(entropy=entropy, reward=stands))
        assert finding.id == "entropy-collapse"


@pytest.mark.parametrize(
    ("entropy", "found"),
    [
        ([0.7, 11.8, 11.9, 11.9, 11.9, 11.9], True),  # the uniform policy of a vocabulary of 150,000
        ([0.7, 2.0, 3.0, 4.0, 5.2, 5.4, 5.3, 5.5, 5.6], True),
        ([0.7, 2.0, 3.0, 4.0, 4.5, 4.9, 5.3, 5.5, 4.9], False),  # on the last third is one below 5
        ([4.0, 5.5, 5.6, 5.5, 5.6, 5.5], False),  # it began so
        ([0.0, 5.5, 5.6, 5.5, 5.6, 5.5], False),  # not known, rather
        ([0.7, 11.9, 11.9, 11.9, 11.9], False),  # five rows
    ],
)
def test_a_policy_that_draws_any_token(entropy: list[float], found: bool) -> None:
    rows = [{"step": float(step), "entropy": value} for step, value in enumerate(entropy, 1)]
    finding = random_policy(Case(rows=rows))
    assert (finding is not None) is found
    if finding is not None:
        assert (finding.id, finding.severity, finding.confidence) == ("policy-collapse", "warning", "strong")
        assert random_policy(Case(rows=rows, stages={"grpo": "grpo"})) is None
        assert random_policy(Case(rows=rows, settings=Settings(factor="token"))) is None


def test_an_entropy_that_grows_with_the_reward_is_of_something_else() -> None:
    rows = [{"step": float(step), "entropy": 1.0 + step / 2, "reward/mean": step / 20} for step in range(1, 21)]
    assert random_policy(Case(rows=rows)) is None
    assert random_policy(Case(rows=[{**row, "reward/mean": 0.1} for row in rows])) is not None
