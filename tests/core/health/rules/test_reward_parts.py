"""Parts of a reward: shaped ones that teach alone, ones that everyone gets, ones that pull against each other."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from core.health.case import Case
from core.health.finding import Row
from core.health.rules.reward_parts import (
    component_conflict,
    free_reward,
    is_answer,
    paid_for_nothing,
    proxy_reward,
)


def table(**columns: Sequence[float]) -> list[Row]:
    """A row for each value; `_` of a name is its slash."""
    names = {name: name.replace("__", "/") for name in columns}
    count = len(next(iter(columns.values())))
    return [{"step": i + 1, **{names[name]: values[i] for name, values in columns.items()}} for i in range(count)]


def climb(low: float, high: float, count: int = 20, noise: float = 0.01) -> list[float]:
    """A straight line with a noise that alternates."""
    return [low + (high - low) * i / (count - 1) + noise * (-1) ** i for i in range(count)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rewards/correctness_reward_func", True),
        ("rewards/accuracy", True),
        ("rewards/acc", True),
        ("rewards/format_reward", False),
        ("rewards/answer_format", False),  # a form
        ("rewards/soft_format_reward_func", False),
        ("rewards/fn_1", None),
        ("rewards/accent", None),
    ],
)
def test_which_part_judges_the_answer(name: str, expected: bool | None) -> None:
    assert is_answer(name) == expected


def proxy(rows: list[Row]) -> list[tuple[str, str]]:
    return [(one.severity, one.confidence) for one in proxy_reward(Case(rows=rows))]


SHAPED = table(rewards__correctness=[0.0] * 12, rewards__format=climb(0.1, 0.9, 12), reward__std=[0.3] * 12)


def test_shaped_parts_teach_alone() -> None:
    assert proxy(SHAPED) == [("warning", "strong")]
    assert proxy(SHAPED[:4]) == [("warning", "moderate")]
    assert proxy(SHAPED[:2]) == [("info", "weak")]
    (finding,) = proxy_reward(Case(rows=SHAPED))
    assert (finding.evidence["unpaid"], finding.evidence["paid"]) == (["rewards/correctness"], ["rewards/format"])


def test_answers_that_are_rarely_right() -> None:
    """1 to 5 % right, half to four fifths with the form: means of five windows of a run, without any spread."""
    rare = table(rewards__strict_accuracy=[0.01, 0.02, 0.03, 0.03, 0.05], rewards__safe=[0.44, 0.43, 0.51, 0.58, 0.7])
    assert proxy(rare) == [("info", "moderate")]
    assert proxy([{**row, "rewards/final_answer": 0.3} for row in rare]) == [("info", "moderate")]  # there is one
    assert proxy([{**row, "rewards/strict_accuracy": 0.1} for row in rare]) == []
    assert proxy([{**row, "rewards/safe": 0.1} for row in rare]) == []
    assert proxy(rare[:2]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"rewards/correctness": 0.1},  # a right answer is there
        {"reward/std": 0.0},  # nothing varies: no part teaches
        {"groups/dead": 1.0},  # nor inside groups
        {"rewards/accuracy": 0.3},  # another part of the answer is paid
    ],
)
def test_what_is_not_that(changes: Row) -> None:
    assert proxy([{**row, **changes} for row in SHAPED]) == []


def test_without_a_spread_a_part_that_pays_differently_says_that_rewards_differ() -> None:
    climbing = table(rewards__accuracy=[0.0] * 12, rewards__format=climb(0.1, 0.9, 12))
    assert proxy(climbing) == [("warning", "strong")]
    assert proxy(table(rewards__accuracy=[0.0] * 12, rewards__format=[1.0] * 12)) == []  # all earn all of it


def test_a_form_that_is_never_earned_is_no_answer() -> None:
    assert proxy(table(rewards__format=[0.0] * 12, rewards__accuracy=climb(0.1, 0.9, 12), reward__std=[0.3] * 12)) == []
    unnamed = table(rewards__f1=[0.0] * 12, rewards__f2=climb(0.1, 0.9, 12), reward__std=[0.3] * 12)
    assert proxy(unnamed) == [("info", "moderate")]


def test_an_answer_that_does_not_move_while_the_form_does() -> None:
    wave = [0.2 + 0.02 * (-1) ** i for i in range(20)]
    form = climb(0.1, 0.9)
    total = [a + b for a, b in zip(wave, form, strict=True)]
    assert proxy(table(rewards__accuracy=wave, rewards__format=form, reward__mean=total)) == [("info", "moderate")]
    for accuracy in (climb(0.2, 0.5), [0.97] * 20):  # it rises, or stands at its best
        rows = table(rewards__accuracy=accuracy, rewards__format=form, reward__mean=total)
        assert proxy(rows) == []


def conflict(rows: list[Row]) -> list[tuple[str, str]]:
    return [(one.severity, one.confidence) for one in component_conflict(Case(rows=rows))]


UP, DOWN = climb(0.2, 0.8), climb(0.7, 0.3)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (table(rewards__accuracy=UP, rewards__brevity=DOWN), [("warning", "moderate")]),
        (table(rewards__accuracy=UP, rewards__brevity=UP), []),
        (table(rewards__accuracy=UP, rewards__brevity=[-v for v in UP]), [("warning", "moderate")]),  # a penalty
        (table(rewards__accuracy=UP, rewards__brevity=climb(1.0, 0.97, noise=0.0001)), []),  # a best value nearly kept
        (table(rewards__accuracy=UP, rewards__brevity=climb(0.7, 0.3, noise=0.5)), []),  # within its noise
        (table(rewards__accuracy=UP), []),
        (
            table(rewards__format=UP, rewards__brevity=DOWN, reward__mean=[0.5 + 0.01 * (-1) ** i for i in range(20)]),
            [("warning", "strong")],  # and the sum stands still
        ),
        (table(rewards__a=climb(0.2, 0.8, 5), rewards__b=climb(0.7, 0.3, 5)), [("warning", "weak")]),  # five in order
        (table(rewards__a=climb(0.2, 0.8, 3), rewards__b=climb(0.7, 0.3, 3)), [("warning", "weak")]),  # and far apart
        (table(rewards__a=climb(0.2, 0.3, 4), rewards__b=climb(0.7, 0.3, 4)), []),  # one changes by a third
        (table(rewards__a=climb(0.02, 0.08, 3), rewards__b=climb(0.1, 0.04, 3)), []),  # a few answers of a hundred
        (table(rewards__a=climb(0.2, 0.8, 5, 0.2), rewards__b=climb(0.7, 0.3, 5)), []),  # one of the two is not
    ],
)
def test_parts_that_pull_against_each_other(rows: list[Row], expected: list[tuple[str, str]]) -> None:
    assert conflict(rows) == expected


def test_three_rows_of_noise_are_rarely_accused() -> None:
    """2,000 excerpts of four parts, each row a mean of 64 answers with one pass rate each: 1 in 100 at most."""
    random = Random(5)
    accused = 0
    for _ in range(2000):
        rates = [random.choice((0.05, 0.1, 0.3, 0.5, 0.9)) for _ in range(4)]
        parts = {
            f"rewards__p{i}": [sum(random.random() < rate for _ in range(64)) / 64 for _ in range(3)]
            for i, rate in enumerate(rates)
        }
        accused += bool(conflict(table(**parts)))
    assert accused <= 20


def test_parts_that_wander_are_rarely_accused() -> None:
    """2,000 runs of two parts of 40 rows: of noise none, of walks, which do go apart, 2 in 100 at most."""
    random = Random(3)
    still, walks = 0, 0
    for _ in range(1000):
        noise = [[0.5 + random.gauss(0, 0.1) for _ in range(40)] for _ in range(2)]
        still += bool(conflict(table(rewards__a=noise[0], rewards__b=noise[1])))
        parts = []
        for _ in range(2):
            level, values = 0.5, []
            for _ in range(40):
                level += random.gauss(0, 0.01)
                values.append(level + random.gauss(0, 0.05))
            parts.append(values)
        walks += bool(conflict(table(rewards__a=parts[0], rewards__b=parts[1])))
    assert still == 0
    assert walks <= 20


def test_a_part_that_every_completion_gets() -> None:
    rows = table(rewards__format=[0.5] * 4, reward__function_std__format=[0.0] * 4, reward__mean=[0.6, 0.7, 0.5, 0.8])
    (finding,) = free_reward(Case(rows=rows))
    assert (finding.id, finding.severity, finding.confidence) == ("free-reward", "info", "strong")
    for changes in (
        {"reward/function_std/format": 0.1},  # one completion earns it and another does not
        {"rewards/format": 0.0},  # never paid
        {"reward/mean": 0.5},  # one number for everything: constant-reward
    ):
        assert free_reward(Case(rows=[{**row, **changes} for row in rows])) == ()
    bare = [{name: value for name, value in row.items() if "std" not in name} for row in rows]
    assert [one.confidence for one in free_reward(Case(rows=bare))] == ["weak"]  # nothing of their spread
    whole = [{**row, "rewards/format": 1.0} for row in bare]
    assert free_reward(Case(rows=whole)) == ()  # four times all of it: the form may be right
    two = bare[:2]
    assert free_reward(Case(rows=two)) == ()
    before: Row = {"step": 0.0, "eval/rewards/format": 0.5}
    assert [one.confidence for one in free_reward(Case(rows=[before, *two]))] == ["weak"]
    assert free_reward(Case(rows=[{**before, "eval/rewards/format": 0.4}, *two])) == ()
    six = table(rewards__format=[0.5] * 6, reward__mean=[0.6, 0.7, 0.5, 0.8, 0.6, 0.7])
    assert [one.confidence for one in free_reward(Case(rows=six))] == ["moderate"]


LENGTHS = [200.0, 180.0, 120.0, 60.0, 20.0, 8.0, 4.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"reward__mean": [0.5] * 9}, True),
        ({"reward__mean": climb(0.4, 0.9, 9)}, False),  # short is right
        ({"reward__mean": climb(0.5, 0.1, 9)}, False),  # and nothing is paid
        ({"reward__mean": [0.0] * 9}, False),
        ({"reward__mean": [0.5] * 9, "completions__valid": [0.95] * 9}, False),
        ({"reward__mean": [0.5] * 9, "completions__valid": [0.2] * 9}, True),
        ({"reward__mean": [0.5] * 9, "completions__length": [9.0, 8.0, 7.0, 7.0, 6.0, 6.0, 5.0, 5.0, 5.0]}, False),
    ],
)
def test_answers_of_next_to_nothing(columns: dict[str, list[float]], found: bool) -> None:
    finding = paid_for_nothing(Case(rows=table(**{"completions__length": LENGTHS, **columns})))
    assert (finding is not None) == found
    assert finding is None or (finding.id, finding.severity, finding.confidence) == (
        "free-reward",
        "warning",
        "moderate",
    )


def test_a_sum_that_is_paid_while_all_known_parts_are_0() -> None:
    rows = table(rewards__strict_acc=[0.0] * 5, reward__mean=[0.08, 0.07, 0.085, 0.0925, 0.0925])
    assert proxy(rows) == [("warning", "moderate")]
    assert proxy([{**row, "reward/mean": 0.08} for row in rows]) == []  # one number: constant-reward's


@pytest.mark.parametrize(("last", "expected"), [(0.002, ("warning", "moderate")), (0.02, ("info", "moderate"))])
def test_an_answer_that_is_next_to_never_right_over_many_steps(last: float, expected: tuple[str, str]) -> None:
    right = [0.002 + (last - 0.002) * i / 59 + (0.001 if i % 2 else 0.0) for i in range(60)]
    assert proxy(table(rewards__accuracy=right, rewards__format=climb(0.4, 0.9, 60))) == [expected]


def test_a_start_and_an_end_show_a_conflict_and_two_steps_do_not() -> None:
    rows = table(rewards__format=[0.44, 1.0], rewards__accuracy=[0.23, 0.03])
    (finding,) = component_conflict(Case(rows=rows, averaged_over=5))
    assert (finding.severity, finding.confidence) == ("warning", "weak")
    assert component_conflict(Case(rows=rows)) == ()
    little = table(rewards__format=[0.80, 0.95], rewards__accuracy=[0.23, 0.19])
    assert component_conflict(Case(rows=little, averaged_over=5)) == ()


def test_a_part_that_never_had_a_number_is_none() -> None:
    rows: list[Row] = [{"step": i, "rewards/accuracy": None, "rewards/format": 0.1 * i} for i in range(1, 12)]
    assert proxy(rows) == []
    rows = [{"step": i, "rewards/accuracy": 0.0, "rewards/tone": None, "reward/mean": 0.1 * i} for i in range(1, 12)]
    assert proxy(rows) == [("warning", "strong")]


def settled(low: float, high: float, at: int, count: int = 40, noise: float = 0.0) -> list[float]:
    """From low to high in `at` rows, and there to the end, with a noise that alternates."""
    return [low + (high - low) * min(1.0, i / at) + noise * (-1) ** i for i in range(count)]


def test_parts_that_settle_pull_against_each_other_though_they_are_no_lines() -> None:
    table_of = table(rewards__short=settled(0.6, 1.0, 10), rewards__right=settled(0.3, 0.0, 10))
    (found,) = component_conflict(Case(rows=table_of))
    assert (found.severity, found.evidence["rising"]) == ("warning", ["rewards/short"])
    assert found.evidence["falling"] == ["rewards/right"]
    assert "p =" not in found.summary  # no line was tested


@pytest.mark.parametrize(
    ("rising", "falling"),
    [
        (settled(0.6, 1.0, 10), settled(0.7, 0.57, 10)),  # a sixth of its size
        (settled(0.6, 1.0, 10), settled(0.09, 0.0, 10)),  # all of it, and next to nothing beside the other
        (settled(0.6, 1.0, 10), settled(0.3, 0.0, 10, noise=0.03)),  # it goes on to scatter by a tenth of the change
        (settled(0.6, 1.0, 10), [0.0, 0.3, 0.3, *[0.0] * 37]),  # its first row is where the last are
        ([0.6] * 40, settled(0.3, 0.0, 10)),  # only one of them moves
    ],
)
def test_what_has_not_settled_elsewhere_is_no_conflict(rising: list[float], falling: list[float]) -> None:
    assert component_conflict(Case(rows=table(rewards__short=rising, rewards__right=falling))) == ()


def test_of_rows_that_are_means_the_first_alone_may_be_of_the_start() -> None:
    means = table(rewards__short=[0.8, *[1.0] * 11], rewards__right=[0.2, *[0.0] * 11])
    assert component_conflict(Case(rows=means)) == ()
    assert [one.id for one in component_conflict(Case(rows=means, averaged_over=10))] == ["component-conflict"]


def test_chosen_and_rejected_answers_are_to_part() -> None:
    """DPO logs both under `rewards/`; they are no parts of one sum."""
    for stem in ("rewards/", "rewards/gaming_"):
        pairs = table(chosen=climb(0.0, 5.0), rejected=climb(0.0, -5.0), margins=climb(0, 10))
        named = [{name if name == "step" else f"{stem}{name}": value for name, value in row.items()} for row in pairs]
        assert component_conflict(Case(rows=named)) == ()


def test_a_margin_beside_no_pair_is_a_part() -> None:
    rows = table(rewards__safety_margin=climb(1.0, 0.0), rewards__accuracy=climb(0.0, 1.0))
    assert [one.id for one in component_conflict(Case(rows=rows))] == ["component-conflict"]


def test_a_part_of_next_to_nothing_pulls_at_nothing() -> None:
    """One lucky completion in the first row of ten steps; the sum rises all the same."""
    lucky = table(rewards__correctness=[0.2, 0.55, 0.85, *[0.95] * 9], rewards__soft_format=[0.0016, *[0.0] * 11],
                  reward__mean=[0.2, 0.55, 0.85, *[0.95] * 9])  # fmt: skip
    assert component_conflict(Case(rows=lucky, averaged_over=10)) == ()


def test_a_sum_that_rose_and_settled_hides_nothing() -> None:
    rose = table(rewards__short=settled(0.2, 1.0, 10), rewards__right=settled(0.3, 0.0, 10),
                 reward__mean=settled(0.5, 1.0, 10))  # fmt: skip
    (found,) = component_conflict(Case(rows=rose))
    assert found.confidence == "moderate"
    assert "hides" not in found.summary


def test_a_part_that_settled_beside_one_that_is_a_line_has_no_p() -> None:
    rows = table(
        rewards__correct=climb(0.2, 0.6, 40), rewards__format=settled(0.6, 0.2, 8), reward__mean=climb(1, 0.6, 40)
    )
    (found,) = component_conflict(Case(rows=rows))
    assert found.confidence == "moderate"
    assert "or less each" not in found.summary
