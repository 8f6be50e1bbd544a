"""Groups of rewards out of samples: which are dead, and how many would be, if nothing but chance decided it.

Shares are of groups; a reward's level is the reward to nine digits. Not here: what a rule makes of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from core.health.case import Sample
from core.health.dataset.pass_rates import all_of

DIGITS = 9
MOST_ALIKE = 0.999  # a likeness of 1 would be prompts that are always answered alike


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The rewards of one prompt's completions on one step."""

    step: int
    levels: tuple[float, ...]
    texts: int  # different ones; 0 where one of them is not known

    @property
    def dead(self) -> bool:
        """All equal."""
        return len(set(self.levels)) == 1


def groups_of(samples: Iterable[Sample]) -> list[Group]:
    """The groups of the usual size, in order; a group that lacks a reward is left out, and so are samples of none."""
    found: defaultdict[tuple[int, str], list[Sample]] = defaultdict(list)
    for one in samples:
        if one.group is not None:
            found[(one.step, one.group)].append(one)
    sizes = Counter(len(members) for members in found.values())
    size = max(sizes, key=lambda one: (sizes[one], one), default=0)
    return [
        Group(
            step=step,
            levels=tuple(round(one.reward, DIGITS) for one in members if one.reward is not None),
            texts=len({one.text for one in members}) if all(one.text is not None for one in members) else 0,
        )
        for (step, _), members in found.items()
        if len(members) == size > 1 and all(one.reward is not None for one in members)
    ]


def level_shares(groups: Sequence[Group]) -> dict[float, float]:
    """How often a completion earned each reward."""
    counts = Counter(level for group in groups for level in group.levels)
    total = sum(counts.values())
    return {level: count / total for level, count in counts.items()}


def dealt(groups: Sequence[Group]) -> float:
    """The share of dead groups to expect if the completions of all these groups were dealt to them at random.

    Sum over levels of C(n_level, K) / C(n, K): what exchangeable completions, prompts that are alike, have on average.
    """
    size = len(groups[0].levels)
    counts = Counter(level for group in groups for level in group.levels)
    return sum(comb(count, size) for count in counts.values()) / comb(size * len(groups), size)


def dead_share(shares: Iterable[float], size: int, likeness: float = 0.0) -> float:
    """The chance that all rewards of a group of this size are equal, if levels have these shares.

    likeness: the correlation of two completions of one prompt; 0 where prompts are alike, and the sum of share^size.
    Shares of a prompt are then taken to be Dirichlet: of two levels the beta law of core.health.dataset.pass_rates.
    """
    if likeness <= 0:
        return sum(share**size for share in shares)
    strength = 1.0 / likeness - 1.0
    return sum(all_of(share * strength, strength, size) for share in shares)


def likeness_of(shares: Mapping[float, float] | Sequence[float], size: int, dead: float) -> float:
    """The likeness at which groups of this size have this dead share; 0 where chance alone has as many."""
    values = list(shares.values()) if isinstance(shares, Mapping) else list(shares)
    low, high = 0.0, MOST_ALIKE
    if dead_share(values, size) >= dead:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if dead_share(values, size, middle) < dead else (low, middle)
    return (low + high) / 2
