"""Where a log begins again: a run that was started anew into the same file, or resumed from a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

_SHOWN_BY = 3  # rows at different places behind where a log goes back: fewer are a process that lags behind
_TOO_SHORT = 4  # times as many rows has another attempt: the newest has only begun
_SEVERAL, _MANY_ROWS = 3, 20  # times that a log begins again; of more than these there is one in so many rows at most
_NAMED = 3  # ends of attempts in a note


def one_attempt(
    places: Sequence[float], reward_of: Callable[[int], float | None], unit: str = "step"
) -> tuple[list[int], list[str]]:
    """Which rows of a log are of its newest attempt, in their order, and notes; all of them and [] where it has one.

    places: where in the run each row stands (in steps, or in `unit`), in the log's order; reward_of: the reward of a
    row, or its loss. What a resumed run continues is part of it up to where it goes on; what was trained again from
    there is not. Where the newest has hardly begun, an earlier, much longer one stands. Rows with the same rewards at
    the same places are another process's, and no attempt.
    """
    begins = _begins(places)
    if len(begins) == 1:
        return list(range(len(places))), []
    if len(begins) - 1 > max(_SEVERAL, len(places) / _MANY_ROWS):
        return list(range(len(places))), []  # a count of something else
    rewards = [reward_of(row) for row in range(len(places))]
    courses: list[list[int]] = []
    for begin, end in zip(begins, [*begins[1:], len(places)], strict=True):
        before = [row for row in courses[-1] if places[row] < places[begin]] if courses else []
        if courses and _tells_the_same(courses[-1], range(begin, end), places, rewards):
            courses[-1] = [*before, *range(begin, end)]  # the same again: nothing began
            continue
        courses.append([*before, *range(begin, end)])
    if len(courses) == 1:
        return list(range(len(places))), []
    longest = max(courses, key=len)
    chosen = courses[-1] if len(courses[-1]) * _TOO_SHORT > len(longest) else longest
    return chosen, [_note(courses, chosen, [f"{unit} {places[course[-1]]:g}" for course in courses[:-1]])]


def _begins(places: Sequence[float]) -> list[int]:
    """The rows at which an attempt begins: the first one, and where places go back for good."""
    begins, furthest = [0], places[0] if places else 0.0
    for row, place in enumerate(places):
        if place < furthest and _goes_on(places, row, furthest):
            begins.append(row)
            furthest = place
        furthest = max(furthest, place)
    return begins


def _goes_on(places: Sequence[float], row: int, furthest: float) -> bool:
    """Whether from this row on some rows follow each other, none of them beyond the furthest place there was."""
    seen, last = 0, -math.inf
    for at in range(row, len(places)):
        place = places[at]
        if place > furthest or place < last:
            return False
        seen += place > last
        last = place
        if seen == _SHOWN_BY:
            return True
    return False


def _tells_the_same(
    course: Sequence[int], again: Sequence[int], places: Sequence[float], rewards: Sequence[float | None]
) -> bool:
    """Whether most rows at the places of a course have its rewards; 0 is anybody's."""
    there = {places[row]: rewards[row] for row in course}
    repeated = [row for row in again if there.get(places[row]) and rewards[row] is not None]
    return sum(rewards[row] == there[places[row]] for row in repeated) * 2 > len(repeated) > 0


def _note(courses: Sequence[Sequence[int]], chosen: Sequence[int], ends: Sequence[str]) -> str:
    which = "newest" if chosen is courses[-1] else "longest"
    left = len({row for course in courses for row in course} - {*chosen})
    behind = ", ".join(ends[:_NAMED]) + (", ..." if len(ends) > _NAMED else "")
    return (
        f"the log goes back behind {behind} (begun again, or resumed): of {len(courses)} attempts the {which} one is "
        f"judged, {left} rows are left out; to judge another one, give it as a file of its own"
    )
