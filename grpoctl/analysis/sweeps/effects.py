"""What each axis does to the mean score: a model of main effects over the ranked candidates, by least squares.

What is here: the fit, each axis's share of the differences with an interval, and whether it is more than chance. What
is not: importance for being among the best (grpoctl.sweeps.importances) and plain means per value (axes).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from operator import mul
from typing import Any, Literal

from core.health.statistics import CONFIDENCE, Interval, mean, sample_sd, t_quantile
from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.axes import is_range
from grpoctl.analysis.sweeps.ranking import Ranking
from grpoctl.analysis.sweeps.wording import value_text

FEWEST = 10  # candidates: with fewer, what a model of them explains is luck
MODEL = "main effects, least squares over the candidates' means"
INTERVAL_KIND = "95 % bootstrap interval over candidates, shifted to the estimate"
EFFECT_KIND = "95 % t interval from what the model leaves over"

_FREE = 4  # degrees of freedom that a fit must leave over
_LARGE = 0.2  # of the differences: an axis that may explain so much is not called one without effect
_LISTED = 4  # values of a list of numbers that are taken as they stand; of more a curve is fitted
_DECADE = 10.0  # a list of numbers that spans so much is taken on a log scale
_RESAMPLES = 200
_DEALS = 499  # permutations
_BLOCKS = 50  # of more candidates, blocks of them are drawn: `show` is quick for a study of thousands, too
_NORMAL = 60  # candidates from which on a sum over permuted ones is a normal number
_ALIASED = 1e-9  # of a column's own sum of squares: what is left of it beside the others is rounding

Judgement = Literal["effect", "no effect seen", "not enough to judge"]
Matrix = list[list[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """A value of an axis: how far the model's mean score there lies from its mean over the candidates tried."""

    label: str
    candidates: int  # that stand there; of a fitted curve, all
    effect: float
    interval: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisEffect:
    """What the model says of one axis.

    `share` is the part of the variance between the candidates' means that goes with this axis and no other, beyond what
    as many columns of chance would take; `p` the chance of as much where the axis does nothing (its labels permuted
    among what the other axes leave over). `together` is the share of all axes: above the sum of theirs where axes moved
    together, so that nobody can say whose it is. All are None where there are too few candidates.
    """

    key: str
    judgement: Judgement
    candidates: int
    share: float | None = None
    interval: Interval | None = None
    p: float | None = None
    together: float | None = None
    values: tuple[Effect, ...] = ()
    why: str = ""  # nothing was fitted

    def document(self) -> dict[str, Any]:
        """What sweep.json has of it, under the axis's key."""
        plain = asdict(self)
        del plain["key"]
        kinds = {"model": MODEL, "interval_kind": INTERVAL_KIND, "effect_interval_kind": EFFECT_KIND}
        return plain | {"values": [asdict(value) for value in self.values]} | kinds


@dataclass(frozen=True, kw_only=True, slots=True)
class _Term:
    """The columns of one axis, each with a value per candidate, and where on them its values (or points) stand."""

    key: str
    columns: tuple[tuple[float, ...], ...]
    points: tuple[tuple[str, tuple[float, ...], int], ...]  # label, place on the columns, candidates


def axis_effects(document: Mapping[str, Any], ranking: Ranking) -> tuple[AxisEffect, ...]:
    """What each axis that varies over the ranked candidates does to their mean score, the largest share first.

    Numbers on a range (or of a list of more than four) enter by a parabola, on a log scale where the axis has one;
    values of a list enter as they stand, and where an axis does not act is a value of its own. Candidates are weighted
    by 1 / (tau^2 + s^2 / n_i), where tau^2 is what their means differ by beyond the noise of n_i seeds.

    An axis has an effect where no more than 5 of 100 sweeps whose axes do nothing would show one (Sidak over the axes);
    without one it is "no effect seen" where it cannot explain a fifth of the differences, else "not enough to judge".
    """
    order = ranking.order
    params = {int(trial["number"]): trial.get("params") or {} for trial in document.get("trials") or ()}
    terms = [
        term
        for key, spec in (document.get("axes") or {}).items()
        if (term := _term(key, spec or {}, [params[index] for index in order])) is not None
    ]
    n = len(order)
    columns = 1 + sum(len(term.columns) for term in terms)
    scores = [ranking.scores[index] for index in order]
    if not terms:
        return ()
    least = max(FEWEST, columns + _FREE)
    if n < least or max(scores) == min(scores):
        total = max(int(document.get("total") or 0), len(params))
        why = _too_few(n, total, least) if n < least else f"all {n} ranked candidates have the same score"
        return tuple(AxisEffect(key=term.key, judgement="not enough to judge", candidates=n, why=why) for term in terms)
    weights = _weights(ranking)
    rows = [[1.0, *(column[at] for term in terms for column in term.columns), scores[at]] for at in range(n)]
    fit = _Fit(rows, weights, [len(term.columns) for term in terms])
    *whole, together = fit.shares([1] * fit.blocks)
    resampled = _resampled(fit)
    chances = _chances(rows, weights, [len(term.columns) for term in terms])
    alpha = 1 - CONFIDENCE ** (1 / len(terms))
    effects = []
    for place, term in enumerate(terms):
        share = whole[place]
        interval = _interval(share, [shares[place] for shares in resampled])
        judgement: Judgement = "effect" if chances[place] <= alpha else "not enough to judge"
        if judgement != "effect":
            interval = (0.0, interval[1])  # permuted labels do as well, so nothing is as good a guess
            judgement = "no effect seen" if interval[1] < _LARGE else judgement
        effects.append(
            AxisEffect(
                key=term.key, judgement=judgement, candidates=n, share=max(0.0, share), interval=interval,
                p=chances[place], together=max(0.0, together), values=fit.values(place, term),
            )
        )  # fmt: skip
    return tuple(sorted(effects, key=lambda effect: -(effect.share or 0.0)))


def _too_few(ranked: int, total: int, least: int) -> str:
    return f"{ranked} of {total} candidates ranked, {least} are the least: of fewer a model of main effects shows luck"


def _term(key: str, spec: Mapping[str, Any], params: Sequence[Mapping[str, Any]]) -> _Term | None:
    """The columns of an axis over the candidates; None where all have the same value."""
    absent = object()
    values = [of_one.get(key, absent) for of_one in params]
    names = ["not active" if value is absent else value_text(value) for value in values]
    written = [value_text(value) for value in spec.get("values") or ()]
    labels = list(dict.fromkeys([*(label for label in written if label in names), *names]))
    if len(labels) < 2:
        return None
    active = [value is not absent for value in values]
    numbers = [number(value) for value in compress(values, active)]
    distinct = sorted({value for value in numbers if value is not None})
    if None in numbers or (len(distinct) <= _LISTED and not is_range(spec)) or len(distinct) < 3:
        columns = tuple(tuple(float(name == label) for name in names) for label in labels[1:])
        places = [tuple(float(other == label) for other in labels[1:]) for label in labels]
        points = [(label, place, names.count(label)) for label, place in zip(labels, places, strict=True)]
        return _Term(key=key, columns=columns, points=tuple(_in_order(points)))
    scale = _scale(spec, distinct)
    low, high = scale(distinct[0]), scale(distinct[-1])

    def place(value: float) -> float:
        return 2 * (scale(value) - low) / (high - low) - 1

    acts = iter(numbers)
    at = [place(next(acts) or 0.0) if is_active else 0.0 for is_active in active]
    acting = tuple(map(float, active))
    shape = (tuple(at), tuple(z * z for z in at))
    middle = min(distinct, key=lambda value: abs(place(value)))
    ends = [(value, place(value)) for value in dict.fromkeys((distinct[0], middle, distinct[-1]))]
    if all(active):
        return _Term(key=key, columns=shape, points=tuple((value_text(v), (z, z * z), len(at)) for v, z in ends))
    points = [(value_text(v), (z, z * z, 1.0), sum(active)) for v, z in ends]
    return _Term(
        key=key,
        columns=(*shape, acting),
        points=(*points, ("not active", (0.0, 0.0, 0.0), len(active) - sum(active))),
    )


def _scale(spec: Mapping[str, Any], values: Sequence[float]) -> Callable[[float], float]:
    """What the numbers of an axis are measured on."""
    wide = not is_range(spec) and values[0] > 0 and values[-1] / values[0] >= _DECADE
    return math.log if (spec.get("log") and values[0] > 0) or wide else float


def _in_order(points: Sequence[tuple[str, tuple[float, ...], int]]) -> list[tuple[str, tuple[float, ...], int]]:
    """Numbers from the least to the largest, other labels as they came."""
    try:
        return sorted(points, key=lambda point: float(point[0]))
    except ValueError:
        return list(points)


def _weights(ranking: Ranking) -> list[float]:
    """The weight of each ranked candidate, their mean 1."""
    if ranking.noise is None or ranking.noise.sd == 0:
        return [1.0] * len(ranking.order)
    noises = [ranking.noise.sd**2 / ranking.sizes[index] for index in ranking.order]
    spread = (sample_sd([ranking.scores[index] for index in ranking.order]) or 0.0) ** 2
    between = max(0.0, spread - mean(noises))
    raw = [1 / (between + noise) for noise in noises]
    return [weight / mean(raw) for weight in raw]


class _Fit:
    """Weighted least squares on an intercept and the terms' columns, by the sweep operator (Goodnight 1979)."""

    def __init__(self, rows: Sequence[Sequence[float]], weights: Sequence[float], widths: Sequence[int]) -> None:
        self._size, self._y = len(rows[0]), len(rows[0]) - 1
        starts = [1 + sum(widths[:place]) for place in range(len(widths))]
        self._blocks = [range(start, start + width) for start, width in zip(starts, widths, strict=True)]
        self._rows, self._weights = rows, weights
        self.blocks = min(len(rows), _BLOCKS)
        self._numbers = [len(range(block, len(rows), self.blocks)) for block in range(self.blocks)]
        self._sums = [self._sum_of(range(block, len(rows), self.blocks)) for block in range(self.blocks)]

    def shares(self, counts: Sequence[int]) -> list[float]:
        """Of the blocks, each so often: what goes with each term alone, beyond chance, of the whole variance.

        The last entry is what goes with all terms together.
        """
        flat = self._weighted(counts)
        matrix, used = self._swept(flat)
        left = matrix[self._y][self._y]
        total = self._total(flat)
        free = sum(number for number, count in zip(self._numbers, counts, strict=True) if count) - len(used)
        if total <= 0 or free < 1:
            return [0.0] * (len(self._blocks) + 1)
        shares = []
        for block in self._blocks:
            without = [row[:] for row in matrix]
            own = [column for column in block if column in used]
            for column in own:
                _sweep(without, column)
            others = [c for c in range(1, self._y) if c not in used and c not in block]
            for column in others:  # what stood back for a column of this term
                if without[column][column] > _ALIASED * len(self._rows):
                    _sweep(without, column)
            by_chance = len(own) * left / free
            shares.append((without[self._y][self._y] - left - by_chance) / total)
        return [*shares, (total - left - (len(used) - 1) * left / free) / total]

    def values(self, place: int, term: _Term) -> tuple[Effect, ...]:
        """How far the model's mean at each value of a term lies from its mean over the candidates."""
        n = len(self._rows)
        matrix, used = self._swept(self._weighted([1] * self.blocks))
        free = n - len(used)
        error = matrix[self._y][self._y] / free
        t = t_quantile((1 + CONFIDENCE) / 2, free)
        block = self._blocks[place]
        centre = [
            sum(map(mul, self._weights, [row[column] for row in self._rows])) / sum(self._weights) for column in block
        ]
        effects = []
        for label, at, count in term.points:
            step = {c: x - m for c, x, m in zip(block, at, centre, strict=True) if c in used}
            effect = sum(matrix[c][self._y] * by for c, by in step.items())
            variance = error * sum(matrix[a][b] * step[a] * step[b] for a in step for b in step)
            half = t * math.sqrt(max(0.0, variance))
            effects.append(
                Effect(label=label, candidates=count, effect=effect, interval=(effect - half, effect + half))
            )
        return tuple(effects)

    def _swept(self, flat: Sequence[float]) -> tuple[Matrix, set[int]]:
        """The matrix of sums after all columns that are no combination of those before them, and these columns."""
        matrix = [list(flat[at : at + self._size]) for at in range(0, len(flat), self._size)]
        own = [matrix[column][column] for column in range(self._size)]
        used = set()
        for column in range(self._y):
            if matrix[column][column] > _ALIASED * max(own[column], 1e-300):
                _sweep(matrix, column)
                used.add(column)
        return matrix, used

    def _total(self, flat: Sequence[float]) -> float:
        """The weighted sum of squares about the mean."""
        weight, ones, squares = flat[0], flat[self._y], flat[-1]
        total = squares - ones * ones / weight
        return total if total > 1e-12 * abs(squares) else 0.0

    def _weighted(self, counts: Sequence[int]) -> list[float]:
        """The sums of products over the blocks, each so often."""
        flat = [0.0] * self._size**2
        for count, sums in zip(counts, self._sums, strict=True):
            if count:
                flat = [total + count * part for total, part in zip(flat, sums, strict=True)]
        return flat

    def _sum_of(self, candidates: Sequence[int]) -> list[float]:
        """The sums of products over some candidates."""
        roots = [math.sqrt(self._weights[at]) for at in candidates]
        columns = [[self._rows[at][c] * root for at, root in zip(candidates, roots, strict=True)]
                   for c in range(self._size)]  # fmt: skip
        return [sum(map(mul, a, b)) for a in columns for b in columns]


def _sweep(matrix: Matrix, pivot: int) -> None:
    """Regress all on one column, or, where that was done, take it out again."""
    d = matrix[pivot][pivot]
    own = [value / d for value in matrix[pivot]]
    own[pivot] = 1 / d
    for at, row in enumerate(matrix):
        if at != pivot and (b := row[pivot]):
            new = [value - b * other for value, other in zip(row, own, strict=True)]
            new[pivot] = -b / d
            matrix[at] = new
    matrix[pivot] = own


def _resampled(fit: _Fit) -> list[list[float]]:
    """The shares of as many candidates drawn from them with replacement, again and again; from a fixed seed."""
    dice = random.Random(0)
    resamples = []
    for _ in range(_RESAMPLES):
        drawn = Counter(dice.randrange(fit.blocks) for _ in range(fit.blocks))
        resamples.append(fit.shares([drawn[block] for block in range(fit.blocks)]))
    return resamples


def _interval(share: float, resampled: Sequence[float]) -> Interval:
    """The middle 95 % of the resampled shares, moved so that their mean is the estimate, within 0 to 1.

    Moved, since a sample with repeats always fits better than it should.
    """
    ordered = sorted(resampled)
    shift = share - mean(ordered)
    tail = (1 - CONFIDENCE) / 2
    low, high = ordered[round(tail * (len(ordered) - 1))], ordered[round((1 - tail) * (len(ordered) - 1))]
    return min(max(low + shift, 0.0), 1.0), min(max(high + shift, 0.0), 1.0)


def _chances(rows: Sequence[Sequence[float]], weights: Sequence[float], widths: Sequence[int]) -> list[float]:
    """For each term, the chance of so large an F where it does nothing, by permuting what the others leave over.

    Freedman and Lane (1983): what the other terms explain stays in place, so that a strong axis hides no weaker one.
    """
    dice = random.Random(0)
    roots = [math.sqrt(weight) for weight in weights]
    columns = [[row[c] * root for row, root in zip(rows, roots, strict=True)] for c in range(len(rows[0]))]
    *predictors, y = columns
    chances, start = [], 1
    for width in widths:
        others = _orthonormal([*predictors[:start], *predictors[start + width :]])
        own = _orthonormal(predictors[start : start + width], beside=others)
        start += width
        left = _residual(y, others)
        if not own or not any(left):
            chances.append(1.0)
            continue
        observed = _ratio(left, own, others)
        beyond = 0
        for _ in range(_DEALS):
            if len(left) > _NORMAL:
                free = len(left) - len(own) - len(others)
                dealt = sum(dice.gauss(0, 1) ** 2 for _ in own) / free
            else:
                dice.shuffle(left)
                dealt = _ratio(left, own, others)
            beyond += dealt >= observed
        chances.append((1 + beyond) / (1 + _DEALS))
    return chances


def _ratio(values: Sequence[float], own: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """What `own` explains of the values over what nothing explains; F but for a constant."""
    explained = sum(sum(map(mul, column, values)) ** 2 for column in own)
    rest = sum(map(mul, values, values)) - explained - sum(sum(map(mul, column, values)) ** 2 for column in others)
    return explained / rest if rest > 1e-12 * explained else math.inf


def _orthonormal(columns: Sequence[Sequence[float]], beside: Sequence[Sequence[float]] = ()) -> list[list[float]]:
    """An orthonormal basis of the columns without what lies in `beside` (Gram-Schmidt, done twice)."""
    basis: list[list[float]] = []
    for column in columns:
        left = _residual(_residual(column, [*beside, *basis]), [*beside, *basis])
        length = math.sqrt(sum(map(mul, left, left)))
        if length > math.sqrt(_ALIASED * max(sum(map(mul, column, column)), 1e-300)):
            basis.append([value / length for value in left])
    return basis


def _residual(values: Sequence[float], basis: Sequence[Sequence[float]]) -> list[float]:
    """The values without what lies in an orthonormal basis."""
    left = list(values)
    for column in basis:
        along = sum(map(mul, column, left))
        left = [value - along * other for value, other in zip(left, column, strict=True)]
    return left
