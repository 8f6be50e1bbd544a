"""The rows of a console log as one course: each step once, in order, whatever was printed between and again.

What is not here: how lines are read (console_lines), and the number of a row's step (step_numbers).
"""

from __future__ import annotations

import bisect
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import groupby, islice, pairwise, zip_longest

from grpoctl.diagnose.readers.attempts import TIMED
from grpoctl.diagnose.readers.base import TOO_SMALL
from grpoctl.diagnose.readers.logged import (
    Form,
    Logged,
    has_reward,
    is_held_out,
    mean_cells,
    only_of_evaluations,
    tells_a_mean,
    tells_a_score,
)
from grpoctl.diagnose.readers.metric_names import STEPS, name_of, translated

_COUNTERS = ("step", "num_tokens")  # no two steps of a run have the same; `epoch` is rounded
_ENOUGH = 3  # different dictionaries in a row, before copies of them are taken for copies
_KINDS = 4  # of dictionaries that make one step
_ROUNDED = 1e-3  # of a number, and of one below 1
_TWICE = 2  # times as many rewards on lines of their own as behind progress bars, and bars are no rows
_MANY_BARS = 10  # places of a bar with rewards, where an epoch is no step
_USUAL = 0.9  # of the drawings of a bar are as many as each step has
_FEWEST_ROWS = 3  # that show an order
_OF_NO_RUN = re.compile(  # a heading of a part of a run, of another try at it, of other data, or of somebody else's run
    r"\A\W*\d{4}-\d\d(?:-\d\d)?\W*\Z|"
    r"\b(?:epoch|rank|restart\w*|resum\w+|continu\w+|attempts?|hypothes[ie]s|expect\w*|smooth\w*|target|held.?out|"
    r"eval\w*|valid\w*|test|baseline|paper(?=\s*(?:baseline|results?|numbers?)?\s*\Z)|"
    r"(?:first|last|full|all|again|more|per|part|phase|stage)\b)",
    re.IGNORECASE,
)
_MOST_SECTIONS = 32  # that are runs
_MOST_PARTS = 1000  # tables, and lists below a heading: each is held against the others
_ENDS = 2  # rows that have a start and an end
_SAME = 2  # metrics that tables tell by other names: they are other runs
_DECIMALS, _SHOWN_BY = 4, 5  # decimals, and rows that show that there are no more
_OF_SUPERVISED = frozenset({None, "step", "loss", "eval/loss", "learning_rate", "grad_norm"})


def in_order(form: Form, logged: list[Logged], rounded: Collection[str]) -> list[Logged]:
    """The rows of a form as one course, one row a step."""
    if form not in ("pairs", "table"):
        few = form == "dictionary" and len(logged) >= _SHOWN_BY and _have_few_decimals(logged)
        return _without_rounded(logged, {name for entry in logged for name in entry.cells} if few else set())
    if form == "pairs":
        logged = _with_updates(_without_redrawn(_without_examples(logged)))
    course = _of_one_run(logged) if form == "table" else _by_epoch(logged) or _lines_of_steps(logged)
    return _without_rounded(course, rounded)


def _have_few_decimals(logged: Sequence[Logged]) -> bool:
    """Whether whoever printed the rows rounded their metrics to four decimals: a KL of 0.0 may be 1e-5 then."""
    return all(
        value is None or not math.isfinite(value) or round(value, _DECIMALS) == value
        for entry in logged
        for name, value in entry.cells.items()
        if name_of(name) not in (None, *TOO_SMALL)
    )


def _without_bars(logged: Sequence[Logged]) -> Sequence[Logged]:
    """The lines without what stands behind progress bars, where lines of steps tell all of it."""
    lines = [entry for entry in logged if not entry.in_bar]
    told = {name_of(name) for entry in lines for name in entry.cells}
    behind = {name_of(name) for entry in logged if entry.in_bar for name in entry.cells} - {None, "step"}
    steps = {entry.step for entry in lines if entry.step is not None}
    rewarded = Counter(entry.in_bar for entry in logged if has_reward(tuple(entry.cells)))
    enough = (len(steps) > 1 and rewarded[False] >= _ENOUGH) or _TWICE * rewarded[False] >= rewarded[True]
    of_critic = all((metric or "").startswith("critic/") for metric in behind)  # of each of its workers
    return lines if enough and (behind <= told or of_critic) and "reward/mean" in told else logged


def _without_examples(logged: list[Logged]) -> list[Logged]:
    """The lines without those of single completions, where others tell rewards, too."""
    others = [entry for entry in logged if not entry.single]
    rewarded = [entry for entry in others if has_reward(tuple(entry.cells))]
    means = [entry for entry in rewarded if entry.step is not None and tells_a_mean(entry.cells)]
    if len(others) < len(logged) and len(rewarded) < _ENOUGH and not means:
        of_epochs = all(entry.step is None and entry.epoch is not None for entry in rewarded)
        return _by_groups(logged) if of_epochs else logged
    return _without_unnumbered(others)


def _by_groups(logged: list[Logged]) -> list[Logged]:
    """The lines with one for each group of completions, with their means, where no line but an epoch's tells a mean.

    Completions without another line between are of a group; most groups have two or more, and there are three or more.
    """
    groups = [list(rows) for single, rows in groupby(logged, key=lambda entry: entry.single) if single]
    groups = [rows for rows in groups if all(has_reward(tuple(row.cells)) for row in rows)]
    if len(groups) < _ENOUGH or 2 * sum(len(rows) > 1 for rows in groups) <= len(groups):
        return logged
    means = {id(rows[0]): rows[0]._replace(cells=mean_cells(rows), single=False) for rows in groups}
    told = set(map(id, means.values()))
    kept = (means.get(id(entry), None if entry.single else entry) for entry in logged)
    return [one for one in kept if one is not None and (id(one) in told or not has_reward(tuple(one.cells)))]


def _without_unnumbered(logged: list[Logged]) -> list[Logged]:
    """The lines without rewards of no step, where lines of steps tell theirs: those are of single completions.

    They tell nothing of an update (a KL, a loss), stand behind a step's own reward, and are no more than steps; or
    those of steps are means by their names and they are not.
    """
    rewarded = [entry for entry in logged if has_reward(tuple(entry.cells)) and not entry.in_bar]
    of_steps = [entry for entry in rewarded if entry.step is not None]
    others = [entry for entry in rewarded if entry.step is None]
    steps = {entry.step for entry in of_steps}
    if len(steps) < _ENOUGH or not others or not all(tells_a_score(tuple(entry.cells)) for entry in others):
        return logged
    if all(tells_a_mean(entry.cells) for entry in of_steps) and not any(tells_a_mean(entry.cells) for entry in others):
        left_out = {id(entry) for entry in others}
    else:
        left_out = _behind_a_reward(logged) if len(others) <= len(steps) else set()
    return [entry for entry in logged if id(entry) not in left_out]


def _behind_a_reward(logged: Sequence[Logged]) -> set[int]:
    """The ids of those that have a reward and no step, where the step above them has its reward already.

    None where most of them stand behind the last step: the log goes on without numbers there.
    """
    found: dict[int, int] = {}  # id -> its place
    last, is_told = 0, False
    for place, entry in enumerate(logged):
        rewarded = has_reward(tuple(entry.cells))
        if entry.step is None and rewarded and is_told and not entry.in_bar:
            found[id(entry)] = place
        last = last if entry.step is None else place
        is_told = is_told if entry.step is None else rewarded
    return set(found) if 2 * sum(place > last for place in found.values()) <= len(found) else set()


def _with_updates(logged: list[Logged]) -> list[Logged]:
    """The lines of steps, each with the means of what its updates tell on lines of their own, without a step.

    Where steps have their rewards, and most of them two such lines or more that tell the same metrics.
    """
    places = [at for at, one in enumerate(logged) if one.step is not None and has_reward(tuple(one.cells))]
    if len({logged[at].step for at in places}) < _ENOUGH:
        return logged
    updates = _updates_between(logged, places)
    if not updates:
        return logged
    behind = sum(at > places[-1] for at in updates) >= sum(at < places[0] for at in updates)
    of_step: dict[int, list[int]] = {}
    for at in updates:
        owner = bisect.bisect_right(places, at) - behind
        if 0 <= owner < len(places):
            of_step.setdefault(places[owner], []).append(at)
    joined = {
        at: with_more_of(logged[at], logged[rows[0]]._replace(cells=mean_cells([logged[row] for row in rows])))
        for at, rows in of_step.items()
    }
    gone = set(updates)  # of the run's other part, where an excerpt begins or ends among them
    return [joined.get(at, entry) for at, entry in enumerate(logged) if at not in gone]


def _updates_between(logged: Sequence[Logged], places: Sequence[int]) -> list[int]:
    """The places of lines that tell of updates: of names that most steps tell twice or more; [] where none do.

    More of them before the first step, or behind the last, than any step has are of something else.
    """
    apart: dict[tuple[str, ...], dict[int, list[int]]] = {}  # names -> after so many steps -> places
    for at, one in enumerate(logged):
        if _is_of_an_update(one):
            apart.setdefault(tuple(one.cells), {}).setdefault(bisect.bisect_right(places, at), []).append(at)
    found: list[int] = []
    for of_steps in apart.values():
        between = [len(rows) for after, rows in of_steps.items() if 0 < after < len(places)]
        if 2 * sum(count > 1 for count in between) > len(places) - 1:
            found += [at for rows in of_steps.values() if len(rows) <= max(between) for at in rows]
    return sorted(found)


def _is_of_an_update(entry: Logged) -> bool:
    """Whether an entry has metrics of training, no reward and no step."""
    names = tuple(entry.cells)
    return (
        entry.step is None
        and bool(names)
        and not has_reward(names)
        and not only_of_evaluations(names)
        and not entry.in_bar
    )


def _without_redrawn(logged: list[Logged]) -> list[Logged]:
    """The lines with one of each progress bar that is drawn equally often with the same numbers behind it.

    A bar of samples is drawn many times a step. Of the first and the last run of equal ones part may be missing.
    """
    by_names: dict[tuple[str, ...], list[Logged]] = {}
    for entry in logged:
        if entry.in_bar:
            by_names.setdefault(tuple(entry.cells), []).append(entry)
    again: set[int] = set()
    for drawn in by_names.values():
        runs = [list(group) for _, group in groupby(drawn, key=lambda entry: entry.cells)]
        lengths = Counter(map(len, runs[1:-1]))
        usual = max(lengths, key=lengths.__getitem__, default=1)
        if len(runs) > _ENOUGH and usual > 1 and lengths[usual] >= _USUAL * lengths.total():
            again |= {id(entry) for run in runs for entry in run[1:]}
    return [entry for entry in logged if id(entry) not in again]


def _lines_of_steps(logged: Sequence[Logged]) -> list[Logged]:
    """Lines of pairs as one entry a step; without a step that is cited above the rows and told again among them."""
    entries = _joined(_without_bars(logged))
    first, *others = [entry.step for entry in entries] or [None]
    steps = [step for step in others if step is not None]
    rises = len(steps) == len(others) > _ENDS and all(a < b for a, b in pairwise(steps))
    return entries[1:] if rises and first in steps[1:] else entries


def _joined(logged: Sequence[Logged]) -> list[Logged]:
    """Lines of pairs as one entry a step: what follows a step's number belongs to it, until a name comes again."""
    entries: list[Logged] = []
    for entry in logged:
        last = entries[-1] if entries else None
        if last is not None and _continues(last, entry):
            step = last.step if entry.step is None else entry.step
            entries[-1] = last._replace(cells={**last.cells, **entry.cells}, step=step)
        else:
            entries.append(entry)
    return [entry for entry in entries if entry.cells]


def _without_rounded(logged: Sequence[Logged], rounded: Collection[str]) -> list[Logged]:
    """The entries without rates, KL weights and KLs that are 0.00000 throughout: too few decimals to tell them."""
    lost = {
        name for name in rounded if name_of(name) in TOO_SMALL and not any(entry.cells.get(name) for entry in logged)
    }
    if not lost:
        return list(logged)
    return [
        entry._replace(cells={name: value for name, value in entry.cells.items() if name not in lost})
        for entry in logged
    ]


def _of_several_kinds(logged: Sequence[Logged]) -> list[Logged]:
    """Dictionaries that take turns (rewards, then losses) as one entry each time round; others as they are."""
    kinds = Counter(frozenset(entry.cells) for entry in logged)
    names = [name for kind in kinds for name in kind]
    takes_turns = 1 < len(kinds) <= _KINDS and max(kinds.values()) - min(kinds.values()) <= 1 < min(kinds.values())
    if not takes_turns or len(set(names)) < len(names) or any(entry.step is not None for entry in logged):
        return list(logged)
    joined: list[Logged] = []
    for entry in logged:
        if joined and joined[-1].cells.keys().isdisjoint(entry.cells):
            joined[-1] = joined[-1]._replace(cells={**joined[-1].cells, **entry.cells})
        else:
            joined.append(entry)
    return joined


def _without_single_completions(logged: list[Logged]) -> tuple[list[Logged], int]:
    """The dictionaries without those that reward functions print of each completion, and how many these are.

    They have parts of a reward and nothing else, and stand in greater number between steps that have the whole reward.
    """
    parts = {names: _are_parts_of_a_reward(names) for names in {tuple(entry.cells) for entry in logged}}
    steps = sum(has_reward(tuple(entry.cells)) for entry in logged)
    others = [entry for entry in logged if not parts[tuple(entry.cells)]]
    single = len(logged) - len(others)
    return (others, single) if 0 < steps < single else (logged, 0)


def _are_parts_of_a_reward(names: tuple[str, ...]) -> bool:
    metrics = {name_of(name) for name in names} - {None}
    return bool(metrics) and all(name is not None and name.startswith("rewards/") for name in metrics)


def _by_epoch(logged: Sequence[Logged]) -> list[Logged]:
    """One entry an epoch, in their order, where lines say no other place in the run; [] where they say none."""
    if any(entry.step is not None for entry in logged):
        return []
    drawn = {(entry.epoch, entry.bar) for entry in logged if entry.in_bar and has_reward(tuple(entry.cells))}
    if len(drawn) > _MANY_BARS:  # a bar tells more than its epoch
        return []
    entries: dict[float, Logged] = {}
    for entry in logged:
        if entry.epoch is not None:
            before = entries.setdefault(entry.epoch, entry)
            entries[entry.epoch] = before._replace(cells={**entry.cells, **before.cells})
    return [entries[epoch] for epoch in sorted(entries)] if len(entries) > 1 else []


class _Table:
    """The rows of a table, and what they tell: asked again for each pair of tables."""

    def __init__(self, rows: list[Logged]) -> None:
        self.rows = rows
        self.names = {name for row in rows for name in row.cells} - set(STEPS)
        self.steps = [row.step for row in rows if row.step is not None]

    @cached_property
    def metrics(self) -> set[str | None]:
        """Ours of its names."""
        return set(map(name_of, self.names)) - {None, "step"}

    @cached_property
    def values(self) -> dict[tuple[int, str | None], float | None]:
        """(step, metric) -> value."""
        return {
            (row.step, name_of(name)): value
            for row in self.rows
            if row.step is not None
            for name, value in row.cells.items()
            if name not in STEPS
        }


def _of_one_run(logged: Sequence[Logged]) -> list[Logged]:
    """Rows of several tables as one course: what they say of one step is joined, by order where no row has a step.

    Of tables that tell the same metrics of the same steps again the one with the most rows stands: they are other runs,
    or it was printed again. One with nothing but losses is of supervised learning, and stands behind the others.
    """
    tables = _without_summaries([list(rows) for _, rows in groupby(logged, key=lambda entry: entry.table)])
    tables = _of_one_kind(tables)
    kept: list[_Table] = []
    for table in map(_Table, sorted(tables, key=lambda rows: (_is_of_rewards(rows), len(rows)), reverse=True)):
        if not any(_tells_again(table, other) for other in kept):
            kept.append(table)
    courses = sorted((table.rows for table in kept), key=lambda rows: rows[0].line)
    entries = [entry for rows in courses for entry in rows]
    if len(courses) > 1 and _are_beside_each_other(courses):
        entries = [entry for beside in zip(*courses, strict=True) for entry in beside]
    elif all(entry.step is not None for entry in entries) and (len(courses) > 1 or _are_checkpoints(entries)):
        entries.sort(key=lambda entry: entry.step or 0)
    return _joined(entries)


def runs_of_sections(logged: Sequence[Logged]) -> dict[str, list[Logged]]:
    """Section -> rows of a text whose tables or lists tell the same metrics of the same steps in several: a run each.

    One that tells nothing again is of the run above it. {} for one run, where one was printed again, and where a
    heading names a part of a run (an epoch, a process, what was held out) or no run of this text's.
    """
    runs: list[list[_Table]] = []
    groups = groupby(logged, key=lambda entry: (entry.table, entry.run))
    parts = [list(group) for _, group in islice(groups, _MOST_PARTS + 1)]
    if len(parts) > _MOST_PARTS:
        return {}
    for table in map(_Table, parts):
        is_course = len({*table.steps}) >= _ENDS and _is_of_rewards(table.rows)
        told = is_course and any(_tells_again(table, other) for other in (runs[-1] if runs else ()))
        if not runs or (told and all(_are_different(table, other) for run in runs for other in run)):
            runs.append([])
        runs[-1].append(table)
        if len(runs) > _MOST_SECTIONS:
            return {}
    named = {tables[0].rows[0].run: [row for table in tables for row in table.rows] for tables in runs}
    are_runs = len(named) == len(runs) > 1 and not any(_OF_NO_RUN.search(name) or not name for name in named)
    return named if are_runs else {}


def _are_different(table: _Table, other: _Table) -> bool:
    """Whether two tables do not tell the same values: not printed again, with a column more or less."""
    shared = table.values.keys() & other.values.keys()
    return not shared or any(table.values[place] != other.values[place] for place in shared)


def _without_summaries(tables: list[list[Logged]]) -> list[list[Logged]]:
    """The tables without those of one row of no step (names and values), where another tells the course by steps."""
    has_course = any(
        len({row.step for row in rows} - {None}) >= _FEWEST_ROWS and any(has_reward(tuple(row.cells)) for row in rows)
        for rows in tables
    )
    return [
        rows
        for rows in tables
        if not has_course or len(rows) > 1 or rows[0].step is not None or only_of_evaluations(tuple(rows[0].cells))
    ]


def _are_checkpoints(rows: Sequence[Logged]) -> bool:
    """Whether rows are each of a step of its own, in no order of steps: the best one first, and no run begun again."""
    steps = [row.step or 0 for row in rows]
    back = sum(a > b for a, b in pairwise(steps))
    return 1 < back < len(steps) - 1 and len(set(steps)) == len(steps)


def _are_beside_each_other(tables: Sequence[list[Logged]]) -> bool:
    """Whether tables tell the same parts of a run (its start, its end), and each other metrics."""
    names = [{name for row in rows for name in row.cells} - set(STEPS) for rows in tables]
    places = {tuple(row.step for row in rows) for rows in tables}
    ends = all(row.part or row.step == 0 for rows in tables for row in rows)
    return ends and len(places) == 1 and len(tables[0]) > 1 and sum(map(len, names)) == len(set().union(*names))


def _of_one_kind(tables: Sequence[list[Logged]]) -> list[list[Logged]]:
    """The tables; those of evaluations without what tables of training have, too: it was measured on other prompts."""
    metrics = [{name_of(name) for row in rows for name in row.cells} for rows in tables]
    held_out = [any(map(is_held_out, told)) and "reward/mean" not in told for told in metrics]
    of_training = [rows for rows, other in zip(tables, held_out, strict=True) if not other and _is_of_rewards(rows)]
    trained = {name for rows in of_training for row in rows for name in row.cells} - set(STEPS)
    return [
        [row._replace(cells={name: value for name, value in row.cells.items() if name not in trained}) for row in rows]
        if other
        else rows
        for rows, other in zip(tables, held_out, strict=True)
    ]


def _is_of_rewards(rows: Sequence[Logged]) -> bool:
    """Whether rows have more than the losses and rates of supervised learning."""
    metrics = {name_of(name) for row in rows for name in row.cells}
    return not metrics <= _OF_SUPERVISED


def _tells_again(table: _Table, other: _Table) -> bool:
    """Whether two tables have places in the run in common, and a name, or by other names the reward or two metrics of
    which values differ.
    """
    if not table.steps or not other.steps:
        again = table.steps == other.steps  # both without: by order from the first
    else:
        again = min(table.steps) <= max(other.steps) and min(other.steps) <= max(table.steps)
    if not again or not table.names.isdisjoint(other.names):
        return again
    metrics = table.metrics & other.metrics
    return (len(metrics) >= _SAME or "reward/mean" in metrics) and _are_different(table, other)


def _continues(last: Logged, entry: Logged) -> bool:
    """Whether a line says more of the step that the one before is of."""
    if entry.step is not None and entry.step == last.step:
        return True  # a progress bar that is drawn again
    if last.cells.keys() & entry.cells.keys():
        return False
    if entry.step is not None:
        return last.step is None and not last.cells
    return entry.bar is None or entry.bar == last.bar


def _of_one_process(logged: Sequence[Logged]) -> list[Logged]:
    """The dictionaries without exact repeats of one that counts its steps or tokens, wherever they stand.

    Processes print when they come to it, so the copies need not stand together. How long it took is each one's own.
    """
    distinct: dict[frozenset[tuple[str, str]], Logged] = {}
    for place, entry in enumerate(logged):
        same = {name: repr(value) for name, value in entry.cells.items() if not TIMED.fullmatch(name)}
        counted = any(entry.cells.get(name) is not None for name in _COUNTERS)
        distinct.setdefault(frozenset((same if counted else {**same, "": str(place)}).items()), entry)
    return list(distinct.values())


def oldest_first(logged: list[Logged]) -> list[Logged]:
    """The rows; turned round where every step is below the one before: an export that shows the newest first."""
    steps = [entry.step for entry in logged if entry.step is not None]
    falls = len(steps) > _FEWEST_ROWS and len(steps) == len(logged) and all(a > b for a, b in pairwise(steps))
    return logged[::-1] if falls else logged


def told_once(logged: list[Logged]) -> tuple[list[Logged], list[str]]:
    """The dictionaries of a log, each step's once, and notes on what was there again or is of one completion."""
    notes: list[str] = []
    of_one_process = _of_one_process(logged)
    once = _without_told_again(of_one_process)
    if again := len(of_one_process) - len(once):
        notes.append(f"{again} dictionaries without a step tell what those beside them tell: counted once")
    distinct, copies = _without_copies(once)
    distinct, single = _without_single_completions(_of_several_kinds(distinct))
    notes += [f"{single} dictionaries have parts of single completions' rewards: left out"] if single else []
    if copies > 1:
        notes.append(f"each dictionary is there {copies} times (several processes print): counted once")
    elif lost := len(logged) - len(of_one_process):
        notes.append(f"{lost} dictionaries repeat a step exactly (several processes print): counted once")
    return distinct, notes


def _without_told_again(logged: list[Logged]) -> list[Logged]:
    """The dictionaries without those that have no step and tell what the one beside them tells, which has one.

    What they tell more is put into it.
    """
    kept: list[Logged] = []
    pending: Logged | None = None  # of the entry that follows, where it tells the same
    for entry, after in zip_longest(logged, logged[1:]):
        if entry.step is None and kept and _tells_the_same(entry, kept[-1]):
            kept[-1] = with_more_of(kept[-1], entry)
        elif entry.step is None and after is not None and _tells_the_same(entry, after):
            pending = entry
        else:
            kept.append(entry if pending is None else with_more_of(entry, pending))
            pending = None
    return kept


def _tells_the_same(entry: Logged, other: Logged) -> bool:
    """Whether an entry without a step shares two metrics or more with one that has a step, all alike."""
    if other.step is None:
        return False
    told, known = _by_metric(other), _by_metric(entry)
    shared = [(known[metric], told[metric]) for metric in known.keys() & told.keys()]
    return len(shared) > 1 and any(one for one, _ in shared) and all(_alike(a, b) for a, b in shared)


def with_more_of(entry: Logged, other: Logged) -> Logged:
    """The entry with those metrics of the other that it does not tell."""
    told = {name_of(name) for name in entry.cells}
    more = {name: value for name, value in other.cells.items() if name_of(name) not in told}
    return entry._replace(cells={**more, **entry.cells}) if more else entry


def _by_metric(entry: Logged) -> dict[str, float]:
    return {metric: value for metric, value in translated(entry.cells).items() if value is not None}


def _alike(one: float, other: float) -> bool:
    """Whether two numbers are one that was rounded."""
    return one == other or math.isclose(one, other, rel_tol=_ROUNDED, abs_tol=_ROUNDED)


def _without_copies(logged: Sequence[Logged]) -> tuple[list[Logged], int]:
    """The dictionaries without the copies of other processes, where each of them comes so many times; and how many."""
    runs = [list(group) for _, group in groupby(logged, key=lambda entry: entry.cells)]
    copies = math.gcd(*map(len, runs)) if len(runs) >= _ENOUGH else 1
    return [entry for run in runs for entry in run[::copies]], copies
