"""Texts that say the same, exactly or nearly.

Pass rates that differ between prompts, and the groups that teach nothing because of it.
"""

from __future__ import annotations

import pytest

from core.health.dataset import (
    Lengths,
    Nearness,
    PassRates,
    fitted,
    highest_unseen,
    leaks,
    lengths,
    likeness,
    normalised,
    repeats,
    shingles_of,
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("How many eggs?", "how  many\neggs", True),
        ("\uff11\uff12 eggs", "12 eggs", True),  # full-width digits
        ("Straße", "STRASSE", True),
        ("12+7=", "12-7=", False),  # what stands inside counts
        ("$5.50", "$550", False),
        ("", "...", True),
    ],
)
def test_normalised(one: str, other: str, same: bool) -> None:
    assert (normalised(one) == normalised(other)) == same


def test_repeats_name_the_first_that_said_it() -> None:
    found = repeats({"a": "Two eggs.", "b": "three", "c": "two eggs", "d": "TWO EGGS"})
    assert [(one.id, one.other, one.likeness) for one in found] == [("c", "a", 1.0), ("d", "a", 1.0)]


def test_leaks() -> None:
    found = leaks({"e0": "two eggs", "e1": "four"}, {"t0": "three", "t1": "Two eggs."})
    assert [(one.id, one.other) for one in found] == [("e0", "t1")]


def test_likeness_on_paper() -> None:
    # abc bcd | abc bcd cde: 2 shared of 3
    one, other = shingles_of("a b c d"), shingles_of("a b c d e")
    assert (len(one), len(other)) == (2, 3)
    assert likeness(one, other) == pytest.approx(2 / 3)
    assert likeness(frozenset(), frozenset()) == 0.0


WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def text(first: str) -> str:
    """Ten words: eight shingles, one of them with the first word in it."""
    return " ".join([first, *WORDS[1:]])


def test_near_is_by_shared_shingles() -> None:
    # 7 of 8 shingles shared: 7 / (8 + 8 - 7) = 0.78
    texts = {"a": text("one"), "b": "a wholly different text that shares nothing at all", "c": text("uno")}
    (found,) = Nearness(texts.values()).near(texts)
    assert (found.id, found.other) == ("c", "a")
    assert found.likeness == pytest.approx(7 / 9)
    assert Nearness(texts.values()).near({"c": texts["c"]}, {"a": texts["a"]})[0].other == "a"


def test_the_same_text_is_not_near() -> None:
    texts = {"a": text("one"), "b": text("One")}
    assert Nearness(texts.values()).near(texts) == []
    assert len(repeats(texts)) == 1


def test_a_template_makes_no_two_problems_alike() -> None:
    """Forty short problems in one long template: what all have says nothing."""
    template = " ".join(f"rule{n} says so" for n in range(40)) + " the task is {} ."
    texts = {str(n): template.format(f"how much is {n} and {n * n} taken {n + 1} times over") for n in range(40)}
    assert Nearness(texts.values()).near(texts) == []


def test_short_texts_are_not_compared() -> None:
    texts = {"a": "12 + 7 =", "b": "12 + 8 ="}
    assert Nearness(texts.values()).near(texts) == []


def test_one_pass_rate_for_all() -> None:
    # p = 1/2, K = 2: 1/4 + 1/4
    assert PassRates(mean=0.5, correlation=0.0).dead(2) == pytest.approx(0.5)


def test_a_flat_beta() -> None:
    # a = b = 1: correlation 1 / (a + b + 1) = 1/3, and E[p^K] = 1 / (K + 1), so dead(K) = 2 / (K + 1)
    flat = PassRates(mean=0.5, correlation=1 / 3)
    assert [flat.dead(size) for size in (2, 4, 8)] == pytest.approx([2 / 3, 2 / 5, 2 / 9])


def test_a_beta_that_leans() -> None:
    # a = 1, b = 3: mean 1/4, correlation 1/5. E[p^2] = 1*2 / (4*5) = 0.1, E[(1 - p)^2] = 3*4 / (4*5) = 0.6
    assert PassRates(mean=0.25, correlation=0.2).dead(2) == pytest.approx(0.7)


def test_prompts_that_differ_have_more_dead_groups() -> None:
    assert PassRates(mean=0.3, correlation=0.5).dead(8) > PassRates(mean=0.3, correlation=0.0).dead(8)


def test_no_size_helps_where_prompts_are_all_or_nothing() -> None:
    assert PassRates(mean=0.5, correlation=0.95).dead(128) > 0.5


def test_fitted_on_paper() -> None:
    # Two prompts, 2 of 4 and 0 of 4. Mean 1/4. Pairs: 2*1/(4*3) = 1/6 and 0, mean 1/12. Across: 1/2 * 0 = 0.
    # Correlation (1/12 - 0) / (3/16) = 4/9.
    found = fitted([(2, 4), (0, 4)])
    assert found is not None
    assert (found.mean, found.correlation) == (0.25, pytest.approx(4 / 9))


def test_prompts_alike_have_no_correlation() -> None:
    found = fitted([(2, 4)] * 5)  # pairs 1/6 < across 1/4: less than chance, so none
    assert found == PassRates(mean=0.5, correlation=0.0)


@pytest.mark.parametrize("counts", [[], [(0, 0)], [(0, 4), (0, 4)], [(4, 4)]])
def test_nothing_to_fit(counts: list[tuple[int, int]]) -> None:
    assert fitted(counts) is None


def test_one_sample_each_tells_no_difference() -> None:
    assert fitted([(1, 1), (0, 1)]) == PassRates(mean=0.5, correlation=0.0)


def test_what_none_among_n_rules_out() -> None:
    assert highest_unseen(59) == pytest.approx(0.0495, abs=1e-4)  # 0.95^59 = 0.0485: about 5 %
    assert (1 - highest_unseen(100)) ** 100 == pytest.approx(0.05)


def test_lengths() -> None:
    assert lengths([]) is None
    assert lengths([7]) == Lengths(min=7, median=7, p90=7, max=7)
    assert lengths(range(11, 0, -1)) == Lengths(min=1, median=6, p90=10, max=11)
