"""Where a log begins again: a run that was started anew into the same file, or resumed from a checkpoint.

Places are where in the run the entries of a log stand: steps, a progress bar's, or epochs. An attempt begins where they
go back and on from there, over places that were told before, and no other count goes on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, takewhile

from grpoctl.diagnose.readers.metric_names import STEPS, name_of

TIMED = re.compile(r"step_time|profiling/.+|.+_runtime|.+_per_second")  # a process's own
COUNTS = frozenset({*STEPS, "epoch", "num_tokens", "total_tokens", "tokens_seen", "total_episodes", "episodes"})
_FOLLOWING, _BEFORE = 3, 2  # rows that follow each other, and those of them that were passed before: fewer are a lag
_LOOKED_AT = 100  # entries in which they are looked for
_TOO_SHORT = 4  # times as many rows has another attempt: the newest has only begun
_SEVERAL, _MANY_ROWS = 3, 20  # times that a log begins again; of more than these there is one in so many rows at most
_ALIKE = 0.9  # of the values at the same places: the rows are another process's
FROM_SCRATCH = 1.6  # spacings: a run's first row is no further from 0
_ADJOINING = 3  # spacings between files of one run that stand in another order
_TELLING = ("reward/mean", "loss", "policy/loss", "kl", "entropy", "grad_norm")  # the first of them says what a row is
PLACED = 0.9  # of the rows have a place
BEGINS_AGAIN = "the log goes back"  # how the note begins
_NAMED = 3  # ends of attempts in a note

Cells = Mapping[str, float | None]


def newest_attempt(
    places: Sequence[float | None], cells_of: Callable[[int], Cells], unit: str = "step", *, total: float = math.inf
) -> tuple[list[int], list[str]]:
    """Which entries of a log are of its newest attempt, in their order, and notes; all of them and [] where it has one.

    places: of each entry, in the log's order, in steps or in `unit`; cells_of: an entry's values by their names; total:
    of a progress bar, behind which it begins again for the next pass. Rows with rewards (without any, with losses) say
    where an attempt begins; what stands between goes with the row before it, or with the attempt that it begins. What a
    resumed run continues is part of it up to where it goes on. Where the newest has hardly begun, an earlier, much
    longer one stands. What is told again is counted once.
    """
    everything = list(range(len(places)))
    if all(before <= after for before, after in pairwise(place for place in places if place is not None)):
        return everything, []  # nearly always, and quickly seen
    rows = _rows(places, cells_of)
    at = [places[row] or 0.0 for row in rows]
    begins = _begins(at)
    if len(begins) < 2 or len(begins) - 1 > max(_SEVERAL, len(at) / _MANY_ROWS):
        return everything, []  # of more it is a count of something else
    attempts = _Attempts(at, begins, lambda row: cells_of(rows[row]), total)
    course, which = attempts.followed(len(begins)), "newest"
    reached = [f"{unit} {end:g}" for end in attempts.ends]
    length, number, end = attempts.longest
    if length >= _TOO_SHORT * len(course) and end >= _TOO_SHORT * at[course[-1]]:
        course, which = attempts.followed(number), "longest"
    kept = _with_what_is_between(course, rows, places)
    left = len(places) - len(kept)
    if not left:
        return everything, []
    if not reached:
        return kept, [f"{left} rows tell again what others told (another process): counted once"]
    behind = ", ".join(reached[:_NAMED]) + (", ..." if len(reached) > _NAMED else "")
    note = (
        f"{BEGINS_AGAIN} behind {behind} (begun again, or resumed): of {len(reached) + 1} attempts the {which} one "
        f"is judged, {left} rows are left out; to judge another one, give it as a file of its own"
    )
    return kept, [note]


def _rows(places: Sequence[float | None], cells_of: Callable[[int], Cells]) -> list[int]:
    """The entries with rewards, else those with losses, that have a place; [] where many of them have none."""
    metrics = {
        entry: {name_of(name) for name, value in cells_of(entry).items() if value is not None}
        for entry in range(len(places))
    }
    for metric in _TELLING:
        told = [entry for entry, names in metrics.items() if metric in names]
        placed = [entry for entry in told if places[entry] is not None]
        if told:
            return placed if len(placed) >= PLACED * len(told) else []
    return []


def _begins(places: Sequence[float]) -> list[int]:
    """The rows at which an attempt may begin: the first one, and where places go back and on from there."""
    begins, furthest = [0], places[0] if places else 0.0
    for row, place in enumerate(places):
        if place < furthest and _goes_on(places, row, furthest):
            begins.append(row)
            furthest = place
        furthest = max(furthest, place)
    return begins


def _goes_on(places: Sequence[float], row: int, furthest: float) -> bool:
    """Whether from this row on some rows follow each other, of which more than one is not beyond the furthest place."""
    seen: list[float] = []
    for place in places[row : row + _LOOKED_AT]:
        if seen and place < seen[-1]:
            return False
        if not seen or place > seen[-1]:
            seen.append(place)
        if len(seen) == _FOLLOWING:
            second = seen[_BEFORE - 1]  # a setback of one row is a lag, but at a run's beginning
            return second < furthest or (second == furthest and _is_first(seen[0], second))
    return False


def _is_first(place: float, following: float) -> bool:
    """Whether a row is a run's first: as far from 0 as from the one that follows."""
    return place <= FROM_SCRATCH * (following - place)


class _Attempts:
    """The attempts of a log, followed one after another: each continues what it does not tell again."""

    def __init__(
        self, places: Sequence[float], begins: Sequence[int], cells_of: Callable[[int], Cells], total: float
    ) -> None:
        self.places, self.cells_of, self.total = places, cells_of, total
        self.parts = [range(begin, end) for begin, end in pairwise([*begins, len(places)])]
        self.ends: list[float] = []  # the last place of each attempt but the newest
        self.longest = (0, 0, 0.0)  # rows of the longest of these, how many parts it is of, and its last place

    def followed(self, count: int) -> list[int]:
        """The rows of the attempt that the last of so many parts is of."""
        self.ends, self.longest = [], (0, 0, 0.0)
        course, least = list(self.parts[0]), self.places[0]
        for number, part in enumerate(self.parts[1:count], 1):
            end = self.places[course[-1]]
            if self._goes_on_with(course, part, least):
                course += part
            elif self._tells_again(course, part):
                course += [row for row in part if self.places[row] > end]
            else:
                self.ends.append(end)
                self.longest = max(self.longest, (len(course), number, end))
                if _is_first(*(self.places[row] for row in part[:2])):
                    course.clear()
                while course and self.places[course[-1]] >= self.places[part[0]]:
                    course.pop()
                course += part
            least = min(least if course[0] != part[0] else self.places[part[0]], self.places[part[0]])
        return course

    def _goes_on_with(self, course: Sequence[int], part: range, least: float) -> bool:
        """Whether a part belongs to the same attempt: the places before its own (files in another order), another count
        that goes on, or a bar's next pass.
        """
        first, last = self.places[part[0]], max(map(self.places.__getitem__, part))
        if last < least:
            return least - last <= _ADJOINING * (last - first) / (len(part) - 1)
        cells = [self.cells_of(row) for row in (course[-1], part[0], part[1])]
        counts = [[one[name] for one in cells] for name in COUNTS.intersection(*cells)]
        return self.places[course[-1]] >= self.total or any(map(_counts_on, counts))

    def _tells_again(self, course: Sequence[int], part: range) -> bool:
        """Whether nearly all values at the places of a course are the course's."""
        tail = takewhile(lambda row: self.places[row] >= self.places[part[0]], reversed(course))
        there = {self.places[row]: row for row in tail}
        same = compared = 0
        for row in part:
            if self.places[row] not in there:
                continue
            before, again = self.cells_of(there[self.places[row]]), self.cells_of(row)
            names = [name for name in before.keys() & again.keys() - COUNTS if not TIMED.fullmatch(name)]
            compared += len(names)
            same += sum(before[name] == again[name] for name in names)
        return same >= _ALIKE * compared > 0


def _counts_on(values: Sequence[float | None]) -> bool:
    """Whether a count goes on over the gap between the first of three rows and the others, and begins nothing there."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return False
    was, now, following = known
    return now > was and not _is_first(now, following)


def _with_what_is_between(course: Sequence[int], rows: Sequence[int], places: Sequence[float | None]) -> list[int]:
    """The entries that go with a course's rows: those behind each, up to where the next row or attempt begins."""

    def goes_back(entry: int, before: int) -> bool:
        place, reached = places[entry], places[before]
        return place is not None and reached is not None and place < reached

    starts = [0]
    for before, row in pairwise(rows):
        starts.append(next((entry for entry in range(before + 1, row) if goes_back(entry, before)), row))
    ends = [*starts[1:], len(places)]
    return [entry for row in sorted(course) for entry in range(starts[row], ends[row])]
