"""What a trainer logged, entry by entry -> a case. For every reader of logs of Hugging Face, verl, and others.

What is here: entries of one step made one row, with what only its completions can tell, what they say of the settings,
and what was left out. What is not: names (metric_names) and files.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from statistics import fmean, pstdev
from typing import Any, NamedTuple, Protocol

from core.health.case import Case, Notice, Sample, Settings
from core.health.finding import StepTable
from grpoctl.diagnose.readers.base import impossible, without_absent
from grpoctl.diagnose.readers.metric_names import HELD_OUT, STEPS, is_older, left_out, name_of, translated
from grpoctl.diagnose.readers.metric_words import may_be_no_reward
from grpoctl.diagnose.readers.trl_settings import ARGUMENTS_OF_GRPO, settings_of_arguments, settings_of_rows

_DEPTH = 4  # of objects inside each other
_ROUNDING = 1e-6  # float32 has 6e-8
_DEAD = 1e-3  # an advantage of at most this is float32's rounding over eps = 1e-4
_WORDS = 3  # of what a row is of: more are a message
_GROUP = 16  # completions of a prompt, where a log does not say: more may be several groups
_NAMED = 6  # of the columns that were left out
_OF_TRAINING = frozenset({"loss", "policy/loss", "grad_norm", "learning_rate", "reward/mean"})
_COUNTED = frozenset({"completions", "tokens"})  # from the run's start: 0 before training
_WITH_EVALUATION = ("eval/", "rollout/noise", "rollout/rescoring_gap")  # what an evaluation before training measures
_SUMMARY = frozenset({"train_runtime"})  # the last entry of a run: its totals
_TOTALS = _SUMMARY | {"train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"}
_KINDS = ("event", "split", "phase", "mode", "subset", "stage", "type", "kind")  # keys of what a row is of
_OF_NO_SPLIT = frozenset({*STEPS, "epoch"})  # numbers of a row, whatever it is of

_SOLVED = ("groups/solved_none", "groups/solved_all", "groups/solved_some")
_OF_REWARDS = frozenset({"reward/mean", "eval/reward", "reward/std", "reward/group_std"})
NO_REWARDS = (
    "no rewards in the log: no GRPO run, or one whose rewards were not logged; only the rules on loss, gradients and "
    "evaluation can speak"
)


class Entry(NamedTuple):
    """One dictionary that the trainer logged, its values as numbers (None where they are none)."""

    step: int
    cells: Mapping[str, float | None]


class _HasCells(Protocol):
    @property
    def cells(self) -> Mapping[str, float | None]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known besides the entries: the trainer's arguments as plain values, our settings, and samples."""

    arguments: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    samples: tuple[Sample, ...] = ()
    notices: tuple[Notice, ...] = ()


def number(value: object) -> float | None:
    """The number of a logged value, which transformers 5 writes as text; NaN and infinities as they are; None else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def flat_numbers(document: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """(name, number) of every number in nested objects, whose names are joined by a slash.

    null and None say that nothing was measured; text and lists are no metrics, but for a list of `rewards`. What says
    that it is of an evaluation (`"event": "eval"`) has that before its names, and counts beside a total are shares.
    """
    numbers = _numbers_in(document)
    if not is_held_out(document):
        return numbers
    return ((evaluated(name), value) for name, value in numbers)


def _numbers_in(document: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    total = document.get("total") if depth else None
    if type(total) is int and total > 1:
        document = {name: _share(f"{before}{name}", value, total) for name, value in document.items()}
    for name, value in document.items():
        if isinstance(value, dict) and depth < _DEPTH:
            yield from _numbers_in(value, f"{before}{name}/", depth + 1)
        elif name in LISTED and isinstance(value, list):
            yield from ((f"{before}{part}", one) for part, one in LISTED[name](value).items())
        elif (known := number(value)) is not None:
            yield f"{before}{name}", known


def is_held_out(row: Mapping[str, Any]) -> bool:
    """Whether a row says of itself that it is of an evaluation: `"event": "eval"`, `"split": "val"`."""
    return any(isinstance(said := row.get(kind), str) and _says_held_out(said) for kind in _KINDS)


@lru_cache(maxsize=10_000)
def _says_held_out(text: str) -> bool:
    words = set(re.findall(r"[a-z]+", text.lower()))
    return len(words) <= _WORDS and not words.isdisjoint(HELD_OUT) and words.isdisjoint(("train", "training"))


@lru_cache(maxsize=10_000)
def evaluated(name: str) -> str:
    """A number of an evaluation's row with `eval/` before it, but where it says so itself or numbers the row."""
    as_it_is = name in _OF_NO_SPLIT or (name_of(name) or "").startswith("eval/")
    return name if as_it_is else f"eval/{name}"


def _share(name: str, value: object, total: int) -> object:
    """The value of that name beside a total: a count of it where the metric is a share."""
    metric = name_of(name) if type(value) is int and 0 <= value <= total else None
    return value / total if metric is not None and impossible(metric, math.inf) is not None else value  # type: ignore


def of_rewards(listed: Sequence[object]) -> dict[str, float]:
    """What a step's list of rewards tells, one number a completion; {} for a list of anything else.

    So few as a group has are taken for one group: it is dead where they are equal.
    """
    rewards = [known for one in listed if (known := number(one)) is not None and math.isfinite(known)]
    if len(rewards) < 2 or len(rewards) < len(listed):
        return {}
    least, most = min(rewards), max(rewards)
    cells = {"reward/mean": fmean(rewards), "reward/std": pstdev(rewards), "reward/min": least, "reward/max": most}
    if len(rewards) <= _GROUP:
        cells["groups/dead"] = float(least == most)
    return cells


def of_advantages(listed: Sequence[object]) -> dict[str, float]:
    """What a step's list of advantages tells; {} for a list of anything else. Of so few as a group has: whether it is
    dead. Those of a group add up to 0, so one number that is not 0 is that of a completion's tokens.
    """
    advantages = [known for one in listed if (known := number(one)) is not None and math.isfinite(known)]
    if not 1 < len(advantages) <= _GROUP or len(advantages) < len(listed):
        return {}
    least, most = min(advantages), max(advantages)
    if least == most != 0:
        return {}
    return {"advantage/min": least, "advantage/max": most, "groups/dead": float(least == most)}


LISTED = {"rewards": of_rewards, "advantages": of_advantages}  # what a step lists, one number a completion


def is_entry(cells: Iterable[str]) -> bool:
    """Whether a dictionary with these keys is one that a trainer logs: it has at least one metric that we know."""
    return any(name not in ("step", "update") and name_of(name) is not None for name in cells)


def marks_updates(values: Iterable[float | None]) -> bool:
    """Whether numbers of `update` say which steps moved weights (1) and which did not (0); others count updates."""
    known = {value for value in values if value is not None}
    return bool(known) and known <= {0.0, 1.0}


def trains(metrics: Mapping[str, float | None]) -> bool:
    """Whether a row has more than an evaluation before the first update: its counters are 0 there."""
    told = metrics.keys() - {"step", "update", "stage"} - {name for name in _COUNTED if metrics.get(name) == 0}
    return any(not name.startswith(_WITH_EVALUATION) for name in told)


def update_marks(entries: Iterable[_HasCells]) -> frozenset[str]:
    """The columns that are called `update` and mark steps."""
    told: dict[str, list[float | None]] = {}
    for entry in entries:
        for name in _updates_among(tuple(entry.cells)):
            told.setdefault(name, []).append(entry.cells[name])
    return frozenset(name for name, values in told.items() if marks_updates(values))


@lru_cache(maxsize=1_000)
def _updates_among(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name_of(name) == "update")


def has_rewards(rows: StepTable) -> bool:
    """Whether a row tells of rewards: else there was no reinforcement learning, or its log does not tell."""
    return any(not _OF_REWARDS.isdisjoint(row) for row in rows)


def case_of_entries(entries: Sequence[Entry], known: Known) -> tuple[Case, list[str]]:
    """The case, and notes on what was left out or taken for granted. A step that comes twice: the last value stands."""
    shapes = {tuple(entry.cells) for entry in entries}  # the names of each kind of entries once
    if (summary := _with_the_only_rewards(entries, shapes)) is not None:
        entries = [*(entry for entry in entries if entry is not summary), _last_steps_of(summary)]
        shapes = {tuple(entry.cells) for entry in entries}
    kept = entries if all(map(_is_step, shapes)) else [e for e in entries if _is_step(tuple(e.cells))]
    names: Set[str] = set[str]().union(*filter(_is_step, shapes))
    if others := _other_rewards(names):
        kept, names = _without(others, kept), names - others
    arguments = settings_of_arguments(known.arguments or {})
    settings = settings_of_rows([entry.cells for entry in kept], names) | arguments | dict(known.settings or {})
    rows, absent = _rows(kept, names)
    if (known.arguments or {}).get("fp16") is True:
        rows = [_without_overflow(row) for row in rows]
    span = span_of(rows)
    if span == 1 and rows and rows[0].get("step") == 1 and rows[0].get("learning_rate") is not None:
        settings.setdefault("first_update_lr", rows[0]["learning_rate"])
    notes = [*_notes(kept, names, span), *absent]
    if "frac_reward_zero_std" in names and (rounded := _rounded(kept, rows)):
        notes.append(f"{rounded} steps have rewards that are equal but for rounding: their groups are counted as dead")
    if not has_rewards(rows):
        notes.append(NO_REWARDS)
    if span == 1 and known.samples:
        of_completions = _columns_of(known.samples)
        rows = [{**of_completions.get(int(row["step"] or 0), {}), **row} for row in rows]
    if settings.get("scale_rewards") == "batch" and any("groups/dead" in row for row in rows):
        rows = [{name: value for name, value in row.items() if name != "groups/dead"} for row in rows]
        notes.append("frac_reward_zero_std is all or nothing with scale_rewards=batch, so dead groups are not known")
    stated = Settings.stated(settings)
    case = Case(
        rows=_with_constants(rows, stated),
        samples=known.samples,
        notices=known.notices,
        settings=stated,
        averaged_over=span,
    )
    return case, notes


def _with_the_only_rewards(entries: Sequence[Entry], shapes: Set[tuple[str, ...]]) -> Entry | None:
    """The summary that alone tells rewards: TRL's has the means since the last row in it, and of a run shorter than
    `logging_steps` there is no other row. None where rows tell them, or nothing does.
    """
    summaries = {shape for shape in shapes if not _SUMMARY.isdisjoint(shape)}
    if not summaries or any("reward/mean" in map(name_of, shape) for shape in shapes - summaries):
        return None
    of_rewards = {shape for shape in summaries if "reward/mean" in map(name_of, shape)}
    return (
        next((entry for entry in reversed(entries) if tuple(entry.cells) in of_rewards), None) if of_rewards else None
    )


def _last_steps_of(summary: Entry) -> Entry:
    """A summary as the row of its last steps, without the totals of the whole run."""
    cells = {name: value for name, value in summary.cells.items() if name not in _TOTALS}
    return Entry(step=max(summary.step, 1), cells=cells)


def _other_rewards(names: Set[str]) -> Set[str]:
    """What may be no reward (returns), where one is told, too."""
    rewards = {name for name in names if name_of(name) == "reward/mean"}
    returns = set(filter(may_be_no_reward, rewards))
    return set() if returns == rewards else returns


def _without(names: Set[str], entries: Sequence[Entry]) -> Sequence[Entry]:
    return [
        Entry(step=entry.step, cells={name: value for name, value in entry.cells.items() if name not in names})
        for entry in entries
    ]


def _rows(entries: Sequence[Entry], names: Set[str]) -> tuple[StepTable, list[str]]:
    """One row a step: an evaluation's values stand in the row of its step. And a note on NaN that says nothing."""
    older = is_older(names)
    marks = update_marks(entries)
    by_step: dict[int, dict[str, float | None]] = {}
    told, absent = without_absent([translated(entry.cells, older=older) for entry in entries])
    for entry, metrics in zip(entries, told, strict=True):
        of_training, has_extremes, slices = _traits(tuple(metrics))
        if has_extremes or slices:
            metrics.update(bounded_by(metrics, slices))
        row = by_step.setdefault(entry.step, metrics)  # no copy of it: a long log has many
        if row is not metrics:
            row.update(metrics)
        row["step"] = float(entry.step)
        said = [mark for name in marks if (mark := entry.cells.get(name)) is not None]
        if said or of_training:
            row["update"] = max(said, default=1.0)
    rows = [by_step[step] for step in sorted(by_step)]
    if "frac_reward_zero_std" in names or all(_is_equal(row) for row in rows if "reward/mean" in row):
        for row in filter(_is_equal, rows):  # of others it is not known how many are dead, where TRL does not say so
            row["groups/dead"] = 1.0
    return rows, absent


def with_dead_groups(rows: StepTable, prompts: int | None) -> StepTable:
    """The rows, with the dead share of those that say of which prompts no, every or some completion is right.

    They are counts (rLLM), of `prompts` a step where the rest is not counted, or shares (prime-rl). Where all are 0 or
    1 nothing tells which of the two. Of what is solved by some alone only a share tells.
    """
    counted = [value for row in rows for name in _SOLVED[:2] if (value := row.get(name)) is not None]
    if not counted:
        live = [value for row in rows if (value := row.get(_SOLVED[2])) is not None and math.isfinite(value)]
        if not live or max(live) > 1.0 or all(value.is_integer() for value in live):
            return rows
        return [
            row if (some := row.get(_SOLVED[2])) is None or "groups/dead" in row else {**row, "groups/dead": 1 - some}
            for row in rows
        ]
    shares = any(value != int(value) for value in counted if math.isfinite(value)) and max(counted) <= 1.0
    if not shares and max(counted) <= 1.0 and not any(row.get(_SOLVED[2]) for row in rows):
        return rows
    return [{**row, **_dead_of(row, 1 if shares else prompts)} if "groups/dead" not in row else row for row in rows]


def _dead_of(row: Mapping[str, float | None], of: int | None) -> dict[str, float | None]:
    none, every, some = map(row.get, _SOLVED)
    if none is None or every is None:
        return {}
    total = float(of or 0) if some is None or of == 1 else none + every + some
    return {"groups/dead": (none + every) / total} if total > 0 and none + every <= total else {}


def bounded_by(metrics: Mapping[str, float | None], slices: Sequence[str]) -> dict[str, float | None]:
    """What the least and the most of a step's values say (where they are equal, nothing varied), and its slices, where
    no reward of evaluations is told.
    """
    said: dict[str, float | None] = {}
    most, least = metrics.get("reward/max"), metrics.get("reward/min")
    if most is not None and most == least:
        said |= {"reward/std": 0.0, "reward/group_std": 0.0, "groups/dead": 1.0}
    if metrics.get("advantage/max") == 0.0 == metrics.get("advantage/min"):
        said["groups/dead"] = 1.0
    known = [value for name in slices if (value := metrics[name]) is not None]
    if known and metrics.get("eval/reward") is None:
        said["eval/reward"] = fmean(known)
    return said


@lru_cache(maxsize=1000)  # a log's rows have the same names, over and over
def _is_step(names: tuple[str, ...]) -> bool:
    """Whether an entry of these names is one of a step, and no run's summary."""
    return is_entry(names) and _SUMMARY.isdisjoint(names)


@lru_cache(maxsize=1000)
def _traits(names: tuple[str, ...]) -> tuple[bool, bool, tuple[str, ...]]:
    """Whether metrics of these names are of training, whether they are the least and the most, and their slices."""
    most = {"reward/max", "reward/min"} <= {*names} or {"advantage/max", "advantage/min"} <= {*names}
    return not _OF_TRAINING.isdisjoint(names), most, slices_of(names)


def slices_of(names: Iterable[str]) -> tuple[str, ...]:
    """The evaluations of single sets among a row's metrics."""
    return tuple(name for name in names if name.startswith("eval/slices/"))


def _without_overflow(row: Mapping[str, float | None]) -> dict[str, float | None]:
    """The row; in fp16 the loss's scale is found by overflows, which skip their step: nothing is wrong with it."""
    if "grad_norm" not in row or row["grad_norm"] is not None:
        return dict(row)
    return {**{name: value for name, value in row.items() if name != "grad_norm"}, "update": 0.0}


def _is_equal(row: Mapping[str, float | None]) -> bool:
    """Whether a step's rewards were all equal, but for float32's rounding, by which TRL takes such groups for live."""
    mean, spread = row.get("reward/mean"), row.get("reward/group_std", row.get("reward/std"))
    return mean is not None and spread is not None and spread <= _ROUNDING * max(abs(mean), _ROUNDING)


def _rounded(entries: Sequence[Entry], rows: StepTable) -> int:
    """Steps whose groups TRL took for live though their rewards are equal: its tolerance is an absolute 1e-8."""
    equal = {row["step"] for row in rows if _is_equal(row)}
    last = {entry.step: entry for entry in entries if "reward" in entry.cells}
    return sum(entry.cells.get("frac_reward_zero_std", 1.0) != 1.0 for step, entry in last.items() if step in equal)


def _with_constants(rows: StepTable, settings: Settings) -> StepTable:
    """The rows of training, with what this trainer keeps as it is for a whole run."""
    known = {name: value for name in ("beta", "temperature") if (value := getattr(settings, name))}
    return [{**known, **row} if "update" in row else row for row in rows] if known else rows


def span_of(rows: StepTable) -> int:
    """Steps that a row stands for: the usual distance between rows of training."""
    steps = [int(row["step"] or 0) for row in rows if row.get("update") is not None]
    gaps = Counter(after - before for before, after in pairwise(steps))
    return max(1, gaps.most_common(1)[0][0]) if gaps else 1


def _notes(entries: Sequence[Entry], names: Set[str], span: int) -> list[str]:
    notes = []
    if span > 1:
        notes.append(f"a row is the mean of {span} steps (logging_steps): what changes inside is not seen")
    steps = Counter(entry.step for entry in entries if "loss" in entry.cells)
    if repeated := sum(count > 1 for count in steps.values()):
        notes.append(f"{repeated} steps were logged more than once (a resumed run): the last value stands")
    if lost := left_out(names):
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        notes.append(f"columns left out, for no rule reads them: {', '.join(lost[:_NAMED])}{more}")
    if is_older(names):
        notes.append("an older TRL: its reward_std is taken for the mean deviation inside groups")
    return notes


def plain_value(text: str) -> Any:
    """A configuration's value that was written down as text: 1e-06, True, None, SchedulerType.LINEAR."""
    words = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
    if text in words:
        return words[text]
    try:
        value = float(text)
    except ValueError:
        return text
    if math.isfinite(value) and value.is_integer() and not any(mark in text for mark in ".eE"):
        return int(value)
    return value


def is_grpo_configuration(arguments: Mapping[str, Any]) -> bool:
    """Whether a trainer's arguments are those of a GRPO trainer."""
    return ARGUMENTS_OF_GRPO in arguments


def _columns_of(samples: Sequence[Sample]) -> dict[int, dict[str, float]]:
    """Step -> metric -> value, of each step's completions. Rows of one group stand together, as TRL writes them."""
    ordered = sorted(samples, key=lambda sample: sample.step)
    return {step: _columns(list(rows)) for step, rows in groupby(ordered, key=lambda sample: sample.step)}


def _columns(rows: Sequence[Sample]) -> dict[str, float]:
    """What the completions of one step say: advantages, deviations, distinct texts."""
    columns: dict[str, float] = {"samples": float(len(rows))}
    groups = [list(group) for _, group in groupby(rows, key=lambda sample: sample.group)]
    advantages = [[row.advantage for row in group if row.advantage is not None] for group in groups]
    flat = [value for group in advantages for value in group]
    if flat and len(flat) == len(rows):
        live = [value for group in advantages for value in group if max(map(abs, group)) > _DEAD]
        columns |= {"advantage/mean": fmean(flat), "advantage/max_abs": max(map(abs, flat))}
        columns |= {"advantage/std": pstdev(live)} if live else {}
    rewards = [[row.reward for row in group if row.reward is not None] for group in groups]
    if rewards and all(rewards):
        columns["reward/group_std"] = fmean(pstdev(group) for group in rewards)
    texts = [row.text for row in rows if row.text is not None]
    if texts and len(texts) == len(rows):
        columns["completions/distinct"] = len(set(texts)) / len(texts)
    return columns
