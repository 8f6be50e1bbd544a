"""What sentences and lists tell of a metric along the run: `kl rose 0.02 -> 1.3`, `reward by step: 0.1, 0.4, 0.6`,
`val: step 0=0.79, step 25=0.82`, `reward from 0.73 at step 0 to 0.82 at step 50`.

What is not here: lines that are of one step (console_lines), and which form of a log's metrics is read (console).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from grpoctl.diagnose.readers.logged import Logged
from grpoctl.diagnose.readers.metric_names import HELD_OUT, name_of
from grpoctl.diagnose.readers.respelled import NUMBER, value_of
from grpoctl.diagnose.readers.written_tables import Stretch, stretched

_FIRST, _LAST = (rf"[~≈]?[*`]{{0,3}}(?P<{end}>{NUMBER})[*`]{{0,3}}" for end in ("first", "last"))
_FROM_TO = re.compile(  # val reward from `0.73` at step 0 to `0.82` at step 50
    rf"(?P<name>(?:[\w/.-]+ ){{1,6}})from {_FIRST}(?: at step (?P<begin>\d{{1,7}}))? to "
    rf"{_LAST}(?: (?:at|by) step (?P<end>\d{{1,7}}))?(?![\w/])"
)
_HAS_ARROW = re.compile(r"\d%?[*`]{0,3}\s*(?:->|→|=>|⇒)")
ARROWS = re.compile(rf"[*`]{{0,3}}\s*(?:->|=>|→|⇒)\s*[~≈]?\s*[*`]{{0,3}}(?P<value>{NUMBER})")
_CHAIN = re.compile(rf"{ARROWS.pattern}(?![\w/])")
_MOVED = re.compile(  # grad_norm exploded 4.6 → 473
    rf"(?P<name>(?:[\w/.`*:-]+ ){{1,5}}){_FIRST}(?={_CHAIN.pattern})"
)
_IN_BRACKETS = re.compile(  # a line that is `train reward (0.65 → 0.74)` alone
    rf"\W{{0,6}}(?P<name>(?:[\w/.-]+ ){{1,4}})\({_FIRST}(?={_CHAIN.pattern}\)\W{{0,3}}\Z)"
)
_ALONG = re.compile(  # behind a metric's name and before its values: reward by step (6 steps), reward_history
    r"[ _](?:(?:by|per|over|each|every|por|par|pro)[ _](?:the )?(?:train(?:ing|er) )?(?:steps?|epochs?|iterations?|"
    r"updates?|rounds?|checkpoints?|evaluations?|paso|passo|pas|schritt)|history|curve|trend|course|trajectory|progression)"
    r"(?:\s*\([^()]{0,40}\))?\**\s*\Z",
    re.IGNORECASE,
)
_BY_STEP = re.compile(  # and how many, where brackets say so
    r"[ _](?:by|per|over|each|por|par|pro)[ _](?:the )?(?:train(?:ing|er) )?(?:steps?|paso|passo|pas|schritt)"
    r"(?:\s*\((?P<count>[^()]*?)(?: (?:steps|pasos|passos))?\))?\**\s*[:=]",
    re.I,
)
_AT_STEP = re.compile(  # 61.1% (30), 0.22 (Step 1)
    rf"\**[~≈]?(?P<value>(?<![\w./-]){NUMBER})\**\s*\((?:at\s)?(?P<word>step\s?)?(?P<step>\d{{1,7}})\)\**",
    re.IGNORECASE,
)
_STEP_FIRST = re.compile(  # step 25=0.815; 25: 0.815; step 25 44/89 (+11/-7)
    rf"(?<![\w./-])(?P<word>(?:step|ckpt|checkpoint|iter)[\s_-]{{0,8}})?(?P<step>\d{{1,7}})"
    rf"(?:\s?[=:]\s{{0,8}}|(?(word)\s{{1,8}}|(?!)))"
    rf"[*`]{{0,3}}(?P<value>\d{{1,7}}/\d{{1,7}}|{NUMBER})(?![\w./:])[*`]{{0,3}}"
    r"(?:\s?\((?:[a-z ]{1,12}|[+-]\d{1,5}(?:/[+-]?\d{1,5})?)\))?"
    r"(?=\s*(?:\Z|[,;|·→]|->)|\s{2,}|\s(?:\d|step\b))",  # `Step 1: 1 point` is none
    re.IGNORECASE,
)
_THEN = re.compile(r"\s*(?:->|→|=>|⇒|,|;|·|\||then)?\s*")  # between two such
_BETWEEN = re.compile(r",\s+|\s*(?:->|→|⇒)\s*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_OF_STEPS = re.compile(r"\b(?:steps?|iterations?|updates?|checkpoints?|epochs?)\b", re.IGNORECASE)
_REMARK_AT_END = re.compile(r"\s*\([^()]*\)\s*\Z")
_WISHED = frozenset({  # words of what is no course
    "max", "min", "best", "budget", "expected", "threshold", "target", "weight", "weights", "limit", "per",
    "difficulty", "cap", "scale", "coefficient", "coef", "bonus", "penalty", "gate", "ratio", "floor",
})  # fmt: skip
_SOLVED = frozenset({"solved", "passed", "correct", "resolved", "won", "right", "passes", "successes", "successful"})
_VALUE = re.compile(rf"\s*(?:{NUMBER})\s*")
_FEWEST_VALUES, _LONGEST_NAME = 3, 120  # of a list that is a course; characters before it
_LONGEST = 2000  # characters of a line
_MOST_STRETCHES = 50
_MOST_VALUES = 100  # of a stretch
MOST_PLACED = 2000  # values at steps over lines
_OF_SETTINGS = ("learning_rate", "beta", "temperature")
_OF_TRAINING = frozenset({"reward/mean", "loss", "policy/loss", "kl", "entropy", "grad_norm"})

Run = list[re.Match[str]]  # values at steps that follow each other


class Courses:
    """The courses of metrics that a log's lines tell, wherever in it they stand; is_known: whether a name is one's."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._told: dict[str, Stretch] = {}
        self.told_twice: set[str] = set()  # names of which two courses are told that differ
        self.cut: set[str] = set()  # names whose course is longer than what is read of it

    def __bool__(self) -> bool:
        return bool(self._told)

    def note(
        self, number: int, name: str, values: list[float | None], *, each: bool = False, steps: Sequence[int] = ()
    ) -> None:
        """Remembers a metric's values along the run; the longest where it is told again, else the first."""
        there = self._told.get(name)
        if there is not None and values[: len(there.values)] != list(there.values)[: len(values)]:
            self.told_twice.add(name)
        longer = there is not None and len(values) > len(there.values)  # told again as it grows
        if longer or (there is None and len(self._told) < _MOST_STRETCHES):
            self._told[name] = Stretch(line=number, values=tuple(values), each=each, steps=tuple(steps))

    def note_moves(self, number: int, text: str, told: Collection[str]) -> None:
        """Remembers `grad_norm exploded 4.6 → 473`: a stretch of the run, wherever in it the sentence is."""
        if len(text) >= _LONGEST or _HAS_ARROW.search(text) is None:
            return
        whole = _IN_BRACKETS.match(text)
        for match in [whole] if whole is not None else _MOVED.finditer(text):
            words = re.sub(r"[`*:]", "", match["name"]).split()
            name = self.known_in(words)
            if name is not None and name not in told and (whole is None or _WISHED.isdisjoint(map(str.lower, words))):
                self.note(number, name, [value_of(match["first"]), *values_behind(text, match.end(), _CHAIN)])

    def note_list(self, number: int, text: str) -> bool:
        """Remembers a list of a metric's values along the run, or at their steps; whether the line has one."""
        if len(text) >= _LONGEST:
            return False
        return self._note_placed(number, text) or self._note_course(number, text)

    def note_at_steps(self, number: int, text: str, title: str) -> bool:
        """Remembers `val: step 0=0.79, step 25=0.82`, or `1: 0.94  2: 0.62` below a title that names the metric, which
        may go on over lines; whether the line has such.
        """
        found = False
        for run in _runs_of(_STEP_FIRST, text) if len(text) < _LONGEST else ():
            head = text[: run[0].start()].strip(" -*•|:=\t")
            counted = len({match["value"].partition("/")[2] for match in run} | {""}) == 2  # of one number of problems
            named = self._named_at_the_end(_ALONG.sub("", head), counted=counted) if head else None
            below = None if head or not (run[0]["word"] or _OF_STEPS.search(title)) else self._titled(title)
            enough = len(run) > 1 or (below is not None and run[0]["word"])
            if (name := named or below) is None or not enough or (named and not run[0]["word"]):
                continue
            values, steps = [_share_or_number(match["value"]) for match in run], [int(match["step"]) for match in run]
            before = self._told.get(name) if below is not None else None
            if before is None or not before.steps or before.steps[-1] >= steps[0]:
                self.note(number, name, values, steps=steps)
            elif len(before.steps) >= MOST_PLACED:
                self.cut.add(name)
            else:
                self._told[name] = replace(before, values=(*before.values, *values), steps=(*before.steps, *steps))
            found = True
        return found

    def moves_in(self, number: int, text: str) -> dict[str, list[float | None]]:
        """What a line tells by `NAME from 0.1 to 0.5`; what has its steps beside it is remembered."""
        moves: dict[str, list[float | None]] = {}
        for match in _FROM_TO.finditer(text) if "from " in text and len(text) < _LONGEST else ():
            if (name := self.known_in(match["name"].split())) is None:
                continue
            values = [value_of(match["first"]), value_of(match["last"])]
            if match["begin"] and match["end"] and int(match["begin"]) < int(match["end"]):
                self.note(number, name, values, steps=[int(match["begin"]), int(match["end"])])
            else:
                moves.setdefault(name, values)
        return moves

    def known_in(self, words: Sequence[str]) -> str | None:
        """The longest and last of the words that are a metric's name."""
        runs = [words[end - size : end] for size in (3, 2, 1) for end in range(len(words), size - 1, -1)]
        names = [" ".join(run) for run in runs]
        return next((name for name in names if self._is_known(name) and not is_part(name)), None)

    def rows(self) -> Iterator[Logged]:
        """A row for each step that values are told of, else the ends of all courses together."""
        told, self._told = self._told, {}
        placed = {
            name: stretch for name, stretch in told.items() if stretch.steps and name_of(name) not in _OF_SETTINGS
        }
        trained = {name for name in told if name_of(name) in _OF_TRAINING}
        if placed and (not trained or not trained.isdisjoint(placed)):
            yield from _at_their_steps(placed)
        elif any(map(self._is_known, told)):
            line = min(stretch.line for stretch in told.values())
            values = {_outcome(name, told): stretch.values for name, stretch in told.items()}
            rows = stretched(values)
            each = all(stretch.each and len(stretch.values) == len(rows) for stretch in told.values())
            for step, cells in enumerate(rows, 1):
                at = step if each else None
                yield Logged(line=line, form="stretches", cells=cells, step=at, part=len(rows) > 1 and not each)

    def _named_at_the_end(self, words: str, *, counted: bool) -> str | None:
        """The metric that the last words name, where none of them says that it is a limit or a wish; an evaluation
        where what was solved is counted.
        """
        last = words.replace("*", " ").replace("_", " ").split()[-4:]
        if not _WISHED.isdisjoint(map(str.lower, last)):
            return None
        if counted and not _SOLVED.isdisjoint(map(str.lower, last)):
            return "eval reward"
        names = (" ".join(last[at:]) for at in range(len(last)))
        known = next((name for name in names if self._is_known(name) and not is_part(name)), None)
        return known or ("eval reward" if last and last[-1].lower() in HELD_OUT else None)

    def _titled(self, title: str) -> str | None:
        """The metric that a title names, and no more than that."""
        name = _ALONG.sub("", _REMARK_AT_END.sub("", title.strip("#* :")))
        return name if self._is_known(name) else None

    def _named(self, words: str) -> str | None:
        """The metric that the last of some words name; of an evaluation where they say no more than that."""
        last = words.replace("*", " ").replace("_", " ").split()[-4:]
        evaluated = bool(last) and last[-1].lower() in HELD_OUT
        return self.known_in(last) or ("eval reward" if evaluated else None)

    def _note_placed(self, number: int, text: str) -> bool:
        """Remembers `Eval: 3.1% (0) -> 45.0 (10) -> 61.1 (30)`: values at their steps; whether there are any."""
        before, found = 0, False
        for run in _runs_of(_AT_STEP, text) if "(" in text else ():
            head, before = text[before : run[0].start()], run[-1].end()
            name = self._named(_REMARK_AT_END.sub("", head.rstrip(" *:=|")))
            if name is None or len(run) < (2 if run[0]["word"] else _FEWEST_VALUES):
                continue
            percent = any(match["value"].endswith("%") for match in run)
            values = [value_of(match["value"].rstrip("%") + "%" * percent) for match in run]
            self.note(number, name, values, steps=[int(match["step"]) for match in run])
            found = True
        return found

    def _note_course(self, number: int, text: str) -> bool:
        """Remembers a list of a metric's values along the run; whether the line has one."""
        if (course := self._course_in(text)) is None:
            return False
        of_steps = _BY_STEP.search(text)
        each = of_steps is not None and of_steps["count"] in (None, str(len(course[1])))
        self.note(number, *course, each=each)
        return True

    def _course_in(self, text: str) -> tuple[str, list[float | None]] | None:
        """The metric whose values along the run a line lists, and these; None where it lists none."""
        head, _, tail = text.replace("=", ":").rpartition(":")
        values = _listed(tail.strip(" \t[].;")) if head else []
        if len(values) < _FEWEST_VALUES or not all(map(_VALUE.fullmatch, values)):
            return None
        along = _ALONG.search(head[-_LONGEST_NAME:])
        words = head[-_LONGEST_NAME:][: along.start()].replace("_", " ").split() if along else []
        names = [" ".join(words[-size:]) for size in range(len(words), 0, -1)]
        name = next((name for name in names if self._is_known(name)), None)
        return None if name is None else (name, [value_of(value) for value in values])


def values_behind(text: str, end: int, form: re.Pattern[str] = ARROWS) -> list[float | None]:
    """The values that follow each other by arrows from a place of the text on: `-> 0.2 -> 0.3`."""
    values: list[float | None] = []
    while len(values) < _MOST_VALUES and (more := form.match(text, end)) is not None:
        values.append(value_of(more["value"]))
        end = more.end()
    return values


def is_part(name: str) -> bool:
    """Whether a name of several words is that of a part of the reward: in prose any word may stand before `reward`."""
    return " " in name and (name_of(name) or "").startswith(("rewards/", "eval/rewards/"))


def _share_or_number(text: str) -> float | None:
    """The number, or the share that a count of so many is; None where it is none."""
    part, _, whole = map(str.strip, text.partition("/"))
    if not whole:
        return value_of(text)
    return int(part) / int(whole) if 0 <= int(part) <= int(whole) != 0 else None


def _listed(text: str) -> list[str]:
    """The values of a list: by commas or arrows, or by semicolons, where a comma is a decimal one."""
    if ";" in text:
        return [value.replace(",", ".") for value in text.split(";", _MOST_VALUES)]
    values = _BETWEEN.split(text, _MOST_VALUES)
    return text.split(",", _MOST_VALUES) if len(values) == 1 else [_THOUSANDS.sub("", one) for one in values]


def _outcome(name: str, told: Collection[str]) -> str:
    """What an accuracy at a run's ends is called: of an evaluation, where nothing of training is told beside it."""
    trains = any(name_of(other) in _OF_TRAINING for other in told)
    held_out = f"eval {name}"
    return held_out if not trains and (name_of(held_out) or "").startswith("eval/slices/") else name


def _runs_of(form: re.Pattern[str], text: str) -> list[Run]:
    """Values at steps, those together that follow each other with rising steps."""
    runs: list[Run] = []
    for match in form.finditer(text):
        follows = bool(runs) and _THEN.fullmatch(text, runs[-1][-1].end(), match.start()) is not None
        if follows and int(match["step"]) > int(runs[-1][-1]["step"]):
            runs[-1].append(match)
        else:
            runs.append([match])
    return runs


def _at_their_steps(placed: Mapping[str, Stretch]) -> Iterator[Logged]:
    """A row for each step that values are told of."""
    by_step: dict[int, dict[str, float | None]] = {}
    for name, stretch in placed.items():
        for step, value in zip(stretch.steps, stretch.values, strict=True):
            by_step.setdefault(step, {})[name] = value
    line = min(stretch.line for stretch in placed.values())
    for step in sorted(by_step):
        yield Logged(line=line, form="stretches", cells=by_step[step], step=step)
