"""Runs whose reward lies at its floor to the end, and those that only look so."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from core.health.case import Case, Sample, Settings
from core.health.examine import examine
from core.health.finding import Row
from core.health.rules.dead_run import dead_run


def rows(*rewards: float, **more: float) -> list[Row]:
    return [{"step": i, "reward/mean": reward, **more} for i, reward in enumerate(rewards, 1)]


def graded(table: list[Row], **case: object) -> list[tuple[str, str]]:
    return [(one.severity, one.confidence) for one in dead_run(Case(rows=table, **case))]  # type: ignore[arg-type]


GOOD = [0.5, 0.6, 0.4, 0.5, 0.6, 0.5, 0.7, 0.5, 0.6, 0.5]
NEVER: Row = {"completions/truncated": 1.0}


@pytest.mark.parametrize(
    ("rewards", "more", "expected"),
    [
        ([0.0] * 20, {}, [("error", "strong")]),
        ([0.0] * 20, {"reward/std": 0.0}, [("error", "strong")]),
        ([0.0] * 20, {"reward/std": 0.2}, []),  # a mean of 0 by rounding, or of penalties
        ([0.0] * 6, {}, [("error", "moderate")]),
        ([0.0] * 3, {}, [("warning", "moderate")]),  # hard prompts begin so
        ([0.0] * 3, NEVER, [("error", "moderate")]),
        ([0.0], {}, [("warning", "weak")]),
        ([-1.0] * 20, {}, [("error", "strong")]),  # a floor that is not 0
        ([*GOOD, *[-1.0] * 20], {}, [("error", "strong")]),
        ([*[-0.5] * 10, *[0.0] * 20], {}, []),  # penalties that are no longer due: the best there is
        ([1.0] * 20, {}, []),  # solved
        ([0.5] * 20, {}, []),  # constant-reward
        ([*GOOD, *[0.0] * 20], {}, [("error", "strong")]),
        ([*[0.0] * 20, *GOOD], {}, []),  # it came alive
        ([*GOOD, *GOOD, *GOOD, *[0.0] * 10], {}, []),  # a quarter of the run
        ([*GOOD, *[0.0] * 8, 0.01, *[0.0] * 11], {}, [("error", "strong")]),  # one of twenty earned a little
        ([0.0, 0.0, 0.0, 0.1, *[0.0] * 8], {}, []),  # sparse: 8 steps without are likely
    ],
)
def test_what_is_dead(rewards: list[float], more: Row, expected: list[tuple[str, str]]) -> None:
    assert graded([{**row, **more} for row in rows(*rewards)]) == expected


def test_dead_steps_among_others_where_no_text_ends_and_the_policy_is_far() -> None:
    """20 of 30 steps earn nothing; in the halves 3 and 7 earn: no clear gain. 1 and 9 would be one."""
    lost: Row = {"completions/truncated": 1.0, "kl": 1.0}

    def earning(early: int, late: int) -> list[Row]:
        first, second = [0.1] * early + [0.0] * (15 - early), [0.0] * (15 - late) + [0.1] * late
        return [{**row, **lost} for row in rows(*first, *second, 0.0)]

    assert graded(earning(3, 7)) == [("error", "strong")]
    assert graded(earning(7, 3)) == [("error", "strong")]
    assert graded(earning(1, 9)) == []
    assert graded([{**row, "kl": 0.01} for row in earning(5, 5)]) == []  # the policy is near: hard prompts


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ["(no column tells the spread)"]),
        ({"policy/loss": 0.0}, ["(no column tells the spread)"]),
        ({"policy/loss": -0.01}, ["a policy loss of 0.01 says that some reward may still have differed"]),
        ({"policy/loss": -0.01, "reward/std": 0.0}, []),  # the spread is known
    ],
)
def test_what_stands_against_it_is_said(more: Row, words: list[str]) -> None:
    (finding,) = dead_run(Case(rows=[{**row, **more} for row in rows(*[0.0] * 20)]))
    assert [word for word in words if word not in finding.summary] == []
    assert ("spread" in finding.summary) is bool(words)


def test_the_chance_of_the_stretch() -> None:
    """2 of 10 steps earned something: (1 - 3 / 12)^m is 0.0563 at m = 10, 0.0134 at 15, 0.00003 at 36."""
    before = [0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5]
    assert graded(rows(*before, *[0.0] * 10)) == []
    assert graded(rows(*before, *[0.0] * 15)) == [("warning", "moderate")]
    assert graded(rows(*before, *[0.0] * 36)) == [("error", "strong")]


def test_it_is_the_first_finding_of_a_run_that_was_lost() -> None:
    """Reward 0 on 20 of 30 steps, everything cut off, a KL of about 1."""
    table: list[Row] = [
        {
            "step": i, "learning_rate": 1e-4,
            "reward/mean": 0.0 if i > 10 else 0.4, "reward/std": 0.0 if i > 10 else 0.3,
            "completions/truncated": 1.0 if i > 10 else 0.1, "kl": 1.0 if i > 10 else 1e-3 * i, "grad_norm": 0.3,
        }
        for i in range(1, 31)
    ]  # fmt: skip
    first = examine(Case(rows=table))[0]
    assert (first.id in ("dead-run", "learning-rate"), first.severity) == (True, "error")
    (finding,) = dead_run(Case(rows=table))
    assert all(part in finding.summary for part in ("20 of 30 steps", "cut off", "KL", "lost on the way"))
    # Here and there: only with everything cut off and a KL that is large, and mostly later.
    mixed: list[Row] = [
        table[20] | {"step": i} if i in (3, 5, 7, 9) or (i > 10 and i % 5) else table[5] | {"step": i}
        for i in range(1, 31)
    ]
    assert graded(mixed) == [("error", "strong")]
    assert graded([{**row, "kl": 0.01} for row in mixed]) == []
    assert graded([{**row, "completions/truncated": 0.4} for row in mixed]) == []


def test_what_columns_say_of_why() -> None:
    (finding,) = dead_run(Case(rows=rows(*[0.0] * 12, **{"completions/valid": 0.0, "rewards/format": 0.3})))
    assert "none is valid" in finding.summary
    assert "rewards/format is earned and does not reach the sum" in finding.summary


def test_what_refutes_it() -> None:
    table = rows(*[0.0] * 12)
    paid = tuple(Sample(step=i, reward=0.5) for i in range(1, 13))
    assert graded(table, samples=paid) == []
    assert graded(table, settings=Settings(supervised_weight=0.1)) == []
    assert graded(table, reward_range=(-1.0, 0.0)) == []  # the best there is
    assert graded(table, reward_range=(0.0, 1.0)) == [("error", "strong")]
    penal = rows(*[0.0] * 12, **{"rewards/penalty": -0.2})
    assert graded(penal) == []


def test_sparse_runs_that_learn_are_not_accused() -> None:
    """3,000 runs of 60 steps that earn something on 5 to 10 % of the steps at first and 40 % at the end."""
    random, accused = Random(5), 0
    for _ in range(3000):
        start = random.uniform(0.05, 0.1)
        rates = [start + (0.4 - start) * i / 59 for i in range(60)]
        table = rows(*(0.125 if random.random() < rate else 0.0 for rate in rates))
        accused += any(one.severity == "error" for one in dead_run(Case(rows=table)))
    assert accused == 0


@pytest.mark.parametrize(
    ("rewards", "more", "expected"),
    [
        ([0.3, 0.35, 0.0, 0.0, 0.0], {"reward/std": 0.0}, [("warning", "weak")]),
        ([0.3, 0.35, 0.0, 0.0, 0.0], {}, []),  # hard prompts: no column tells that nothing varied
        ([0.3, 0.0, 0.35, 0.0, 0.0], {"reward/std": 0.0}, []),  # sparse: it came back before
    ],
)
def test_a_short_end_whose_rewards_are_known_to_be_equal(
    rewards: list[float], more: Row, expected: list[tuple[str, str]]
) -> None:
    table = [row if row["reward/mean"] else {**row, **more} for row in rows(*rewards)]
    spread = [{"reward/std": 0.4, **row} if more else row for row in table]
    assert graded(spread) == expected


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([-3.0] * 12, ["dead-run", "constant-reward"]),  # is -3 the least there is, or all there is?
        ([0.0] * 12, ["dead-run"]),
        ([*GOOD, *[-3.0] * 20], ["dead-run"]),
    ],
)
def test_one_negative_reward_is_not_known_to_be_the_least(rewards: list[float], expected: list[str]) -> None:
    findings = examine(Case(rows=rows(*rewards, **{"reward/std": 0.0})))
    assert [one.id for one in findings if one.id in ("dead-run", "constant-reward")] == expected
    assert ("no other reward" in findings[0].summary) == (len(expected) == 2)


def test_a_largest_reward_above_the_mean_is_another_reward() -> None:
    table = rows(*[-3.0] * 12)
    assert "dead-run" in {one.id for one in examine(Case(rows=table))}
    assert "dead-run" not in {one.id for one in examine(Case(rows=[{**row, "reward/max": 2.0} for row in table]))}


def falls_dead(**since: float) -> Case:
    """Twenty steps that earn, twenty that earn 0; columns of the policy, and what they are since."""
    usual: Row = {"entropy": 1.2, "completions/length": 90.0, "completions/truncated": 0.02, "kl": 0.01}
    noise = Random(3)
    alive = [{**row, **{name: value * (1 + noise.gauss(0, 0.03)) for name, value in usual.items()}} for row in
             rows(*[0.4 + 0.05 * (-1) ** i for i in range(20)])]  # fmt: skip
    dead = [{"step": 21 + i, "reward/mean": 0.0, **usual, **since} for i in range(20)]
    return Case(rows=[*alive, *dead])


def test_a_judge_that_died_is_told_from_a_policy_that_was_lost() -> None:
    """The policy's columns go on over the fall as they were: the reward changed, and nothing collapsed."""
    same = examine(falls_dead())
    assert [one.id for one in same if one.severity in ("error", "warning") and one.id != "dead-groups"] == ["dead-run"]
    assert "what pays it changed" in same[0].summary
    assert "checkpoint" not in same[0].advice


@pytest.mark.parametrize("since", [{"entropy": 0.3}, {"completions/length": 30.0}, {"kl": 0.5}])
def test_a_policy_that_changed_with_the_fall_was_lost(since: dict[str, float]) -> None:
    (found,) = dead_run(falls_dead(**since))
    assert "lost on the way" in found.summary
    assert "checkpoint" in found.advice


def test_without_columns_of_the_policy_nothing_is_said_of_it() -> None:
    for more in ({}, {"completions/length": 90.0, "completions/truncated": 0.0}):  # a wrong text may be as long
        (found,) = dead_run(Case(rows=rows(*[0.4, 0.5] * 10, *[0.0] * 20, **more)))
        assert "lost on the way, or what pays it changed" in found.summary


@pytest.mark.parametrize("last", [(0.6, 1.0, 1.6, 2.2, 2.9), (1.2, 1.4, 1.7, 2.0, 2.3)])
def test_a_policy_that_was_lost_over_five_rows_did_not_go_on_as_it_was(last: tuple[float, ...]) -> None:
    """The rows just before the fall are on their way already; those some way before tell what it was."""
    case = falls_dead(entropy=3.0)
    lost = [dict(row) for row in case.rows]
    for row, entropy in zip(lost[15:20], last, strict=True):
        row["entropy"] = entropy
    (found,) = dead_run(replace(case, rows=lost))
    assert "lost on the way (entropy" in found.summary


def test_an_entropy_that_sinks_slowly_all_along_goes_on_over_the_fall() -> None:
    """As it does where the policy learns: 1.5 to 1.1 over forty steps."""
    case = falls_dead()
    slow = [{**row, "entropy": 1.5 - 0.01 * (row["step"] or 0)} for row in case.rows]
    (found,) = dead_run(replace(case, rows=slow))
    assert "what pays it changed" in found.summary


def test_a_log_that_begins_later_may_have_lost_its_policy_before() -> None:
    whole = rows(*[0.0] * 20)
    (found,), (later,) = dead_run(Case(rows=whole)), dead_run(Case(rows=whole, excerpt=True))
    assert "before this log begins" in later.summary
    assert "before this log begins" not in found.summary


@pytest.mark.parametrize("column", ["entropy", "kl"])
def test_a_column_of_zeros_tells_nothing_of_the_policy(column: str) -> None:
    alive, dead = rows(*[0.4, 0.5] * 10, **{column: 0.0}), rows(*[0.0] * 20, **{column: 0.0})
    (found,) = dead_run(Case(rows=[*alive, *({**row, "step": 20 + (row["step"] or 0)} for row in dead)]))
    assert "lost on the way, or what pays it changed" in found.summary


@pytest.mark.parametrize("now", [{"entropy": 1.45}, {"kl": 0.03}, {"kl": 0.016}, {"completions/length": 110.0}])
def test_a_column_that_moved_a_little_tells_neither(now: dict[str, float]) -> None:
    (found,) = dead_run(falls_dead(**now))
    assert "lost on the way, or what pays it changed" in found.summary


@pytest.mark.parametrize(
    ("rewards", "spread", "expected"),
    [
        ([-2.0] * 3 + [-1.9] + [-2.0] * 5, True, [("warning", "moderate")]),  # one row in nine earned a little
        ([-2.0] * 3 + [-1.9] + [-2.0] * 5, False, []),  # nobody knows whether rewards differed
        ([-2.0] * 2 + [-1.9, -1.8] + [-2.0] * 5, True, []),  # more than 15 % of the rows
        ([-2.0] * 5 + [-1.9] + [-2.0] * 3, True, []),  # in the second half: it may have begun to learn
        ([-1.9, -2.0, -2.0, -2.0], True, []),  # too few rows
    ],
)
def test_a_run_that_hardly_ever_earns_anything(
    rewards: list[float], spread: bool, expected: list[tuple[str, str]]
) -> None:
    lowest = min(rewards)
    table = [
        row | ({"reward/std": 0.0 if reward == lowest else 0.2} if spread else {})
        for row, reward in zip(rows(*rewards), rewards, strict=True)
    ]
    assert graded(table) == expected


def test_a_run_that_hardly_ever_earns_anything_has_no_fall() -> None:
    """They stand among others: neither the chance of a stretch nor what the policy did across it is told."""
    rewards = [-2.0] * 3 + [-1.9] + [-2.0] * 5
    table = [
        {"step": at, "reward/mean": reward, "reward/std": 0.0 if reward == -2.0 else 0.2, "kl": 0.01, "entropy": 1.0}
        for at, reward in enumerate(rewards, 1)
    ]
    (finding,) = dead_run(Case(rows=table))
    assert finding.evidence["before"] == -1.9
    assert "p" not in finding.evidence
    assert "went on as it was" not in finding.summary
