"""Rewards that are the same for everything, lost, never paid, or nearly the same for invalid completions."""

from __future__ import annotations

import math
from math import sqrt
from random import Random

import pytest

from core.health.case import Case, Sample, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.rewards import constant_reward, gap, idle_reward, lost_rewards, weak_reward


def rows(steps: int = 20, *, mean: float = 0.5, std: float = 0.0, **more: float) -> list[Row]:
    return [
        {"step": step, "update": 0, "reward/mean": mean, "reward/std": std, "groups/dead": 1.0, **more}
        for step in range(1, steps + 1)
    ]


def found(table: list[Row], **case: object) -> bool:
    return bool(constant_reward(Case(rows=table, **case)))  # type: ignore[arg-type]


def test_it_is_found_as_itself() -> None:
    findings = examine(Case(rows=rows(**{"completions/valid": 0.7, "completions/distinct": 0.5})))
    assert [one.id for one in findings] == ["constant-reward"]  # neither dead groups nor a run without updates
    (finding,) = findings
    assert (finding.severity, finding.confidence) == ("error", "strong")
    assert {"20", "0.5,"} <= set(finding.summary.split())
    assert "valid or not" in finding.summary
    assert "does not depend" in finding.summary


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (rows(), True),
        (rows(std=3e-8), True),  # fp32's std of equal rewards
        (rows(2), True),
        (rows(1), False),  # one row is dead groups'
        (rows(3)[:-1] + rows(1, mean=0.6), False),
        (rows(std=0.01), False),
        (rows()[:-1] + rows(1, mean=0.6), False),  # one step paid another reward
        (rows(mean=0.0), True),
        (rows(mean=0.0, **{"completions/valid": 0.0}), False),  # nothing valid: the policy, not the reward
        (rows(mean=1.0, **{"completions/valid": 1.0}), True),
        (rows(**{"completions/valid": 0.5})[:-1] + rows(1, **{"completions/valid": 0.0}), True),  # one step invalid
    ],
)
def test_constant(table: list[Row], expected: bool) -> None:
    assert found(table) == expected


def test_fewer_than_ten_steps_are_no_error() -> None:
    mixed = {"completions/valid": 0.7}
    for steps, graded in ((2, ("warning", "weak")), (9, ("warning", "moderate")), (10, ("error", "strong"))):
        (finding,) = constant_reward(Case(rows=rows(steps, **mixed)))
        assert (finding.severity, finding.confidence) == graded


@pytest.mark.parametrize(
    ("columns", "steps", "expected"),
    [
        ({"reward/max": 0.5, "reward/min": 0.5}, 3, True),
        ({"reward/max": 0.6, "reward/min": 0.4}, 3, False),
        ({"groups/dead": 1.0}, 3, True),  # equal inside every group, and one mean
        ({"groups/dead": 0.5}, 3, False),
        ({}, 3, True),  # nothing tells the spread: three times the same number
        ({}, 2, False),
    ],
)
def test_other_columns_tell_the_spread(columns: Row, steps: int, expected: bool) -> None:
    assert found([{"step": i, "reward/mean": 0.5, **columns} for i in range(1, steps + 1)]) == expected


def test_a_row_of_ten_steps_is_ten_steps() -> None:
    assert found(rows(1), averaged_over=10)


def test_completions_that_are_all_the_same_earn_the_same() -> None:
    settings = Settings(num_generations=8, prompts_per_step=2)
    assert not found(rows(**{"completions/distinct": 1 / 16}), settings=settings)
    assert found(rows(**{"completions/distinct": 2 / 16}), settings=settings)


def test_texts_that_differ_do_not_make_it_sure() -> None:
    pairs = tuple(
        Sample(step=step, group="p", reward=0.5, text=text)
        for step in range(1, 21)
        for text in (f"a{step}", f"b{step}")
    )
    (finding,) = constant_reward(Case(rows=rows(), samples=pairs))
    assert finding.evidence["varied_groups"] == 20
    # All may have the form that is paid for, and none the answer.
    assert (finding.severity, finding.confidence) == ("warning", "moderate")
    assert "only a part" in finding.summary  # the other reading is named as well
    assert constant_reward(Case(rows=rows()))[0].confidence == "moderate"
    other = (*pairs, Sample(step=20, group="q", reward=0.5), Sample(step=20, group="q", reward=0.7))
    assert constant_reward(Case(rows=rows(), samples=other)) == ()


@pytest.mark.parametrize(
    ("mean", "severity"), [(0.0, "warning"), (1.0, "warning"), (-1.0, "warning"), (2.0, "warning"), (0.4, "error")]
)
def test_an_end_of_the_scale_may_be_the_prompts(mean: float, severity: str) -> None:
    """Valid or not: where no prompt can be solved, a valid answer earns no more than an invalid one."""
    for more, expected in (({}, "warning"), ({"completions/valid": 0.7}, severity)):
        (finding,) = constant_reward(Case(rows=rows(mean=mean, **more)))
        assert finding.severity == expected
        assert ("prompts are solved" in finding.summary) == (expected == "warning")
        assert bool(finding.rules_out) == (expected == "error")
        if expected == "warning":
            assert finding.confidence == "moderate"


@pytest.mark.parametrize(("reward", "still"), [(0.5, True), (0.3, False), (float("nan"), True)])
def test_an_evaluation_with_another_reward_refutes_it(reward: float, still: bool) -> None:
    for step in (0, 21):
        evaluated: Row = {"step": step, "eval/reward": reward}
        table = [evaluated, *rows()] if step == 0 else [*rows(), evaluated]
        assert found(table) == still


def test_a_completion_with_another_reward_refutes_it() -> None:
    assert not found(rows(), samples=(Sample(step=1, reward=0.5), Sample(step=1, reward=0.7)))


def test_a_part_that_differs_and_is_not_paid_for() -> None:
    # rewards/correct was 0.2 on the first step and 0.3 later, the reward 0.4 throughout: it does not count.
    table = rows(mean=0.4, **{"rewards/correct": 0.3, "rewards/format": 0.1})
    table[0] = {**table[0], "rewards/correct": 0.2}
    (finding,) = constant_reward(Case(rows=table))
    assert (finding.severity, "whatever its rewards/correct was" in finding.summary) == ("error", True)
    # The form is paid for, and no answer is right: each part is constant.
    (finding,) = constant_reward(Case(rows=rows(mean=0.1, **{"rewards/correct": 0.0, "rewards/format": 0.1})))
    assert (finding.severity, finding.rules_out) == ("warning", ())


def test_a_training_reward_that_is_constant_while_evaluations_differ() -> None:
    evaluated: list[Row] = [{"step": step, "eval/reward": 0.3 + 0.005 * step} for step in (0, 20)]
    (finding,) = constant_reward(Case(rows=[evaluated[0], *rows(mean=0.37), evaluated[1]]))
    assert (finding.severity, finding.confidence, finding.rules_out) == ("warning", "moderate", ())
    assert "20 training steps earned 0.37, and evaluations 0.3 to 0.4" in finding.summary
    # All training prompts are solved, and those of evaluation are not: dead groups, and no broken reward.
    assert not found([evaluated[0], *rows(mean=1.0), evaluated[1]])


def paid(*rewards: float | None) -> list[Row]:
    return [{"step": step, "reward/mean": reward} for step, reward in enumerate(rewards, 1)]


@pytest.mark.parametrize("lost", [None, math.nan, math.inf])
def test_no_reward_at_all_is_an_error(lost: float | None) -> None:
    (finding,) = lost_rewards(Case(rows=paid(lost, lost)))
    assert (finding.id, finding.severity, finding.confidence) == ("lost-rewards", "error", "certain")
    assert finding.evidence == {"steps": 2, "of": 2, "first": 1}
    assert "2 of 2 steps" in finding.summary
    assert finding in examine(Case(rows=paid(lost, lost)))


def test_a_single_one_is_a_warning() -> None:
    (finding,) = lost_rewards(Case(rows=paid(0.5, 0.5, None, 0.5)))
    assert (finding.severity, finding.evidence) == ("warning", {"steps": 1, "of": 4, "first": 3})
    assert "on 1 of 4 steps (first at step 3)" in finding.summary


def test_it_is_silent_where_nothing_is_lost() -> None:
    table: list[Row] = [
        {"step": 0, "reward/mean": None},  # before training
        {"step": 1, "loss": 0.1},  # not recorded: a supervised step, or an empty cell
        {"step": 2, "reward/mean": None, "reward/missing": 1.0},  # missing-rewards counts that
        {"step": 3, "reward/mean": 0.0},
    ]
    assert lost_rewards(Case(rows=table)) == ()
    assert lost_rewards(Case(rows=[])) == ()


def two_functions(steps: int = 30, *, rise: float = 0.01, correct: float = 0.0) -> list[Row]:
    """rewards/format rises by `rise` a step, around it a zigzag of 0.02."""
    return [
        {"step": i, "rewards/format": 0.1 + rise * i + 0.02 * (-1) ** i, "rewards/correct": correct}
        for i in range(1, steps + 1)
    ]


def test_a_function_that_never_pays() -> None:
    (found,) = idle_reward(Case(rows=two_functions()))
    assert (found.id, found.severity, found.confidence) == ("idle-reward", "info", "moderate")
    assert [fact in found.summary for fact in ("rewards/correct is exactly 0", "30 steps", "rewards/format rises")] == [
        True, True, True
    ]  # fmt: skip
    assert idle_reward(Case(rows=two_functions(rise=0.0))) == ()
    assert idle_reward(Case(rows=two_functions(rise=-0.01))) == ()
    assert idle_reward(Case(rows=two_functions(correct=0.001))) == ()
    assert idle_reward(Case(rows=two_functions(19))) == ()
    once = two_functions()
    once[3] = {**once[3], "rewards/correct": 0.1}
    assert idle_reward(Case(rows=once)) == ()


V, X = True, False


@pytest.mark.parametrize(
    ("earned", "value", "se"),
    [
        # Valid 1 and 0, mean 0.5; invalid 0. Each step moves the difference by +-0.5 / 2: se^2 = 2/1 * 2 * 0.25^2.
        ({1: [(V, 1.0), (X, 0.0)], 2: [(V, 0.0), (X, 0.0)]}, 0.5, 0.5),
        # An easy step and a hard one: both kinds share the step, so what it earns says nothing of the difference.
        ({1: [(V, 1.0), (X, 1.0)], 2: [(V, 0.0), (X, 0.0)]}, 0.0, 0.0),
        # The same rewards the other way round: step 1 moves by 0.25 + 0.25, step 2 by as much down.
        ({1: [(V, 1.0), (X, 0.0)], 2: [(V, 0.0), (X, 1.0)]}, 0.0, sqrt(2 * 2 * 0.5**2)),
        # A step of several completions of a kind moves it once, by all of them: (0.5 + 0.5) / 4 = 0.25.
        ({1: [(V, 1.0), (V, 1.0), (X, 0.0)], 2: [(V, 0.0), (V, 0.0), (X, 0.0)]}, 0.5, 0.5),
    ],
)
def test_the_difference_and_its_error(earned: dict[int, list[tuple[bool, float]]], value: float, se: float) -> None:
    found = gap(earned)
    assert (found.value, found.se) == (pytest.approx(value), pytest.approx(se))


def test_the_error_is_what_many_runs_scatter_by() -> None:
    """400 runs of 40 steps whose prompts differ: the standard error against the difference's scatter."""
    random = Random(7)
    runs = []
    for _ in range(400):
        hard = [random.random() for _ in range(40)]
        runs.append(gap({i: [(random.random() < 0.6, hard[i] + random.random()) for _ in range(4)] for i in range(40)}))
    mean = sum(run.value for run in runs) / 400
    scatter = sqrt(sum((run.value - mean) ** 2 for run in runs) / 400)
    assert sum(run.se for run in runs) / 400 == pytest.approx(scatter, rel=0.1)


def case(
    valid: float, invalid: float, *, steps: int = 60, shift: float = 0.0, invalid_rows: int = 3, rows: int = 6
) -> Case:
    """A valid completion earns 1 in `valid` of the cases, an invalid one in `invalid` of them, and 0 else."""
    random = Random(3)
    return Case(
        rows=[{"step": step} for step in range(1, steps + 1)],
        samples=tuple(
            Sample(
                step=step,
                group=f"S{row % 2}",
                valid=row >= invalid_rows,
                reward=shift + float(random.random() < (invalid if row < invalid_rows else valid)),
            )
            for step in range(1, steps + 1)
            for row in range(rows)
        ),
    )


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (case(0.58, 0.50), True),  # P30's
        (case(0.58, 0.50, shift=-5.0), True),  # rewards may start anywhere
        (case(0.5, 0.6), True),  # the invalid ones earn more
        (case(0.6, 0.0), False),  # an invalid completion earns nothing
        (case(0.05, 0.0), False),  # a hard task: hardly anything is earned, but only by valid ones
        (case(0.9, 0.55), False),  # they keep more than half, and the difference is large
        (case(0.58, 0.50, steps=9, rows=60, invalid_rows=30), False),  # too few steps, however many completions
        (case(0.58, 0.50, steps=10, rows=60, invalid_rows=30), True),
        (case(0.58, 0.50, invalid_rows=0), False),  # no invalid ones
        (case(1.0, 1.0), False),  # all rewards are equal: another rule's
        (case(0.0, 0.0), False),
        (Case(rows=[]), False),
    ],
)
def test_when_validity_earns_little(known: Case, found: bool) -> None:
    assert [one.id for one in weak_reward(known)] == (["weak-reward"] if found else [])


def test_what_it_says() -> None:
    (found,) = weak_reward(case(0.58, 0.50))
    assert (found.severity, found.confidence) == ("info", "moderate")  # half are valid, at the end as at the start
    e = {name: float(value) for name, value in found.evidence.items() if isinstance(value, (int, float))}
    assert e["difference"] == pytest.approx(e["valid"] - e["invalid"])
    assert e["kept"] == pytest.approx(e["invalid"] / e["valid"])  # the lowest reward is 0
    assert e["upper"] == pytest.approx(e["difference"] + 2 * e["se"])
    assert (e["steps"], e["samples"], e["groups"], e["mixed_groups"]) == (60, 360, 120, 120)
    assert f"an invalid completion earned {e['invalid']:.3f}" in found.summary


def test_it_is_a_warning_where_the_form_suffers() -> None:
    (few,) = weak_reward(case(0.58, 0.50, invalid_rows=4))  # a third are valid
    assert few.severity == "warning"
    before = case(0.58, 0.50, rows=20, invalid_rows=6)
    fewer = tuple(  # 14 of 20 are valid at first, 5 of 11 in the end: .70 and .45, .58 over all
        sample for number, sample in enumerate(before.samples) if not (sample.step > 30 and number % 20 >= 11)
    )
    more = tuple(sample for number, sample in enumerate(before.samples) if not (sample.step > 30 and number % 20 < 3))
    falls, rises = (Case(rows=before.rows, samples=samples) for samples in (fewer, more))
    assert [found.severity for found in weak_reward(falls)] == ["warning"]
    assert [found.severity for found in weak_reward(rises)] == ["info"]


def test_a_small_difference_beyond_doubt_is_only_told() -> None:
    """0.4 and 0.55 on ten times the steps: some eight standard errors, and a third of a standard deviation."""
    (found,) = weak_reward(case(0.55, 0.40, steps=600))
    assert found.severity == "info"
    assert float(str(found.evidence["difference"])) > 3 * float(str(found.evidence["se"]))


def test_few_invalid_ones_are_no_concern() -> None:
    """30 of 360 is under a tenth; 60 of 360 is not."""
    few, some = (
        Case(
            rows=[],
            samples=tuple(
                Sample(step=step, valid=bool(row or step % every), reward=float((step // 2 + row) % 2))
                for step in range(1, 61)
                for row in range(6)
            ),
        )
        for every in (2, 1)
    )
    assert [bool(weak_reward(one)) for one in (few, some)] == [False, True]
