"""Tables that people write by hand: what a cell says, what numbers a row, and which way round the table is.

A cell may be bold, rounded (`~0.5`), a percentage, `12,345`, `1.2k`, `0.1 -> 0.4` (the first and the last value of what
the row stands for), `0.3±0.1` or `3/20`. A row may be a step (`step 50`), several (`1-10`), or a stage of the run
(`start`, `end`). A table may have one column a step. What is not here: which line belongs to a table (console_lines).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, pairwise
from typing import NamedTuple

from grpoctl.diagnose.readers.metric_names import STEPS, TOTALS, name_of
from grpoctl.diagnose.readers.setting_names import is_an_axis
from grpoctl.diagnose.readers.several_runs import words_of

Cells = dict[str, float | None]

_EMPTY = frozenset({"", "-", "–", "—", "na", "n/a", "null", "none", "no log", "?", "…", "...", "tbd"})
_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?"
_ONE = re.compile(
    rf"(?P<number>{_NUMBER})\s*(?P<unit>%|k|m|b|tok(?:en)?s?|nats?(?:/tok(?:en)?)?|chars?|steps?|words?)?",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"(\d+)\s*/\s*(\d+)")
_MILLIONS = re.compile(r"(\d+(?:\.\d+)?)\s*M")
_COUNT_STEPS = re.compile(  # what labels in millions stand below; a phase or a checkpoint may be a model's size
    r"(?:global|train|training|env|total)?[\s_]?(?:time)?(?:steps?|iter(?:ation)?s?|updates?)|(?:训练)?步数|ステップ数?",
    re.IGNORECASE,
)
_OF_TOTAL = re.compile(r"/(\d+)\Z")  # valid/16
_DECIMAL_COMMA = re.compile(r"[-+]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))\s*%?")
_ARROW = re.compile(r"\s*(?:->|=>|→|⇒|➜|➔|⟶)\s*")
_RANGE = re.compile(rf"({_NUMBER})\s*(%?)\s*(?:-|to|\.\.+|until)\s*\+?({_NUMBER})\s*(%?)", re.IGNORECASE)
_MARKS = re.compile(r"[*`_]{1,3}(?=\S)|(?<=\S)[*`_]{1,3}|<[^<>]{1,40}>|[~≈≃≲≳<>≤≥↑↓▲▼✅❌⚠🔥✓✗️]|\\")
_REMARK = re.compile(r"\s*[(\[][^()\[\]]*[)\]]\s*|\s*(?:±|\+/-|\+-).*$")
_POWER = re.compile(r"\s*[x×·*]\s*10\s*(?:\^|\*\*)?\s*\{?([-+]?\d+)\}?", re.IGNORECASE)
_AMONG_WORDS = re.compile(  # `fell to 0.4-0.5`, `飙升1.5-2.3`; not `v2`, `3 of 7`
    rf"(?P<before>[^\d.]{{0,24}}?)(?P<body>{_NUMBER}(?:\s*%)?(?:\s*(?:-|to)\s*{_NUMBER}(?:\s*%)?)?)(?P<after>[^\d.]{{0,24}})",
    re.IGNORECASE,
)
_SCALE = re.compile(r"[(\[]\s*[x×*·]?\s*(?:1e([-+]?\d+)|10\s*\^?\{?([-+]\d+)\}?)\s*[)\]]", re.IGNORECASE)
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz_/-")
_OF_PLACES = frozenset({"step", "steps", "epoch", "epochs", "iter", "at", "run", "seed", "batch", "gpu", "gpus", "no"})
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺\u2212\u2013\u2014\u2011\uff5e\u301c", "0123456789-+------")
_BRACKETS = str.maketrans("（）", "()")
_LONGEST = 200  # characters of a cell that says something
_NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "∞": math.inf}

_STEP_WORDS = r"(?:global[ _])?(?:steps?|iter(?:ation)?s?|updates?|it|ckpt|checkpoint|batch(?:es)?|s|@)"
_COUNT = r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)\s*(k?)"
_STEP_LABEL = re.compile(rf"(?:{_STEP_WORDS}[\s_#:=-]*)?{_COUNT}(?:\s*{_STEP_WORDS})?\+?")
_EPOCH_LABEL = re.compile(r"epoch\s*(\d{1,4}(?:\.\d{1,3})?)(?:\s*\((?:start|initial|best|final|last|end)\))?")
_STEP_INSIDE = re.compile(rf"\b(?:steps?|iter(?:ation)?s?|ckpt|checkpoint)[\s_#:=-]*{_COUNT}\b")
_STEPS_COUNTED = re.compile(rf"\b{_COUNT}[\s-]*(?:steps|iter(?:ation)?s|updates)\b")
_STEP_RANGE = re.compile(
    rf"(?:{_STEP_WORDS}[\s_#:=-]*)?{_COUNT}\s*(?:-|to|\.\.+|until|through)\s*"
    rf"(?:{_STEP_WORDS}\s*)?{_COUNT}(?:\s*{_STEP_WORDS})?"
)
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
_MIDDLE = re.compile(r"(?:mid|middle|halfway)\s(.+)", re.IGNORECASE)
_TRAINED_ON = re.compile(
    r"(?:rl|train(?:ing|ed)?|seen)[ _](?:rows|samples|examples|prompts|problems|episodes|tasks)", re.I
)
_END = frozenset({"end", "final", "last"})
_OF_AN_END = frozenset(
    {"ep", "epoch", "step", "checkpoint", "ckpt", "run", "of", "training", "the", "model"}
)  # its other words
_BEFORE = frozenset(
    {"baseline", "base", "base model", "init", "initial", "before", "start", "before training", "sft"}
    | {"训练前", "初始", "初始模型", "基线", "基座", "基座模型", "学習前", "훈련 전", "학습 전"}
)
_STAGES = _BEFORE | {
    "first", "early", "begin", "beginning", "mid", "middle", "halfway", "late", "later", "last", "end", "ending",
    "final", "after", "peak", "now", "early training", "mid training", "late training", "after training", "at start",
    "at end", "early steps", "late steps", "first steps", "last steps",
}  # fmt: skip
_UNTRAINED = frozenset({"base", "baseline", "sft", "untrained", "pretrained", "start"})
_BY_REWARDS = frozenset({"grpo", "rl", "ppo", "dapo", "gspo", "rloo", "rlvr", "rft", "dpo", "reinforce"})
_TOTALS = TOTALS | {"std"}
_FEW_WORDS = 4  # of a stage's label
_STAGE_WORDS = frozenset({
    "start", "starting", "early", "begin", "beginning", "initial", "initially", "first", "before", "mid", "middle",
    "midway", "late", "later", "end", "ending", "final", "last", "latest", "after", "peak", "now", "recent", "current",
    "healthy", "collapse", "collapsed", "collapsing", "crash", "crashed", "pre", "post", "recovery", "plateau",
})  # fmt: skip
_OF_CHANGES = frozenset({  # what follows is another run, not another part of this one
    "fix", "fixed", "fixes", "fixing", "patch", "patched", "pr", "change", "changes", "commit", "update", "upgrade",
    "tuning", "v1", "v2", "sft", "model", "ours", "this",
})  # fmt: skip
_STAGES_ELSEWHERE = (
    "训练前", "训练后",
    "初始", "初期", "开始", "早期", "前期", "中段", "中期", "后期", "后段", "末段", "末期", "最终", "最后", "最近",
    "结束", "崩溃", "峰值", "当前", "正常", "学习", "開始", "序盤", "中盤", "終盤", "最終", "最後", "現在", "崩壊",
    "초반", "초기", "시작", "중반", "중간", "후반", "최근", "최종", "마지막", "붕괴", "현재", "종료",
)  # fmt: skip
_CHANGES = frozenset({
    "change", "delta", "Δ", "δ", "diff", "difference", "trend", "note", "notes", "remark", "remarks", "comment",
    "comments", "verdict", "status", "direction", "ratio", "meaning", "interpretation", "assessment", "reading",
    "observation", "evidence", "what it means", "flag", "improvement", "relative change", "% change", "gain",
})  # fmt: skip
_CHANGES_ELSEWHERE = ("变化", "趋势", "说明", "备注", "状态", "含义", "변화", "추세", "비고", "変化", "傾向", "備考")
_NUMBERING = frozenset({*STEPS, "steps", "iterations", "step range", "range", "window", "ckpt", "checkpoint", "updates",
                        "update", "phase", "stage", "when", "interval", "epoch", "窗口", "步数", "step(s)", "#", "it",
                        "batch", "global step", "training step", "train step", "training steps"})  # fmt: skip
_OF_TRAINING = re.compile(
    r"^\s*(?:grpo|ppo|rl|rlvr|dapo|train(?:er|ing)?|optimi[sz]er|policy|global)\s+(?=\w)", re.I
)  # RL step
_OF_RANGES = re.compile(r"区间|范围|窗口|区間|範囲|구간")  # a range of steps
_OF_RUNS = frozenset({
    "model", "run", "config", "configuration", "method", "setting", "settings", "experiment", "variant", "name",
    "arm", "setup", "algorithm", "approach", "seed", "id", "version", "trial",
    "policy", "agent",
    "방법", "모델", "실험", "方法", "模型", "实验", "设置", "配置", "版本", "手法", "モデル", "設定", "実験",
})  # fmt: skip
_MOST_IN_A_CELL = 8  # values, of a run each
_FEWEST_STEPS = 3  # rows that show a course
_SHARE = re.compile(r"\d\s*\**\s*%")
_NO_SCORES = frozenset({  # words of shares that are no scores, or of which less is better
    "rate", "ratio", "share", "frac", "fraction", "clip", "clipped", "truncated", "trunc", "dead", "zero", "std",
    "gap", "util", "gpu", "mem", "memory", "time", "progress", "lr", "error", "errors", "wrong", "fail", "failed",
    "failure", "drop", "loss", "invalid", "malformed", "timeout", "hack", "hacked", "hacking", "entropy", "kl", "grad",
    "repetition", "overlong", "cap", "change", "gain", "improvement", "vs", "delta", "of", "refusal", "epoch", "done",
    "complete",
})  # fmt: skip
_COMPARED = frozenset({"learning_rate", "beta"})  # metrics that settings are, too
_RUN_NAME = re.compile(
    r"(?i:run|exp|experiment|arm|trial|variant|config|model)(?:[-_]?(?:\d{1,3}|[A-Z])|[-_][a-z]{1,3})"
)
_METRICS = frozenset(
    {"metric", "metrics", "measure", "indicator", "指标"}
)  # above names of metrics: labels are columns
_NO_RUNS = frozenset({  # words of labels of what is no run
    "good", "bad", "threshold", "thresholds", "target", "expected", "healthy", "unhealthy", "normal", "range", "value",
    "values", "default", "defaults", "meaning", "description", "warning", "critical", "ideal", "typical", "limit",
    "formula", "unit", "symptom", "action", "what", "where", "why", "max", "min",
})  # fmt: skip
_SHARES = (
    "groups/dead", "completions/truncated", "completions/valid", "completions/distinct", "policy/clip_share",
)  # fmt: skip


def cell_values(text: str) -> list[float | None]:
    """The numbers along a cell: one, or those between arrows; [None] for what is none."""
    if len(text) > _LONGEST:
        return [None]
    parts = [_plain(part) for part in _ARROW.split(text.strip().translate(_RAISED).translate(_BRACKETS))]
    return [None] if parts[0] in _EMPTY else [_one(part) for part in parts]


def _plain(text: str) -> str:
    """The text without marks and remarks, in small letters."""
    return " ".join(_REMARK.sub(" ", _MARKS.sub("", text)).lower().split())


def _one(word: str) -> float | None:
    """A number as people write it; of a range its middle."""
    if (known := _NO_NUMBERS.get(word)) is not None:
        return known
    if power := _POWER.search(word):
        word = f"{word[: power.start()]}e{power[1]}{word[power.end() :]}"
    if _DECIMAL_COMMA.fullmatch(word):
        word = word.replace(",", ".")
    if match := _ONE.fullmatch(word):
        return _scaled(match["number"], (match["unit"] or "").lower())
    if (match := _FRACTION.fullmatch(word)) and int(match[2]) > 0:
        return int(match[1]) / int(match[2])
    if match := _RANGE.fullmatch(word):
        unit = match[2] or match[4]
        first, last = _scaled(match[1], unit), _scaled(match[3], unit)
        return (first + last) / 2
    return _among_words(word)


def _among_words(word: str) -> float | None:
    """The one number among a cell's words, where they do not say that it is a step's; of a range its middle."""
    match = _AMONG_WORDS.fullmatch(word)
    if match is None or not (match["before"].strip() or match["after"].strip()):
        return None
    before, after = match["before"], match["after"]
    glued = before[-1:] in _LETTERS if before else False
    if glued or (after and after[0] in _LETTERS) or not _OF_PLACES.isdisjoint(re.findall(r"\w+", f"{before} {after}")):
        return None
    return _one(match["body"].strip())


def _scaled(number: str, unit: str) -> float:
    factor = {"%": 0.01, "k": 1e3, "m": 1e6, "b": 1e9}.get(unit, 1.0)
    return float(number.replace(",", "")) * factor


def steps_of_label(text: str) -> tuple[int, int] | None:
    """(first, last) step that a label stands for: `50`, `step 50`, `1-10`, `step 100 to 200`, `baseline` (0)."""
    if len(text) > _LONGEST:
        return None
    plain = _plain(_ARROW.sub(" to ", text.translate(_RAISED)))
    if plain in _BEFORE or plain.split(" ")[0] in ("baseline", "base"):
        return 0, 0
    if match := _STEP_RANGE.fullmatch(plain):
        first, last = _count(match[1], match[2] or match[4]), _count(match[3], match[4])
        return (first, last) if first is not None and last is not None and first <= last else None
    if match := _STEP_LABEL.fullmatch(plain) or _STEP_INSIDE.search(plain):
        step = _count(match[1], match[2])
        return None if step is None else (step, step)
    return None


def _spans(labels: Sequence[str]) -> list[tuple[int, int] | None]:
    """What each label stands for; where none says it, the steps in their remarks (`early (step 5)`), if in order.

    Before checkpoints (`GRPO 100 steps`) a model that was not trained by rewards (`+ SFT`) is the run's start.
    """
    told = [steps_of_label(label) for label in labels]
    if not any(map(_is_later, told)) and _rise(counted := [_steps_at_the_end(label) for label in labels]):
        told = counted
    if any(map(_is_later, told)):
        first = next(at for at, span in enumerate(told) if _is_later(span))
        told = _with_the_end(labels, told)
        return [
            (0, 0) if span is None and at < first and _is_untrained(labels[at]) else span
            for at, span in enumerate(told)
        ]
    if any(told) and not all(span is not None or is_stage(label) for span, label in zip(told, labels, strict=True)):
        return told  # names of runs, whose checkpoints the steps may be
    remarked = [_STEP_INSIDE.search(label.lower()) for label in labels]
    steps = [_count(match[1], match[2]) for match in remarked if match is not None]
    known = [step for step in steps if step is not None]
    if len(known) < len(labels) or any(b <= a for a, b in pairwise(known)):
        return told
    return [(step, step) for step in known]


def _with_the_end(labels: Sequence[str], told: Sequence[tuple[int, int] | None]) -> list[tuple[int, int] | None]:
    """What labels stand for, with a last one that is the run's end (`final`, `ep1-end`) as far behind as two before."""
    steps = [span[1] for span in told if span is not None]
    words = set(re.findall(r"[a-z]+", labels[-1][:_LONGEST].lower()))
    is_end = told[-1] is None and not _END.isdisjoint(words) and words <= _END | _OF_AN_END
    if not is_end or len(steps) < 2 or len(steps) < len(told) - 2 or steps[-1] <= steps[-2]:
        return list(told)
    said = _STEP_INSIDE.search(labels[-1][:_LONGEST].lower())
    behind = (_count(said[1], said[2]) if said is not None else None) or 2 * steps[-1] - steps[-2]
    return [*told[:-1], (behind, behind)]


def _is_later(span: tuple[int, int] | None) -> bool:
    """Whether a label stands for steps behind the start."""
    return span is not None and span != (0, 0)


def _steps_at_the_end(label: str) -> tuple[int, int] | None:
    """The steps after which a checkpoint was taken, as its label says: `+ GRPO 100 steps`."""
    match = _STEPS_COUNTED.search(_plain(label)) if len(label) <= _LONGEST else None
    step = None if match is None else _count(match[1], match[2])
    return None if step is None else (step, step)


def _rise(spans: Sequence[tuple[int, int] | None]) -> bool:
    """Whether two labels or more stand for steps, each for later ones than the label before."""
    known = [span for span in spans if span is not None]
    return len(known) > 1 and all(a < b for a, b in pairwise(known))


def _is_untrained(label: str) -> bool:
    """Whether a label names the model that training by rewards began with: `SFT baseline`, `Qwen3-0.6B-Base`."""
    words = re.findall(r"[^\W\d_]+", _plain(label[:_LONGEST]))
    named = bool(words) and (words[0] in _UNTRAINED or words[-1] == "base")
    return named and _BY_REWARDS.isdisjoint(words)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """A run that a table tells of: the places of its labels, and what steps all labels stand for."""

    spans: Sequence[tuple[int, int] | None]
    places: frozenset[int]
    name: str = ""  # "" where the table is of one run
    began: bool = False  # the model that it began with stands beside it


@dataclass(frozen=True, kw_only=True, slots=True)
class _Runs:
    """The runs of a table. by_name: its labels are names of runs, and no steps."""

    found: Sequence[_Run]
    by_name: bool = False

    @classmethod
    def only(cls, spans: Sequence[tuple[int, int] | None]) -> _Runs:
        """A table of one run."""
        return cls(found=[_Run(spans=spans, places=frozenset(range(len(spans))))])

    def called(self, name: str | None) -> _Run | None:
        """The run of that name, by default the first; what is of one run is of each."""
        return next((one for one in self.found if name in (None, one.name) or not one.name), None)


def _in_full(over: str, labels: Sequence[str]) -> Sequence[str]:
    """The labels with millions as numbers where they count steps: `1.0M`. Models and times have an M, too."""
    if _COUNT_STEPS.fullmatch(_named(over)) is None:
        return labels
    return [
        label if (match := _MILLIONS.fullmatch(_named(label))) is None else f"{float(match[1]) * 1e6:.0f}"
        for label in labels
    ]


def _runs_of(over: str, labels: Sequence[str], *, courses: bool, has_ends: bool = False) -> _Runs:
    """The runs that labels below `over` are of; courses: a cell is a run's whole course, has_ends: a row is."""
    told = _spans(labels)
    if is_an_axis(over) and len(labels) > 1:
        said = [f"{over.strip()} {_plain(label)}" for label in labels]
        return _runs_by_name(said, [frozenset()] * len(labels), has_ends=has_ends)
    if courses or (not has_ends and _are_of_one_run(over, labels, told)):
        return _runs_by_step(labels, told)
    words = [frozenset(re.findall(r"[^\W\d_]+", label[:_LONGEST].lower())) for label in labels]
    above = frozenset(re.findall(r"[^\W\d_]+", _plain(over[:_LONGEST])))
    are_names = not above or not above.isdisjoint(_OF_RUNS | _METRICS | {"stage", "phase"})
    if not are_names or 2 * sum(not said.isdisjoint(_NO_RUNS) for said in words) >= len(words):
        return _Runs(found=())  # of something else: prices, limits, what a value means
    return _runs_by_name(labels, words, has_ends=has_ends)


def _runs_by_step(labels: Sequence[str], told: Sequence[tuple[int, int] | None]) -> _Runs:
    """The runs of checkpoints (`strict, step 1`, `async, step 1`), each with the start that they share.

    Several runs: every checkpoint has a name beside its step, the steps of each name rise, and a name with one
    checkpoint says what it was trained by.
    """
    steps: dict[str, list[tuple[int, int]]] = {}
    names = [_without_step(label) for label in labels]
    for name, span in zip(names, told, strict=True):
        if span is not None and _is_later(span):
            steps.setdefault(name, []).append(span)
    one_each = [name for name, spans in steps.items() if len(spans) == 1]
    are_runs = len(one_each) < len(steps) and not any(_BY_REWARDS.isdisjoint(name.split()) for name in one_each)
    if (
        len(steps) < 2
        or "" in steps
        or not are_runs
        or not all(_rise(steps[run]) for run in steps.keys() - {*one_each})
    ):
        return _Runs.only(told)
    of_all = frozenset(at for at, span in enumerate(told) if not _is_later(span))
    own: dict[str, set[int]] = {run: set() for run in steps}
    for at, (name, span) in enumerate(zip(names, told, strict=True)):
        if _is_later(span):
            own[name].add(at)
    return _Runs(found=[_Run(name=run, spans=told, places=of_all | places) for run, places in own.items()])


def _runs_by_name(labels: Sequence[str], words: Sequence[frozenset[str]], *, has_ends: bool) -> _Runs:
    """The runs of a table with one row of each; has_ends: a row tells its run's start itself.

    Where labels name what trains by rewards (`SFT + GRPO`) these are the runs, and a model before training that stands
    above one is its start.
    """
    named = [not has_ends and not said.isdisjoint(_BY_REWARDS) for said in words]
    before = [any(named) and not by and not said.isdisjoint(_UNTRAINED) for by, said in zip(named, words, strict=True)]
    spans = [(0, 0) if untrained else None for untrained in before]
    called: set[str] = set()
    runs: list[_Run] = []
    start: int | None = None
    for at, label in enumerate(labels):
        start = at if before[at] else start
        is_total = is_change(label) or (bool(words[at]) and words[at] <= _TOTALS)
        if before[at] or is_total or (any(named) and not named[at]):
            continue
        name = " ".join(label.split())[:_LONGEST] or f"row {at + 1}"
        numbered = (f"{name} #{number}" for number in count(2))
        name = next(one for one in chain([name], numbered) if one not in called)
        called.add(name)
        places = frozenset({at} if start is None else {start, at})
        runs.append(_Run(name=name, spans=spans, places=places, began=start is not None))
    return _Runs(found=runs, by_name=True)


def _without_step(label: str) -> str:
    """What is left of a checkpoint's label without its step: the run's name, if it has one."""
    plain = _plain(label[:_LONGEST])
    for step in (_STEP_INSIDE, _STEPS_COUNTED):
        plain = step.sub(" ", plain)
    return "" if _STEP_LABEL.fullmatch(plain.strip()) else " ".join(re.findall(r"[^\W_]+", plain))


def _count(number: str, unit: str) -> int | None:
    value = float(number.replace(",", "")) * (1000 if unit else 1)
    return int(value) if value.is_integer() and 0 <= value < 1e12 else None


def is_stage(text: str) -> bool:
    """Whether a label names a part of the run in its order: start, mid, end."""
    if len(text) > _LONGEST:
        return False
    plain = _plain(text)
    if plain in _STAGES:
        return True
    words = plain.replace("-", " ").split()
    if not plain.isascii():
        return any(stage in plain for stage in _STAGES_ELSEWHERE)
    return 0 < len(words) <= _FEW_WORDS and words[0] in _STAGE_WORDS and _OF_CHANGES.isdisjoint(words)


def is_change(text: str) -> bool:
    """Whether a label is of the difference between the others, or of words about them."""
    plain = _plain(text)
    return plain in _CHANGES or any(word in plain for word in _CHANGES_ELSEWHERE)


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
    runs: _Runs = field(default_factory=lambda: _Runs(found=()))

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
        if (order := _side_by_side(self.rows)) is not None:
            told = [self.rows[line][at : at + order.width] for line, at in order.places]
            rows = [self.rows[0][: order.width], *([*row, *[""] * (order.width - len(row))] for row in told)]
            lines = [self.lines[0], *(self.lines[line] for line, _ in order.places)]
            return replace(self, lines=lines, rows=rows).course(is_known, run)
        if (count := _runs_in_a_cell(self.rows, is_known)) > 1:
            return self._of_cells(count, is_known, run)
        first, *body = _parted(self.rows)
        apart = _without_shared_name(_without_one_step(first), is_known)
        first, body = _end_columns_joined(apart, body, is_known)
        has_ends = first is not apart
        table = self
        if not is_known(_named(first[0])):
            body, gone = _ends_joined(first, body, is_known)
            has_ends = has_ends or bool(gone)
            table = replace(self, lines=[line for place, line in enumerate(self.lines) if place - 1 not in gone])
        header = [_counted(_named(cell), [row[place] for row in body]) for place, cell in enumerate(first)]
        named, header = header, _with_evaluations(header, body, is_known)
        taken = [name for name, now in zip(named, header, strict=True) if name != now]
        across = [place for place, name in enumerate(header) if is_known(name)]
        down = [place for place, row in enumerate(body) if is_known(_named(row[0]))]
        if down and len(down) >= len(across) and not is_known(header[0]):
            return table._transposed(header, body, down, run, has_ends=has_ends)
        if not across or not body:
            return Course(unknown=header)
        return replace(table._upright(header, body, across, run, has_ends=has_ends), taken=taken)

    def _of_cells(self, count: int, is_known: Callable[[str], bool], asked: str | None) -> Course:
        """A table whose cells have a value of each of so many runs: `0.34 / 0.36 / 0.38`."""
        names = [f"{at} of {count} in each cell" for at in range(1, count + 1)]
        place = names.index(asked) if asked in names else 0
        rows = [self.rows[0], *([_part_of_cell(cell, place, count) for cell in row] for row in self.rows[1:])]
        course = replace(self, rows=rows).course(is_known, None)
        runs = [_Run(spans=(), places=frozenset(), name=name) for name in names]
        return replace(course, runs=_Runs(found=runs)) if course.rows else course

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
            named = (at for at, name in enumerate(header) if at not in known and name.strip().lower() in _OF_RUNS)
            column = next(named, 0)
        if column is None and name_of(header[0]) in _COMPARED and _are_settings(row[0] for row in body):
            column = 0
        labels = None if column is None else [row[column] for row in body]
        courses = len(body) == 1 and any(len(cell_values(body[0][place])) > 1 for place in known)
        over = header[column or 0]
        by_epoch = labels is not None and _count_epochs(over, labels)
        if labels is None or by_epoch or _are_epochs(over, labels):
            runs = _Runs.only([None] * len(body))
        else:
            runs = _runs_of(over, _in_full(over, labels), courses=courses, has_ends=has_ends)
        if (run := runs.called(asked)) is None:
            return Course(unknown=header, runs=runs)
        names = [(place, header[place]) for place in known if place != column or runs.by_name]
        scales = {name: _scale_of(name) for _, name in names}
        rows: list[WrittenRow] = []
        numbered = any(map(_is_later, run.spans))
        for at, (line, row, span) in enumerate(zip(self.lines[1:], body, run.spans, strict=True)):
            if at not in run.places or (numbered and span is None):
                continue  # another run, a total
            cells = {name: _times(scales[name], row[place]) for place, name in names}
            part = by_epoch or (column is not None and (is_stage(row[column]) or run.began))
            told = list(_expanded(line, span, cells, part=part))
            rows += _held_out(told) if column is not None and _OF_EVALUATION.search(row[column]) else told
        rows = [*_with_shares(_one_behind_another(rows, run.spans))]
        left = [name for name in unknown if column is None or name != header[column]]
        return Course(rows=_held_out(rows) if run.began else rows, unknown=left, runs=runs)

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
        unknown = [_named(row[0]) for place, row in enumerate(body) if place not in known]
        places = [place for place in range(1, len(header)) if not is_change(header[place])] or [1]
        if len(places) == 1 and len({body[place][0].strip() for place in known}) < len(known):
            return Course(rows=_boxes(self.lines, body, known), unknown=unknown)
        labels = [header[place] for place in places]
        by_epoch = _count_epochs(header[0], labels)
        of_one = len(places) == 1
        runs = (
            _Runs.only([None] * len(places))
            if by_epoch
            else _runs_of(header[0], labels, courses=of_one, has_ends=has_ends and not of_one)
        )
        if (run := runs.called(asked)) is None:
            return Course(unknown=unknown, runs=runs)
        rows: list[WrittenRow] = []
        numbered = any(map(_is_later, run.spans))
        for at, (column, span) in enumerate(zip(places, run.spans, strict=True)):
            if at not in run.places or (numbered and span is None):
                continue
            cells = {_named(body[place][0]): cell_values(body[place][column]) for place in known}
            if any(value is not None for values in cells.values() for value in values):
                part = by_epoch or is_stage(header[column]) or run.began
                rows += _expanded(self.lines[0], span, cells, part=part)
        rows = _with_shares(rows)
        return Course(rows=_held_out(rows) if run.began else rows, unknown=unknown, runs=runs)


def _with_evaluations(
    header: Sequence[str], body: Sequence[Sequence[str]], is_known: Callable[[str], bool]
) -> list[str]:
    """The names, with those of evaluations that only their author knows: columns of percentages over rising steps that
    stand where nothing of training does (all rows of a table without a known column, or its row before the first step).
    """
    names = list(header)
    column = _label_column(header, body) if len(body) >= _FEWEST_STEPS else None
    if column is None or not _rise(_spans([row[column] for row in body])):
        return names
    known = [place for place, name in enumerate(header) if is_known(name) and place != column]
    if any(len(cell) > _LONGEST for row in body for cell in row):
        return names
    alone = [row for row in body if all(_is_empty(row[place]) for place in known)]
    for place, name in enumerate(header):
        cells = [row[place] for row in body if not _is_empty(row[place])]
        are_shares = len(cells) >= _FEWEST_STEPS and all(
            _SHARE.search(cell) and _one(_plain(cell)) is not None for cell in cells
        )
        words = frozenset(re.findall(r"[a-z]+|%", name.lower()))
        if place in (column, *known) or not are_shares or not words.isdisjoint(_NO_SCORES) or is_change(name):
            continue
        if any(not _is_empty(row[place]) for row in alone):
            names[place] = f"eval/slices/{'_'.join(words_of(name)) or place}"
    return names


def _are_settings(labels: Iterable[str]) -> bool:
    """Whether labels are different values, two or more: what runs were started with."""
    values = [_one(_plain(label)) for label in labels]
    return len(values) > 1 and None not in values and len({*values}) == len(values)


def _label_column(header: Sequence[str], body: Sequence[Sequence[str]]) -> int | None:
    """The column that numbers the rows: of several (phase, epoch) the first whose labels are steps or stages."""
    places = [place for place, name in enumerate(header) if _numbers(name)]
    for place in places:
        labels = [row[place] for row in body]
        if any(_spans(labels)) or _are_epochs(header[place], labels) or all(map(is_stage, labels)):
            return place
    of_checkpoints = any(header[place].strip().lower() in ("checkpoint", "ckpt") for place in places)
    counting = _counting_column(header, body) if of_checkpoints else None
    return counting if counting is not None else places[0] if places else None


def _counting_column(header: Sequence[str], body: Sequence[Sequence[str]]) -> int | None:
    """The column that counts what was trained on so far (`RL rows`: 0, 128, 512), if any does."""
    for place, name in enumerate(header):
        if _TRAINED_ON.fullmatch(name.strip()) is not None and len(body) > 2:
            counts = [_one(_plain(row[place])) for row in body]
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
    names = [_named(cell).lower() for cell in rows[0]]
    width = next((at for at in range(1, len(names)) if names[at] == names[0]), 0)
    begins = range(0, len(names), max(1, width))
    if width < 2 or not _numbers(names[0]) or any(names[at : at + width] != names[:width] for at in begins[:-1]):
        return None
    last = names[begins[-1] :]  # without the empty column that stands between the others
    if last != names[: len(last)] or any(names[len(last) : width]):
        return None
    by_line = [(line, at) for line in range(1, len(rows)) for at in begins if not _is_empty(rows[line][at])]
    for places in (sorted(by_line, key=lambda place: (place[1], place[0])), by_line):
        spans = [steps_of_label(rows[line][at]) for line, at in places]
        if len(spans) > 1 and None not in spans and _rise(spans):
            return _Order(width, places)
    return None


def _without_one_step(names: Sequence[str]) -> list[str]:
    """The names without the step that all of them say which say any: `format at step 300`."""
    said = {match[1] for name in names if (match := _AT_ONE_STEP.search(name[:_LONGEST])) is not None}
    return [_AT_ONE_STEP.sub("", name) if len(said) == 1 else name for name in names]


def _without_shared_name(names: list[str], is_known: Callable[[str], bool]) -> list[str]:
    """The names without the run's, where all but the first begin with it: `runA reward`, `runA KL`."""
    first, *whole = map(_named, names)
    word = whole[0].partition(" ")[0] if len(whole) > 1 else ""
    if _RUN_NAME.fullmatch(word) is None and word.lower() not in _BY_REWARDS:
        return names
    own = [name.removeprefix(f"{word} ") for name in whole if name.startswith(f"{word} ")]
    return [first, *own] if len(own) == len(whole) and any(map(is_known, own)) else names


class _Ends(NamedTuple):
    """Metrics with a label for their start and one for their end: the place of the start -> the metric, the place of
    the end. `gone`: the places of the ends, and of what else is told of these metrics (`mean reward`).
    """

    pairs: dict[int, tuple[str, int]]
    gone: set[int]

    def told(self, at: int, cells: Sequence[str]) -> str:
        """The start's cell with the end's behind an arrow; what is told once is the end's, with an unknown start."""
        if at not in self.pairs:
            return cells[at] if _ARROW.search(cells[at]) else f"unknown -> {cells[at]}"
        start = "unknown" if _is_empty(cells[at]) else cells[at]
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
    base = {place: _named(label) for place, label in enumerate(labels)}
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
        and any(not _is_empty(row[places[False]]) and not _is_empty(row[places[True]]) for row in rows)
    }
    if all(name_of(name) == "learning_rate" for name, _ in pairs.values()):
        return _Ends({}, set())  # a setting
    metrics = {name_of(name) for name, _ in pairs.values()} - {None}
    others = {place for place, name in base.items() if name_of(name) in metrics}
    return _Ends(pairs, (others | {last for _, last in pairs.values()}) - pairs.keys())


def _is_empty(cell: str) -> bool:
    return _plain(cell) in _EMPTY


def _end_columns_joined(
    names: list[str], body: list[list[str]], is_known: Callable[[str], bool]
) -> tuple[list[str], list[list[str]]]:
    """The names and rows with a metric's start and end (`initial reward`, `final reward`) as one column, with an arrow
    between. What other columns of metrics say is the end's. Not where rows are steps.
    """
    ends = _Ends({}, set()) if any(map(_numbers, names)) else _ends_in(names, body, is_known, ("baseline",))
    if not ends.pairs:
        return names, body
    kept = [place for place in range(len(names)) if place not in ends.gone]
    known = {place for place in kept if place in ends.pairs or is_known(_named(names[place]))}
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
    of_one_run = len(columns) > 1 and _are_of_one_run(header[0], header[1:], _spans(header[1:]))
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
            if all("/" in cell or _is_empty(cell) for cell in cells)
            else whole
        )
    if len(names) == 1 or len(name) > _LONGEST or any(len(cell) > _LONGEST for cell in cells):
        return whole
    parts = [cell.split(" / ") for cell in cells]
    told = [part for part in parts if not _is_empty(part[0])]
    apart = told and all(len(part) == len(names) and None not in map(_one, map(_plain, part)) for part in told)
    if not apart or (len(names) == 2 and _are_counts(told)):
        return whole
    shared = names[0].rpartition(" ")[0]
    named = [names[0], *(f"{shared} {other}".strip() for other in names[1:])]
    return [named, *(part if part in told else [part[0]] * len(names) for part in parts)]


def _runs_in_a_cell(rows: Sequence[Sequence[str]], is_known: Callable[[str], bool]) -> int:
    """How many runs each cell of a table of steps has a value of, as many for two metrics or more; else 1."""
    header, *body = rows
    if any(len(cell) > _LONGEST for row in rows for cell in row):
        return 1
    known = [at for at, name in enumerate(header) if is_known(_named(name)) and "/" not in _named(name)]
    parts = [[row[at].split(" / ") for row in body if not _is_empty(row[at])] for at in known]
    sizes = {len(cell) for column in parts for cell in column}
    if len(known) < 2 or len(body) < 2 or len(sizes) != 1 or not any(_numbers(name) for name in map(_named, header)):
        return 1
    values = [[_one(_plain(part)) for part in cell] for column in parts for cell in column]
    count = sizes.pop()
    of_totals = count == 2 and any(map(_are_counts, parts))
    return 1 if of_totals or count > _MOST_IN_A_CELL or any(None in cell for cell in values) else count


def _part_of_cell(cell: str, place: int, count: int) -> str:
    parts = cell.split(" / ")
    return parts[place] if len(parts) == count else cell


def _are_counts(parts: Sequence[Sequence[str]]) -> bool:
    """Whether all are a count and its total: whole numbers, the second no less."""
    pairs = [(_one(_plain(part[0])), _one(_plain(part[-1]))) for part in parts]
    return all(
        count is not None and total is not None and count.is_integer() and total.is_integer() and count <= total
        for count, total in pairs
    )


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
        name, value = _named(body[place][0]), cell_values(body[place][1])[-1]
        if name in cells:
            rows.append(WrittenRow(line=lines[place], step=None, cells=cells))
            cells = {}
        cells[name] = value
    rows.append(WrittenRow(line=lines[-1], step=None, cells=cells))
    return _with_shares([row for row in rows if row.cells])


def _held_out(rows: Sequence[WrittenRow]) -> list[WrittenRow]:
    """What models earn before training and after it was measured on the same prompts: an evaluation."""

    def called(name: str) -> str:
        is_trained = name_of(name) is None or "train" in name.lower()
        return name if is_trained or name_of(f"eval {name}") is None else f"eval {name}"

    return [replace(row, cells={called(name): value for name, value in row.cells.items()}) for row in rows]


def _named(cell: str) -> str:
    """The cell as a name: without marks, and without spaces around a path's bars; a tag as code is its name."""
    cell = re.sub(r"`<([^<>`/]{1,40})>`", r"\1", cell)
    return re.sub(r"\s*/\s*", "/", re.sub(r"\*+|`+|<[^<>]{1,40}>", "", cell.strip()[:_LONGEST])).strip().strip("_")


def _counted(name: str, cells: Sequence[str]) -> str:
    """The name without the total that every cell has, too: `valid/16` over `14/16`."""
    match = _OF_TOTAL.search(name)
    if match is None or any(len(cell) > _LONGEST for cell in cells):
        return name
    told = [cell for cell in map(_plain, cells) if cell not in _EMPTY]
    parts = [_FRACTION.fullmatch(cell) for cell in told]
    return name[: match.start()] if told and all(part and part[2] == match[1] for part in parts) else name


def _scale_of(name: str) -> float:
    """What the values of a column are to be multiplied with: `LR (x1e-6)`."""
    match = _SCALE.search(name.translate(_RAISED))
    return 1.0 if match is None else float(f"1e{match[1] or match[2]}")


def _times(scale: float, text: str) -> list[float | None]:
    return [value if value is None else value * scale for value in cell_values(text)]


def _numbers(name: str) -> bool:
    words = (name, _OF_RANGES.sub("", name), _OF_TRAINING.sub("", name))
    plain = [word.strip().lower().replace("_", " ") for word in words]
    return any(
        word in _NUMBERING or word.replace(" ", "_") in _NUMBERING or name_of(written.strip()) == "step"
        for written, word in zip(words, plain, strict=True)
    )


def _are_epochs(over: str, labels: Sequence[str]) -> bool:
    """Whether labels are parts of epochs, in order: 0.00, 0.10, 0.35."""
    if over.strip().lower() not in ("epoch", "epochs"):
        return False
    values = [_one(_plain(label.translate(_RAISED))) for label in labels]
    known = [value for value in values if value is not None]
    whole = all(value.is_integer() for value in known)
    return len(known) == len(values) > 1 and not whole and all(b > a for a, b in pairwise(known))


def _count_epochs(over: str, labels: Sequence[str]) -> bool:
    """Whether each label of metrics says an epoch behind the one before: `Epoch 0`, `Epoch 1.5`, `Epoch 3 (final)`.

    The first may be the start: `Before | Epoch 1 | Epoch 2`.
    """
    if over.strip().lower() not in ("", *_METRICS, *_NUMBERING):
        return False
    if len(labels) > 1 and _plain(labels[0]) in _BEFORE:
        labels = ["epoch 0", *labels[1:]]
    matches = [_EPOCH_LABEL.fullmatch(" ".join(_MARKS.sub("", label).lower().split())) for label in labels]
    epochs = [float(match[1]) for match in matches if match is not None]
    return len(epochs) == len(labels) > 1 and all(a < b for a, b in pairwise(epochs))


def _are_of_one_run(over: str, labels: Sequence[str], told: Sequence[tuple[int, int] | None]) -> bool:
    """Whether labels are steps or stages of a run, and not names of runs."""
    if over.strip().lower() in _OF_RUNS:
        return any(_STEP_INSIDE.search(label) for label in labels)
    numbered = sum(span is not None for span in told)
    return 2 * max(numbered, sum(is_stage(label) for label in labels)) > len(labels)


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
    """The rows; a share whose values are up to 100 was written in percent, as its header may say, too."""
    percent: set[str] = set()
    for name in {name for row in rows for name in row.cells}:
        values = [value for row in rows if (value := row.cells.get(name)) is not None and math.isfinite(value)]
        is_share = name_of(name) in _SHARES or "%" in name
        if values and is_share and 1 < max(values) <= 100 and min(values) >= 0:
            percent.add(name)
    return [
        replace(row, cells={n: v / 100 if n in percent and v is not None else v for n, v in row.cells.items()})
        for row in rows
    ]
