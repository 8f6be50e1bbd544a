"""Which texts say the same: exactly, but for case, blanks and outer punctuation, or nearly, by their word shingles.

Two texts are near where their sets of three-word shingles have a Jaccard likeness of at least 0.7 (Broder 1997, without
the sketches: only texts that share a rare shingle are compared, and two that are so alike nearly always do). Shingles
that many of the texts have are a template's, not a problem's; they do not count. Not here: whose texts these are.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    """`one` says what `other` says; `likeness` is 1 where the normalised texts are equal."""

    one: str
    other: str
    likeness: float


def normalised(text: str) -> str:
    """The text in lower case, compatible characters made one, single blanks, without outer punctuation."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_OUTER)


def repeats(texts: Mapping[str, str]) -> list[Overlap]:
    """Every text (id -> text) that says what an earlier one says, with the first that says it."""
    first: dict[str, str] = {}
    found = []
    for name, text in texts.items():
        other = first.setdefault(normalised(text), name)
        if other != name:
            found.append(Overlap(one=name, other=other, likeness=1.0))
    return found


def leaks(texts: Mapping[str, str], among: Mapping[str, str]) -> list[Overlap]:
    """Every text that says what one of `among` says, with the first that does."""
    first: dict[str, str] = {}
    for name, text in among.items():
        first.setdefault(normalised(text), name)
    said = ((name, first.get(normalised(text))) for name, text in texts.items())
    return [Overlap(one=name, other=other, likeness=1.0) for name, other in said if other is not None]


class Nearness:
    """The shingles of a number of texts, told apart from the template that they share."""

    def __init__(self, texts: Iterable[str]) -> None:
        shingles = [shingles_of(text) for text in texts]
        self._texts_with = Counter(one for found in shingles for one in found)
        most = max(COMMON, TEMPLATE * len(shingles))
        self._template = {one for one, count in self._texts_with.items() if count > most}

    def near(self, texts: Mapping[str, str], among: Mapping[str, str] | None = None) -> list[Overlap]:
        """Every text that is near one of `among` (of the earlier texts, where that is left out), with the nearest.

        Texts that say exactly the same are left out.
        """
        known = {name: self._own(text) for name, text in (texts if among is None else among).items()}
        place = {name: index for index, name in enumerate(known)}
        holders = self._holders(known)
        found = []
        for name, text in texts.items():
            own = known[name] if among is None else self._own(text)
            candidates = {other for one in own for other in holders.get(one, ())}
            if among is None:
                candidates = {other for other in candidates if place[other] < place[name]}
            nearest = max(((likeness(own, known[other]), other) for other in sorted(candidates)), default=(0.0, ""))
            same = nearest[1] and normalised((texts if among is None else among)[nearest[1]]) == normalised(text)
            if nearest[0] >= NEAR and not same:
                found.append(Overlap(one=name, other=nearest[1], likeness=nearest[0]))
        return found

    def _own(self, text: str) -> Shingles:
        own = shingles_of(text) - self._template
        return own if len(own) >= FEWEST else frozenset()

    def _holders(self, known: Mapping[str, Shingles]) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Rare shingle -> the texts that have it."""
        holders: dict[tuple[str, ...], list[str]] = {}
        for name, own in known.items():
            for one in own:
                if self._texts_with[one] <= RARE:
                    holders.setdefault(one, []).append(name)
        return holders


def shingles_of(text: str) -> Shingles:
    """All runs of three words (or marks) of the normalised text."""
    words = _WORD.findall(normalised(text))
    return frozenset(tuple(words[index : index + WORDS]) for index in range(len(words) - WORDS + 1))


def likeness(one: Shingles, other: Shingles) -> float:
    """Jaccard: what both have over what either has; 0 where both are empty."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0
