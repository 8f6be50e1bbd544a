"""What a trainer printed: metrics in a text log, among progress bars and everything else.

What is here: which form of metrics a log is read by, and which run and attempt. What is not: the forms (console_lines),
which lines are a course (course_of_lines), its steps (step_numbers), settings (log_settings), rows (trainer_log).
"""

from __future__ import annotations

import bisect
import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from core.errors import SpecError
from core.health.case import Notice
from core.text import harmless
from grpoctl.diagnose.readers.attempts import BEGINS_AGAIN, PLACED, newest_attempt
from grpoctl.diagnose.readers.base import Reading, Source, Unread
from grpoctl.diagnose.readers.console_lines import LineParser
from grpoctl.diagnose.readers.course_of_lines import in_order, oldest_first, runs_of_sections, told_once, with_more_of
from grpoctl.diagnose.readers.documents import is_document, lines_of
from grpoctl.diagnose.readers.log_settings import Heads
from grpoctl.diagnose.readers.logged import (
    Form,
    Logged,
    as_mapped,
    bar_of,
    epoch_of,
    has_reward,
    is_held_out,
    mean_cells,
    only_of_evaluations,
    own_step,
)
from grpoctl.diagnose.readers.metric_names import RUNS, STEPS, name_of, proposed
from grpoctl.diagnose.readers.several_runs import MOST_RUNS, NoMetricError, are_runs, read_each
from grpoctl.diagnose.readers.step_numbers import numbered
from grpoctl.diagnose.readers.text import LONGEST, Line, Notices, is_text, text_lines
from grpoctl.diagnose.readers.told_courses import MOST_PLACED
from grpoctl.diagnose.readers.trainer_log import Known, case_of_entries, update_marks

_GLANCED_AT = 5_000  # lines of each of a folder's files
_LOOKED_AT = 200_000  # lines in which the first metric is looked for
_A_HEAD = 4  # lines of one kind: a configuration that several processes print is no course
_OF_A_PART = 5  # steps, at least: a row for a run's start and one for its end do not follow each other
_TWICE = 2  # times as many rows with rewards as lines, and more than that as lines with rewards, are in a table
_MANY_MORE = 10  # times as many rows with rewards in another form: those of this one are a last evaluation
_ENDS = 2  # rows of a table
_TEXTS = (".md", ".markdown", ".rst", ".tex", ".org", ".adoc")  # suffixes of what people write
_FEW_OF = 5  # times as many rows of losses as lines
_OF_THE_ATTEMPT = "settings are those that the log states before the attempt that is judged, or first"
_OF_THE_FIRST = "settings are those that the log states first: --set what the attempt that is judged changed"
_TAKEN = "taken for evaluations: {} (percentages by step, or before and after, where nothing of training stands)"
_OF_NONE = 0.1  # of a file's dictionaries at most name no run, where the others do
_LONGEST_NAME = 40  # characters that an error shows
_KEPT = 40_000  # rows of a log: of more, neighbours are averaged
# The surest form first: where a log has rows of it, the others (a progress bar's postfix, a print) tell the same again.
FORMS: tuple[Form, ...] = ("verl", "dictionary", "table", "pairs", "stretches")
_OTHER_FORM: dict[Form, Form] = {  # whose evaluations are of the same run
    "pairs": "dictionary", "dictionary": "pairs", "stretches": "table",
}  # fmt: skip
_IN_SECTIONS = ("table", "pairs")  # of a text, of a run each
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
        return _tells_metrics(source, source.path, of_text=_is_written(source, source.path))

    def read(self, source: Source) -> Reading:
        """Rows from the surest form of metrics, numbered by the log's own steps, a progress bar, or their order."""
        scanned: list[str] = []
        log = _scan(source, scanned, None)
        first, runs = self._read(source, None, log, scanned)

        def read(at: int) -> Reading:
            if not at:
                return first
            if not log.parser.runs:  # all of them stand in it
                return self._read(source, runs[at], log, scanned)[0]
            again: list[str] = []
            return self._read(source, runs[at], _scan(source, again, runs[at]), again)[0]

        return read_each(runs or [""], read)

    def _read(
        self, source: Source, run: str | None, log: _Log, scanned: Sequence[str]
    ) -> tuple[Reading, Sequence[str]]:
        """What the log says of a run, and the names of all runs that its tables are of; None for the first or only."""
        assert source.path is not None  # knows() came first
        notes = [*scanned, *_not_there(source, log)]
        form = _form_of(log)
        notes += _told_twice(log) if form == "stretches" else []
        logged, runs, of_none = _of_run(log, form, run)
        notes += of_none
        averaged, total = log.averaged[form], log.parser.total
        logged = oldest_first(logged)
        logged, attempts = (logged, []) if form in ("table", "verl") else _newest(logged, source, total)
        logged = in_order(form, _with_updates_between(log, form, logged), log.parser.rounded)
        distinct, told_again = told_once(logged) if form == "dictionary" else (logged, [])
        notes += told_again
        distinct = _with_evaluations(log, form, distinct)
        distinct = oldest_first(distinct)
        if not attempts:  # whose steps stood on lines of their own, or in a table
            distinct, attempts = _newest(distinct, source, total)
        again = any(note.startswith(BEGINS_AGAIN) for note in attempts)
        settings, arguments, whose = _settings(log, form, distinct, averaged) if again else _settings_of_one(log)
        if form in _IN_SECTIONS and runs and not log.parser.runs:  # in a section each
            settings = log.heads.of_section(run or runs[0], runs)
        notes += attempts + whose
        rows = numbered(distinct, mapped=source.columns)
        if not rows.entries:
            raise NoMetricError("has no metrics of a training step", file=source.path)
        if averaged > 1:
            notes.append(f"the log is long: {averaged} rows in a row are read as their mean")
        known = Known(settings=settings, arguments=arguments or None, notices=log.notices)
        case, more = case_of_entries(rows.entries, known)
        lost = log.parser.unknown - update_marks(rows.entries)
        lost_columns = sorted(name for name in lost if not runs or name.lower() not in RUNS)
        if lost_columns:
            more.append(_left_out(lost_columns))
        if form == "table" and log.parser.taken:
            more.append(_TAKEN.format(_some(list(log.parser.taken))))
        if (hints := _hints(log, source)) is not None:
            more.append(hints)
        if _are_parts(distinct):
            notes.append(f"rows are parts of a run (start, end): each is taken for the mean of {_OF_A_PART} steps")
            averaged = max(averaged, _OF_A_PART)
        case = replace(
            case,
            averaged_over=max(case.averaged_over, averaged),
            numbered=not rows.by_order,
            excerpt=rows.excerpt or log.parser.has_no_start,
        )
        extra = {"dictionaries": float(len(logged))} if form == "dictionary" else {"metric_lines": float(len(logged))}
        reading = Reading(
            case=case,
            kind=self.name,
            source=str(source.path),
            notes=(rows.how, *more, *notes),
            extra=extra,
            not_understood=_not_understood(log, form),
        )
        return reading, runs


READER = _Console()


def unknown_names(source: Source) -> list[str]:
    """What numbers are called in a text of which no metric is known, the most frequent first; [] where it is none."""
    if source.path is None or not is_text(source.path):
        return []
    parser = LineParser(source.columns, of_text=_is_written(source, source.path))
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
    names = ", ".join(sorted(log.parser.courses.told_twice))
    notes = [f"several courses of {names} are told (of other runs?): the longest one counts"] if names else []
    cut = ", ".join(sorted(log.parser.courses.cut))
    return notes + ([f"of {cut} only the first {MOST_PLACED} values are read"] if cut else [])


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


def _is_written(source: Source, path: Path) -> bool:
    """Whether somebody wrote the text: its headings, sentences and titles say what its numbers are.

    A .txt may be either: it is taken for a text where it tells no metric as a log.
    """
    suffix = path.suffix.lower()
    of_either = suffix == ".txt" and not _tells_metrics(source, path, of_text=False)
    return suffix in _TEXTS or of_either or is_document(path)


def _tells_metrics(source: Source, path: Path, *, of_text: bool) -> bool:
    """Whether a metric that we know is among a file's first lines."""
    parser = LineParser(source.columns, of_text=of_text)
    lines = islice(_lines(path, []), _GLANCED_AT if source.glance else _LOOKED_AT)
    return any(logged.cells for line in lines for logged in parser.feed(line)) or any(parser.finish())


def _lines(path: Path, notes: list[str]) -> Iterator[Line]:
    """The lines of a log; of a notebook or a page those that a reader of it sees."""
    return lines_of(path) if is_document(path) else text_lines(path, notes)


def _scan(source: Source, notes: list[str], run: str | None) -> _Log:
    """All of the log, in one pass, in bounded memory; of tables of several runs the one of that name, or the first."""
    assert source.path is not None
    of_text = _is_written(source, source.path)
    parser = LineParser(source.columns, run, of_text=of_text)
    notices, heads = Notices(), Heads(of_text=of_text)
    kept: dict[Form, _KeptByRun] = {form: _KeptByRun() for form in FORMS}
    for line in _lines(source.path, notes):
        is_read = is_row = False
        for entry in parser.feed(line):
            kept[entry.form].add(entry)
            is_read = True
            ended = entry.form == "table" and entry.line < line.number  # by this line
            is_row = is_row or (entry.form != "pairs" and not ended)
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

    Of tables the parser has chosen already, but for those that stand in sections of a text, as lists do. Several runs
    of dictionaries: nearly all name theirs and its step, and those of several are of one step.
    """
    logged = log.logged[form]
    is_written = form in _IN_SECTIONS and log.heads.of_text and not log.parser.runs
    if is_written and (sections := runs_of_sections(logged)):
        return sections[asked or next(iter(sections))], list(sections), []
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
    last = rows[-1]
    steps = {name: last.cells[name] for name in STEPS if name in last.cells}
    return last._replace(line=rows[0].line, cells=mean_cells(rows) | steps)


def _metrics_of(log: _Log, rows: Sequence[Logged]) -> set[str | None]:
    names = {name for row in rows for name in row.cells}
    return {name_of(log.parser.columns.get(name, name)) for name in names}


def _rewarded(log: _Log, rows: Sequence[Logged], *, held_out: bool = False) -> int:
    """How many rows have a reward; held_out: or an evaluation's."""
    alike = {tuple(row.cells): _metrics_of(log, [row]) for row in rows}
    rewarded = {
        names for names, told in alike.items() if "reward/mean" in told or (held_out and any(map(is_held_out, told)))
    }
    return sum(tuple(row.cells) in rewarded for row in rows)


def _with_updates_between(log: _Log, form: Form, logged: list[Logged]) -> list[Logged]:
    """The lines, with the dictionaries between them that tell what an update did, one to each line with a reward."""
    updates = log.logged["dictionary"]
    if form != "pairs" or len(updates) < 2 or any(row.step is not None or row.run for row in updates):
        return logged
    rewarded = [entry for entry in logged if has_reward(tuple(entry.cells))]
    places = [entry.line for entry in rewarded]
    apart = [bisect.bisect_right(places, entry.line) for entry in updates]
    in_turn = len(set(apart)) == len(apart) and abs(len(apart) - len(places)) <= 1
    told = {name_of(name) for entry in logged for name in entry.cells}
    if not in_turn or all(name_of(name) in told for name in updates[0].cells):
        return logged
    first = 0 if apart[0] == 0 else -1  # it stands before the line of its step, or behind it
    of_row = {id(rewarded[at + first]): one for one, at in zip(updates, apart, strict=True) if at + first < len(places)}
    return [with_more_of(entry, of_row[id(entry)]) if id(entry) in of_row else entry for entry in logged]


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
    if form == "stretches" and _is_between_ends(log):
        return "table"
    is_aside = _is_aside(log.logged[form], log) or _is_beside_losses(log.logged[form], log)
    return "table" if form in ("pairs", "stretches") and is_aside else form


def _sums_up(log: _Log) -> bool:
    """Whether a table tells the start and the end of what lines with steps tell whole."""
    table, lines = log.logged["table"], [entry for entry in log.logged["pairs"] if entry.step is not None]
    steps = {entry.step for entry in lines if entry.cells}
    return _rewarded(log, table) <= _ENDS and len(steps) > _TWICE * _ENDS and _rewarded(log, lines) > _TWICE * _ENDS


def _is_between_ends(log: _Log) -> bool:
    """Whether a sentence tells the ends of a run of which a table tells scores or evaluations step by step."""
    scored = [entry for entry in log.logged["table"] if any(map(_is_a_score, _metrics_of(log, [entry])))]
    steps = {entry.step for entry in scored} - {None}
    ends = log.logged["stretches"]
    return len(steps) > _ENDS == len(ends) and all(entry.part for entry in ends)


def _is_a_score(metric: str | None) -> bool:
    return metric is not None and metric.startswith(("rewards/", "eval/"))


def _is_aside(said: Sequence[Logged], log: _Log) -> bool:
    """Whether lines and sentences stand around a table of evaluations that has more rows, and far more rewards."""
    table = log.logged["table"]
    rewarded = _rewarded(log, table, held_out=True)
    lines = sum(bool(entry.cells) for entry in said)
    return rewarded >= _TWICE * lines and rewarded > _TWICE * max(1, _rewarded(log, said, held_out=True))


def _is_beside_losses(said: Sequence[Logged], log: _Log) -> bool:
    """Whether a few lines without steps stand around a table of losses by steps: what a notebook tries and prints."""
    steps = {entry.step for entry in log.logged["table"]} - {None}
    lines = sum(bool(entry.cells) for entry in said)
    few = _FEW_OF * lines <= len(steps) and _rewarded(log, said) <= _ENDS
    return few and len(steps) >= _MANY_MORE and not any(entry.step for entry in said)


def _with_evaluations(log: _Log, form: Form, logged: list[Logged]) -> list[Logged]:
    """The rows, with the evaluations that the log has in its other form (`Eval: acc=0.5` between dictionaries)."""
    if form not in _OTHER_FORM or any(map(is_held_out, _metrics_of(log, logged))):
        return logged
    evaluations = [entry for entry in log.logged[_OTHER_FORM[form]] if only_of_evaluations(tuple(entry.cells))]
    if form == "stretches" and not _are_along(evaluations, logged):
        return logged
    if any(entry.step is None for entry in logged):  # whose steps are their order, or a bar's
        evaluations = [entry._replace(step=None) for entry in evaluations]
    if not evaluations:
        return logged
    return sorted([*logged, *evaluations], key=lambda entry: (entry.step or 0) if form == "stretches" else entry.line)


def _are_along(evaluations: Sequence[Logged], logged: Sequence[Logged]) -> bool:
    """Whether all have steps, and evaluations reach over half of the rows' course: epochs beside steps do not."""
    steps = [entry.step or 0 for entry in logged if entry.step is not None]
    told = [entry.step for entry in evaluations if entry.step is not None]
    return bool(told) and len(told) == len(evaluations) and len(steps) == len(logged) and 2 * max(told) >= max(steps)


def _newest(logged: list[Logged], source: Source, total: int | None) -> tuple[list[Logged], list[str]]:
    """The newest attempt's entries, by the surest place that most rows with rewards have, and notes."""
    mapped = source.columns

    def cells_of(at: int) -> Mapping[str, float | None]:
        cells = as_mapped(logged[at].cells, mapped)
        return cells if logged[at].epoch is None else {"epoch": logged[at].epoch, **cells}

    own = [entry.step for entry in logged if entry.step is not None]
    if len(own) == len(logged) and own == sorted(own):
        return logged, []  # nearly always, and quickly seen
    told = [entry for entry in logged if has_reward(tuple(as_mapped(entry.cells, mapped)))] or logged
    for place_of, unit in ((own_step, "step"), (bar_of, "step"), (epoch_of, "epoch")):
        if sum(place_of(entry) is not None for entry in told) >= PLACED * len(told):
            of_bar = total if place_of is bar_of and total else math.inf
            kept, notes = newest_attempt(list(map(place_of, logged)), cells_of, unit, total=of_bar)
            return [logged[at] for at in kept] if notes else logged, notes
    return logged, []


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
    return f"columns left out, for no rule reads them: {_some(columns)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


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
        if not (_OTHER_FORM.get(form) == other and all(only_of_evaluations(tuple(one.cells)) for one in entries))
    ]
    kinds = [kind for kind in log.parser.unread.values() if _is_worth_it(log, kind)]
    return tuple(sorted([*kinds, *others], key=lambda unread: -unread.count))
