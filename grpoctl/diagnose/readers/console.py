"""What a trainer printed: metrics in a text log, among progress bars and everything else.

What is here: which form of metrics a log is read by, which line is which step, what several processes printed twice.
What is not: the forms (console_lines), settings (log_settings), rows (trainer_log).
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice, pairwise, takewhile
from pathlib import Path
from typing import Any

from core.errors import SpecError
from core.health.case import Notice
from core.text import harmless
from grpoctl.diagnose.readers.attempts import BEGINS_AGAIN, FROM_SCRATCH, PLACED, TIMED, Cells, newest_attempt
from grpoctl.diagnose.readers.base import TOO_SMALL, Reading, Source, Unread
from grpoctl.diagnose.readers.console_lines import Form, LineParser, Logged
from grpoctl.diagnose.readers.documents import is_document, lines_of
from grpoctl.diagnose.readers.log_settings import Heads
from grpoctl.diagnose.readers.metric_names import RUNS, STEPS, name_of, proposed, translated
from grpoctl.diagnose.readers.several_runs import MOST_RUNS, NoMetricError, are_runs, read_each
from grpoctl.diagnose.readers.text import LONGEST, Line, Notices, is_text, text_lines
from grpoctl.diagnose.readers.trainer_log import Entry, Known, case_of_entries

_SUMMARY = "train_runtime"
_COUNTERS = ("step", "num_tokens")  # no two steps of a run have the same; `epoch` is rounded
_ENOUGH = 3  # different dictionaries in a row, before copies of them are taken for copies
_GLANCED_AT = 5_000  # lines of each of a folder's files
_LOOKED_AT = 200_000  # lines in which the first metric is looked for
_A_HEAD = 4  # lines of one kind: a configuration that several processes print is no course
_BY_ORDER = "the log has no step numbers: a row is counted as one step"
_OF_EPOCHS = "the log counts its steps anew (in each epoch): a row is counted as one step"
_OWN_STEPS = "steps are the log's own"
_OF_A_PART = 5  # steps, at least: a row for a run's start and one for its end do not follow each other
_TWICE = 2  # times as many rows with rewards as lines, and more than that as lines with rewards, are in a table
_MANY_MORE = 10  # times as many rows with rewards in another form: those of this one are a last evaluation
_ENDS = 2  # rows of a table
_ROUNDED = 1e-3  # of a number, and of one below 1
_KINDS = 4  # of dictionaries that make one step
_CLOSEST = 0.01  # epochs: older versions round to two decimals, and one row has no neighbour
_OF_RATE = 0.0005  # steps a second, or of them: a summary has three decimals, newer ones four digits
_FEWEST_ROWS, _MOST_STEPS = 3, 10_000_000  # rows that show a run's first one; steps
_OWN = 0.9  # of the rows have a step of their own, where steps go back
_BEFORE = 10  # rows: fewer may be rounding
_OF_THE_ATTEMPT = "settings are those that the log states before the attempt that is judged, or first"
_OF_THE_FIRST = "settings are those that the log states first: --set what the attempt that is judged changed"
_AN_EXCERPT = "; by its epoch the first is not the run's first"
_DECIMALS, _SHOWN_BY = 4, 5  # decimals, and rows that show that there are no more
_OF_NONE = 0.1  # of a file's dictionaries at most name no run, where the others do
_LONGEST_NAME = 40  # characters that an error shows
_KEPT = 40_000  # rows of a log: of more, neighbours are averaged
# The surest form first: where a log has rows of it, the others (a progress bar's postfix, a print) tell the same again.
FORMS: tuple[Form, ...] = ("verl", "dictionary", "table", "pairs", "stretches")
_OF_SUPERVISED = frozenset({None, "step", "loss", "eval/loss", "learning_rate", "grad_norm"})
_WORDS = {
    "verl": "lines of verl",
    "dictionary": "dictionaries",
    "table": "a table's rows",
    "pairs": "lines with `name=value`",
    "stretches": "lists of values, or values with arrows between them",
}


class _Kept:
    """Rows of one form, in bounded memory: where they get too many, neighbours become their mean."""

    def __init__(self) -> None:
        self.rows: list[Logged] = []
        self.averaged = 1  # rows that one kept row is the mean of
        self._held: list[Logged] = []

    def add(self, entry: Logged) -> None:
        """Keeps the row, or holds it until its neighbours are there."""
        if self.averaged == 1:
            self.rows.append(entry)
        else:
            self._held.append(entry)
            if len(self._held) < self.averaged:
                return
            self.flush()
        if len(self.rows) >= _KEPT:
            self.averaged *= 2
            self.rows = [_mean_of(self.rows[begin : begin + 2]) for begin in range(0, len(self.rows), 2)]

    def flush(self) -> None:
        """Keeps what was held."""
        if self._held:
            self.rows.append(_mean_of(self._held))
            self._held = []


class _KeptByRun:
    """Rows of one form, those of each run by themselves: a mean of neighbours is of one run."""

    def __init__(self) -> None:
        self._of: dict[str, _Kept] = {}

    def add(self, entry: Logged) -> None:
        """Keeps the row; of more runs than are read the others are kept together."""
        kept = self._of.get(entry.run)
        if kept is None:
            run = entry.run if len(self._of) <= MOST_RUNS else next(reversed(self._of))
            kept = self._of.setdefault(run, _Kept())
        kept.add(entry)

    def rows(self) -> tuple[list[Logged], int]:
        """The rows in the log's order, and how many one of them is the mean of."""
        for kept in self._of.values():
            kept.flush()
        if len(self._of) < 2:
            return next(((kept.rows, kept.averaged) for kept in self._of.values()), ([], 1))
        rows = [row for kept in self._of.values() for row in kept.rows]
        return sorted(rows, key=lambda row: row.line), max(kept.averaged for kept in self._of.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Log:
    """A whole log: what it has."""

    logged: Mapping[Form, list[Logged]]
    parser: LineParser
    heads: Heads
    notices: tuple[Notice, ...]
    averaged: Mapping[Form, int]  # rows that one row is the mean of


class _Console:
    """A text log with a trainer's metrics in it."""

    name = "console"
    looks_for = "what a trainer prints"

    def knows(self, source: Source) -> bool:
        """By its first line with a metric that we know."""
        if source.path is None or not source.path.is_file() or not is_text(source.path):
            return False
        parser = LineParser(source.columns)
        lines = islice(_lines(source.path, []), _GLANCED_AT if source.glance else _LOOKED_AT)
        return any(logged.cells for line in lines for logged in parser.feed(line)) or any(parser.finish())

    def read(self, source: Source) -> Reading:
        """Rows from the surest form of metrics, numbered by the log's own steps, a progress bar, or their order."""
        first, runs = self._read(source, None)
        return read_each(runs or [""], lambda at: self._read(source, runs[at])[0] if at else first)

    def _read(self, source: Source, run: str | None) -> tuple[Reading, Sequence[str]]:
        """What the log says of a run, and the names of all runs that its tables are of; None for the first or only."""
        assert source.path is not None  # knows() came first
        notes: list[str] = []
        log = _scan(source, notes, run)
        notes += _not_there(source, log)
        form = _form_of(log)
        notes += _told_twice(log) if form == "stretches" else []
        logged, runs, of_none = _of_run(log, form, run)
        notes += of_none
        averaged, total = log.averaged[form], log.parser.total
        logged = _oldest_first(logged)
        logged, attempts = (logged, []) if form in ("table", "verl") else _newest(logged, source, total)
        logged = _in_order(form, logged, log.parser.rounded)
        distinct, told_again = _told_once(logged) if form == "dictionary" else (logged, [])
        notes += told_again
        distinct = _with_evaluations(log, form, distinct)
        distinct = _oldest_first(distinct)
        if not attempts:  # whose steps stood on lines of their own, or in a table
            distinct, attempts = _newest(distinct, source, total)
        again = any(note.startswith(BEGINS_AGAIN) for note in attempts)
        settings, arguments, whose = _settings(log, form, distinct, averaged) if again else _settings_of_one(log)
        notes += attempts + whose
        entries, how = _numbered(distinct, mapped=source.columns)
        if not entries:
            raise NoMetricError("has no metrics of a training step", file=source.path)
        if averaged > 1:
            notes.append(f"the log is long: {averaged} rows in a row are read as their mean")
        known = Known(settings=settings, arguments=arguments or None, notices=log.notices)
        case, more = case_of_entries(entries, known)
        lost_columns = sorted(name for name in log.parser.unknown if not runs or name.lower() not in RUNS)
        if lost_columns:
            more.append(_left_out(lost_columns))
        if (hints := _hints(log, source)) is not None:
            more.append(hints)
        if _are_parts(distinct):
            notes.append(f"rows are parts of a run (start, end): each is taken for the mean of {_OF_A_PART} steps")
            averaged = max(averaged, _OF_A_PART)
        case = replace(
            case,
            averaged_over=max(case.averaged_over, averaged),
            numbered=not how.startswith((_BY_ORDER, _OF_EPOCHS)),
            excerpt=how.endswith(_AN_EXCERPT) or log.parser.has_no_start,
        )
        extra = {"dictionaries": float(len(logged))} if form == "dictionary" else {"metric_lines": float(len(logged))}
        reading = Reading(
            case=case,
            kind=self.name,
            source=str(source.path),
            notes=(how, *more, *notes),
            extra=extra,
            not_understood=_not_understood(log, form),
        )
        return reading, runs


READER = _Console()


def unknown_names(source: Source) -> list[str]:
    """What numbers are called in a text of which no metric is known, the most frequent first; [] where it is none."""
    if source.path is None or not is_text(source.path):
        return []
    parser = LineParser(source.columns)
    seen = 0
    for line in islice(_lines(source.path, []), _GLANCED_AT):
        list(parser.feed(line))
        seen += len(line.text)
        if seen >= LONGEST:
            break
    kinds = sorted(parser.unread.items(), key=lambda kind: -kind[1].count)
    names = dict.fromkeys(name for names, _ in kinds for name in names)
    return [harmless(" ".join(name.split()))[:_LONGEST_NAME] for name in names]


def _told_twice(log: _Log) -> list[str]:
    """A note where a text tells different courses of one metric."""
    names = ", ".join(sorted(log.parser.told_twice))
    return [f"several courses of {names} are told (of other runs?): the longest one counts"] if names else []


def _not_there(source: Source, log: _Log) -> list[str]:
    """What the log does not have of the names that the user maps, with the nearest.

    Raises SpecError for the first one where the log is whole.
    """
    if not source.columns:
        return []
    names = {name for entries in log.logged.values() for entry in entries for name in entry.cells} | log.parser.unknown
    said = []
    for column in source.columns:
        if column not in names:
            near = difflib.get_close_matches(column, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(names)[:20])}"
            said.append(f"{source.mapped_by}: the log has no {column!r}; {hint}")
    if said and not source.live:
        raise SpecError(said[0], file=source.path)
    return said


def _lines(path: Path, notes: list[str]) -> Iterator[Line]:
    """The lines of a log; of a notebook or a page those that a reader of it sees."""
    return lines_of(path) if is_document(path) else text_lines(path, notes)


def _scan(source: Source, notes: list[str], run: str | None) -> _Log:
    """All of the log, in one pass, in bounded memory; of tables of several runs the one of that name, or the first."""
    assert source.path is not None
    parser = LineParser(source.columns, run)
    notices, heads = Notices(), Heads()
    kept: dict[Form, _KeptByRun] = {form: _KeptByRun() for form in FORMS}
    for line in _lines(source.path, notes):
        is_read = is_row = False
        for entry in parser.feed(line):
            kept[entry.form].add(entry)
            is_read = True
            is_row = is_row or entry.form != "pairs"
        if not is_row:
            heads.look(line, before_metrics=parser.first_line is None, is_read=is_read)
        if not is_read:
            notices.look(line.text, line.number, parser.bar)
    for entry in parser.finish():
        kept[entry.form].add(entry)
    rows = {form: of_form.rows() for form, of_form in kept.items()}
    return _Log(
        logged={form: told for form, (told, _) in rows.items()},
        parser=parser,
        heads=heads,
        notices=notices.all(),
        averaged={form: averaged for form, (_, averaged) in rows.items()},
    )


def _of_run(log: _Log, form: Form, asked: str | None) -> tuple[list[Logged], list[str], list[str]]:
    """The rows of a run, by default the first, the names of all, and a note on rows of none; all and [] of one run.

    Of tables the parser has chosen already. Several runs of dictionaries: nearly all name theirs and its step, and
    those of several are of one step.
    """
    logged = log.logged[form]
    if form != "dictionary":
        return logged, log.parser.runs, []
    steps: dict[str, list[int]] = {}
    for entry in logged:
        if entry.run and entry.step is not None:
            steps.setdefault(entry.run, []).append(entry.step)
    left = len(logged) - sum(map(len, steps.values()))
    if left > _OF_NONE * len(logged) or not are_runs(steps):
        return logged, [], []
    run = asked or next(iter(steps))
    notes = [f"{left} dictionaries that name no run or no step are left out"] if left else []
    return [entry for entry in logged if entry.run == run and entry.step is not None], list(steps), notes


def _mean_of(rows: Sequence[Logged]) -> Logged:
    """Neighbours as one row, at the last one's place; a value that was no number once makes its mean none."""
    if len(rows) == 1:
        return rows[0]
    cells: dict[str, float | None] = {}
    for name in {name for row in rows for name in row.cells}:
        values = [value for row in rows if (value := row.cells.get(name)) is not None]
        cells[name] = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
    last = rows[-1]
    for name in STEPS:
        if name in last.cells:
            cells[name] = last.cells[name]
    return last._replace(line=rows[0].line, cells=cells)


def _metrics_of(log: _Log, rows: Sequence[Logged]) -> set[str | None]:
    names = {name for row in rows for name in row.cells}
    return {name_of(log.parser.columns.get(name, name)) for name in names}


def _rewarded(log: _Log, rows: Sequence[Logged], *, held_out: bool = False) -> int:
    """How many rows have a reward; held_out: or an evaluation's."""
    alike = {tuple(row.cells): _metrics_of(log, [row]) for row in rows}
    rewarded = {
        names for names, told in alike.items() if "reward/mean" in told or (held_out and any(map(_is_held_out, told)))
    }
    return sum(tuple(row.cells) in rewarded for row in rows)


def _is_held_out(metric: str | None) -> bool:
    """Whether a metric is the reward of an evaluation, or of one of its sets."""
    return metric == "eval/reward" or (metric or "").startswith("eval/slices/")


def _form_of(log: _Log) -> Form:
    """The form that the log is read by: the surest that has rewards, else the surest that has any metric."""

    def names(form: Form) -> set[str | None]:
        rows = log.logged[form]
        first = _metrics_of(log, rows[:50])  # nearly always enough; another stage's rows may stand before
        if "reward/mean" in first or len(rows) <= 50:
            return first
        most = max(_rewarded(log, others) for others in log.logged.values())
        return first if _rewarded(log, rows) * _MANY_MORE < most else first | _metrics_of(log, rows[50:])

    there = {form: names(form) for form in FORMS if any(entry.cells for entry in log.logged[form])}
    of_training = {"reward/mean", "policy/loss", "loss", "kl"}
    surest = [form for form, metrics in there.items() if "reward/mean" in metrics]
    trains = [form for form, metrics in there.items() if metrics & of_training]
    form = [*surest, *trains, *there, "dictionary"][0]
    if form == "table" and _sums_up(log):
        return "pairs"
    return "table" if form in ("pairs", "stretches") and _is_aside(log.logged[form], log) else form


def _sums_up(log: _Log) -> bool:
    """Whether a table tells the start and the end of what lines with steps tell whole."""
    table, lines = log.logged["table"], [entry for entry in log.logged["pairs"] if entry.step is not None]
    steps = {entry.step for entry in lines if entry.cells}
    return _rewarded(log, table) <= _ENDS and len(steps) > _TWICE * _ENDS and _rewarded(log, lines) > _TWICE * _ENDS


def _is_aside(said: Sequence[Logged], log: _Log) -> bool:
    """Whether lines and sentences stand around a table of evaluations that has more rows, and far more rewards."""
    table = log.logged["table"]
    rewarded = _rewarded(log, table, held_out=True)
    lines = sum(bool(entry.cells) for entry in said)
    return rewarded >= _TWICE * lines and rewarded > _TWICE * max(1, _rewarded(log, said, held_out=True))


def _in_order(form: Form, logged: list[Logged], rounded: Collection[str]) -> list[Logged]:
    """The rows of a form as one course, one row a step."""
    if form not in ("pairs", "table"):
        few = form == "dictionary" and len(logged) >= _SHOWN_BY and _have_few_decimals(logged)
        return _without_rounded(logged, {name for entry in logged for name in entry.cells} if few else set())
    if form == "pairs":
        logged = _without_redrawn(_without_examples(logged))
    course = _of_one_run(logged) if form == "table" else _by_epoch(logged) or _joined(_without_bars(logged))
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
    rewarded = Counter(entry.in_bar for entry in logged if _has_reward(tuple(entry.cells)))
    enough = (len(steps) > 1 and rewarded[False] >= _ENOUGH) or _TWICE * rewarded[False] >= rewarded[True]
    return lines if enough and behind <= told and "reward/mean" in told else logged


def _without_examples(logged: list[Logged]) -> list[Logged]:
    """The lines without those of single completions, where others tell rewards, too."""
    others = [entry for entry in logged if not entry.single]
    told = sum(_has_reward(tuple(entry.cells)) for entry in others)
    return others if told >= _ENOUGH and len(others) < len(logged) else logged


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
        if len(runs) > _ENOUGH and usual > 1 and lengths[usual] >= _OWN * lengths.total():
            again |= {id(entry) for run in runs for entry in run[1:]}
    return [entry for entry in logged if id(entry) not in again]


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
    steps = sum(_has_reward(tuple(entry.cells)) for entry in logged)
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
    drawn = {(entry.epoch, entry.bar) for entry in logged if entry.in_bar and _has_reward(tuple(entry.cells))}
    if len(drawn) > _MANY_MORE:  # a bar tells more than its epoch
        return []
    entries: dict[float, Logged] = {}
    for entry in logged:
        if entry.epoch is not None:
            before = entries.setdefault(entry.epoch, entry)
            entries[entry.epoch] = before._replace(cells={**entry.cells, **before.cells})
    return [entries[epoch] for epoch in sorted(entries)] if len(entries) > 1 else []


def _of_one_run(logged: Sequence[Logged]) -> list[Logged]:
    """Rows of several tables as one course: what they say of one step is joined, by order where no row has a step.

    Of tables that tell the same metrics of the same steps again the one with the most rows stands: they are other runs,
    or it was printed again. One with nothing but losses is of supervised learning, and stands behind the others.
    """
    tables = _of_one_kind([list(rows) for _, rows in groupby(logged, key=lambda entry: entry.table)])
    kept: list[list[Logged]] = []
    for rows in sorted(tables, key=lambda rows: (_is_of_rewards(rows), len(rows)), reverse=True):
        if not any(_tells_again(rows, other) for other in kept):
            kept.append(rows)
    kept.sort(key=lambda rows: rows[0].line)
    entries = [entry for rows in kept for entry in rows]
    if len(kept) > 1 and all(entry.step is not None for entry in entries):
        entries.sort(key=lambda entry: entry.step or 0)
    return _joined(entries)


def _of_one_kind(tables: Sequence[list[Logged]]) -> list[list[Logged]]:
    """The tables; those of evaluations without what tables of training have, too: it was measured on other prompts."""
    metrics = [{name_of(name) for row in rows for name in row.cells} for rows in tables]
    held_out = [any(map(_is_held_out, told)) and "reward/mean" not in told for told in metrics]
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


def _tells_again(rows: Sequence[Logged], others: Sequence[Logged]) -> bool:
    """Whether two tables have a metric in common, and places in the run."""
    names = {name for row in rows for name in row.cells} & {name for row in others for name in row.cells}
    steps = [row.step for row in rows if row.step is not None]
    there = [row.step for row in others if row.step is not None]
    if not names - set(STEPS):
        return False
    if not steps or not there:
        return steps == there  # both without: by order from the first
    return min(steps) <= max(there) and min(there) <= max(steps)


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


def _oldest_first(logged: list[Logged]) -> list[Logged]:
    """The rows; turned round where every step is below the one before: an export that shows the newest first."""
    steps = [entry.step for entry in logged if entry.step is not None]
    falls = len(steps) > _FEWEST_ROWS and len(steps) == len(logged) and all(a > b for a, b in pairwise(steps))
    return logged[::-1] if falls else logged


def _told_once(logged: list[Logged]) -> tuple[list[Logged], list[str]]:
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
    for entry, after in zip(logged, [*logged[1:], None], strict=True):
        if entry.step is None and kept and _tells_the_same(entry, kept[-1]):
            kept[-1] = _with_more_of(kept[-1], entry)
        elif entry.step is None and after is not None and _tells_the_same(entry, after):
            pending = entry
        else:
            kept.append(entry if pending is None else _with_more_of(entry, pending))
            pending = None
    return kept


def _tells_the_same(entry: Logged, other: Logged) -> bool:
    """Whether an entry without a step shares two metrics or more with one that has a step, all alike."""
    if other.step is None:
        return False
    told, known = _by_metric(other), _by_metric(entry)
    shared = [(known[metric], told[metric]) for metric in known.keys() & told.keys()]
    return len(shared) > 1 and any(one for one, _ in shared) and all(_alike(a, b) for a, b in shared)


def _with_more_of(entry: Logged, other: Logged) -> Logged:
    """The entry with those metrics of the other that it does not tell."""
    told = {name_of(name) for name in entry.cells}
    more = {name: value for name, value in other.cells.items() if name_of(name) not in told}
    return entry._replace(cells={**more, **entry.cells}) if more else entry


def _by_metric(entry: Logged) -> dict[str, float]:
    return {metric: value for metric, value in translated(entry.cells).items() if value is not None}


def _alike(one: float, other: float) -> bool:
    """Whether two numbers are one that was rounded."""
    return one == other or math.isclose(one, other, rel_tol=_ROUNDED, abs_tol=_ROUNDED)


def _with_evaluations(log: _Log, form: Form, logged: list[Logged]) -> list[Logged]:
    """The rows, with the evaluations that the log has in its other form (`Eval: acc=0.5` between dictionaries)."""
    other: dict[Form, Form] = {"pairs": "dictionary", "dictionary": "pairs"}
    if form not in other or any(map(_is_held_out, _metrics_of(log, logged))):
        return logged
    evaluations = [entry for entry in log.logged[other[form]] if _only_of_evaluations(tuple(entry.cells))]
    if any(entry.step is None for entry in logged):  # whose steps are their order, or a bar's
        evaluations = [entry._replace(step=None) for entry in evaluations]
    return sorted([*logged, *evaluations], key=lambda entry: entry.line) if evaluations else logged


def _without_copies(logged: Sequence[Logged]) -> tuple[list[Logged], int]:
    """The dictionaries without the copies of other processes, where each of them comes so many times; and how many."""
    runs = [list(group) for _, group in groupby(logged, key=lambda entry: entry.cells)]
    copies = math.gcd(*map(len, runs)) if len(runs) >= _ENOUGH else 1
    return [entry for run in runs for entry in run[::copies]], copies


def _newest(logged: list[Logged], source: Source, total: int | None) -> tuple[list[Logged], list[str]]:
    """The newest attempt's entries, by the surest place that most rows with rewards have, and notes."""
    mapped = source.columns

    def cells_of(at: int) -> Mapping[str, float | None]:
        cells = _as_mapped(logged[at].cells, mapped)
        return cells if logged[at].epoch is None else {"epoch": logged[at].epoch, **cells}

    told = [entry for entry in logged if _has_reward(tuple(_as_mapped(entry.cells, mapped)))] or logged
    for place_of, unit in ((_own_step, "step"), (_bar, "step"), (_epoch, "epoch")):
        if sum(place_of(entry) is not None for entry in told) >= PLACED * len(told):
            of_bar = total if place_of is _bar and total else math.inf
            kept, notes = newest_attempt(list(map(place_of, logged)), cells_of, unit, total=of_bar)
            return [logged[at] for at in kept] if notes else logged, notes
    return logged, []


def _as_mapped(cells: Cells, mapped: Mapping[str, str]) -> Cells:
    """The cells by the names that --map gives them."""
    return {mapped.get(name, name): value for name, value in cells.items()} if mapped else cells


def _own_step(entry: Logged) -> float | None:
    return entry.step


def _bar(entry: Logged) -> float | None:
    return entry.bar


def _epoch(entry: Logged) -> float | None:
    epoch = entry.cells.get("epoch", entry.epoch)
    return epoch if epoch is not None and math.isfinite(epoch) else None


def _numbered(logged: Sequence[Logged], *, mapped: Mapping[str, str]) -> tuple[list[Entry], str]:
    """The entries with their steps and with --map's names, and how they were numbered."""

    training = [entry for entry in logged if not _stands_behind(entry)] or list(logged)
    numbered = [entry for entry in training if entry.step is not None]
    if len(training) - len(numbered) <= len(training) / 20:  # a summary, a word on the start: of the row before
        training = numbered
    own = [entry.step for entry in training]
    bars = [entry.bar for entry in training]
    goes_back = sum((after or 0) < (before or 0) for before, after in pairwise(own))
    again = goes_back and len({*own}) < _OWN * len(own)  # steps that are counted anew in each epoch, say
    if training and None not in own and goes_back <= len(own) / 20 and not again:
        steps, how = [step or 0 for step in own], _OWN_STEPS
    elif None not in bars and all((a or 0) < (b or 0) for a, b in pairwise(bars)) and training:
        steps, how = [bar or 0 for bar in bars], "steps are the progress bar's"
    else:
        steps, how = list(range(1, len(training) + 1)), _OF_EPOCHS if again else _BY_ORDER
        if (span := _steps_of_a_row(logged, training)) is not None:
            steps, how = [span * step for step in steps], f"steps by the run's summary: a row is of {span}"
        elif _is_excerpt(training):
            how += _AN_EXCERPT
    number_of = {id(entry): step for entry, step in zip(training, steps, strict=True)}
    if steps and min(steps) == 0 and _trains_at_zero(training, steps):
        apart = 1 not in steps and len(steps) > 1  # one row in so many: only the first would be no step
        number_of = {key: max(step, 1) if apart else step + 1 for key, step in number_of.items()}
        how += "; it counts from 0: its first row is step 1"
    stated = {}
    if how.startswith(_OWN_STEPS) and len(training) < len(logged):
        stated = {step: number_of[id(entry)] for step, entry in zip(own, training, strict=True)}
    entries, step = [], 0
    for entry in logged:  # an evaluation without a step of its own stands behind the one it was made after
        step = number_of.get(id(entry), stated.get(entry.step, step))
        entries.append(Entry(step=step, cells=_as_mapped(entry.cells, mapped)))
    return entries, how


def _steps_of_a_row(logged: Sequence[Logged], training: Sequence[Logged]) -> int | None:
    """How many steps one row is of, by a trainer's summary behind all rows of a run; None where that does not tell.

    The summary's seconds times its rate, which is rounded, are the steps: with rows every k steps there are floor(steps
    / k) rows. The rows' epochs have to agree: the first row is as far from 0 as from the second, or the run was resumed
    and its summary is of other steps.
    """
    summary, epochs = _summary_behind(logged), [entry.cells.get("epoch") for entry in training]
    known = [epoch for epoch in epochs if epoch is not None and math.isfinite(epoch)]
    if summary is None or len(known) < max(_FEWEST_ROWS, len(epochs)):
        return None
    seconds, rate, end = summary
    apart, off = (known[-1] - known[0]) / (len(known) - 1), max(_OF_RATE, _OF_RATE * rate)
    most = seconds * (rate + off)
    if not (2 - FROM_SCRATCH) * apart < known[0] < FROM_SCRATCH * apart or most > _MOST_STEPS:
        return None
    least, by_epochs = seconds * (rate - off), seconds * rate * apart / end
    rounded = off / rate + _CLOSEST / ((len(known) - 1) * apart) + _CLOSEST / end  # of the rate, and of the epochs
    spans = range(math.floor(least / (len(known) + 1)) + 1, math.floor(most / len(known)) + 1)
    near = [span for span in spans if abs(span - by_epochs) <= 0.5 + rounded * by_epochs]
    return near[0] if len(near) == 1 else None


def _summary_behind(logged: Sequence[Logged]) -> tuple[float, float, float] | None:
    """(seconds, steps a second, epochs) of the trainer's summary behind all rows; several processes print it again."""
    behind = list(takewhile(lambda entry: _of_evaluation(tuple(entry.cells)), reversed(logged)))
    summaries = [entry.cells for entry in behind if _SUMMARY in entry.cells]
    if not summaries or len(summaries) < sum(_SUMMARY in entry.cells for entry in logged):
        return None
    seconds, rate, end = (summaries[-1].get(name) or 0.0 for name in (_SUMMARY, "train_steps_per_second", "epoch"))
    return (seconds, rate, end) if all(math.isfinite(one) and one > 0 for one in (seconds, rate, end)) else None


def _is_excerpt(training: Sequence[Logged]) -> bool:
    """Whether by its epoch the first row is not the run's first: ten rows or more would stand before it."""
    rewarded = [entry for entry in training if not {"eval/reward", "reward/mean"}.isdisjoint(map(name_of, entry.cells))]
    epochs = [epoch for entry in rewarded or training if (epoch := entry.cells.get("epoch")) is not None]
    if len(epochs) < 2 or len(epochs) < len(rewarded or training) or not all(map(math.isfinite, epochs)):
        return False
    if all(epoch.is_integer() for epoch in epochs):
        return False  # counted, from 0 or from 1
    apart = max((epochs[-1] - epochs[0]) / (len(epochs) - 1), _CLOSEST)
    return all(a <= b for a, b in pairwise(epochs)) and epochs[0] > _BEFORE * apart


@lru_cache(maxsize=1000)
def _of_evaluation(names: tuple[str, ...]) -> bool:
    """Whether an entry with these names is an evaluation, or a run's summary."""
    return _SUMMARY in names or (
        any(name.startswith("eval_") for name in names) and not any(name_of(name) == "reward/mean" for name in names)
    )


def _stands_behind(entry: Logged) -> bool:
    """Whether an entry is an evaluation that says no step: it was made after the row before it."""
    names = tuple(entry.cells)
    a_line = entry.form in ("pairs", "dictionary") and entry.step is None
    return _of_evaluation(names) or (a_line and _only_of_evaluations(names))


@lru_cache(maxsize=1000)
def _only_of_evaluations(names: tuple[str, ...]) -> bool:
    metrics = {name_of(name) for name in names} - {None, "step"}
    return bool(metrics) and all((metric or "").startswith("eval/") for metric in metrics)


@lru_cache(maxsize=1000)
def _has_reward(names: tuple[str, ...]) -> bool:
    return "reward/mean" in map(name_of, names)


def _trains_at_zero(training: Sequence[Logged], steps: Sequence[int]) -> bool:
    """Whether the row of step 0 has more than an evaluation: ours and verl's have one before the first update there."""
    first = next(entry for entry, step in zip(training, steps, strict=True) if step == 0)
    names = {name_of(name) or "" for name in first.cells}
    return any(name and name != "step" and not name.startswith("eval/") for name in names)


def _settings(
    log: _Log, form: Form, attempt: Sequence[Logged], averaged: int
) -> tuple[dict[str, Any], Mapping[str, Any], list[str]]:
    """Settings, TRL's arguments and a note on whose they are, of a log that begins again.

    attempt: the rows that are judged. What is stated between the row before and its first one stands over what is
    stated before all rows. Of averaged rows the first one may have rows of both sides, so up to the second one.
    """
    lines = sorted(entry.line for entry in attempt)
    begins = lines[min(len(lines) - 1, int(averaged > 1))]
    before = max((entry.line for entry in log.logged[form] if entry.line < lines[0]), default=lines[0])
    first, head = log.heads.first, log.heads.between(before, begins)
    of_first, of_attempt = first.known(), head.known()
    whose = [_OF_THE_ATTEMPT] if of_attempt else [_OF_THE_FIRST] if of_first else []
    return _with_length(log, of_first | of_attempt), {**first.arguments, **head.arguments}, whose


def _settings_of_one(log: _Log) -> tuple[dict[str, Any], Mapping[str, Any], list[str]]:
    """The same of a log that tells of one run."""
    return _with_length(log, log.heads.whole.known()), log.heads.whole.arguments, []


def _with_length(log: _Log, known: dict[str, Any]) -> dict[str, Any]:
    """The settings with the length of the log's longest progress bar."""
    return known if "max_steps" in known or not log.parser.total else {**known, "max_steps": log.parser.total}


def _are_parts(entries: Sequence[Logged]) -> bool:
    """Whether rows stand for parts of a run (its start, its end), and no step is known."""
    return any(entry.part for entry in entries) and not all(entry.step for entry in entries)


def _left_out(columns: Sequence[str]) -> str:
    shown = ", ".join(columns[:6]) + (f" and {len(columns) - 6} more" if len(columns) > 6 else "")
    return f"columns left out, for no rule reads them: {shown}"


def _hints(log: _Log, source: Source) -> str | None:
    """Which of the names that were not read are close to a metric's."""
    names = {
        name for names, kind in log.parser.unread.items() if _is_worth_it(log, kind) for name in names
    } | log.parser.unknown
    near = [(metric, name) for name in sorted(names) if (metric := proposed(name)) is not None][:6]
    if not near:
        return None
    flags = " ".join(f"--map {metric}={name}" for metric, name in near)
    pairs = ", ".join(f"{metric}: {name}" for metric, name in near)
    return f"names that look like metrics: try {f'trainer.map: {{{pairs}}}' if source.live else flags}"


def _is_worth_it(log: _Log, kind: Unread) -> bool:
    """Whether unread lines may be metrics: they come again, or behind the first metrics; a head has numbers, too."""
    return kind.count > _A_HEAD or (log.parser.first_line is not None and kind.line > log.parser.first_line)


def _not_understood(log: _Log, form: Form) -> tuple[Unread, ...]:
    """Lines that look like metrics and were not read, of each kind the first."""
    others = [
        Unread(line=entries[0].line, text=f"{len(entries)} {_WORDS[other]}", count=len(entries))
        for other in FORMS
        if other != form and len(entries := [entry for entry in log.logged[other] if len(entry.cells) > 1]) > 1
    ]
    kinds = [kind for kind in log.parser.unread.values() if _is_worth_it(log, kind)]
    return tuple(sorted([*kinds, *others], key=lambda unread: -unread.count))
