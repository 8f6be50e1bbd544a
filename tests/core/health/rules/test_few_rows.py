"""What a few rows that lie far apart say of a fall, and what they do not."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from core.health.case import Case, Settings
from core.health.examine import examine
from core.health.rules.few_rows import (
    fell_in_few,
    held_out_fell,
    held_out_stood,
    reward_fell,
    reward_stood,
    valid_fell_in_few,
)


def case(reward: Sequence[float], *, apart: int = 25, **columns: Sequence[float]) -> Case:
    names = {"truncated": "completions/truncated", "held_out": "eval/reward", "length": "completions/length"}
    rows = [
        {
            "step": float(apart * (i + 1)),
            "update": 1.0,
            "reward/mean": value,
            **{names.get(name, name): values[i] for name, values in columns.items()},
        }
        for i, value in enumerate(reward)
    ]
    return Case(rows=rows, averaged_over=apart)


FELL = [0.538, 0.608, 0.442, 0.361, 0.418, 0.120, 0.029, 0.006]


def test_a_reward_that_fell_between_a_few_rows_and_stayed() -> None:
    (finding,) = fell_in_few(case(FELL))
    assert (finding.id, finding.severity, finding.confidence) == ("policy-collapse", "warning", "weak")
    assert finding.evidence["first_step"] == 175
    (with_kl,) = fell_in_few(case([0.5, 0.5, 0.02], kl=[0.01, 0.02, 4.0]))
    assert with_kl.confidence == "moderate"
    (cut,) = fell_in_few(case([0.5, 0.4, 0.02], apart=1, truncated=[0.0, 0.1, 0.9]))
    assert cut.confidence == "moderate"


def test_right_answers_stand_for_a_reward_that_a_table_lacks() -> None:
    table = case(FELL)
    answers = Case(rows=[{**row, "rewards/accuracy": row["reward/mean"]} for row in table.rows], averaged_over=25)
    assert fell_in_few(answers) == fell_in_few(table)
    only = Case(
        rows=[{"step": row["step"], "rewards/accuracy": row["reward/mean"]} for row in table.rows], averaged_over=25
    )
    (finding,) = fell_in_few(only)
    assert finding.evidence["first_step"] == 175
    assert finding.summary.startswith("the share of right answers fell")
    (rewarded,) = fell_in_few(table)
    assert rewarded.summary.startswith("the reward fell")


@pytest.mark.parametrize(
    "table",
    [
        case([0.5, 0.5, 0.2]),  # less than half, not a quarter
        case([0.5, 0.1, 0.5, 0.5]),  # it came back
        case([0.25, 0.25, 0.0], apart=1),  # single steps: a batch of eight without a right answer
        case([0.5, 0.5, 0.5, 0.5, 0.5, 0.0]),  # one row of six
        case([-0.5, -0.5, -2.0]),  # penalties have no quarter
        case([0.5] * 15 + [0.0] * 15),  # a course: level-break has it
    ],
)
def test_no_fall(table: Case) -> None:
    assert fell_in_few(table) == ()


def test_short_excerpts_of_noise_are_rarely_accused() -> None:
    """2,000 excerpts of 3 to 8 single steps of eight groups of eight, half right, KL and length as usual."""
    random = Random(7)
    accused = 0
    for _ in range(2000):
        length = random.randint(3, 8)
        rewards = [sum(random.random() < 0.2 for _ in range(64)) / 64 for _ in range(length)]
        kl = [abs(random.gauss(0.01, 0.005)) for _ in range(length)]
        accused += bool(fell_in_few(case(rewards, apart=1, kl=kl)))
    assert accused == 0


def test_evaluations_that_fall_to_another_level() -> None:
    fell = [0.57, 0.65, 0.59, 0.34, 0.36, 0.33, 0.30]
    (finding,) = held_out_fell(case([0.5] * 7, held_out=fell))
    assert (finding.id, finding.severity, finding.confidence) == ("no-gain", "warning", "weak")
    assert held_out_fell(case([0.5] * 7, held_out=[*fell[:3], 0.5, *fell[4:]])) == ()
    assert held_out_fell(case([0.5] * 7, held_out=[0.57, *fell[3:], 0.36, 0.35])) == ()  # one before
    assert held_out_fell(case([0.5] * 7, held_out=fell[::-1])) == ()
    assert held_out_fell(case([0.5] * 4, held_out=[0.57, 0.65, 0.3, 0.36])) == ()  # two since: by chance
    assert [one.severity for one in examine(case([0.5] * 7, held_out=fell)) if one.id == "no-gain"] == ["warning"]


def test_evaluations_that_fall_one_after_another() -> None:
    (finding,) = held_out_fell(case([0.3, 0.5, 0.7], held_out=[0.41, 0.38, 0.3]))
    assert (finding.id, finding.severity, finding.confidence) == ("overfitting", "warning", "weak")
    (flat,) = held_out_fell(case([0.3, 0.3, 0.3], held_out=[0.254, 0.226, 0.168]))
    assert flat.id == "no-gain"
    rewards = [0.3 + 0.02 * i for i in range(12)]
    (long,) = held_out_fell(case(rewards, held_out=[0.5 - 0.02 * i + 0.01 * (i % 2) for i in range(12)]))
    assert (long.id, long.confidence) == ("overfitting", "moderate")


@pytest.mark.parametrize(
    "held_out",
    [
        [0.41, 0.40, 0.39],  # two of a hundred questions
        [0.41, 0.30, 0.35],  # up again
        [0.30, 0.35, 0.41],
        [0.41, 0.3, 0.41, 0.32, 0.4, 0.31, 0.42, 0.3],  # no trend
    ],
)
def test_evaluations_that_do_not(held_out: list[float]) -> None:
    assert held_out_fell(case([0.3] * len(held_out), held_out=held_out)) == ()


def test_evaluations_whose_error_is_known_are_judged_by_it() -> None:
    table = case([0.3, 0.5, 0.7], held_out=[0.41, 0.38, 0.3])
    known = Case(rows=table.rows, settings=Settings(eval_completions=50))
    assert held_out_fell(known) == ()


def standing(early: float, late: float, *, rows: int = 60, **settings: int) -> Case:
    """Rewards that go from one level to another along a line, 0.05 above and below it by turns."""
    values = [early + (late - early) * i / (rows - 1) + 0.05 * (-1) ** i for i in range(rows)]
    return Case(
        rows=[{"step": float(i), "update": 1.0, "reward/mean": value} for i, value in enumerate(values, 1)],
        settings=Settings(**settings),
    )


def test_a_reward_that_is_no_better_at_the_end() -> None:
    (finding,) = reward_stood(standing(0.4, 0.38))
    assert (finding.id, finding.severity, finding.confidence) == ("no-gain", "info", "weak")
    assert finding.evidence["steps"] == 60


def test_a_rise_within_noise_is_none() -> None:
    (finding,) = reward_stood(standing(0.4, 0.42))
    assert "no more than noise" in finding.summary
    (short,) = reward_stood(standing(0.4, 0.39, rows=10))
    assert short.evidence["steps"] == 10


@pytest.mark.parametrize(
    "table",
    [
        standing(0.4, 0.5),  # it rose
        standing(0.4, 0.38, rows=9),  # too short to say so
        standing(1.5, 1.49),  # solved
        standing(0.0, 0.0, rows=9),
        standing(0.6, 0.3),  # it fell, which is worse
    ],
)
def test_a_reward_of_which_that_cannot_be_said(table: Case) -> None:
    assert reward_stood(table) == ()


def test_evaluations_go_before_the_training_reward() -> None:
    table = standing(0.4, 0.38)
    better = [{**row, "eval/reward": 0.3 + 0.002 * i} for i, row in enumerate(table.rows)]
    assert reward_stood(Case(rows=better)) == ()


def test_evaluations_that_stand_go_before_the_training_reward() -> None:
    chance = Random(2)
    rising = [0.3 + 0.01 * i for i in range(30)]
    flat = [0.4 + chance.gauss(0, 0.02) for _ in range(30)]
    (finding,) = reward_stood(case(rising, apart=5, held_out=flat))
    assert (finding.id, finding.severity) == ("no-gain", "info")
    assert "eval/reward" in finding.summary
    assert reward_stood(case(flat, apart=5, held_out=rising)) == ()


@pytest.mark.parametrize(
    ("rewards", "apart", "found"),
    [
        ([0.30, 0.33, 0.32, 0.31, 0.30], 25, True),
        ([0.30, 0.33, 0.34, 0.36, 0.37], 25, False),
        ([0.30, 0.33, 0.32, 0.31, 0.30], 1, False),  # five steps show nothing
        ([0.95, 0.96, 0.95, 0.94, 0.95], 25, False),  # solved
    ],
)
def test_few_rows_that_lie_apart_and_stand(rewards: list[float], apart: int, found: bool) -> None:
    assert bool(reward_stood(case(rewards, apart=apart))) == found


def test_parts_stand_for_a_reward_that_a_log_lacks() -> None:
    rows = [
        {"step": 25.0 * i, "rewards/f1": f1, "rewards/recall": 0.3} for i, f1 in enumerate((0.30, 0.33, 0.31, 0.30), 1)
    ]
    (finding,) = reward_stood(Case(rows=rows))
    assert finding.evidence["early"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (standing(0.6, 0.3, rows=12), True),
        (standing(-0.4, -0.9, rows=12), True),
        (standing(0.6, 0.3, rows=4), False),  # four values are no line
        (standing(0.6, 0.5), False),  # a little
        (standing(0.3, 0.6), False),
        (
            Case(rows=[{"step": float(i), "reward/mean": -2e-4 * i + 1e-5 * (-1) ** i} for i in range(20)]),
            False,
        ),  # of 0
        (case([0.6 - 0.02 * i for i in range(15)], held_out=[0.3 + 0.01 * i for i in range(15)]), False),
    ],
)
def test_a_reward_that_falls_all_along(table: Case, found: bool) -> None:
    assert [(finding.id, finding.severity, finding.confidence) for finding in reward_fell(table)] == [
        ("policy-collapse", "warning", "weak")
    ] * found


def test_falling_by_chance_is_rare() -> None:
    chance = Random(3)
    tables = [case([0.4 + chance.gauss(0, 0.1) for _ in range(chance.choice([10, 20, 50]))]) for _ in range(2000)]
    assert sum(bool(reward_fell(table)) for table in tables) <= 4


def test_a_reward_that_may_have_the_wrong_sign_is_said_once() -> None:
    falling = standing(0.9, 0.3, rows=100)
    rows = [{**row, "reward/std": 0.3, "kl": 1e-4 * (row["step"] or 0)} for row in falling.rows]
    findings = [finding.id for finding in examine(Case(rows=rows)) if finding.severity == "warning"]
    assert findings == ["reward-sign"]


def test_one_rule_says_that_the_policy_broke() -> None:
    findings = examine(case([0.8, 0.8, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.001, 0.001, 0.001]))
    assert [finding.id for finding in findings].count("policy-collapse") == 1


LEARNED_AND_LOST = [0.77, 0.94, 0.59, 0.26, 0.44, 0.31]


def test_half_of_a_reward_is_lost_where_two_other_columns_left_with_it() -> None:
    entropy, clipped = [0.18, 0.27, 0.4, 1.2, 1.5, 1.3], [0.02, 0.02, 0.05, 0.2, 0.3, 0.3]
    (finding,) = fell_in_few(case(LEARNED_AND_LOST, entropy=entropy, truncated=clipped))
    assert (finding.id, finding.severity, finding.confidence) == ("policy-collapse", "warning", "moderate")
    assert fell_in_few(case(LEARNED_AND_LOST, entropy=entropy)) == ()  # one column: harder prompts do that as well
    assert fell_in_few(case(LEARNED_AND_LOST, entropy=[0.2] * 6, truncated=[0.02] * 6)) == ()
    came_back = [0.77, 0.94, 0.3, 0.3, 0.8, 0.9]
    assert fell_in_few(case(came_back, entropy=entropy, truncated=clipped)) == ()


def test_what_is_lost_while_the_policy_stays_at_its_reference_is_the_samplers() -> None:
    reward, length = [0.5, 0.48, 0.01, 0.02, 0.01], [200.0, 210.0, 1000.0, 990.0, 1010.0]
    (near,) = fell_in_few(case(reward, apart=1, length=length, kl=[0.0, 0.001, 0.001, 0.002, 0.002]))
    assert (near.id, near.severity) == ("sampler-mismatch", "warning")
    assert {cause.id for cause in near.rules_out} == {"policy-collapse", "learning-rate"}
    (far,) = fell_in_few(case(reward, apart=1, length=length, kl=[0.0, 0.001, 3.0, 3.1, 3.0]))
    (unknown,) = fell_in_few(case(reward, apart=1, length=length))
    assert {far.id, unknown.id} == {"policy-collapse"}


def test_a_reward_of_which_next_to_nothing_is_left_needs_three_rows_and_nothing_else() -> None:
    (finding,) = fell_in_few(case([29.6, 0.02, 0.03, 0.04], apart=1))
    assert (finding.id, finding.confidence) == ("policy-collapse", "weak")
    assert fell_in_few(case([0.25, 0.0, 0.0], apart=1)) == ()
    assert fell_in_few(case([29.6, 0.02, 0.03, 9.0], apart=1)) == ()


def test_falls_to_half_by_chance_are_rarely_accused() -> None:
    """2,000 excerpts of 5 to 9 rows: rewards, entropy, gradients, length and KL that scatter and lead nowhere."""
    random = Random(8)
    accused = 0
    for _ in range(2000):
        rows = random.randint(5, 9)
        reward = [sum(random.random() < 0.3 for _ in range(32)) / 32 for _ in range(rows)]
        others = {
            name: [abs(random.gauss(mean, mean / 3)) for _ in range(rows)]
            for name, mean in (("entropy", 0.4), ("grad_norm", 0.5), ("length", 300.0), ("kl", 0.02))
        }
        accused += bool(fell_in_few(case(reward, apart=1, **others)))
    assert accused <= 1


def valid(shares: Sequence[float], *, apart: int = 25, reward: Sequence[float] | None = None) -> Case:
    rewards = [0.1] * len(shares) if reward is None else reward
    return case(rewards, apart=apart, **{"completions/valid": shares})


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (valid([0.62, 0.22, 0.01, 0.01]), True),
        (valid([0.5, 0.55, 0.2, 0.25, 0.2]), True),
        (valid([0.62, 0.22, 0.01, 0.01], apart=1), False),  # single steps: a few hard prompts
        (valid([0.15, 0.05, 0.01, 0.01]), False),  # nothing that could be lost
        (valid([0.6, 0.2, 0.2, 0.5]), False),  # it came back
        (valid([0.6, 0.6, 0.6, 0.1]), False),  # one row
        (valid([0.6, 0.1, 0.1]), False),
        (valid([0.1, 0.1, 0.6, 0.6]), False),
    ],
)
def test_validity_that_fell_between_a_few_rows(table: Case, found: bool) -> None:
    findings = valid_fell_in_few(table)
    assert [(one.id, one.severity, one.confidence) for one in findings] == [
        ("policy-collapse", "warning", "weak")
    ] * found
    assert ("policy-collapse" in {one.id for one in examine(table)}) == found


def test_validity_of_eight_completions_a_row_is_rarely_accused() -> None:
    """1,500 tables of 4 to 8 rows, each of eight completions of which every second is valid."""
    random = Random(11)
    accused = 0
    for _ in range(1500):
        shares = [sum(random.random() < 0.5 for _ in range(8)) / 8 for _ in range(random.randint(4, 8))]
        accused += bool(valid_fell_in_few(valid(shares)))
    assert accused <= 35  # 50, were every fall to half one


def test_a_reward_that_rose_while_validity_fell_is_named() -> None:
    (finding,) = valid_fell_in_few(valid([0.52, 0.1, 0.21, 0.15], reward=[-0.1, 0.0, 0.1, 0.13]))
    assert "pays for what is not valid" in finding.summary
    (finding,) = valid_fell_in_few(valid([0.52, 0.1, 0.21, 0.15], reward=[0.2, 0.1, 0.1, 0.1]))
    assert "pays" not in finding.summary


def test_a_fall_on_a_line_tells_no_absurd_number() -> None:
    (finding,) = reward_fell(case([0.9 - 0.05 * i for i in range(16)], apart=1))
    assert "(trend beyond -100 standard errors)" in finding.summary
    assert finding.evidence["trend_z"] == -100.0


def test_half_of_a_reward_that_sinks_counts_where_lengths_leave_with_it() -> None:
    noisy = [0.5, 0.1, 0.6, 0.2, 0.3, 0.0, 0.5, 0.1, 0.2, 0.0, 0.3, 0.0]  # -2.1 standard errors
    lengths = [580.0, 560.0, 520.0, 480.0, 400.0, 300.0, 200.0, 120.0, 100.0, 90.0, 90.0, 90.0]
    assert reward_fell(case(noisy, apart=1)) == ()
    (finding,) = reward_fell(case(noisy, apart=1, length=lengths))
    assert "completions/length from 540 to 90" in finding.summary
    assert reward_fell(case(noisy, apart=1, length=[500.0] * 12)) == ()
    assert reward_fell(case(noisy[::-1], apart=1, length=lengths)) == ()


def evaluated(trained: Sequence[float], held_out: Sequence[float], column: str = "rewards/accuracy") -> Case:
    return case([0.5] * len(trained), apart=1, **{column: trained}, held_out=held_out)


RISING = [0.3 + 0.04 * i for i in range(12)]
STANDS = [0.4, 0.42, 0.39, 0.41, 0.4, 0.41, 0.4, 0.39, 0.42, 0.4, 0.4, 0.41]


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (evaluated(RISING, STANDS), True),
        (
            evaluated([0.3, 0.32, 0.3, 0.9, 0.3, 0.31, 0.9, 0.3, 0.9, 0.35, 0.9, 0.33], STANDS),
            False,
        ),  # as chance may have it
        (evaluated([0.98, 1.0] * 6, STANDS), True),  # known by heart
        (evaluated(RISING, [value + 0.02 * i for i, value in enumerate(STANDS)]), False),  # it rises as well
        (evaluated([0.5, 0.52] * 6, STANDS), False),  # nothing was learned
        (evaluated([0.98, 1.0] * 6, [0.8] * 11 + [0.81]), False),  # not so far apart
        (evaluated([0.98, 1.0] * 6, STANDS, column="completions/valid"), False),  # no answers
    ],
)
def test_evaluations_that_stand_while_training_answers_get_right(table: Case, found: bool) -> None:
    findings = held_out_stood(table)
    assert [(one.id, one.severity, one.confidence) for one in findings] == [("overfitting", "info", "weak")] * found


def test_the_training_reward_stands_for_its_answers() -> None:
    assert held_out_stood(case(RISING, apart=1, held_out=STANDS))
    assert held_out_stood(case(RISING, apart=1)) == ()


@pytest.mark.parametrize(
    ("rewards", "found"),
    [
        ([-0.38, -0.36, -0.23, -0.23, -0.30], True),  # 1.2 spreads higher at the end
        ([0.1, 0.2, 0.3, 0.4, 0.5], False),
        ([0.1, 0.1, 0.1, 0.5, 0.5], False),
        ([0.1, 0.6, 0.6, 0.6, 0.6, 0.6], False),  # learned at once, and kept: thirds and spread alone would not see it
        ([0.15, 0.58, 0.71, 0.75, 0.77, 0.78], False),
        ([0.1, *[0.6, 0.62] * 6], False),
        ([0.61, *[0.6, 0.62] * 6], True),
        ([0.1, 0.3, 0.1, 0.3, 0.1, 0.3], True),
    ],
)
def test_a_few_values_rise_where_they_rise_by_more_than_they_scatter(rewards: list[float], found: bool) -> None:
    assert bool(reward_stood(case(rewards, apart=50))) == found


def test_held_out_answers_that_are_never_right_are_worth_a_warning() -> None:
    rising = [0.1 + 0.06 * i for i in range(12)]
    (finding,) = held_out_stood(case(rising, apart=1, held_out=[0.004, *[0.0] * 11]))
    assert finding.severity == "warning"
    both = examine(case(rising, apart=1, held_out=[0.004, *[0.0] * 11]))
    assert [one.id for one in both if one.id in ("overfitting", "reward-hacking")] == ["overfitting", "reward-hacking"]
    (finding,) = held_out_stood(case([value / 4 for value in rising], apart=1, held_out=[0.004, *[0.0] * 11]))
    assert finding.severity == "info"
    (finding,) = held_out_stood(case([value - 1 for value in rising], apart=1, held_out=[-0.9, *[-0.91] * 11]))
    assert finding.severity == "info"  # penalties: it is not 0 that it stands at


def test_training_answers_that_were_right_throughout_are_not_said_to_rise() -> None:
    answers = {"rewards/accuracy": [0.95, 0.96] * 6, "held_out": [0.01, 0.0] * 6}
    found = examine(case([0.95, 0.96] * 6, apart=1, **answers))
    (gamed,) = [one for one in found if one.id == "reward-hacking"]
    assert "rises" not in gamed.summary


def test_a_reward_of_zero_from_the_first_row_on_fell_from_nothing() -> None:
    """The rows are means of ten steps, and the second is as low as the first."""
    assert fell_in_few(Case(rows=[{"step": 10 * i, "reward/mean": 0.0} for i in range(1, 13)], averaged_over=10)) == ()


def test_a_reward_that_is_seldom_above_zero_did_not_fall() -> None:
    assert fell_in_few(case([0.0, 0.0, 0.0, 0.25, 0.0, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0], apart=20)) == ()


def test_a_reward_that_is_at_its_best_at_once_rose_as_well() -> None:
    at_once, stands = [0.8, *[1.19, 1.20] * 4], [0.75, *[0.76, 0.75] * 4]
    (finding,) = held_out_stood(case(at_once, apart=10, held_out=stands))
    assert (finding.id, finding.severity) == ("overfitting", "info")
    assert held_out_stood(case([1.19, *[1.20, 1.19] * 4], apart=10, held_out=stands)) == ()
