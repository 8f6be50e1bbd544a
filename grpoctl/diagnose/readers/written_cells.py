"""What a cell and a label of a table say that people write: numbers, steps, stages of the run, names.

A cell may be bold, rounded (`~0.5`), a percentage, `12,345`, `1.2k`, `0.1 -> 0.4` (the first and the last value of what
the row stands for), `0.3±0.1` or `3/20`. A label may be a step (`step 50`), several (`1-10`), or a stage of the run
(`start`, `end`). What is not here: which labels are runs (written_runs), and the table (written_tables).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from grpoctl.diagnose.readers.metric_names import STEPS, name_of

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
_SAID_TWICE = re.compile(r"([^=]{1,40}?)\s*=\s*([^=]{1,40})")  # 37.5% = 150/400
_ALIKE = 0.02  # of two ways to say one number
_OF_TOTAL = re.compile(r"/(\d+)\Z")  # valid/16
_DECIMAL_COMMA = re.compile(r"[-+]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))\s*%?")
ARROW = re.compile(r"\s*(?:->|=>|→|⇒|➜|➔|⟶)\s*")
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
LONGEST = 200  # characters of a cell that says something
_LONGEST_TEXT = 1000  # characters of what is looked at without its marks
_NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "∞": math.inf}
_STEP_WORDS = r"(?:global[ _]?)?(?:steps?|iter(?:ation)?s?|updates?|it|ckpt|checkpoint|batch(?:es)?|s|@)"
_COUNT = r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)\s*(k?)"
_STEP_LABEL = re.compile(rf"(?:{_STEP_WORDS}[\s_#:=-]*)?{_COUNT}(?:\s*{_STEP_WORDS})?\+?")
_EPOCH_LABEL = re.compile(r"epoch\s*(\d{1,4}(?:\.\d{1,3})?)(?:\s*\((?:start|initial|best|final|last|end)\))?")
STEP_INSIDE = re.compile(rf"(?:\b|(?<=\bglobal))(?:steps?|iter(?:ation)?s?|ckpt|checkpoint)[\s_#:=-]*{_COUNT}\b")
_STEPS_COUNTED = re.compile(rf"\b{_COUNT}[\s-]*(?:steps|iter(?:ation)?s|updates)\b")
_STEP_RANGE = re.compile(
    rf"(?:{_STEP_WORDS}[\s_#:=-]*)?{_COUNT}\s*(?:-|to|\.\.+|until|through)\s*"
    rf"(?:{_STEP_WORDS}\s*)?{_COUNT}(?:\s*{_STEP_WORDS})?"
)
_END = frozenset({"end", "final", "last"})
_OF_AN_END = frozenset(
    {"ep", "epoch", "step", "checkpoint", "ckpt", "run", "of", "training", "the", "model"}
)  # its other words
_BEFORE = frozenset(
    {"baseline", "base", "base model", "init", "initial", "before", "start", "before training", "sft", "untrained"}
    | {"训练前", "初始", "初始模型", "基线", "基座", "基座模型", "学習前", "훈련 전", "학습 전"}
)
MODELS = frozenset({  # of models before and after training
    "trained", "untrained", "fine-tuned", "finetuned", "before training", "after training", "before rl", "after rl",
    "before grpo", "after grpo", "训练前", "训练后", "微调前", "微调后", "学習前", "学習後", "학습 전", "학습 후",
    "훈련 전", "훈련 후",
})  # fmt: skip
_STAGES = _BEFORE | MODELS | {
    "first", "early", "begin", "beginning", "mid", "middle", "halfway", "late", "later", "last", "end", "ending",
    "final", "after", "peak", "now", "early training", "mid training", "late training", "after training", "at start",
    "at end", "post-training", "early steps", "late steps", "first steps", "last steps",
}  # fmt: skip
UNTRAINED = frozenset({"base", "baseline", "sft", "untrained", "pretrained", "start"})
BY_REWARDS = frozenset({"grpo", "rl", "ppo", "dapo", "gspo", "rloo", "rlvr", "rft", "dpo", "reinforce"})
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
_SIGNED = re.compile(r"[-+]\s?\d[\d.,]*\s*(?:%|pp|pts?|points?|x|×)", re.IGNORECASE)
_CHANGES_ELSEWHERE = (
    "相较", "相比", "变化", "趋势", "说明", "备注", "状态", "含义", "변화", "추세", "비고", "変化", "傾向", "備考",
)  # fmt: skip
_NUMBERING = frozenset({*STEPS, "steps", "iterations", "step range", "range", "window", "ckpt", "checkpoint", "updates",
                        "update", "phase", "stage", "when", "interval", "epoch", "窗口", "步数", "step(s)", "#", "it",
                        "batch", "global step", "training step", "train step", "training steps"})  # fmt: skip
STEPS_SAID = frozenset({"step", "steps", "iteration", "iterations", "update", "updates"})
_BEHIND_NAME = re.compile(r"[(\[（]\s?(\w{4,12})\s?[)\]）]\s*\Z")
_OF_TRAINING = re.compile(
    r"^\s*(?:grpo|ppo|rl|rlvr|dapo|train(?:er|ing)?|optimi[sz]er|policy|global)\s+(?=\w)", re.I
)  # RL step
_OF_RANGES = re.compile(r"区间|范围|窗口|区間|範囲|구간")  # a range of steps
METRICS = frozenset({"metric", "metrics", "measure", "indicator", "指标"})  # above names of metrics: labels are columns


def cell_values(text: str) -> list[float | None]:
    """The numbers along a cell: one, or those between arrows; [None] for what is none."""
    if len(text) > LONGEST:
        return [None]
    parts = [plain_text(part) for part in ARROW.split(text.strip().translate(_RAISED).translate(_BRACKETS))]
    parts = parts[1:] if len(parts) > 1 and not parts[0] else parts  # `→ 0.84`: where it ended
    return [None] if parts[0] in _EMPTY else [number_in(part) for part in parts]


def plain_text(text: str) -> str:
    """The text without marks and remarks, in small letters; of an endless one its beginning."""
    return " ".join(_REMARK.sub(" ", _MARKS.sub("", text[:_LONGEST_TEXT])).lower().split())


def number_in(word: str) -> float | None:
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
    if match := _SAID_TWICE.fullmatch(word):
        one, other = number_in(match[1]), number_in(match[2])
        return one if one is not None and other is not None and math.isclose(one, other, rel_tol=_ALIKE) else None
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
    return number_in(match["body"].strip())


def _scaled(number: str, unit: str) -> float:
    factor = {"%": 0.01, "k": 1e3, "m": 1e6, "b": 1e9}.get(unit, 1.0)
    return float(number.replace(",", "")) * factor


def steps_of_label(text: str) -> tuple[int, int] | None:
    """(first, last) step that a label stands for: `50`, `step 50`, `1-10`, `step 100 to 200`, `baseline` (0)."""
    if len(text) > LONGEST:
        return None
    plain = plain_text(ARROW.sub(" to ", text.translate(_RAISED)))
    if plain in _BEFORE or re.split("[ （]", plain)[0] in ("baseline", "base"):
        return 0, 0
    if match := _STEP_RANGE.fullmatch(plain):
        first, last = _count(match[1], match[2] or match[4]), _count(match[3], match[4])
        return (first, last) if first is not None and last is not None and first <= last else None
    if match := _STEP_LABEL.fullmatch(plain) or STEP_INSIDE.search(plain):
        step = _count(match[1], match[2])
        return None if step is None else (step, step)
    return None


def spans_of(labels: Sequence[str]) -> list[tuple[int, int] | None]:
    """What each label stands for; where none says it, the steps in their remarks (`early (step 5)`), if in order.

    Before checkpoints (`GRPO 100 steps`) a model that was not trained by rewards (`+ SFT`) is the run's start.
    """
    told = [steps_of_label(label) for label in labels]
    if not any(map(is_later, told)) and are_rising(counted := [_steps_at_the_end(label) for label in labels]):
        told = counted
    if any(map(is_later, told)):
        first = next(at for at, span in enumerate(told) if is_later(span))
        told = _with_the_end(labels, told)
        above = [_is_untrained(label) for label in labels[:first]]
        began = [*above, *[False] * (len(told) - first)]
        return [(0, 0) if span is None and is_start else span for span, is_start in zip(told, began, strict=True)]
    if any(told) and not all(span is not None or is_stage(label) for span, label in zip(told, labels, strict=True)):
        return told  # names of runs, whose checkpoints the steps may be
    begun = labels[:1] if len(labels) > 2 and _is_untrained(labels[0]) else []
    remarked = [STEP_INSIDE.search(label.lower()) for label in labels[len(begun) :]]
    steps = [_count(match[1], match[2]) for match in remarked if match is not None]
    known = [0 for _ in begun] + [step for step in steps if step is not None]
    if len(known) < len(labels) or any(b <= a for a, b in pairwise(known)):
        return told
    return [(step, step) for step in known]


def _with_the_end(labels: Sequence[str], told: Sequence[tuple[int, int] | None]) -> list[tuple[int, int] | None]:
    """What labels stand for, with a last one that is the run's end (`final`, `ep1-end`) as far behind as two before."""
    steps = [span[1] for span in told if span is not None]
    words = set(re.findall(r"[a-z]+", labels[-1][:LONGEST].lower()))
    is_end = told[-1] is None and not _END.isdisjoint(words) and words <= _END | _OF_AN_END
    if not is_end or len(steps) < 2 or len(steps) < len(told) - 2 or steps[-1] <= steps[-2]:
        return list(told)
    said = STEP_INSIDE.search(labels[-1][:LONGEST].lower())
    behind = (_count(said[1], said[2]) if said is not None else None) or 2 * steps[-1] - steps[-2]
    return [*told[:-1], (behind, behind)]


def is_later(span: tuple[int, int] | None) -> bool:
    """Whether a label stands for steps behind the start."""
    return span is not None and span != (0, 0)


def _steps_at_the_end(label: str) -> tuple[int, int] | None:
    """The steps after which a checkpoint was taken, as its label says: `+ GRPO 100 steps`."""
    match = _STEPS_COUNTED.search(plain_text(label)) if len(label) <= LONGEST else None
    step = None if match is None else _count(match[1], match[2])
    return None if step is None else (step, step)


def are_rising(spans: Sequence[tuple[int, int] | None]) -> bool:
    """Whether two labels or more stand for steps, each for later ones than the label before."""
    known = [span for span in spans if span is not None]
    return len(known) > 1 and all(a < b for a, b in pairwise(known))


def _is_untrained(label: str) -> bool:
    """Whether a label names the model that training by rewards began with: `SFT baseline`, `Qwen3-0.6B-Base`."""
    words = re.findall(r"[^\W\d_]+", plain_text(label[:LONGEST]))
    named = bool(words) and (words[0] in UNTRAINED or words[-1] == "base")
    return named and BY_REWARDS.isdisjoint(words)


def in_full(over: str, labels: Sequence[str]) -> Sequence[str]:
    """The labels with millions as numbers where they count steps: `1.0M`. Models and times have an M, too."""
    if _COUNT_STEPS.fullmatch(name_in(over)) is None:
        return labels
    return [
        label if (match := _MILLIONS.fullmatch(name_in(label))) is None else f"{float(match[1]) * 1e6:.0f}"
        for label in labels
    ]


def without_step(label: str) -> str:
    """What is left of a checkpoint's label without its step: the run's name, if it has one."""
    plain = plain_text(label[:LONGEST])
    for step in (STEP_INSIDE, _STEPS_COUNTED):
        plain = step.sub(" ", plain)
    return "" if _STEP_LABEL.fullmatch(plain.strip()) else " ".join(re.findall(r"[^\W_]+", plain))


def _count(number: str, unit: str) -> int | None:
    value = float(number.replace(",", "")) * (1000 if unit else 1)
    return int(value) if value.is_integer() and 0 <= value < 1e12 else None


def is_stage(text: str) -> bool:
    """Whether a label names a part of the run in its order: start, mid, end."""
    if len(text) > LONGEST:
        return False
    plain = plain_text(text)
    if plain in _STAGES:
        return True
    words = plain.replace("-", " ").split()
    if not plain.isascii():
        return any(stage in plain for stage in _STAGES_ELSEWHERE)
    return 0 < len(words) <= _FEW_WORDS and words[0] in _STAGE_WORDS and _OF_CHANGES.isdisjoint(words)


def is_change(text: str) -> bool:
    """Whether a label is of the difference between the others, or of words about them."""
    plain = plain_text(text[:LONGEST])
    return plain in _CHANGES or any(word in plain for word in _CHANGES_ELSEWHERE)


def are_changes(cells: Sequence[str]) -> bool:
    """Whether all cells are signed shares or points, one with a plus at least: `+42%`, `-3 pp`."""
    told = [plain_text(cell[:LONGEST].translate(_RAISED)) for cell in cells if not is_empty(cell)]
    return any(cell.startswith("+") for cell in told) and all(map(_SIGNED.fullmatch, told))


def is_empty(cell: str) -> bool:
    return plain_text(cell) in _EMPTY


def are_counts(parts: Sequence[Sequence[str]]) -> bool:
    """Whether all are a count and its total: whole numbers, the second no less."""
    pairs = [(number_in(plain_text(part[0])), number_in(plain_text(part[-1]))) for part in parts]
    return all(
        count is not None and total is not None and count.is_integer() and total.is_integer() and count <= total
        for count, total in pairs
    )


def name_in(cell: str) -> str:
    """The cell as a name: without marks, and without spaces around a path's bars; a tag as code is its name."""
    cell = re.sub(r"`<([^<>`/]{1,40})>`", r"\1", cell)
    return re.sub(r"\s*/\s*", "/", re.sub(r"\*+|`+|<[^<>]{1,40}>", "", cell.strip()[:LONGEST])).strip().strip("_")


def without_total(name: str, cells: Sequence[str]) -> str:
    """The name without the total that every cell has, too: `valid/16` over `14/16`."""
    match = _OF_TOTAL.search(name)
    if match is None or any(len(cell) > LONGEST for cell in cells):
        return name
    told = [cell for cell in map(plain_text, cells) if cell not in _EMPTY]
    parts = [_FRACTION.fullmatch(cell) for cell in told]
    return name[: match.start()] if told and all(part and part[2] == match[1] for part in parts) else name


def scale_of(name: str) -> float:
    """What the values of a column are to be multiplied with: `LR (x1e-6)`."""
    match = _SCALE.search(name.translate(_RAISED))
    return 1.0 if match is None else float(f"1e{match[1] or match[2]}")


def scaled_values(scale: float, text: str) -> list[float | None]:
    return [value if value is None else value * scale for value in cell_values(text)]


def steps_in_remark(name: str) -> list[str]:
    """`step` of `Window (step)`: what the remark behind a name says that is counted; [] of another remark."""
    match = _BEHIND_NAME.search(name[:LONGEST])
    return [match[1]] if match is not None and match[1].lower() in STEPS_SAID else []


def numbers_rows(name: str) -> bool:
    words = (name, _OF_RANGES.sub("", name), _OF_TRAINING.sub("", name), *steps_in_remark(name))
    plain = [word.strip().lower().replace("_", " ") for word in words]
    return any(
        word in _NUMBERING or word.replace(" ", "_") in _NUMBERING or name_of(written.strip()) == "step"
        for written, word in zip(words, plain, strict=True)
    )


def are_epochs(over: str, labels: Sequence[str]) -> bool:
    """Whether labels are parts of epochs, in order: 0.00, 0.10, 0.35."""
    if over.strip().lower() not in ("epoch", "epochs"):
        return False
    values = [number_in(plain_text(label.translate(_RAISED))) for label in labels]
    known = [value for value in values if value is not None]
    whole = all(value.is_integer() for value in known)
    return len(known) == len(values) > 1 and not whole and all(b > a for a, b in pairwise(known))


def count_epochs(over: str, labels: Sequence[str]) -> bool:
    """Whether each label of metrics says an epoch behind the one before: `Epoch 0`, `Epoch 1.5`, `Epoch 3 (final)`.

    The first may be the start: `Before | Epoch 1 | Epoch 2`.
    """
    if over.strip().lower() not in ("", *METRICS, *_NUMBERING):
        return False
    if len(labels) > 1 and plain_text(labels[0]) in _BEFORE:
        labels = ["epoch 0", *labels[1:]]
    matches = [_EPOCH_LABEL.fullmatch(" ".join(_MARKS.sub("", label).lower().split())) for label in labels]
    epochs = [float(match[1]) for match in matches if match is not None]
    return len(epochs) == len(labels) > 1 and all(a < b for a, b in pairwise(epochs))
