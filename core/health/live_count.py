"""How many groups were live, worked out from the means over groups that a log prints.

A z-score's standard deviation is 1 in a live group, one whose rewards differ by more than its floor, and 0 in a dead
one. So its mean over N groups is n / N: the share of live groups, and nothing else. The largest |A| of a live group is
fixed too where its rewards have two levels: one of five against the rest has 4 / sqrt(5) (std by n - 1). A mean of both
over N groups, printed to a few digits, often leaves a single whole number n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations_with_replacement, product

from core.health.case import Case
from core.health.steps import number, values_of

EPS = 1e-3  # relative: what the eps of a z-score and sums in float32 take off a live group's 1
SEARCHED = 5000  # ways to make up n live groups; beyond that printed digits tell nothing
BY_ACCIDENT = 0.003  # the chance below which a fit is no accident


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveCount:
    """Live groups of `groups`, `least` to `most` of them: of each of `rows` where rows agree, else of all together.

    exact: std and largest advantage of every row leave this one number, and would hardly do so by accident.
    chance: that such columns fit some whole number by accident. arithmetic: the sums that give the printed values.
    """

    least: int
    most: int
    groups: int
    rows: int
    sizes: tuple[int, ...]  # of the groups that fit; those that are possible where none does
    exact: bool
    chance: float
    arithmetic: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`4 of 640 groups`."""
        return f"{self.least if self.least == self.most else f'{self.least} to {self.most}'} of {self.groups} groups"


@dataclass(frozen=True, kw_only=True, slots=True)
class Printed:
    """A printed mean: the true one lies within `half` of it."""

    value: float
    half: float

    def allows(self, mean: float) -> bool:
        """True for a mean that is printed like this, a little eps taken off."""
        slack = self.half * (1 + 1e-9) + 1e-12
        return mean >= self.value - slack and mean * (1 - EPS) <= self.value + slack

    @property
    def width(self) -> float:
        """How much room it leaves."""
        return 2 * self.half + EPS * abs(self.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """The columns of a log that are means over groups, of rows that have them."""

    stds: tuple[Printed, ...]
    largest: tuple[Printed, ...] | None  # None where it is not known of every row
    divisors: tuple[int, ...]  # the std's ddof, as far as it is known
    signed: bool  # the largest advantage, and not the largest |A|
    groups: int  # behind one row


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """So many live groups of one size, and the largest advantage of each of them."""

    live: int
    size: int
    levels: tuple[tuple[str, float], ...]


def live_count(case: Case) -> LiveCount | None:
    """The number of live groups that z-scores of the printed spread must have had; None where no number fits.

    None also where no column is a mean over groups, or the number of groups behind a row is not known.
    """
    known, means = case.settings, means_over_groups(case)
    sizes = known.group_sizes or ((known.num_generations,) if known.num_generations else ())
    sizes = tuple(size for size in sizes if size > 1)
    if means is None or not sizes or known.reshaped:
        return None
    ddofs = (0, 1) if known.ddof is None else (known.ddof,)
    pairs = [(ddof, divisor) for ddof, divisor in product(ddofs, means.divisors)]
    fitting = {pair: fits for pair in pairs if (fits := _of_rows(means, sizes, pair)) is not None}
    if not fitting:
        return _by_std(means, sizes, pairs)
    numbers = [{fit.live for fits in fitting.values() for fit in fits[row]} for row in range(len(means.stds))]
    chance = min(1.0, math.fsum(_chance(means, sizes, pair, [min(row) for row in numbers]) for pair in pairs))
    pair, fits = next(iter(fitting.items()))
    same = len(set().union(*numbers)) == 1
    return LiveCount(
        least=min(numbers[0]) if same else sum(map(min, numbers)),
        most=max(numbers[0]) if same else sum(map(max, numbers)),
        groups=means.groups if same else means.groups * len(numbers),
        rows=len(numbers) if same else 1,
        sizes=tuple(sorted({fit.size for row in fits for fit in row})),
        exact=all(len(row) == 1 for row in numbers) and chance < BY_ACCIDENT,
        chance=chance,
        arithmetic=tuple(dict.fromkeys(line for row in fits for line in _sums(row[0], means.groups, pair))),
    )


def means_over_groups(case: Case) -> Means | None:
    """The columns of the log that are means over a known number of groups, dead ones counted as 0.

    Ours are, by their definition. The std over all advantages of a step is one where a step has one group.
    """
    known = case.settings
    rows = [row for row in case.stage_rows if not row.get("reward/missing")]
    names: tuple[str, ...] = ("advantage/max_abs", "advantage/max")
    std = "advantage/std_all"
    if grouped := any(number(row, "advantage/group_std") is not None for row in rows):
        std, names = "advantage/group_std", ("advantage/group_max",)
    elif known.prompts_per_step != 1:
        return None
    rows = [row for row in rows if number(row, std) is not None]
    groups = known.groups_per_row or (known.prompts_per_step and known.prompts_per_step * case.averaged_over)
    if not rows or not groups:
        return None
    largest = next((name for name in names if all(number(row, name) is not None for row in rows)), None)
    columns = {name: values_of(rows, name) for name in (std, largest) if name is not None}
    half = _half_digit([value for values in columns.values() for value in values])
    printed = {name: tuple(Printed(value=value, half=half) for value in values) for name, values in columns.items()}
    return Means(
        stds=printed[std],
        largest=None if largest is None else printed[largest],
        divisors=(1,) if grouped else (0, 1),
        signed=largest == "advantage/max",
        groups=groups,
    )


def _half_digit(values: Sequence[float]) -> float:
    """Half a unit of the last decimal that any of these values has: 0.0090 has as many as 0.0072 beside it."""
    return 0.5 * 10.0 ** min(int(Decimal(repr(value)).as_tuple().exponent) for value in values)


def largest_levels(size: int, ddof: int, *, signed: bool = False) -> dict[str, float]:
    """`1 of 5` -> the largest |A| of a group in which one reward of five differs from the others; largest first.

    Of j rewards of one level and K - j of another the z-scores are (1 - j / K) / s and -(j / K) / s, s the rewards'
    std. `signed`: the largest A instead, where it matters which of the two levels is the better one.
    """
    levels = {}
    for count in range(1, size if signed else size // 2 + 1):
        share = count / size
        std = math.sqrt(share * (1 - share) * size / (size - ddof))
        levels[f"{count} of {size}"] = (1 - share) / std
    return levels


def live_std(size: int, ddof: int, divisor: int) -> float:
    """The std, by `divisor`, of the z-scores, by `ddof`, of a live group: 1 where both are of one kind."""
    return math.sqrt((size - ddof) / (size - divisor))


def _of_rows(means: Means, sizes: Sequence[int], pair: tuple[int, int]) -> list[list[Fit]] | None:
    """For each row the live groups that give both of its columns; None where one has none, or no largest is known."""
    if means.largest is None:
        return None
    rows = [
        [fit for size in sizes for fit in _fits(means, std, largest, size, pair)]
        for std, largest in zip(means.stds, means.largest, strict=True)
    ]
    return rows if all(rows) else None


def _whole_numbers(std: Printed, groups: int, unit: float) -> range:
    """The numbers of live groups that print this mean std, where a live one has `unit`."""
    first = max(0, math.floor((std.value - std.half) * groups / unit))
    last = math.ceil((std.value + std.half) * groups / (unit * (1 - EPS)))
    inside = [live for live in range(first, min(last, groups) + 1) if std.allows(live * unit / groups)]
    return range(inside[0], inside[-1] + 1) if inside else range(0)


def _fits(means: Means, std: Printed, largest: Printed, size: int, pair: tuple[int, int]) -> Iterator[Fit]:
    ddof, divisor = pair
    levels = list(largest_levels(size, ddof, signed=means.signed).items())
    for live in _whole_numbers(std, means.groups, live_std(size, ddof, divisor)):
        if math.comb(len(levels) + live - 1, live) > SEARCHED:
            return
        for chosen in combinations_with_replacement(levels, live):
            if largest.allows(math.fsum(level for _, level in chosen) / means.groups):
                yield Fit(live=live, size=size, levels=chosen)


def _by_std(means: Means, sizes: tuple[int, ...], pairs: Sequence[tuple[int, int]]) -> LiveCount | None:
    """The numbers that the std alone leaves; None where it leaves none."""
    rows = []
    for std in means.stds:
        units = {live_std(size, *pair) for size in sizes for pair in pairs}
        rows.append([live for unit in units for live in _whole_numbers(std, means.groups, unit)])
    if not all(rows):
        return None
    same = len({(min(row), max(row)) for row in rows}) == 1
    return LiveCount(
        least=min(rows[0]) if same else sum(map(min, rows)),
        most=max(rows[0]) if same else sum(map(max, rows)),
        groups=means.groups if same else means.groups * len(rows),
        rows=len(rows) if same else 1,
        sizes=sizes,
        exact=False,
        chance=1.0,
    )


def _chance(means: Means, sizes: Sequence[int], pair: tuple[int, int], lives: Sequence[int]) -> float:
    """That both columns fit whole numbers by accident: the part of their range that such numbers print, row by row.

    Rows that print the same are one; what a group's largest advantage can be is taken to be any number of its range.
    """
    assert means.largest is not None
    ddof, divisor = pair
    units = {live_std(size, ddof, divisor) for size in sizes}
    chance = math.prod(
        min(1.0, math.fsum(Printed(value=value, half=half).width * means.groups / unit for unit in units))
        for value, half in {(std.value, std.half) for std in means.stds}
    )
    different = {(largest.value, largest.half, live) for largest, live in zip(means.largest, lives, strict=True)}
    for value, half, live in different:
        if live == 0:
            continue
        covered = 0.0
        for size in sizes:
            levels = largest_levels(size, ddof, signed=means.signed).values()
            # Half above and half below the mean, and one at it where their number is odd.
            least = min(levels) if means.signed else math.sqrt((size - ddof) / (size - size % 2))
            room = live * (max(levels) - least) / means.groups
            ways = math.comb(len(levels) + live - 1, live)
            width = Printed(value=value, half=half).width
            covered += ways * width / room if room > ways * width else 1.0
        chance *= min(1.0, covered)
    return chance


def _sums(fit: Fit, groups: int, pair: tuple[int, int]) -> Iterator[str]:
    """The two means as sums: `4 / 640 = 0.00625`, `(2 x 1.789 + 2 x 1.095) / 640 = 0.00901`."""
    unit = live_std(fit.size, *pair)
    times = "" if unit == 1 else f" x {unit:.4g}"
    yield f"std: {fit.live}{times} / {groups} = {fit.live * unit / groups:.3g}"
    counts = {name: sum(other == name for other, _ in fit.levels) for name, _ in fit.levels}
    values = dict(fit.levels)
    terms = " + ".join(f"{count} x {values[name]:.4g}" for name, count in counts.items())
    total = math.fsum(level for _, level in fit.levels) / groups
    kinds = ", ".join(f"{count} with {name} odd" for name, count in counts.items())
    if terms:
        yield f"max: ({terms}) / {groups} = {total:.3g} ({kinds})"
