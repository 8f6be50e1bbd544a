"""Seeded problem texts: five to eight lower-case words and numbers from a small closed vocabulary.

A text belongs to a split by its own hash, so the splits are disjoint whatever their sizes and seeds are, and a longer
split begins with the shorter one. No rewards and no prompts here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random
from typing import Literal

from core.config.task import Domain

Share = Literal["train", "eval", "demonstration"]

NAMES = ("tom", "anna", "ben", "mia", "sam", "eva")
THINGS = ("apples", "books", "coins", "cards", "lamps", "stones", "boats", "trees")
LOOKS = ("red", "old", "big", "new", "green", "small")
PLACES = ("tower", "bridge", "river", "school", "city", "garden", "castle", "island")

SLOTS = {
    "name": NAMES,
    "things": THINGS,
    "look": LOOKS,
    "place": PLACES,
    "gets": ("buys", "finds", "sells", "loses"),
    "did": ("built", "named", "painted", "crossed"),
    "treat": ("sort", "count", "reverse", "merge"),
    "by": ("name", "size", "price", "age"),
}
TEMPLATES: dict[Domain, tuple[str, ...]] = {
    "math": (
        "{name} has {n} {look} {things} and {gets} {n}",
        "add {n} to {n} then take {n}",
        "{n} {look} {things} cost {n} coins each",
        "share {n} {things} among {n} people",
    ),
    "qa": (
        "who {did} the {look} {place} in {n}",
        "when did {name} see {n} {look} {things}",
        "which {place} had {n} {look} {things}",
        "where is {look} {place} {n} near the {place}",
    ),
    "code": (
        "{treat} {n} {look} {things} by {by}",
        "print the {things} {name} {gets} after {n}",
        "find {n} {look} {things} in a list",
        "{treat} a list of {n} {things} by {by}",
    ),
}
SENTENCES = (
    "the {look} {place} is near the {look} {place}",
    "the answer is {n} {look} {things}",
    "{name} {gets} {n} {things} in the {place}",
    "take the {things} to the {place} then count the {things}",
)
_SHARES: dict[Share, range] = {"train": range(128), "eval": range(128, 192), "demonstration": range(192, 256)}
_PATIENCE = 20  # draws in vain before the numbers may have another digit: so any size that is asked for is produced


def problem_texts(domain: Domain, share: Share, seed: int) -> Iterator[str]:
    """Distinct problem texts of the domain, without end: all different, and in no other share."""
    rng = Random(f"problems/{seed}/{share}/{domain}")
    seen: set[str] = set()
    while True:
        top = 100
        vain = 0
        while True:
            text = fill(_pick(rng, TEMPLATES[domain]), rng, top)
            if text not in seen and hashlib.sha256(text.encode()).digest()[0] in _SHARES[share]:
                break
            vain += 1
            if vain % _PATIENCE == 0:
                top *= 10
        seen.add(text)
        yield text


def fill(template: str, rng: Random, top: int = 100) -> str:
    """The template with a word for each slot and a number from 2 to `top` - 1 for each `{n}`."""
    words = []
    for word in template.split():
        slot = word[1:-1]
        if not word.startswith("{"):
            words.append(word)
        elif slot == "n":
            words.append(str(2 + int(rng.random() * (top - 2))))
        else:
            words.append(_pick(rng, SLOTS[slot]))
    return " ".join(words)


def _pick(rng: Random, words: tuple[str, ...]) -> str:
    # not rng.choice: only random() is promised to draw the same from one Python version to the next
    return words[int(rng.random() * len(words))]


def unit(*name: object) -> float:
    """A uniform in (0, 1) that is a pure function of the name's parts."""
    digest = hashlib.sha256("/".join(str(part) for part in name).encode()).digest()
    return (int.from_bytes(digest[:8], "big") // 2**12 + 0.5) / 2**52
