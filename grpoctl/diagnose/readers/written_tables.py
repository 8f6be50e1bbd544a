"""Tables that people write by hand: which way round a table is, what numbers its rows, and the course of a run in it.

A table may have one column a step, a row for each run, a column for each end of the run, cells with several values.
What is not here: what a cell says (written_cells), which labels are runs (written_runs), and which line belongs to a
table (console_lines).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from grpoctl.diagnose.readers.metric_names import name_of
from grpoctl.diagnose.readers.metric_words import part_by_words
from grpoctl.diagnose.readers.several_runs import words_of
from grpoctl.diagnose.readers.written_cells import (
    ARROW,
    BY_REWARDS,
    LONGEST,
    are_changes,
    are_counts,
    are_epochs,
    are_rising,
    cell_values,
    count_epochs,
    in_full,
    is_change,
    is_empty,
    is_later,
    is_stage,
    name_in,
    number_in,
    numbers_rows,
    plain_text,
    scale_of,
    scaled_values,
    spans_of,
    steps_of_label,
    without_total,
)
from grpoctl.diagnose.readers.written_long import Wide, by_metric, with_title
from grpoctl.diagnose.readers.written_runs import OF_RUNS, Run, Runs, are_before_and_after, are_of_one_run, runs_of

Cells = dict[str, float | None]
_OF_EVALUATION = re.compile(
    r"[(\[]\s*(?:val(?:idation)?|eval(?:uation)?|held-?out|test)\s*[)\]]", re.IGNORECASE
)  # 20 (val)
_MEAN_AND_MOST = re.compile(
    r"(.+\b(?:mean|avg|media|moyenne)|.*平均.*?)\s?/\s?(?:max|máx|最大)\W*", re.IGNORECASE
)  # length mean/max
_AT_ONE_STEP = re.compile(r"\s+(?:at|@|after) (?:step|iter(?:ation)?)s? (\d{1,9})\s*\Z", re.IGNORECASE)
_LAST_WORDS = frozenset({"final", "end", "ending", "late", "later", "last"})
_AN_END = re.compile(  # initial reward; reward, early; reward (final)
    r"(?P<first>initial|starting|baseline|early|final|late|(?:start|first|end|ending|last)(?=\s\S+\Z))\s(?P<behind>.+)"
    r"|(?P<before>.+?)(?:,\s*|\s*[(\[]\s*)(?:at\s)?(?P<last>initial|start|baseline|early|first|final|end|later?|last)[)\]]?",
    re.IGNORECASE,
)
_OF_THE_LAST = re.compile(r"\A(?:last|latest)[ _]", re.IGNORECASE)
_OF_THE_FIRST = re.compile(r"\A(?:first|start|starting|initial|early|baseline|base)[ _]", re.IGNORECASE)
_OF_ENDS = re.compile(  # of a cell with an arrow
    r"\s*[(\[]?\b(?:f|first|start|initial|init|early|before)\s?(?:→|->)\s?(?:l|last|end|final|late|after)\b[)\]]?\s*\Z",
    re.IGNORECASE,
)
_MIDDLE = re.compile(r"(?:mid|middle|halfway)\s(.+)", re.IGNORECASE)
_TRAINED_ON = re.compile(
    r"(?:rl|train(?:ing|ed)?|seen)[ _](?:rows|samples|examples|prompts|problems|episodes|tasks)", re.I
)
_CHECKPOINTS = frozenset({"checkpoint", "checkpoints", "ckpt"})
_MOST_IN_A_CELL = 8  # values, of a run each
_EVEN = 0.05  # of what lies between two values of a schedule
_FEWEST_STEPS = 3  # rows that show a course
_SHARE = re.compile(r"\d\s*\**\s*%")
_OF_REWARD = re.compile(r"reward|penalty|bonus", re.IGNORECASE)
_A_STEP = re.compile(r"step|iter|ckpt|checkpoint|update", re.IGNORECASE)
_ACCURACY = re.compile(  # which is 1 at most
    r"\A(?!.*\b(?:rewards?|loss|gain|delta|change|points?)\b).*(?:\b(?:acc(?:uracy)?|exact match)\b|"
    r"\b(?:pass|avg|mean|maj|acc)@\d)",
    re.IGNORECASE,
)
_IN_PERCENT = 2.0  # above which most accuracies are, where they are percentages
_NO_SCORE_BEGINS = (
    "util", "refus", "duplic", "trunc", "clip", "repet", "invalid", "fail", "error", "hack", "cach", "elaps", "through",
    "pad", "think", "mem", "speed", "malform", "degener", "copie",
)  # fmt: skip
_NO_SCORES = frozenset({  # words of shares that are no scores, or of which less is better
    "rate", "ratio", "share", "frac", "fraction", "clip", "clipped", "truncated", "trunc", "dead", "zero", "std",
    "gap", "util", "gpu", "mem", "memory", "time", "progress", "lr", "error", "errors", "wrong", "fail", "failed",
    "failure", "drop", "loss", "invalid", "malformed", "timeout", "hack", "hacked", "hacking", "entropy", "kl", "grad",
    "repetition", "overlong", "cap", "change", "gain", "improvement", "vs", "delta", "of", "refusal", "epoch", "done",
    "complete", "cost", "budget", "data", "params", "parameters", "trained", "used", "seen", "words", "left",
    "sparsity", "cpu", "ram", "vram", "disk", "sm", "mfu", "hit", "policy", "len", "length", "answered", "tokens",
})  # fmt: skip
_SETTINGS = frozenset({
    "parameter", "parameters", "param", "hyperparameter", "hyperparameters", "hyperparam", "setting", "settings",
    "config", "configuration", "option", "argument", "参数", "超参数", "配置", "配置项", "设置", "파라미터",
    "하이퍼파라미터", "設定", "パラメータ", "parámetro", "paramètre",
})  # fmt: skip
_VALUES = frozenset(
    {"value", "values", "setting", "default", "值", "取值", "数值", "값", "設定値", "valor", "valeur", "wert"}
)
_NOTES = frozenset({"description", "why", "reason", "purpose", "source", "rationale", "explanation", "解释", "来源"})
_TOLD_LATER = ("reward", "eval/", "loss", "entropy", "groups/", "grad_norm")  # metrics that no setting is called like
_COMPARED = frozenset({"learning_rate", "beta"})  # metrics that settings are, too
_RUN_NAME = re.compile(
    r"(?i:run|exp|experiment|arm|trial|variant|config|model)(?:[-_]?(?:\d{1,3}|[A-Z])|[-_][a-z]{1,3})"
)
_CLIP_RATIO = re.compile(r"clip(?:ped)?[ _]ratio", re.IGNORECASE)  # verl's of responses, or PPO's of tokens
_MOST_CLIPPED = 0.25  # of the tokens, by PPO
_SHARES = (
    "groups/dead", "completions/truncated", "completions/valid", "completions/distinct", "policy/clip_share",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenRow:
    """A row as it was meant. `step` is None where its place in the order is all that is known."""

    line: int
    step: int | None
    cells: Cells
    part: bool = False  # of the run, and no step: its start, its end


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """What a table says of a run, and the names in it that are no metric."""

    rows: Sequence[WrittenRow] = ()
    unknown: Sequence[str]
    taken: Sequence[str] = ()  # names that only their author knows, of evaluations by what stands below them
    runs: Runs = field(default_factory=lambda: Runs(found=()))

    @property
    def names(self) -> list[str]:
        """Of several runs, in the table's order; [] where it is of one."""
        return [run.name for run in self.runs.found if run.name]

    @property
    def has_a_row_of_each(self) -> bool:
        """Whether its rows are runs, and not steps."""
        return self.runs.by_name

    @property
    def has_no_start(self) -> bool:
        """Whether what it says of a run is one row, of the whole of it or of its end."""
        return self.runs.by_name and not any(run.began for run in self.runs.found)


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenTable:
    """A table's lines as cells, its header first; every row has as many cells."""

    lines: Sequence[int]
    rows: Sequence[Sequence[str]]

    def course(self, is_known: Callable[[str], bool], run: str | None = None) -> Course:
        """A run's course, whichever way round the table stands: of several runs the one of that name, or the first.

        No rows where the table has no metric.
        """
        if (course := self._of_a_form(is_known, run)) is not None:
            return course
        first, *body = _parted(self.rows)
        apart = _without_last(_without_shared_name(_without_one_step(first), is_known), is_known)
        first, body = _end_columns_joined(apart, body, is_known)
        has_ends = first is not apart
        table = self
        if not is_known(name_in(first[0])):
            body, gone = _ends_joined(first, body, is_known)
            has_ends = has_ends or bool(gone)
            table = replace(self, lines=[line for place, line in enumerate(self.lines) if place - 1 not in gone])
        header = [without_total(name_in(cell), [row[place] for row in body]) for place, cell in enumerate(first)]
        header = _with_truncation(header, body, is_known)
        named, header = [*header, *(row[0] for row in body)], _with_evaluations(header, body, is_known)
        if header == named[: len(header)]:
            header, body = _with_scores_of_models(header, body, is_known), _with_scores_by_step(header, body, is_known)
        now = [*header, *(row[0] for row in body)]
        taken = [name_in(before) for before, after in zip(named, now, strict=True) if before != after]
        across = [place for place, name in enumerate(header) if is_known(name)]
        down = [place for place, row in enumerate(body) if is_known(name_in(row[0]))]
        stated = len(header) > 1 and _states_settings(header, [name_in(body[place][0]) for place in down])
        if down and len(down) >= len(across) and not is_known(header[0]) and not stated:
            return replace(table._transposed(header, body, down, run, has_ends=has_ends), taken=taken)
        if not across or not body or stated:
            return Course(unknown=header)
        return replace(table._upright(header, body, across, run, has_ends=has_ends), taken=taken)

    def _of_a_form(self, is_known: Callable[[str], bool], run: str | None) -> Course | None:
        """The course in a table of a form of its own: set in columns, of metrics by name, of several runs in a cell."""
        if (order := _side_by_side(self.rows)) is not None:
            told = [self.rows[line][at : at + order.width] for line, at in order.places]
            rows = [self.rows[0][: order.width], *([*row, *[""] * (order.width - len(row))] for row in told)]
            lines = [self.lines[0], *(self.lines[line] for line, _ in order.places)]
            return replace(self, lines=lines, rows=rows).course(is_known, run)
        if tables := by_metric(self.lines, self.rows, is_known):
            return _of_metrics(tables, is_known, run)
        if (count := _runs_in_a_cell(self.rows, is_known)) > 1:
            return self._of_cells(count, is_known, run)
        return None

    def below(self, title: str, is_known: Callable[[str], bool]) -> WrittenTable:
        """The table with the metric in it that its title names, where its columns name none."""
        rows = with_title(self.rows, title, is_known)
        return self if rows is None else replace(self, rows=rows)

    def _of_cells(self, count: int, is_known: Callable[[str], bool], asked: str | None) -> Course:
        """A table whose cells have a value of each of so many runs: `0.34 / 0.36 / 0.38`."""
        names = [f"{at} of {count} in each cell" for at in range(1, count + 1)]
        place = names.index(asked) if asked in names else 0
        rows = [self.rows[0], *([_part_of_cell(cell, place, count) for cell in row] for row in self.rows[1:])]
        course = replace(self, rows=rows).course(is_known, None)
        runs = [Run(spans=(), places=frozenset(), name=name) for name in names]
        return replace(course, runs=Runs(found=runs)) if course.rows else course

    def _upright(
        self,
        header: Sequence[str],
        body: Sequence[Sequence[str]],
        known: Sequence[int],
        asked: str | None,
        *,
        has_ends: bool,
    ) -> Course:
        """One row a step, or one a run; has_ends: each row has a run's start and end."""
        unknown = [name for place, name in enumerate(header) if place not in known and name]
        column = _label_column(header, body)
        if column is None and 0 not in known:
            named = (at for at, name in enumerate(header) if at not in known and name.strip().lower() in OF_RUNS)
            column = next(named, 0)
        if column is None and name_of(header[0]) in _COMPARED and _are_settings(row[0] for row in body):
            column = 0
        labels = None if column is None else [row[column] for row in body]
        courses = len(body) == 1 and any(len(cell_values(body[0][place])) > 1 for place in known)
        over = header[column or 0]
        by_epoch = labels is not None and count_epochs(over, labels)
        if labels is None or by_epoch or are_epochs(over, labels):
            runs = Runs.only([None] * len(body))
        else:
            runs = runs_of(over, in_full(over, labels), courses=courses, has_ends=has_ends)
        if (run := runs.called(asked)) is None:
            return Course(unknown=header, runs=runs)
        names = [(place, header[place]) for place in known if place != column or runs.by_name]
        scales = {name: scale_of(name) for _, name in names}
        rows: list[WrittenRow] = []
        numbered = any(map(is_later, run.spans))
        for at, (line, row, span) in enumerate(zip(self.lines[1:], body, run.spans, strict=True)):
            if at not in run.places or (numbered and span is None):
                continue  # another run, a total
            cells = {name: scaled_values(scales[name], row[place]) for place, name in names}
            part = by_epoch or (column is not None and ((is_stage(row[column]) and len(body) > 1) or run.began))
            told = list(_expanded(line, span, cells, part=part))
            rows += _held_out(told) if column is not None and _OF_EVALUATION.search(row[column]) else told
        rows = [*_with_shares(_one_behind_another(rows, run.spans))]
        left = [name for name in unknown if column is None or name != header[column]]
        of_checkpoints = _are_checkpoints(over, body[0][column or 0], [name for _, name in names])
        rows = _held_out(rows, any_score=of_checkpoints) if run.began or of_checkpoints else rows
        return Course(rows=rows, unknown=left, runs=runs)

    def _transposed(
        self,
        header: Sequence[str],
        body: Sequence[Sequence[str]],
        known: Sequence[int],
        asked: str | None,
        *,
        has_ends: bool,
    ) -> Course:
        """One column a step, or one a run; with one column of values (metric, value) that is one row, or the ends of
        an arrow. has_ends: each column has a run's start and end.
        """
        unknown = [name_in(row[0]) for place, row in enumerate(body) if place not in known]
        cells_of = {place: [body[at][place] for at in known] for place in range(1, len(header))}
        told = [place for place, cells in cells_of.items() if not is_change(header[place]) and not are_changes(cells)]
        places = told or [1]
        if len(places) == 1 and len({body[place][0].strip() for place in known}) < len(known):
            return Course(rows=_boxes(self.lines, body, known), unknown=unknown)
        labels = [header[place] for place in places]
        by_epoch = count_epochs(header[0], labels)
        of_one = len(places) == 1
        runs = (
            Runs.only([None] * len(places))
            if by_epoch
            else runs_of(header[0], labels, courses=of_one, has_ends=has_ends and not of_one)
        )
        if (run := runs.called(asked)) is None:
            return Course(unknown=unknown, runs=runs)
        rows: list[WrittenRow] = []
        numbered = any(map(is_later, run.spans))
        for at, (column, span) in enumerate(zip(places, run.spans, strict=True)):
            if at not in run.places or (numbered and span is None):
                continue
            cells = {name_in(body[place][0]): cell_values(body[place][column]) for place in known}
            if any(value is not None for values in cells.values() for value in values):
                part = by_epoch or is_stage(header[column]) or run.began
                rows += _expanded(self.lines[0], span, cells, part=part)
        rows = _with_shares(rows)
        return Course(rows=_held_out(rows) if run.began else rows, unknown=unknown, runs=runs)


def _of_metrics(tables: Mapping[str, Wide], is_known: Callable[[str], bool], asked: str | None) -> Course:
    """The course of a run of a table that names a metric in each row."""
    lines, rows = tables.get(asked or "") or next(iter(tables.values()))
    course = WrittenTable(lines=lines, rows=rows).course(is_known, None)
    runs = [Run(spans=(), places=frozenset(), name=name) for name in tables]
    return replace(course, runs=Runs(found=runs)) if course.rows and len(runs) > 1 else course


def _with_truncation(
    header: Sequence[str], body: Sequence[Sequence[str]], is_known: Callable[[str], bool]
) -> list[str]:
    """The names, with a `clip_ratio` beside a length that is too large for PPO's as the share that was cut off."""
    names = list(header)
    if "completions/length" not in map(name_of, names):
        return names
    for place, name in enumerate(header):
        of_clip = _CLIP_RATIO.fullmatch(name.strip()) is not None and not is_known(name)
        values = [value for row in body if of_clip for value in cell_values(row[place]) if value is not None]
        if values and _MOST_CLIPPED < max(values) <= 1 and min(values) < max(values):
            names[place] = "response clip ratio"
    return names


def _with_evaluations(
    header: Sequence[str], body: Sequence[Sequence[str]], is_known: Callable[[str], bool]
) -> list[str]:
    """The names, with those of evaluations that only their author knows: columns of percentages over rising steps that
    stand in the row before the first step, where nothing of training does.
    """
    names = list(header)
    column = _label_column(header, body) if len(body) >= _FEWEST_STEPS else None
    told = [] if column is None else spans_of([row[column] for row in body])
    if column is None or not are_rising(told):
        return names
    known = [place for place, name in enumerate(header) if is_known(name) and place != column]
    if any(len(cell) > LONGEST for row in body for cell in row):
        return names
    starts = [row for row, span in zip(body, told, strict=True) if span == (0, 0)]  # before anything was trained
    alone = [row for row in starts if all(is_empty(row[place]) for place in known)]
    for place, name in enumerate(header):
        cells = [row[place] for row in body if not is_empty(row[place])]
        if place in (column, *known) or len(cells) < _FEWEST_STEPS or not _are_scores(name, cells):
            continue
        if any(not is_empty(row[place]) for row in alone):
            names[place] = f"eval/slices/{'_'.join(words_of(name)) or place}"
    return names


def _with_scores_of_models(
    header: Sequence[str], body: Sequence[Sequence[str]], is_known: Callable[[str], bool]
) -> list[str]:
    """The names, with those of evaluations that only their author knows: columns of percentages of a model before
    training by rewards and of one after it, in a table of nothing else.
    """
    names = list(header)
    rows = [row for row in body if not is_change(row[0][:LONGEST])]
    if any(map(is_known, names)) or not are_before_and_after([row[0] for row in rows]):
        return names
    for place, name in enumerate(header[1:], 1):
        if _are_scores(name, [row[place] for row in rows]):
            names[place] = f"eval/slices/{'_'.join(words_of(name)) or place}"
    return names


def _with_scores_by_step(
    header: Sequence[str], body: Sequence[Sequence[str]], is_known: Callable[[str], bool]
) -> list[list[str]]:
    """The rows, with names of evaluations that only their author knows: percentages over rising steps, of nothing else
    (`| task | Baseline | Step 10 | Step 50 |`).
    """
    rows = [list(row) for row in body]
    steps = spans_of(header[1:])
    said = [label for label, span in zip(header[1:], steps, strict=True) if is_later(span)]
    by_step = numbers_rows(header[0]) or all(_A_STEP.search(label[:LONGEST]) for label in said)
    if len(steps) < _FEWEST_STEPS or None in steps or not are_rising(steps) or not by_step:
        return rows
    if any(map(is_known, header)) or any(is_known(name_in(row[0])) for row in rows):
        return rows
    for row in rows:
        if _are_scores(row[0], row[1:]):
            row[0] = f"eval/slices/{'_'.join(words_of(name_in(row[0]))) or 'score'}"
    return rows


def _are_scores(name: str, cells: Sequence[str]) -> bool:
    """Whether all cells are percentages, by a name that is of no share that is no score."""
    words = frozenset(re.findall(r"[a-z]+", name.lower()))
    short = len(name) <= LONGEST and all(len(cell) <= LONGEST for cell in cells)
    told = short and all(_SHARE.search(cell) and number_in(plain_text(cell)) is not None for cell in cells)
    return told and bool(name.strip()) and not _of_no_score(words) and not is_change(name)


def _states_settings(header: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a table of names and values, and perhaps of notes on them, is of what a run was started with."""
    metrics = {name_of(name) or "" for name in names}
    over, values, *notes = (name.strip().lower() for name in header)
    stated = over in _SETTINGS and values in _VALUES and all(is_change(name) or name in _NOTES for name in notes)
    return stated and not any(metric.startswith(_TOLD_LATER) for metric in metrics)


def _of_no_score(words: Iterable[str]) -> bool:
    """Whether words name a share that is no score: of machines, lengths, failures."""
    return any(word in _NO_SCORES or word.startswith(_NO_SCORE_BEGINS) for word in words)


def _are_settings(labels: Iterable[str]) -> bool:
    """Whether labels are different values, two or more: what runs were started with, and no schedule of one."""
    values = [number_in(plain_text(label)) for label in labels]
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(known) < len(values) or len({*known}) < len(known):
        return False
    apart = [b - a for a, b in pairwise(known)]
    scheduled = len(known) > _FEWEST_STEPS and all(math.isclose(one, apart[0], rel_tol=_EVEN) for one in apart)
    return not scheduled


def _label_column(header: Sequence[str], body: Sequence[Sequence[str]]) -> int | None:
    """The column that numbers the rows: of several (phase, epoch) the first whose labels are steps or stages."""
    places = [place for place, name in enumerate(header) if numbers_rows(name)]
    counted = [place for place in places if are_rising(spans_of([row[place] for row in body]))]
    for place in [*counted, *places]:
        labels = [row[place] for row in body]
        if any(spans_of(labels)) or are_epochs(header[place], labels) or all(map(is_stage, labels)):
            return place
    of_checkpoints = any(plain_text(header[place]) in _CHECKPOINTS for place in places)
    counting = _counting_column(header, body) if of_checkpoints else None
    if counting is not None or any(name.strip().lower() in OF_RUNS for name in header):
        return counting  # each run's own count of steps numbers no rows
    return places[0] if places else None


def _counting_column(header: Sequence[str], body: Sequence[Sequence[str]]) -> int | None:
    """The column that counts what was trained on so far (`RL rows`: 0, 128, 512), if any does."""
    for place, name in enumerate(header):
        if _TRAINED_ON.fullmatch(name.strip()) is not None and len(body) > 2:
            counts = [number_in(plain_text(row[place])) for row in body]
            if all(a is not None and b is not None and a < b for a, b in pairwise(counts)):
                return place
    return None


def _parted(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows, with a column of several numbers as several: `held-out d4 / d6` over `0.75 / 0.39`.

    Not of counts and their totals (`14 / 16`).
    """
    header, *body = rows
    columns = [_parts_of_column(name, [row[place] for row in body]) for place, name in enumerate(header)]
    return [[cell for column in columns for cell in column[line]] for line in range(len(rows))]


class _Order(NamedTuple):
    """A long table that was set in columns: how wide one is, and where its rows stand (line, first cell), in order."""

    width: int
    places: list[tuple[int, int]]


def _side_by_side(rows: Sequence[Sequence[str]]) -> _Order | None:
    """The order of the rows where the header has the same names again and steps go on there, column by column or line
    by line; None for another table, and where they are counted anew: that is another run.
    """
    names = [name_in(cell).lower() for cell in rows[0]]
    width = next((at for at in range(1, len(names)) if names[at] == names[0]), 0)
    begins = range(0, len(names), max(1, width))
    if width < 2 or not numbers_rows(names[0]) or any(names[at : at + width] != names[:width] for at in begins[:-1]):
        return None
    last = names[begins[-1] :]  # without the empty column that stands between the others
    if last != names[: len(last)] or any(names[len(last) : width]):
        return None
    by_line = [(line, at) for line in range(1, len(rows)) for at in begins if not is_empty(rows[line][at])]
    for places in (sorted(by_line, key=lambda place: (place[1], place[0])), by_line):
        spans = [steps_of_label(rows[line][at]) for line, at in places]
        if len(spans) > 1 and None not in spans and are_rising(spans):
            return _Order(width, places)
    return None


def _are_checkpoints(over: str, first: str, names: Sequence[str]) -> bool:
    """Whether a table tells scores alone, of checkpoints that stand below the model that training began with."""
    metrics = [name_of(name) or part_by_words(name) or "" for name in names]
    scored = all(metric == "step" or metric.startswith(("rewards/", "eval/")) for metric in metrics)
    if not scored or any(_OF_REWARD.search(name) for name in names):  # parts of a reward are no scores
        return False
    return not first.strip().isdigit() and steps_of_label(first) == (0, 0) and plain_text(over) in _CHECKPOINTS


def _without_one_step(names: Sequence[str]) -> list[str]:
    """The names without the step that all of them say which say any: `format at step 300`, and `entropy f→l`."""
    said = {match[1] for name in names if (match := _AT_ONE_STEP.search(name[:LONGEST])) is not None}
    apart = [_AT_ONE_STEP.sub("", name) if len(said) == 1 else name for name in names]
    return [_OF_ENDS.sub("", name) if len(name) <= LONGEST and ARROW.search(name) else name for name in apart]


def _without_shared_name(names: list[str], is_known: Callable[[str], bool]) -> list[str]:
    """The names without the run's, where all but the first begin with it: `runA reward`, `runA KL`."""
    first, *whole = map(name_in, names)
    word = whole[0].partition(" ")[0] if len(whole) > 1 else ""
    if _RUN_NAME.fullmatch(word) is None and word.lower() not in BY_REWARDS:
        return names
    own = [name.removeprefix(f"{word} ") for name in whole if name.startswith(f"{word} ")]
    return [first, *own] if len(own) == len(whole) and any(map(is_known, own)) else names


def _without_last(names: list[str], is_known: Callable[[str], bool]) -> list[str]:
    """The names without the word that several of them begin with: `Last Reward`, `Last KL` of whole runs.

    Not where others are of the start: those are a run's ends.
    """
    if any(map(_OF_THE_FIRST.match, map(name_in, names))):
        return names
    bare = [_OF_THE_LAST.sub("", name_in(name)) for name in names]
    if len({name_of(name) or name for name in bare}) < len(bare):
        return names  # `reward` beside `last reward`
    told = [one for name, one in zip(names, bare, strict=True) if one != name_in(name) and is_known(one)]
    return bare if len({*told}) > 1 else names


class _Ends(NamedTuple):
    """Metrics with a label for their start and one for their end: the place of the start -> the metric, the place of
    the end. `gone`: the places of the ends, and of what else is told of these metrics (`mean reward`).
    """

    pairs: dict[int, tuple[str, int]]
    gone: set[int]

    def told(self, at: int, cells: Sequence[str]) -> str:
        """The start's cell with the end's behind an arrow; what is told once is the end's, with an unknown start."""
        if at not in self.pairs:
            return cells[at] if ARROW.search(cells[at]) else f"unknown -> {cells[at]}"
        start = "unknown" if is_empty(cells[at]) else cells[at]
        return f"{start} -> {cells[self.pairs[at][1]]}"

    def name(self, at: int, label: str) -> str:
        """The metric of a start, and the label of anything else."""
        return self.pairs[at][0] if at in self.pairs else label


def _ends_in(
    labels: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_known: Callable[[str], bool],
    other_models: Sequence[str] = (),
) -> _Ends:
    """The ends that labels name, each over a cell of every row; other_models: words of what is no start."""
    ends: dict[str, dict[bool, int]] = {}
    base = {place: name_in(label) for place, label in enumerate(labels)}
    again = {label.lower() for label, times in Counter(base.values()).items() if times > 1}  # another run's
    for place, label in base.items():
        if (middle := _MIDDLE.fullmatch(label)) is not None and is_known(middle[1]):
            base[place] = middle[1]
        elif (match := _AN_END.fullmatch(label)) is not None and label.lower() not in again:
            name, word = match["before"] or match["behind"], (match["first"] or match["last"]).lower()
            if is_known(name) and word not in other_models:
                base[place] = name
                both = ends.setdefault(name, {})
                both[word in _LAST_WORDS] = place if word in _LAST_WORDS else both.get(False, place)
    pairs = {
        places[False]: (name, places[True])
        for name, places in ends.items()
        if len(places) == 2
        and any(not is_empty(row[places[False]]) and not is_empty(row[places[True]]) for row in rows)
    }
    if all(name_of(name) == "learning_rate" for name, _ in pairs.values()):
        return _Ends({}, set())  # a setting
    metrics = {name_of(name) for name, _ in pairs.values()} - {None}
    others = {place for place, name in base.items() if name_of(name) in metrics}
    return _Ends(pairs, (others | {last for _, last in pairs.values()}) - pairs.keys())


def _end_columns_joined(
    names: list[str], body: list[list[str]], is_known: Callable[[str], bool]
) -> tuple[list[str], list[list[str]]]:
    """The names and rows with a metric's start and end (`initial reward`, `final reward`) as one column, with an arrow
    between. What other columns of metrics say is the end's. Not where rows are steps.
    """
    ends = _Ends({}, set()) if any(map(numbers_rows, names)) else _ends_in(names, body, is_known, ("baseline",))
    if not ends.pairs:
        return names, body
    kept = [place for place in range(len(names)) if place not in ends.gone]
    known = {place for place in kept if place in ends.pairs or is_known(name_in(names[place]))}
    return [ends.name(place, names[place]) for place in kept], [
        [ends.told(place, row) if place in known else row[place] for place in kept] for row in body
    ]


def _ends_joined(
    header: Sequence[str], body: Sequence[list[str]], is_known: Callable[[str], bool]
) -> tuple[list[list[str]], set[int]]:
    """Rows of a name and a value, or one of each run; those of a metric's start and end (`reward, early`, `reward,
    later`) as one, with an arrow between, and the places of those that are gone. What stands beside them is the end's.
    Not where columns are steps or stages.
    """
    columns = [[row[place] for row in body] for place in range(1, len(header))]
    of_one_run = len(columns) > 1 and are_of_one_run(header[0], header[1:], spans_of(header[1:]))
    ends = _Ends({}, set()) if of_one_run else _ends_in([row[0] for row in body], columns, is_known)
    if not ends.pairs:
        return list(body), set()
    kept = [place for place in range(len(body)) if place not in ends.gone]
    return [
        [ends.name(place, body[place][0]), *(ends.told(place, values) for values in columns)] for place in kept
    ], ends.gone


def _parts_of_column(name: str, cells: Sequence[str]) -> list[list[str]]:
    """A column's lines, each as one cell or as many as its name has parts."""
    whole, names = [[name], *([cell] for cell in cells)], name.split(" / ")
    if (match := _MEAN_AND_MOST.fullmatch(name)) is not None:
        of_mean = [cell.split("/")[0].strip() for cell in cells]
        return (
            [[match[1]], *([cell] for cell in of_mean)]
            if all("/" in cell or is_empty(cell) for cell in cells)
            else whole
        )
    if len(names) == 1 or len(name) > LONGEST or any(len(cell) > LONGEST for cell in cells):
        return whole
    parts = [cell.split(" / ") for cell in cells]
    told = [part for part in parts if not is_empty(part[0])]
    apart = told and all(len(part) == len(names) and None not in map(number_in, map(plain_text, part)) for part in told)
    if not apart or (len(names) == 2 and are_counts(told)):
        return whole
    shared = names[0].rpartition(" ")[0]
    named = [names[0], *(f"{shared} {other}".strip() for other in names[1:])]
    return [named, *(part if part in told else [part[0]] * len(names) for part in parts)]


def _runs_in_a_cell(rows: Sequence[Sequence[str]], is_known: Callable[[str], bool]) -> int:
    """How many runs each cell of a table of steps has a value of, as many for two metrics or more; else 1."""
    header, *body = rows
    if any(len(cell) > LONGEST for row in rows for cell in row):
        return 1
    known = [at for at, name in enumerate(header) if is_known(name_in(name)) and "/" not in name_in(name)]
    parts = [[row[at].split(" / ") for row in body if not is_empty(row[at])] for at in known]
    sizes = {len(cell) for column in parts for cell in column}
    if (
        len(known) < 2
        or len(body) < 2
        or len(sizes) != 1
        or not any(numbers_rows(name) for name in map(name_in, header))
    ):
        return 1
    values = [[number_in(plain_text(part)) for part in cell] for column in parts for cell in column]
    count = sizes.pop()
    of_totals = count == 2 and any(map(are_counts, parts))
    return 1 if of_totals or count > _MOST_IN_A_CELL or any(None in cell for cell in values) else count


def _part_of_cell(cell: str, place: int, count: int) -> str:
    parts = cell.split(" / ")
    return parts[place] if len(parts) == count else cell


def _one_behind_another(rows: Sequence[WrittenRow], told: Sequence[tuple[int, int] | None]) -> Sequence[WrittenRow]:
    """The rows of stretches (1-100, 100-200) with a step each: where one ends the next begins, a step later."""
    if all(span is None or span[0] == span[1] for span in told):
        return rows
    kept: list[WrittenRow] = []
    for row in rows:
        last = kept[-1].step if kept else None
        again = last is not None and row.step is not None and last >= row.step > last - len(rows)
        kept.append(replace(row, step=last + 1) if again and last is not None else row)
    return kept


def _boxes(lines: Sequence[int], body: Sequence[Sequence[str]], known: Sequence[int]) -> list[WrittenRow]:
    """The rows of names and values that come again and again: one for each time."""
    rows: list[WrittenRow] = []
    cells: Cells = {}
    for place in known:
        name, value = name_in(body[place][0]), cell_values(body[place][1])[-1]
        if name in cells:
            rows.append(WrittenRow(line=lines[place], step=None, cells=cells))
            cells = {}
        cells[name] = value
    rows.append(WrittenRow(line=lines[-1], step=None, cells=cells))
    return _with_shares([row for row in rows if row.cells])


def _held_out(rows: Sequence[WrittenRow], *, any_score: bool = False) -> list[WrittenRow]:
    """What models earn before training and after it was measured on the same prompts: an evaluation; any_score: also
    what only its author knows by its name.
    """

    def called(name: str) -> str:
        if "train" in name.lower():
            return name
        held_out, part = f"eval {name}", part_by_words(name) if name_of(name) is None else None
        is_one = (name_of(held_out) if part is None else part_by_words(held_out)) or ""
        if is_one.startswith("eval/"):
            return held_out
        return f"eval/slices/{part.removeprefix('rewards/')}" if any_score and part is not None else name

    return [replace(row, cells={called(name): value for name, value in row.cells.items()}) for row in rows]


def _expanded(
    line: int, span: tuple[int, int] | None, values: Mapping[str, Sequence[float | None]], *, part: bool = False
) -> Iterator[WrittenRow]:
    """One row, or as many as its longest cell has values: their ends are the row's first and last step."""
    count = max(map(len, values.values()), default=1)
    for index in range(count):
        cells = {name: _at(course, index, count) for name, course in values.items()}
        kept: Cells = {name: value for name, value in cells.items() if value is not None}
        if kept or count == 1:
            step = _step_at(span, index, count)
            yield WrittenRow(line=line, step=step, cells=kept, part=step is None and (part or count > 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """What was told of a metric along the run: its first value, perhaps some between, its last."""

    line: int
    values: tuple[float | None, ...]
    each: bool = False  # there is one for each step
    steps: tuple[int, ...] = ()  # of the values, where they are told


def stretched(values: Mapping[str, Sequence[float | None]]) -> list[Cells]:
    """The rows of several metrics' stretches: their ends stand together."""
    return [row.cells for row in _expanded(0, None, values) if row.cells]


def _at(course: Sequence[float | None], index: int, count: int) -> float | None:
    """The value at a place of a course that may be shorter: its ends stand at the ends."""
    if len(course) in (1, count):
        return course[min(index, len(course) - 1)]
    if index in (0, count - 1):
        return course[0 if index == 0 else -1]
    return course[index] if index < len(course) - 1 else None


def _step_at(span: tuple[int, int] | None, index: int, count: int) -> int | None:
    if span is None:
        return None
    first, last = span
    return last if count == 1 else round(first + (last - first) * index / (count - 1))


def _with_shares(rows: Sequence[WrittenRow]) -> list[WrittenRow]:
    """The rows; a share or an accuracy with values up to 100 was written in percent, as its header may say, too."""
    percent: set[str] = set()
    for name in {name for row in rows for name in row.cells}:
        values = [value for row in rows if (value := row.cells.get(name)) is not None and math.isfinite(value)]
        in_percent = 2 * sum(value > _IN_PERCENT for value in values) > len(values)
        is_share = (
            name_of(name) in _SHARES or "%" in name or (in_percent and _ACCURACY.match(name[:LONGEST]) is not None)
        )
        if values and is_share and 1 < max(values) <= 100 and min(values) >= 0:
            percent.add(name)
    return [
        replace(row, cells={n: v / 100 if n in percent and v is not None else v for n, v in row.cells.items()})
        for row in rows
    ]
