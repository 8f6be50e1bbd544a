"""Which runs the labels of a table are of: steps of one, checkpoints of several, a name for each.

What is not here: what a label says (written_cells), and the rows of a run (written_tables).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count

from grpoctl.diagnose.readers.metric_names import TOTALS
from grpoctl.diagnose.readers.setting_names import is_an_axis
from grpoctl.diagnose.readers.written_cells import (
    BY_REWARDS,
    LONGEST,
    METRICS,
    MODELS,
    STEP_INSIDE,
    UNTRAINED,
    are_rising,
    is_change,
    is_later,
    is_stage,
    plain_text,
    spans_of,
    without_step,
)

_TOTALS = TOTALS | {"std"}
OF_RUNS = frozenset({
    "model", "run", "config", "configuration", "method", "setting", "settings", "experiment", "variant", "name",
    "arm", "setup", "algorithm", "approach", "seed", "id", "version", "trial",
    "policy", "agent", "cell", "exp", "ablation", "directory", "folder", "目录", "文件夹",
    "방법", "모델", "실험", "方法", "模型", "实验", "设置", "配置", "版本", "手法", "モデル", "設定", "実験",
})  # fmt: skip
_NO_RUNS = frozenset({  # words of labels of what is no run
    "good", "bad", "threshold", "thresholds", "target", "expected", "healthy", "unhealthy", "normal", "range", "value",
    "values", "default", "defaults", "meaning", "description", "warning", "critical", "ideal", "typical", "limit",
    "formula", "unit", "symptom", "action", "what", "where", "why", "max", "min",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run that a table tells of: the places of its labels, and what steps all labels stand for."""

    spans: Sequence[tuple[int, int] | None]
    places: frozenset[int]
    name: str = ""  # "" where the table is of one run
    began: bool = False  # the model that it began with stands beside it


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """The runs of a table. by_name: its labels are names of runs, and no steps."""

    found: Sequence[Run]
    by_name: bool = False

    @classmethod
    def only(
        cls, spans: Sequence[tuple[int, int] | None], *, began: bool = False, without: frozenset[int] = frozenset()
    ) -> Runs:
        """A table of one run; without: places of what is no row of it."""
        return cls(found=[Run(spans=spans, places=frozenset(range(len(spans))) - without, began=began)])

    def called(self, name: str | None) -> Run | None:
        """The run of that name, by default the first; what is of one run is of each."""
        return next((one for one in self.found if name in (None, one.name) or not one.name), None)


def runs_of(over: str, labels: Sequence[str], *, courses: bool, has_ends: bool = False) -> Runs:
    """The runs that labels below `over` are of; courses: a cell is a run's whole course, has_ends: a row is."""
    told = spans_of(labels)
    if is_an_axis(over) and len(labels) > 1:
        said = [f"{over.strip()} {plain_text(label)}" for label in labels]
        return _runs_by_name(said, [frozenset()] * len(labels), has_ends=has_ends)
    if courses or (not has_ends and are_of_one_run(over, labels, told) and not _are_several_models(labels, told)):
        return _runs_by_step(labels, told)
    words = list(map(_words_of, labels))
    above = frozenset(re.findall(r"[^\W\d_]+", plain_text(over[:LONGEST])))
    are_names = (
        are_before_and_after(labels) or not above or not above.isdisjoint(OF_RUNS | METRICS | {"stage", "phase"})
    )
    if not are_names or 2 * sum(not said.isdisjoint(_NO_RUNS) for said in words) >= len(words):
        return Runs(found=())  # of something else: prices, limits, what a value means
    return _runs_by_name(labels, words, has_ends=has_ends)


def are_before_and_after(labels: Sequence[str]) -> bool:
    """Whether a label is of a model that was trained by rewards, and one of a model before that."""
    words = list(map(_words_of, labels))
    return any(not said.isdisjoint(BY_REWARDS) for said in words) and any(
        not said.isdisjoint(UNTRAINED) for said in words
    )


def _words_of(label: str) -> frozenset[str]:
    """The words of a label; without what it was trained by where it is called a base: `RFT merged base`."""
    words = re.findall(r"[^\W\d_]+", label[:LONGEST].lower())
    return frozenset(words) - (BY_REWARDS if words[-1:] == ["base"] else frozenset())


def _runs_by_step(labels: Sequence[str], told: Sequence[tuple[int, int] | None]) -> Runs:
    """The runs of checkpoints (`strict, step 1`, `async, step 1`), each with the start that they share.

    Several runs: every checkpoint has a name beside its step, the steps of each name rise, and a name with one
    checkpoint says what it was trained by.
    """
    steps: dict[str, list[tuple[int, int]]] = {}
    names = [without_step(label) for label in labels]
    for name, span in zip(names, told, strict=True):
        if span is not None and is_later(span):
            steps.setdefault(name, []).append(span)
    one_each = [name for name, spans in steps.items() if len(spans) == 1]
    are_runs = len(one_each) < len(steps) and not any(BY_REWARDS.isdisjoint(name.split()) for name in one_each)
    if (
        len(steps) < 2
        or "" in steps
        or not are_runs
        or not all(are_rising(steps[run]) for run in steps.keys() - {*one_each})
    ):
        of_models = not any(map(is_later, told)) and any(plain_text(label) in MODELS for label in labels)
        return Runs.only(_in_order(labels, told), began=of_models, without=frozenset(_totals_in(labels)))
    of_all = frozenset(at for at, span in enumerate(told) if not is_later(span))
    own: dict[str, set[int]] = {run: set() for run in steps}
    for at, (name, span) in enumerate(zip(names, told, strict=True)):
        if is_later(span):
            own[name].add(at)
    return Runs(found=[Run(name=run, spans=told, places=of_all | places) for run, places in own.items()])


def _runs_by_name(labels: Sequence[str], words: Sequence[frozenset[str]], *, has_ends: bool) -> Runs:
    """The runs of a table with one row of each; has_ends: a row tells its run's start itself.

    Where labels name what trains by rewards (`SFT + GRPO`) these are the runs, and a model before training that stands
    above one is its start.
    """
    named = [not has_ends and not said.isdisjoint(BY_REWARDS) for said in words]
    before = [any(named) and not by and not said.isdisjoint(UNTRAINED) for by, said in zip(named, words, strict=True)]
    spans = [(0, 0) if untrained else None for untrained in before]
    called: set[str] = set()
    runs: list[Run] = []
    start: int | None = None
    for at, label in enumerate(labels):
        start = at if before[at] else start
        is_total = is_change(label) or _is_total(label)
        if before[at] or is_total or (any(named) and not named[at]):
            continue
        name = " ".join(label.split())[:LONGEST] or f"row {at + 1}"
        numbered = (f"{name} #{number}" for number in count(2))
        name = next(one for one in chain([name], numbered) if one not in called)
        called.add(name)
        places = frozenset({at} if start is None else {start, at})
        runs.append(Run(name=name, spans=spans, places=places, began=start is not None))
    return Runs(found=runs, by_name=True)


def _are_several_models(labels: Sequence[str], told: Sequence[tuple[int, int] | None]) -> bool:
    """Whether labels name models before and after training in no order of one run: trained twice, or first."""
    plain = [plain_text(label) for label in labels]
    starts = [at for at, span in enumerate(told) if span == (0, 0)]
    return not MODELS.isdisjoint(plain) and (len({*plain}) < len(plain) or bool(starts and starts[0] > 0))


def _totals_in(labels: Sequence[str]) -> list[int]:
    """The places of labels of all rows, where others are of some."""
    totals = [at for at, label in enumerate(labels) if _is_total(label)]
    return totals if len(totals) < len(labels) else []


def _in_order(labels: Sequence[str], told: Sequence[tuple[int, int] | None]) -> Sequence[tuple[int, int] | None]:
    """What labels stand for; nothing where more are stages without a step: `first 25`, `100-150`, `last 25`."""
    stages = [label for span, label in zip(told, labels, strict=True) if span is None and is_stage(label)]
    are_counted = all(any(map(str.isdigit, label)) for label in stages)
    return [None] * len(told) if are_counted and len(stages) > sum(map(is_later, told)) > 0 else told


def _is_total(label: str) -> bool:
    """Whether a label is of all rows: `overall`, `mean`."""
    words = re.findall(r"[^\W\d_]+", plain_text(label[:LONGEST]))
    return bool(words) and _TOTALS.issuperset(words)


def are_of_one_run(over: str, labels: Sequence[str], told: Sequence[tuple[int, int] | None]) -> bool:
    """Whether labels are steps or stages of a run, and not names of runs."""
    if over.strip().lower() in OF_RUNS:
        return any(STEP_INSIDE.search(label) for label in labels)
    of_run = [span for span, label in zip(told, labels, strict=True) if not _is_total(label)]
    places = sum(span is not None or is_stage(label) for span, label in zip(told, labels, strict=True))
    return 2 * places > len(of_run)
