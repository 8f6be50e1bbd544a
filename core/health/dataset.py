"""What a task's problems are like before anything is trained on them: repeated texts, lengths, pass rates. No torch.

Two texts are near where their sets of three-word shingles have a Jaccard likeness of at least 0.7 (Broder 1997, without
the sketches: only texts that share a rare shingle are compared, and two that are so alike nearly always do). Shingles
that many of the texts have are a template's, not a problem's; they do not count.

Pass rates over prompts are taken to be a beta distribution, fitted by moments to how many of each prompt's samples were
good. Not here: one pass rate for all prompts (core.health.before.advantages), which this falls back to.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.health.before.advantages import dead_group

WORDS = 3  # of a shingle
NEAR = 0.7
TEMPLATE = 0.05  # of the texts: a shingle that more of them have, and more than COMMON, is no text's own
COMMON = 20
RARE = 50  # texts that have a shingle by which candidates are found
FEWEST = 5  # shingles of a text that is compared: below that one shared phrase is everything

Shingles = frozenset[tuple[str, ...]]
_WORD = re.compile(r"\w+|[^\w\s]")
_OUTER = " .,;:!?\"'`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """The problem `id` says what `other` says; `likeness` is 1 where the normalised texts are equal."""

    id: str
    other: str
    likeness: float


def normalised(text: str) -> str:
    """The text in lower case, compatible characters made one, single blanks, without outer punctuation."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_OUTER)


def repeats(texts: Mapping[str, str]) -> list[Overlap]:
    """Every text (id -> text) that says what an earlier one says, with the first that says it."""
    first: dict[str, str] = {}
    pairs = []
    for name, text in texts.items():
        other = first.setdefault(normalised(text), name)
        if other != name:
            pairs.append(Overlap(id=name, other=other, likeness=1.0))
    return pairs


def leaks(texts: Mapping[str, str], among: Mapping[str, str]) -> list[Overlap]:
    """Every text that says what one of `among` says, with the first that does."""
    first: dict[str, str] = {}
    for name, text in among.items():
        first.setdefault(normalised(text), name)
    firsts = ((name, first.get(normalised(text))) for name, text in texts.items())
    return [Overlap(id=name, other=other, likeness=1.0) for name, other in firsts if other is not None]


class Nearness:
    """The shingles of a number of texts, told apart from the template that they share."""

    def __init__(self, texts: Iterable[str]) -> None:
        shingles = [shingles_of(text) for text in texts]
        self._texts_with = Counter(shingle for own in shingles for shingle in own)
        most = max(COMMON, TEMPLATE * len(shingles))
        self._template = {shingle for shingle, count in self._texts_with.items() if count > most}

    def near(self, texts: Mapping[str, str], among: Mapping[str, str] | None = None) -> list[Overlap]:
        """Every text that is near one of `among` (of the earlier texts, where that is left out), with the nearest.

        Texts that say exactly the same are left out.
        """
        known = {name: self._own(text) for name, text in (texts if among is None else among).items()}
        place = {name: index for index, name in enumerate(known)}
        holders = self._holders(known)
        overlaps = []
        for name, text in texts.items():
            own = known[name] if among is None else self._own(text)
            candidates = {other for shingle in own for other in holders.get(shingle, ())}
            if among is None:
                candidates = {other for other in candidates if place[other] < place[name]}
            nearest = max(((likeness(own, known[other]), other) for other in sorted(candidates)), default=(0.0, ""))
            same = nearest[1] and normalised((texts if among is None else among)[nearest[1]]) == normalised(text)
            if nearest[0] >= NEAR and not same:
                overlaps.append(Overlap(id=name, other=nearest[1], likeness=nearest[0]))
        return overlaps

    def _own(self, text: str) -> Shingles:
        own = shingles_of(text) - self._template
        return own if len(own) >= FEWEST else frozenset()

    def _holders(self, known: Mapping[str, Shingles]) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Rare shingle -> the texts that have it."""
        holders: dict[tuple[str, ...], list[str]] = {}
        for name, own in known.items():
            for shingle in own:
                if self._texts_with[shingle] <= RARE:
                    holders.setdefault(shingle, []).append(name)
        return holders


def shingles_of(text: str) -> Shingles:
    """All runs of three words (or marks) of the normalised text."""
    words = _WORD.findall(normalised(text))
    return frozenset(tuple(words[index : index + WORDS]) for index in range(len(words) - WORDS + 1))


def likeness(own: Shingles, other: Shingles) -> float:
    """Jaccard: what both have over what either has; 0 where both are empty."""
    shared = len(own & other)
    return shared / (len(own) + len(other) - shared) if shared else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Shortest, middle, nine in ten, longest; in whatever unit the lengths had."""

    min: int
    median: int
    p90: int
    max: int


def lengths(values: Sequence[int]) -> Lengths | None:
    """The order statistics of some lengths, each of them one that was there; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    return Lengths(min=ordered[0], median=ordered[last // 2], p90=ordered[round(0.9 * last)], max=ordered[-1])


SIZES = (2, 4, 8, 16, 32, 64, 128)
ENOUGH = 0.5  # of the groups dead at most
MOST_ALIKE = 0.999  # a likeness of 1 would be prompts that are always or never answered well


@dataclass(frozen=True, kw_only=True, slots=True)
class PassRates:
    """Beta by its mean and the correlation of two samples of one prompt: 0 where all prompts have one pass rate."""

    mean: float
    correlation: float

    def dead(self, size: int) -> float:
        """The chance that all samples of a group of this size are good, or all are bad."""
        if self.correlation <= 0:
            return dead_group(self.mean, size)
        strength = 1.0 / self.correlation - 1.0
        return all_of(self.mean * strength, strength, size) + all_of((1.0 - self.mean) * strength, strength, size)


def all_of(part: float, strength: float, size: int) -> float:
    """E[p^size] of a beta distribution: the product of (a + j) / (a + b + j)."""
    chance = 1.0
    for index in range(size):
        chance *= (part + index) / (strength + index)
    return chance


def fitted(counts: Sequence[tuple[int, int]]) -> PassRates | None:
    """The pass rates of prompts of which (good, samples) were seen; None where all samples were good, or all bad.

    The mean square of a prompt's pass rate is estimated without bias from pairs of its own samples, the square of the
    mean from pairs of different prompts' samples.
    """
    sampled = [(good, n) for good, n in counts if n > 0]
    total, good = sum(n for _, n in sampled), sum(good for good, _ in sampled)
    if not 0 < good < total:
        return None
    mean = good / total
    pairs = [good * (good - 1) / (n * (n - 1)) for good, n in sampled if n > 1]
    rates = [good / n for good, n in sampled]
    if not pairs or len(rates) < 2:
        return PassRates(mean=mean, correlation=0.0)
    across = (sum(rates) ** 2 - sum(rate * rate for rate in rates)) / (len(rates) * (len(rates) - 1))
    correlation = (sum(pairs) / len(pairs) - across) / (mean * (1.0 - mean))
    return PassRates(mean=mean, correlation=min(max(correlation, 0.0), MOST_ALIKE))


def highest_unseen(samples: int, confidence: float = 0.95) -> float:
    """The largest rate at which seeing none among so many samples is still as likely as 1 - confidence."""
    return float(1.0 - (1.0 - confidence) ** (1.0 / samples))
