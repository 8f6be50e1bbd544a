"""How large the advantages of a group can be, by arithmetic alone, for the normalisers that fix it: ranks and z-scores.

And what a log says of them. n rewards, population statistics (divisor n) unless said otherwise. Not here: rewards of 0
and 1 under any normaliser (core.health.foresight.advantage_values).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from core.health.case import Case
from core.health.finding import Row
from core.health.settings import Settings
from core.health.trend import series

ENOUGH = 5  # steps with a std over live groups, which small batches scatter
_COLUMNS = ("advantage/std_all", "advantage/std", "advantage/max_abs", "advantage/max", "groups/dead")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Bounds for one group's advantages.

    least, most: of their std where not all rewards are equal; least is 0 where a floor may press it down.
    of_equal: their std where all rewards are equal; None where the settings do not say. largest: no |A| is larger.
    """

    name: str
    least: float
    most: float
    largest: float
    of_equal: float | None = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Means over rows of what a log says of advantages; None where it says nothing.

    everyone: std over all advantages of a step, averaged over steps; live: over those of live groups.
    """

    everyone: float | None
    live: float | None
    largest: float | None  # the largest of all rows
    mean_largest: float | None
    dead: float | None
    rows: Sequence[Row]

    def numbers(self) -> dict[str, float]:
        """What is known, as evidence."""
        found = {"std_all": self.everyone, "std": self.live, "mean_largest": self.mean_largest, "dead": self.dead}
        return {name: value for name, value in found.items() if value is not None}


def seen_in(case: Case) -> Seen:
    """Of the rows that the settings are of, without those that lack a reward: its 0 is no normaliser's."""
    whole = [row for row in case.stage_rows if not row.get("reward/missing")]
    columns = {name: [value for _, value in series(whole, name)] for name in _COLUMNS}
    largest = columns["advantage/max_abs"] or columns["advantage/max"]
    return Seen(
        everyone=fmean(columns["advantage/std_all"]) if columns["advantage/std_all"] else None,
        live=fmean(columns["advantage/std"]) if len(columns["advantage/std"]) >= ENOUGH else None,
        largest=max(largest, default=None),
        mean_largest=fmean(largest) if largest else None,
        dead=fmean(columns["groups/dead"]) if columns["groups/dead"] else None,
        rows=whole,
    )


def rank_std(n: int) -> float:
    """The std of 1 - 2 rank / (n - 1) over ranks 0 ... n - 1: sqrt((n + 1) / (3 (n - 1))).

    Variance of n whole numbers in a row: (n^2 - 1) / 12; times (2 / (n - 1))^2. 1 at n = 2, falling to sqrt(1 / 3).
    """
    return math.sqrt((n + 1) / (3 * (n - 1)))


def least_rank_std(n: int) -> float:
    """The same where equal rewards share their mean rank and not all are equal: 1 / sqrt(n - 1), one against the rest.

    The one has rank 0 and the others n / 2: a distance of n / (n - 1) after scaling, std n / (n - 1) * sqrt(n - 1) / n.
    """
    return 1.0 / math.sqrt(n - 1)


def spread_of(settings: Settings) -> Spread | None:
    """The spread that the settings fix; None where one that matters is unknown, or the normaliser is another one."""
    n = settings.num_generations
    if n is None or n < 2 or settings.reshaped:
        return None
    if settings.transform == "rank" and (settings.ranks_break_ties is not False or settings.scale_rewards is None):
        return _plain_ranks(n, settings)
    z_score = settings.scale_rewards == "group" and settings.baseline in ("group", None)
    return _z_score(n, settings) if z_score else None


def _plain_ranks(n: int, settings: Settings) -> Spread | None:
    """1 - 2 rank / (n - 1), clipped where a clip is known."""
    clip = math.inf if settings.advantage_clip is None else settings.advantage_clip
    values = [max(-clip, min(clip, 1.0 - 2.0 * rank / (n - 1))) for rank in range(n)]
    most, largest = pstdev(values), max(values)
    if settings.ranks_break_ties:
        return Spread(name="ranks", least=most, most=most, largest=largest, of_equal=most)
    least = least_rank_std(n) if clip >= 1.0 else 0.0
    return Spread(
        name="ranks", least=least, most=most, largest=largest, of_equal=None if settings.ranks_break_ties is None else 0
    )


def _z_score(n: int, settings: Settings) -> Spread:
    """(r - mean) / (max(std, floor) + eps): std 1 with ddof 0, sqrt((n - 1) / n) with ddof 1; of ranks or of rewards.

    The largest is sqrt(n - 1) of these stds (Samuelson 1968). eps is taken to be far below the rewards' std.
    """
    sample = math.sqrt((n - 1) / n)
    least, most = (1.0 if settings.ddof == 0 else sample), (sample if settings.ddof == 1 else 1.0)
    clip = math.inf if settings.advantage_clip is None else settings.advantage_clip
    largest = most * math.sqrt(n - 1)
    pressed = settings.std_floor != 0 or clip < largest
    return Spread(name="a z-score", least=0.0 if pressed else least, most=most, largest=min(clip, largest))
