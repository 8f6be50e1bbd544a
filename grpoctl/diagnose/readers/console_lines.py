"""What the lines of a console log say of a run's metrics, whoever wrote them: a trainer, a notebook, somebody's print.

Five forms: dictionaries (`{'loss': 0.0, 'reward': 0.5}`, Hugging Face, JSON lines), verl's `step:1 - key:value - ...`,
tables (pasted with tabs, Markdown, boxes of lines, columns of spaces), pairs (`reward=0.5`, `KL: 0.02`, `reward 0.5`,
a progress bar's postfix), and stretches (`KL: 0.01 -> 12`, "reward fell from 0.5 to 0.1"). A dictionary is read with
ast.literal_eval or json, never run. What is not here: what a table's cells mean (written_tables), verl's lines
(verl_lines), which of the forms a log is taken by and which line is which step (console), settings (log_settings).
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

from core.text import harmless
from grpoctl.diagnose.readers.base import Unread
from grpoctl.diagnose.readers.joined_lines import JoinedLines
from grpoctl.diagnose.readers.logged import Logged, has_reward, tells_a_mean, tells_a_score
from grpoctl.diagnose.readers.metric_names import RUNS, STEPS, is_aside, name_of, run_named, split_named
from grpoctl.diagnose.readers.metric_words import part_by_words
from grpoctl.diagnose.readers.outline import Outline
from grpoctl.diagnose.readers.respelled import NUMBER, respelled, unwrapped, value_of
from grpoctl.diagnose.readers.table_lines import Cut, TableLines, cut_cells, is_rule, split_cells
from grpoctl.diagnose.readers.text import Line
from grpoctl.diagnose.readers.told_courses import Courses, is_part, values_behind
from grpoctl.diagnose.readers.trainer_log import flat_numbers
from grpoctl.diagnose.readers.verl_lines import VerlLines
from grpoctl.diagnose.readers.written_tables import Course, WrittenTable

Cells = dict[str, float | None]

_DICTIONARY = re.compile(r"\{\s*['\"][^{}]{1,20000}\}")
_NO_NUMBER = re.compile(r"(?<=[:\s])-?(?:nan|inf|NaN|Infinity)(?=\s*[,}])")
_BAR = re.compile(r"\b(\d{1,9})/(\d{1,9}) \[\d")  # tqdm: 12/100 [00:31<03:50
_ENDLESS_BAR = re.compile(r"\b\d{1,9}it \[\d")  # 12it [00:31, of no known length
_BEHIND_BAR = re.compile(r"\|\s*\d{1,9}/\d{1,9} \[[^\]\[]{0,40}<[^\]\[]{0,2000}\](?=\s*\S)")  # and more on its line
_WHOLE_BAR = re.compile(r"(?:\d{1,3}%)?\|[^|\n]{0,300}\|\s*\d{1,9}/\d{1,9} \[[^\]]*\]?")
_RAY = re.compile(r"^\s*(?:\[\d+(?:;\d+)*m)?\((?:[\w.:<>-]+\s+)*(?:pid|ip)=[^()]{1,80}\)(?:\[\d+(?:;\d+)*m)?\s?")
_LOST_ESCAPE = re.compile(r"\[\d{1,3}(?:;\d{1,3})*m")  # a colour whose escape character was lost in pasting
_EAST = "\u3040-\u30ff\u4e00-\u9fff"  # letters of Chinese and Japanese
_SIGN = r"(?:[^\w\s\x00-\x7f]\ufe0f?\s?)?"  # a mark before a value: KL: ✓0.01
_PAIR = re.compile(  # not `score = 70 + 85`: that is a completion's own sum
    rf"(?<![\w/.])(?P<name>[A-Za-z_{_EAST}][\w/.@-]*(?:\([^()=:]{{1,20}}\))?(?: [A-Za-z({_EAST}][\w/.@()-]*){{0,3}})"
    rf"['\"]?\**[ \t]{{0,40}}(?:[=:：]|->)\s{{0,40}}['\"`]?\**{_SIGN}(?P<value>{NUMBER})"
    r"(?![\w./]*[\w/]|:\d|\s?[+*×÷]\s?\d)"
)
_OF_CASES = re.compile(r"\s[^\W\d][^/|;,:=\d\n]{0,40}\s/\s[-+−]\d")  # reward = +1 if solved / -1 if not: a rule
_BARE = re.compile(
    rf"(?<![\w/.-])(?P<name>[A-Za-z{_EAST}][\w/@-]*(?: [A-Za-z][\w@-]*){{0,2}}?)(?:\s+(?:is|was|of|at|around|about))?"
    rf"\s+[~≈`]?(?P<value>{NUMBER})(?![\w./]*[\w/]|:\d)"
)
_HAS_PAIR = re.compile(rf"\w`?\s*[=<>≈]=?\s*(?:{NUMBER})")
_TELLS = re.compile(r"[\s*~≈]*\d[\d.,]*\s*(?:%|/\s*\d)")  # a share, or a count of so many
_MAY_PAIR = re.compile(r"[=:：]|->")
_OF_ROLLOUT = re.compile(r"\b(?:rollout|eval|perf)\s(\d{1,9})\s?:\s*\Z")  # before a dictionary (slime)
_STEPS_BEFORE = re.compile(r"\b(?:after|at|by)\s+(\d{1,9})\s*(?:steps?|iter(?:ation)?s?|updates)\b", re.IGNORECASE)
_SUMMARY_OF = "wandb:"  # what it prints at a run's end, a metric a line
_OF_SO_MANY = re.compile(r"(\d{1,9})/\d{1,9}")
_LISTED = re.compile(r"\(([^()]*[A-Za-z][^()]*(?:/[^()/]+){2,})\)\s*:?\s*\Z")  # (step / reward / kl): names of columns
_TO = re.compile(r"\s?(?:-|–|—|to)\s?\+?(?P<value>(?:\d+\.?\d*|\.\d+)%?)(?![\w./-])")  # behind a number: a range
_LONGEST_NAME = 120  # characters
_EPOCH = re.compile(r"\bepoch\s*[:=#]?\s*(\d+(?:\.\d+)?)\b", re.IGNORECASE)
_STEP_WORD = re.compile(
    r"(?:(?<![A-Za-z)]/)|(?<=train/)|(?<=training/)|(?<=trainer/)|(?<=metrics/)|(?<=grpo/))(?<!per )"
    r"\b(?:(?:global[ _])?(?:step|iter(?:ation)?|update|episode)\b[ _]?(?:#|no\.?)?\s?[:=]?\s{0,8}"
    r"|batch\b[ _]?(?:#|no\.?)?\s?[:=]?\s?)(?:\[\s{0,8})?(?:\d{1,9}\s?(?:-|–|to)\s?)?(\d{1,9})\b(?![.%\d])",
    re.IGNORECASE,
)
_AT_PLACE = re.compile(r"\b(?:at|after|of|in|@)\s(?:step|iter(?:ation)?|epoch)s?\Z", re.IGNORECASE)
_GLUED_STEP = re.compile(r"[@\[(](?:global_)?step_?(\d{1,9})[\])]", re.IGNORECASE)  # [diagnosis@step5]
_STEPS_APART = re.compile(
    r"\bsteps?\s?\d+\s?(?:->|→|=>|to)|\b(?:by|over|after|within|in|at) (?:the )?[\w ]{0,12}\bstep", re.I
)
_EASTERN_STEP = re.compile(r"第\s?(\d{1,9})\s?(?:步|次|轮)|(?:步骤|步数|迭代|ステップ)\s?[:：=]?\s?(\d{1,9})")
_EVALUATES = (
    re.compile(  # `[eval @ step 10] reward=0.5`, `MATH-500 eval: acc=0.4`; not `eval 0.5`, `eval - INFO - step 1`
        r"^[\W\d_]*(?:(?:[A-Za-z][\w-]*[\]):|>]*|\d+[\]:|]*|[|:>~-]+)\s+){0,5}?\[?"
        r"(?:(?P<word>eval(?:uation)?|val(?:idation)?|held-?out|test(?=\sset))|evaluated(?=\s\S+\s?[(:|]))\b"
        r"(?:\s?[@:\](|]|\s?\Z|\s(?:step|iter|epoch|at|after|on|set|results?|metrics?)\b|\s\w+\s\(|(?<=evaluated))"
        r"(?!\s*[-+]?\d*(?:\.\d|\s?%(?!\|)))",
        re.IGNORECASE,
    )
)
_EVALUATED_AS = re.compile(  # val metrics: {...}
    r"(?<!/)(?<!and )(?<!& )\b(?:val(?:idation)?|eval(?:uation)?)\s(?:metrics|results|scores?)\s?[:=]\s*\Z",
    re.IGNORECASE,
)
_LEVEL = re.compile(r"\b(?:INFO|WARNING|WARN|DEBUG|ERROR)\b(?::[\w.]+:)?[\s\]|:>-]*")
_LOGGER = re.compile(  # 2025-06-23 18:39:54,886 - trainer - INFO -
    r"^\[?\d{4}-\d\d-\d\d[ T][\d:.,]+\]?[^\n]{0,80}?\b(?:INFO|WARNING|WARN|DEBUG|ERROR)\b\]?(?: -| \|| :|:)? "
)
_WHERE = re.compile(r"\[?(?:[\w.]+\.py:\d+|[\w.]+:[\w.<>]+:\d+)\]?[\s|:>-]+")
_FIRST_WORD = re.compile(r"\W*(?:eval|val|held|test)", re.IGNORECASE)
_NO_EVALUATION = re.compile(r"\b(?:train(?:ing)?|skip(?:ped|ping)?|disabled|failed|every)\b", re.IGNORECASE)
_KINDS = ("log_type", "type", "event", "phase", "split", "mode", "kind")  # of a dictionary: training, evaluation
_FLAGS = ("eval", "is_eval", "evaluation", "validation")
_MESSAGES = ("message", "msg", "text")  # of a logger that writes JSON
_DECORATED = frozenset("=-#*─━_~+╭┏╰┗├└┌╔╚")
_EXAMPLE = re.compile(r"\W+(?:\w+ )?(?:example|sample|completion|response)s?\b", re.IGNORECASE)  # a heading
SECTION = re.compile(r"#{1,6}\s+(\S.{0,100})")
_OF_A_PART = re.compile(r"[\s|]*[╰├└]─+ [\w./-]+\s*\|")  # of the step above: one of several environments
_SPOKEN = re.compile(  # what somebody says, and the task: text that may have any numbers
    r"^\W*(?:\[(?:response|completion|answer|output|prompt|question)\]\s+|"
    r"(?:user|assistant|human|question|query|answer)\s?\d*:\s+)(?=[A-Za-z'\"<\\])(?!step\b|\w+\s?[=:])",
    re.IGNORECASE,
)
_ALIGNED = re.compile(rf"\W*(?P<name>[A-Za-z][\w./@ -]*?)(?:\s{{2,}}|\s?\.{{3,}}\s?)(?P<value>{NUMBER})\W*")
_OF_ONE = re.compile(  # of several that are printed: `Example 1 (Reward: 1.0)`, `gen[0] reward=0.5`
    r"\b(?:gen|sample|example|completion|response|candidate)s?(?:\s?\[\d+\]|\s?#\d+)"
    r"|\b(?:gen|generation|rollout|turn|traj(?:ectory)?|attempt|sample|completion|response|candidate|example)"
    r"\s\d+(?:\s?/\s?\d+)?\s?[(:]|^\W*(?:sample|example|completion)\s*\]"
    r"|\b(?:q|question|prompt|a|answer|completion|response|expected|predicted|target)=['\"]"
    r"|\bsample (?:response|completion|output|answer|generation)\b"
    r"|^\s*\d+\.\s+\S+\s{2,}",
    re.IGNORECASE,
)
_IN_PROSE = re.compile(  # the trainer still printed `reward_mean: 0.0000`
    rf"[A-Za-z]{{2,}}\W+`[\w/. -]{{1,60}}[=:]\s?(?:{NUMBER})`|`[\w/. -]{{1,60}}[=:]\s?(?:{NUMBER})`\W+[A-Za-z]{{2,}}"
)
_NEXT_TO_BEST = frozenset({  # of a run, and no step's; seconds per step; a loss of another kind; before and after
    "best", "max", "highest", "peak", "record", "top", "per", "unsupervised", "pre-training", "post-training", "pre-rl",
    "post-rl",
})  # fmt: skip
_SCORES = frozenset({"score", "scores"})
_SCORED = frozenset({  # what such a score is of, and no reward
    "clip", "bleu", "rouge", "bert", "f1", "quality", "aesthetic", "similarity", "confidence", "toxicity", "pick",
    "hps", "image", "style", "z", "brier", "risk", "priority",
})  # fmt: skip
_ROUNDED_AWAY = re.compile(r"[-+]?0\.0{3,8}")  # what a small number may be in so many decimals
_CELL = re.compile(rf"\s*(?:{NUMBER})\s*")
_COUNTS = ("step", "steps", "update")  # and no metrics of a step
_OF_SETTINGS = ("learning_rate", "beta", "temperature")  # in a dictionary of nothing else they are a configuration's
# Of a dictionary, beside metrics.
_LABELS = RUNS.union(STEPS, ("checkpoint", "ckpt"))  # of rows
_KEPT = frozenset({*STEPS, "epoch", "num_tokens", "train_runtime", "train_steps_per_second"})
_LONGEST_DICTIONARY = 20_000  # characters, over all lines it was wrapped into
_MOST_LINES = 100  # of one dictionary
_LONGEST_HEADER = 2000  # characters
_LONGEST_JOINED = 2000  # characters of a line that may go on
_COUNTED = re.compile(r"(?:step\s*)?\d{1,7}\s*[=:]|```", re.IGNORECASE)  # no title: 25: 0.81
_SHORT = 200  # characters of a line that numbers a step and says no more
_SHOWN = 120  # characters of a line that was not understood
_SETTLED = 50  # lines of verl: what else a log of so many prints is no other form of its metrics
_TELLS_METRICS = re.compile(  # such a line, that is worth a note
    r"(?:reward|score|loss|acc(?:uracy)?|pass@\d+)['\"]?\s{0,3}[=:]?\s{0,3}[-+]?\.?\d", re.IGNORECASE
)
_BESIDE = "beside lines of verl"  # the kind that these are
_OFTEN = re.compile(
    r"step|iter|epoch|reward|score|loss|kl\b|acc|checkpoint|pass@|(?:mean|avg)(?:@|-of-)", re.IGNORECASE
)  # a header has one of them
_ABOVE = 4  # lines that a table's title stands above its header, at most
_MOST_COLUMNS = 2000
_MOST_ROWS = 2000  # of a table that are held at once
_MOST_CHARACTERS = 1 << 21  # the same
_MOST_WORDS = 80  # of a header
_MOST_VALUES = 100  # of a stretch
_MOST_SPELLINGS = 10_000
_MOST_SHAPES = 500  # kinds of lines that were not understood and are told apart


_OF_OUTCOMES = ("reward", "eval/", "kl", "entropy", "groups/")  # metrics that a table of whole runs has one of


class LineParser:
    """Reads a log's lines one by one. `columns`: names in the log -> metrics, as the user maps them (--map).

    A table with a row for each run is read only where nothing else is: it is one run's beside others, no course.
    """

    def __init__(self, columns: Mapping[str, str], run: str | None = None, *, of_text: bool = False) -> None:
        self.columns = columns
        self._of_text = of_text  # that somebody wrote: its headings may name runs
        self.run = run  # of several runs in a table; None for the first
        self.runs: list[str] = []  # the names of these
        self.has_no_start = False  # rows are of whole runs
        self._of_runs: list[WrittenTable] = []  # with a row of each run
        self.bar: int | None = None  # where the longest progress bar stands
        self.total: int | None = None  # steps, by that bar
        self.unknown: set[str] = set()  # names beside known metrics that are none
        self.unread: dict[tuple[str, ...], Unread] = {}
        self.first_line: int | None = None  # the first with a metric
        self._said = 0  # metrics in lines without a step
        self._has_steps = False  # rows of tables, dictionaries, or lines of steps
        self.rounded: set[str] = set()  # names with a 0 that may be a small number, rounded
        self.taken: dict[str, None] = {}  # columns of tables that are evaluations by what stands below them
        self._epoch: float | None = None  # that a line of its own began (`=== Epoch 2/3 ===`)
        self._held = ""  # a dictionary whose end is still to come
        self._held_lines = 0
        self._outside = ""  # of a line's dictionaries: what a dictionary says in words are no pairs
        self._number = 0  # of the line that was read last
        self._joined = JoinedLines()
        self._outline = Outline()
        self._in_example = False  # below a heading that says so, up to the next one
        self._section = ""  # the heading of Markdown that was seen last
        self._words_above = -_ABOVE, ""  # where the last line without cells stands, and the title that it is or has
        self._of_section = ""  # the one that the table stands below
        self._table = TableLines()  # that the lines stand in
        self._tables = 0
        self._titled = -_ABOVE, 0  # a line that says a step and no more, and the step
        self._of_steps = 0  # the table that those with such a title and one row each make
        self.courses = Courses(self._is_known)
        self._spellings: dict[str, str] = {}  # names of several words -> as they are known
        self._verl = VerlLines(self._is_known, self._note_unknown)
        self._of_verl = 0  # lines of it with a reward

    def feed(self, line: Line) -> Iterable[Logged]:
        """The metrics in a line, as soon as they are whole."""
        self._number = number = line.number
        text = line.text
        if len(text) > _LONGEST_JOINED and not self._joined.is_open and "\r" not in text:  # quickly
            row = self._row_of_verl(number, text)
            return self._part(number, text) if row is None else (row,)
        if "\r" in text or ("|" in text and "<" in text):
            return (logged for part in _pieces(text) for logged in self._parts(number, part))
        return self._parts(number, text)

    def finish(self) -> Iterator[Logged]:
        """What the log's end makes whole: a table that stood last, and what was told of a stretch of the run."""
        for number, text in self._joined.rest():
            yield from self._part(number, text)
        yield from self._end_table()
        held, self._held = self._held, ""
        if "," in held:  # a dictionary that was cut off: what is whole of it
            yield from self._dictionaries(self._number, held.rpartition(",")[0] + "}")
        tables, self._of_runs = self._of_runs, []
        few = not self._has_steps and self._said <= 1  # a sentence, or nothing
        for number, table in enumerate(tables if few and not self.courses else (), 1):
            course = self._course_of(table)
            self.has_no_start = self.has_no_start or course.has_no_start
            yield from self._rows_of(course, table.lines[0], number)
        yield from self.courses.rows()

    def _parts(self, number: int, text: str) -> Iterator[Logged]:
        return (logged for at, part in self._joined.feed(number, text) for logged in self._part(at, part))

    def _row_of_verl(self, number: int, text: str) -> Logged | None:
        if " - " not in text or "step:" not in text or (cells := self._verl.cells_of(text)) is None:
            return None
        self._held = ""
        self._outline.see(text)
        self.first_line, self._has_steps = self.first_line or number, True
        self._of_verl += self._of_verl < _SETTLED and has_reward(tuple(cells))
        return Logged(line=number, form="verl", cells=cells, step=int(cells["step"] or 0), bar=self.bar)

    def _part(self, number: int, text: str) -> Iterator[Logged]:
        if text[:1] in _DECORATED or text[:3].strip()[:1] in _DECORATED:
            self._in_example = _EXAMPLE.match(text) is not None
        if text[:1] == "#" and (heading := SECTION.match(text)) is not None:
            self._section = heading[1]
        self._outline.see(_without_logger(without_prefix(text)) if len(text) < _SHORT + _LONGEST_NAME else text)
        if self._of_text and "|" not in text and (words := text[: _SHORT + 1].strip()):
            self._words_above = number, self._title(number) if _COUNTED.match(words) else words
        if (row := self._row_of_verl(number, text)) is not None:
            yield row
            return
        if "/" in text and "[" in text:
            self._look_at_bars(text)
        if self._held or "{" in text:
            logged = list(self._dictionaries(number, text))
            yield from logged
            if logged or self._held:
                return
            text = self._outside
        if self._of_verl < _SETTLED or self._table.is_open:
            yield from self._lines_of_text(number, text)
        elif len(text) < _LONGEST_HEADER and _TELLS_METRICS.search(text) is not None:
            self._remember((_BESIDE,), number, text)

    def _lines_of_text(self, number: int, text: str) -> Iterator[Logged]:
        """What tables and prints say."""
        remark = self._table.is_open and self._table.cut != "bars" and text.startswith("#")
        fence = text.startswith("```") and len(self._table.rows) == 1  # between a header and its rows
        if not text.strip() or fence or remark:
            self._table.blank = self._table.blank or not remark
        elif self._table.is_open and is_rule(text):
            if self._table.begins_another(text):
                yield from self._new_table(self._table.last_as_header())
        elif any(map(str.isdigit, text)) or "\t" in text or "|" in text or "  " in text or not self._table.is_open:
            yield from self._table_or_pairs(number, text)
        else:
            yield from self._end_table()

    def _look_at_bars(self, text: str) -> None:
        """Where the last progress bar stands. Only the longest bar counts: loading a model has bars of its own."""
        for match in _BAR.finditer(text):
            if self.total is None or int(match[2]) >= self.total:
                self.bar, self.total = int(match[1]), int(match[2])

    # dictionaries

    def _dictionaries(self, number: int, text: str) -> Iterator[Logged]:
        """Every dictionary of metrics in the text; one without its end is held until the lines that follow close it."""
        if self._held:
            text = self._held + _WHOLE_BAR.sub("", without_prefix(text)).lstrip(" " if self._held.endswith(" ") else "")
            self._held_lines += 1
        end, outside = 0, []
        for begin, stop, said in _dictionaries(text):
            cells = _numbers_of(said)
            outside.append(text[end:begin])
            if begin > end and _BAR.search(text, end, begin):
                self._look_at_bars(text[end:begin])
            before, end = end, stop
            if (
                _is_evaluation(said)
                or _EVALUATES.match(text[max(before, begin - _LONGEST_NAME) : begin].strip()) is not None
                or _EVALUATED_AS.search(text, max(before, begin - _SHORT), begin) is not None
            ):
                cells = self._held_out(cells)
            known = {name: value for name, value in cells.items() if self._is_known(name) or name in _KEPT}
            if self._has_metric(known):
                self._note_unknown(name for name in cells if name not in known)
                known |= {name: value for name, value in cells.items() if name_of(name) == "update"}
                known |= {name: value for name, value in cells.items() if name.startswith("eval_")}
                self.first_line, self._has_steps = self.first_line or number, True
                step = _own_step(known)
                left = max(before, begin - _SHORT)
                if step is None and (
                    word := _OF_ROLLOUT.search(text, left, begin) or _STEP_WORD.search(text, left, begin)
                ):
                    step = int(word[1])
                at = None if step is None else self._epoch
                run = run_named(said)
                yield Logged(line=number, form="dictionary", cells=known, step=step, bar=self.bar, epoch=at, run=run)
            elif (message := _message(said)) and begin == 0:
                yield from (logged for line in message.split("\n") for logged in self._part(number, line))
            else:
                self._not_read(number, text[begin:stop], cells)
        rest = text[end:]
        self._outside = " ".join([*outside, rest])
        begun = rest.rfind("{")
        is_open = begun >= 0 and "}" not in rest[begun:] and re.match(r"\{\s*(?:['\"]|$)", rest[begun:]) is not None
        if is_open and len(rest) - begun < _LONGEST_DICTIONARY and self._held_lines < _MOST_LINES:
            self._held = rest[begun:]
        else:
            self._held, self._held_lines = "", 0

    # tables and pairs

    def _table_or_pairs(self, number: int, text: str) -> Iterator[Logged]:
        plain = without_prefix(text)
        table = self._table
        if is_rule(plain):
            return
        cells = split_cells(plain)
        if cells is not None and len(cells) > _MOST_COLUMNS:
            return
        if table.is_open and (row := table.row_of(plain, cells)) is not None:
            if table.size > _MOST_CHARACTERS or len(table.rows) > _MOST_ROWS:
                yield from self._new_table(table.rest(), again=True)
            self._table.add(number, row, len(text))
            return
        yield from self._end_table()
        begun = self._begun(plain, cells)
        if begun is not None:
            self._table, self._of_section = TableLines(begun[0], self._title(number)), self._section
            self._table.add(number, begun[1], len(text))
            return
        yield from self._pairs(number, plain, cells)

    def _title(self, number: int) -> str:
        """The words above a line, without rows and lists between."""
        return self._words_above[1] if number - self._words_above[0] <= _ABOVE else ""

    def _begun(self, text: str, cells: list[str] | None) -> tuple[Cut, list[str]] | None:
        """How a table is cut into cells, and its header, where the line may be one."""
        if cells is not None:
            told = [*_PAIR.finditer(text), *filter(None, map(_BARE.fullmatch, map(str.strip, cells)))]
            paired = [match["name"] for match in told if not _is_at_a_place(match["name"])]
            pairs = any(self._is_known(self._spelled(name)) for name in paired)
            if pairs or (self._is_pair(cells) and len(cells) % 2 == 0):
                return None
            return "bars", cells
        listed = _LISTED.search(text) if "(" in text and len(text) < _LONGEST_HEADER else None
        if listed is not None and (names := self._names_in(listed[1].split("/"))) is not None:
            return "words", names
        if len(text) < _LONGEST_HEADER and (_OFTEN.search(text) or any(name in text for name in self.columns)):
            words = cut_cells(text, "words")
            has_number = any(map(_CELL.fullmatch, words))
            for cut in ("gaps", "commas") if has_number else ("gaps", "words", "commas"):
                if (names := self._names_in(cut_cells(text, cut), all_known=cut == "words")) is not None:
                    return cut, names
            if not has_number and 2 < len(words) < _MOST_WORDS and (names := self._names_among(words)) is not None:
                return "words", names
        return None

    def _names_among(self, words: list[str]) -> list[str] | None:
        """The names of columns that stand with one space between all words (`Step Training Loss reward`)."""
        ways: dict[int, list[str]] = {0: []}  # words that are used up -> the names they are
        spans = [
            (begin, end) for begin in range(len(words)) for end in range(begin + 1, min(begin + 5, len(words)) + 1)
        ]
        for begin, end in spans:
            if begin not in ways or len(ways[begin]) < len(ways.get(end, ())):
                continue
            name = re.sub(r"\s*/\s*", "/", " ".join(words[begin:end]))
            if (self._is_known(name) or name.lower() in STEPS) and not is_part(name):
                ways[end] = [*ways[begin], name]
        return self._names_in(ways[len(words)], all_known=True) if len(words) in ways else None

    def _is_pair(self, cells: list[str]) -> bool:
        """Whether cells are names and values by turns (a box of one step)."""
        return all(
            _CELL.fullmatch(value) and not _CELL.fullmatch(name) and self._is_known(name.strip())
            for name, value in zip(cells[::2], cells[1::2], strict=False)
        )

    def _names_in(self, cells: list[str], *, all_known: bool = False) -> list[str] | None:
        """The cells as the names of columns, where they are a table's header: two that are known, and no number."""
        if len(cells) < 2 or any(map(_CELL.fullmatch, cells)):
            return None
        names = [re.sub(r"\s*/\s*", "/", cell.strip().strip("*`")) for cell in cells]
        known = [name for name in names if self._is_known(name) or name.lower() in _LABELS]
        metrics = [name for name in known if self._is_known(name)]
        if len(known) < 2 or not metrics:
            return None
        return None if all_known and len(known) < len(names) else names

    def _new_table(self, following: TableLines, *, again: bool = False) -> Iterator[Logged]:
        """Ends the table; the next has begun."""
        yield from self._end_table(whole=not again)
        self._table = following

    def _end_table(self, *, whole: bool = True) -> Iterator[Logged]:
        """The rows of the table that has ended; where it was none, what its lines say by themselves."""
        ended, self._table = self._table, TableLines()
        if not ended.is_open:
            return
        written = ended.written()
        written = written.below(ended.title, self._is_metric) if ended.title else written
        course = self._course_of(written)
        names = {self._called(name) for row in course.rows for name in row.cells}
        if course.has_a_row_of_each and any((name_of(name) or "").startswith(_OF_OUTCOMES) for name in names):
            self._of_runs.append(written)
            return
        if course.has_a_row_of_each or not self._has_metric(names):
            for number, line in ended.rows:
                yield from self._pairs(number, " | ".join(line), line)
            return
        above, step = self._titled
        if len(course.rows) == 1 and course.rows[0].step is None and ended.rows[0][0] - above <= _ABOVE:
            course = replace(course, rows=[replace(course.rows[0], step=step)])
            self._of_steps = self._of_steps or self._tables + 1
        else:
            self._of_steps = 0
        self._tables += whole and self._tables + 1 != self._of_steps
        yield from self._rows_of(course, ended.rows[0][0], self._of_steps or self._tables + (not whole))

    def _course_of(self, table: WrittenTable) -> Course:
        """What a table says of the run that is asked for, or of the first that any table names."""
        return table.course(self._is_metric, self.run or next(iter(self.runs), None))

    def _rows_of(self, course: Course, line: int, table: int) -> Iterator[Logged]:
        """The rows of a table."""
        self.first_line, self._has_steps = self.first_line or line, True
        self.runs = list(dict.fromkeys([*self.runs, *course.names]))
        self._note_unknown(course.unknown)
        self.taken |= dict.fromkeys(course.taken)
        for row in course.rows:
            cells: Cells = {self._called(name): value for name, value in row.cells.items()}
            cells |= {} if row.step is None else {"step": float(row.step)}
            yield Logged(
                line=row.line,
                form="table",
                cells=cells,
                step=row.step,
                bar=self.bar,
                table=table,
                part=row.part,
                run=self._of_section,
            )

    def _pairs(self, number: int, text: str, cells: list[str] | None) -> Iterator[Logged]:
        """`reward=0.5`, `KL: 0.02`, `reward 0.5 | KL 0.02`, and a box's `| reward | 0.5 |`."""
        begins = text[:_LONGEST_NAME]
        if _SPOKEN.match(begins) is not None or _OF_A_PART.match(begins) is not None:
            return
        named, words = self._told_in(number, text, cells)
        known = {name: value for name, value in named.items() if self._is_known(name)}
        numbering = [value for name, value in named.items() if name.lower() in STEPS and _is_whole(value)]
        step = int(numbering[0] or 0) if numbering else _numbered_by_words(text)
        if step is None and (after := _STEPS_BEFORE.search(text)) is not None:
            step = int(after[1])
        alone = step is not None or text.startswith(_SUMMARY_OF)
        if not known and (bare := self._bare_in(words, at_least=1 if alone else 2)):
            known = bare
        if known and not self._has_metric(known) and self.first_line is None:
            return  # a head: the learning rate of a configuration, say
        if step is not None and not known:
            self._titled = number, step
        if known or (step is not None and len(text) < _SHORT):
            self.first_line = self.first_line or (number if known else None)
            self._said += len(known) if step is None else 0
            self._has_steps = self._has_steps or (bool(known) and step is not None)
            self._note_unknown(name for name in named if known and name not in known)
            at = self._epoch_at(text, step)
            drawn = step is None and (_BAR.search(text) or _ENDLESS_BAR.search(text)) is not None
            self._in_example = self._in_example and (step is None or not known)
            of_one = step is None and _OF_ONE.search(text) is not None
            single = self._in_example or (of_one and tells_a_score(tuple(known)) and not tells_a_mean(known))
            single = single or (step is None and "`" in text and _IN_PROSE.search(text) is not None)
            yield Logged(
                line=number, form="pairs", cells=known, step=step, bar=self.bar, epoch=at, in_bar=drawn, single=single,
                run=self._section if self._of_text else "",
            )  # fmt: skip
        elif len(text) < _SHORT:
            self._epoch = _epoch_in(text) or self._epoch
        if not known and len(named) > 1:
            self._not_read(number, text, named)

    def _told_in(self, number: int, text: str, cells: list[str] | None) -> tuple[Cells, str]:
        """The names and values of a line, and its words where there may be more of them."""
        words = "" if _says_how_often(cells) else respelled(text)
        named = self._named_in(number, words)
        self.courses.note_moves(number, text, named)
        named = named or _in_box(cells or ()) or _aligned(words)
        below = self._outline.headings
        if len(named) == 1 and below:
            named = self._below(named)
        step = _numbered_by_words(text) is not None or any(name.lower() in STEPS for name in named)
        if self._evaluates(text, named) or (not step and any(map(_is_of_evaluation, below))):
            return self._held_out(named) or self._held_out(self._bare_in(words, at_least=1)), ""
        return named, words

    def _evaluates(self, text: str, named: Cells) -> bool:
        """Whether all of a line is of an evaluation: not where it tells one beside its step's own metrics."""
        if not _is_of_evaluation(text):
            return False
        told = [name_of(name) or "" for name in named if self._is_known(name)]
        own = sum(metric.startswith("eval/") for metric in told)
        return own in (0, len(told)) or _FIRST_WORD.match(text) is not None

    def _below(self, told: Cells) -> Cells:
        """The one value that a line tells, by its name below the headings where that is known."""
        ((name, value),) = told.items()
        return {next(filter(self._is_path, self._outline.names_of(name)), name): value}

    def _is_path(self, name: str) -> bool:
        """Whether a name with its headings is a metric: a part of the reward only below a heading that says so."""
        part = (name_of(name) or "").startswith("rewards/")
        return self._is_known(name) and (not part or name.lower().startswith("reward"))

    def _held_out(self, told: Cells) -> Cells:
        """What a line of an evaluation tells, by the names that such metrics have; what has none is left out."""
        held_out: Cells = {}
        for name, value in told.items():
            spelled = next((one for one in (name, f"eval {name}") if (name_of(one) or "").startswith("eval/")), None)
            if spelled is not None:
                held_out[spelled] = value
            elif name.lower() in STEPS:
                held_out[name] = value
        return held_out

    def _epoch_at(self, text: str, step: int | None) -> float | None:
        """The epoch that a line says, or that the line before its steps began."""
        said = _epoch_in(text)
        return self._epoch if said is None and step is not None else said

    def _named_in(self, number: int, text: str) -> Cells:
        """Name -> value of the text's pairs; values with arrows between them are a stretch of the run, and no step."""
        named: Cells = {}
        stretches: dict[str, list[float | None]] = {}
        for match in _PAIR.finditer(text) if _MAY_PAIR.search(text) else ():
            if match["value"][0] in "+-" and _OF_CASES.match(text, match.end()) is not None:
                continue
            name, first = self._spelled(match["name"]), value_of(match["value"])
            values = [first, *values_behind(text, match.end())]
            if first == 0 and _ROUNDED_AWAY.fullmatch(match["value"]):
                self.rounded.add(name)
            if len(values) > 1 and self._is_known(name):
                stretches[name] = values
            elif len(values) == 1 and first is not None and first >= 0 and self._is_metric(name):
                other = _TO.match(text, match.end())
                named.setdefault(name, first if other is None else (first + (value_of(other["value"]) or 0.0)) / 2)
            else:
                named.setdefault(name, first)
        stretches = self.courses.moves_in(number, text) | stretches
        listed = self._of_text and self.courses.note_at_steps(number, text, self._title(number))
        if listed or self.courses.note_list(number, text):
            return {}
        if stretches:
            self._note_stretches(number, text, named, stretches)
        return named

    def _note_stretches(
        self, number: int, text: str, named: Cells, stretches: Mapping[str, list[float | None]]
    ) -> None:
        """Remembers the stretches that a line tells of the run, or gives their means to the one step it is of."""
        at_one_place = (_numbered_by_words(text) is not None or _EPOCH.search(text)) and not _STEPS_APART.search(text)
        for name, values in stretches.items():
            known = [value for value in values if value is not None]
            if at_one_place and known:  # inside of that epoch, say
                named.setdefault(name, math.fsum(known) / len(known))
            else:
                self.courses.note(number, name, values)

    def _bare_in(self, text: str, *, at_least: int) -> Cells:
        """`reward 0.35 kl 0.02`: names with a number behind them; {} for fewer, since prose has such, too."""
        found: Cells = {}
        for match in _BARE.finditer(text) if len(text) < _LONGEST_HEADER else ():
            name = self._spelled(match["name"])
            if self._is_known(name) and not _is_at_a_place(match["name"]):
                found.setdefault(name, value_of(match["value"]))
        return found if len(found) >= at_least and self._has_metric(found) else {}

    def _is_metric(self, name: str) -> bool:
        """Whether a table's column is a metric, and not what numbers its rows."""
        return (self._is_known(name) or part_by_words(name) is not None) and name.lower() not in STEPS

    def _spelled(self, name: str) -> str:
        """The name as it is known: whole, or what is left of it behind words that are none of it (`INFO reward`)."""
        if " " not in name:
            return name
        if (known := self._spellings.get(name)) is None:
            known = self._found_in(name)
            if len(self._spellings) < _MOST_SPELLINGS:
                self._spellings[name] = known
        return known

    def _found_in(self, name: str) -> str:
        words = name.split(" ")
        for begin in range(len(words)):
            tail = " ".join(words[begin:])
            if self._is_known(tail) or tail.lower() in STEPS:
                before = words[begin - 1].lower() if begin else ""
                of_another = tail.lower() in _SCORES and before in _SCORED
                return name if before in _NEXT_TO_BEST or of_another else tail
        return name

    def _is_known(self, name: str) -> bool:
        return name in self.columns or ((ours := name_of(name)) is not None and ours not in _COUNTS)

    def _called(self, name: str) -> str:
        """What a table's column is called from here on: a part of the reward by its words."""
        return name if self._is_known(name) else part_by_words(name) or name

    def _has_metric(self, cells: Collection[str]) -> bool:
        """Whether there is more than what a configuration has, too."""
        return any(self._is_known(name) and name_of(name) not in _OF_SETTINGS for name in cells)

    def _note_unknown(self, names: Iterable[str]) -> None:
        self.unknown.update(name for name in names if name.lower() not in STEPS and not is_aside(name))

    def _not_read(self, number: int, text: str, cells: Mapping[str, float | None]) -> None:
        """Remembers a line that looks like metrics: two numbers or more, whose names are known for nothing else."""
        names = tuple(
            sorted(name for name in cells if cells[name] is not None and not is_aside(name) and name not in STEPS)
        )
        if len(names) < 2:
            return
        self._remember(names, number, text)

    def _remember(self, names: tuple[str, ...], number: int, text: str) -> None:
        if names in self.unread:
            self.unread[names] = replace(self.unread[names], count=self.unread[names].count + 1)
        elif len(self.unread) < _MOST_SHAPES:
            self.unread[names] = Unread(line=number, text=harmless(" ".join(text.split()))[:_SHOWN])


def _pieces(text: str) -> Iterator[str]:
    """What a terminal shows one after the other: a progress bar that is drawn again, and what is printed behind it."""
    for part in text.split("\r"):
        ends = [bar.end() for bar in _BEHIND_BAR.finditer(part)] if "|" in part and "<" in part else []
        for begin, end in pairwise([0, *ends, len(part)]):
            yield part[begin:end]


def _aligned(text: str) -> Cells:
    """The name and the value that stand in two columns without a header."""
    match = _ALIGNED.fullmatch(text) if len(text) < _SHORT else None
    return {} if match is None else {match["name"]: value_of(match["value"])}


def _in_box(cells: Sequence[str]) -> Cells:
    """The names and values that a box's cells are by turns."""
    pairs = zip(cells[::2], cells[1::2], strict=True) if len(cells) % 2 == 0 else ()
    return {
        name.strip(): value_of(value)
        for name, value in pairs
        if _CELL.fullmatch(value) and name.strip() and not _CELL.fullmatch(name)
    }


def _epoch_in(text: str) -> float | None:
    match = _EPOCH.search(text)
    return None if match is None else float(match[1])


def without_prefix(text: str) -> str:
    """The text without a quote's mark, what Ray puts before a line, and colours whose escape character was lost."""
    if text.startswith(">"):
        text = text.lstrip("> ")  # quoted
    if "pid=" in text or "ip=" in text:
        text = _RAY.sub("", text)
    return _LOST_ESCAPE.sub("", text) if "m" in text and "[" in text else text


def _without_logger(text: str) -> str:
    """The text behind what a logger puts before it, with its own indentation."""
    return _LOGGER.sub("", text, 1) if " - " in text or "] " in text else text


def _is_at_a_place(words: str) -> bool:
    """Whether the number behind the words is a step's: `format at step 300`."""
    return _AT_PLACE.search(words) is not None


def _says_how_often(cells: Sequence[str] | None) -> bool:
    """Whether a table's line says how often something was so: | share of steps with `loss = 0` | 89 % |."""
    told = [cell for cell in cells or () if cell.strip()]
    return len(told) == 2 and _HAS_PAIR.search(told[0]) is not None and _TELLS.match(told[1]) is not None


def _numbered_by_words(text: str) -> int | None:
    """The step that the text says it is of. `Episode [1/1]` before a progress bar is no step: the bar is."""
    if (match := _STEP_WORD.search(text)) is not None:
        return None if match[0].endswith("[" + match[1]) and _BAR.search(text, match.end()) else int(match[1])
    if (match := _GLUED_STEP.search(text)) is not None:
        return int(match[1])
    if not text.isascii() and (match := _EASTERN_STEP.search(text)) is not None:
        return int(match[1] or match[2])
    return None


def _is_whole(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value.is_integer() and 0 <= value < 1e15


def _own_step(cells: Mapping[str, float | None]) -> int | None:
    """The step that a row names itself by."""
    for name in STEPS:
        if _is_whole(value := cells.get(name)):
            return int(value or 0)
    return None


def _dictionaries(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(begin, end, what it says) of every dictionary in the text."""
    if "}" not in text:
        return
    begin, end = text.find("{"), text.rfind("}") + 1
    if 0 <= begin <= _SHORT and begin < end and text.count("{") > 1:
        whole = _value(text[begin:end])
        if whole is not None:
            yield begin, end, whole
            return
    for match in _DICTIONARY.finditer(text):
        logged = _value(match[0])
        if logged is not None:
            yield match.start(), match.end(), logged


def _is_of_evaluation(text: str) -> bool:
    """Whether a line, or a heading, begins as one of an evaluation, and does not speak of training or of none."""
    begins = _message_of(text[:_LONGEST_NAME])
    return _EVALUATES.match(begins) is not None and _NO_EVALUATION.search(begins) is None


def _message_of(begins: str) -> str:
    """What a line says behind its logger's level, name and place (`INFO:__main__:`, `[INFO] [train.py:120]`)."""
    level = _LEVEL.search(begins)
    rest = begins if level is None else begins[level.end() :]
    place = None if level is None else _WHERE.match(rest)
    return rest if place is None else rest[place.end() :]


def _is_evaluation(said: Mapping[str, Any]) -> bool:
    """Whether a dictionary says of itself that it is of an evaluation."""
    kinds = [split_named(value) for name in _KINDS if isinstance(value := said.get(name), str)]
    flagged = any(said.get(name) is True for name in _FLAGS)
    return flagged or any(kind not in ("", "train", "training") for kind in kinds)


def _message(said: Mapping[str, Any]) -> str:
    """The text that a logger wrapped into JSON; "" for what is none."""
    return next((value for name in _MESSAGES if isinstance(value := said.get(name), str)), "")


def _numbers_of(logged: Mapping[str, Any]) -> Cells:
    """The numbers of a dictionary, nested ones with joined names; a step of so many (`'5/1000'`, ms-swift) is one."""
    cells: Cells = dict(flat_numbers(logged))
    for name, value in logged.items():
        if "step" in name and isinstance(value, str) and (match := _OF_SO_MANY.fullmatch(value)):
            cells.setdefault("global_step", float(match[1]))
    return cells


def _plain_value(text: str) -> Any:
    """What numbers and plain texts in Python's spelling are, read as JSON in a fraction of the time.

    Raises ValueError for any other spelling.
    """
    if "\\" in text or ("'" in text and '"' in text):
        raise ValueError("quotes in quotes")
    return json.loads(text.replace("'", '"'))


def _value(text: str) -> dict[str, Any] | None:
    """The dictionary that the text is; None for anything else."""
    finite = _NO_NUMBER.sub("'nan'", unwrapped(text, "''"))
    value = None
    for read, spelled in ((_plain_value, finite), (ast.literal_eval, finite), (json.loads, text)):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # TypeError: {{}}
            value = read(spelled)
            break
    return value if isinstance(value, dict) and all(isinstance(name, str) for name in value) else None
