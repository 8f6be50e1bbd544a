"""Texts that say the same, exactly or nearly."""

from __future__ import annotations

import pytest

from core.health.dataset import Nearness, leaks, likeness, normalised, repeats, shingles_of


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
    assert [(one.one, one.other, one.likeness) for one in found] == [("c", "a", 1.0), ("d", "a", 1.0)]


def test_leaks() -> None:
    found = leaks({"e0": "two eggs", "e1": "four"}, {"t0": "three", "t1": "Two eggs."})
    assert [(one.one, one.other) for one in found] == [("e0", "t1")]


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
    assert (found.one, found.other) == ("c", "a")
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
