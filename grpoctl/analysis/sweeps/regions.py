"""Where in the space runs collapse, are invalid or learn nothing, and which axis decides it.

What is here: shares of runs per level of an axis, from statuses and rule ids. What is not: the rules (core.health).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpoctl.analysis.collect import number
from grpoctl.analysis.sweeps.axes import Axis
from grpoctl.runs.status import FINISHED

Event = Literal["collapsed", "invalid", "learned nothing"]

EVENTS: tuple[Event, ...] = ("collapsed", "invalid", "learned nothing")
COLLAPSE_RATE = "collapse_rate"

_HALF = 0.5  # a run that loses its outputs after every second update has collapsed, where no guard stops it
_RULES: Mapping[Event, frozenset[str]] = {
    "collapsed": frozenset({"policy-collapse", "numerical"}),
    "invalid": frozenset({"rollout-integrity"}),
    "learned nothing": frozenset({"no-updates"}),
}
_STATUSES: Mapping[Event, str] = {"collapsed": "COLLAPSED", "invalid": "INVALID_ROLLOUT"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """How one run of a trial went."""

    trial: int
    seed: int
    events: frozenset[Event]
    rules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """One level of an axis: its runs that ended, how many show each event, and how many each rule's finding."""

    label: str
    runs: int
    events: Mapping[Event, int]
    rules: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Separation:
    """How an axis stands to an event. `perfect`: on every level all runs show it or none does, and both occur.

    `even`: the share is the same on every level, so that the axis says nothing about it.
    """

    axis: Axis
    labels: tuple[str, ...]  # of the levels that have a run
    counts: tuple[tuple[int, int], ...]  # per level: runs that show it, runs

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of runs that show it, per level."""
        return tuple(hit / runs for hit, runs in self.counts)

    @property
    def perfect(self) -> bool:
        """All or none on each level, and both occur."""
        return set(self.shares) == {0.0, 1.0}

    @property
    def even(self) -> bool:
        """The same share on all levels."""
        return len({hit * self.counts[0][1] - runs * self.counts[0][0] for hit, runs in self.counts}) == 1

    @property
    def information(self) -> float:
        """How much the level tells of the event: their mutual information in nats, 0 where it tells nothing."""
        hits, runs = sum(hit for hit, _ in self.counts), sum(all_ for _, all_ in self.counts)
        return _entropy(hits, runs) - sum(all_ / runs * _entropy(hit, all_) for hit, all_ in self.counts)


def run_facts(document: Mapping[str, Any]) -> list[RunFacts]:
    """One entry per run that has ended, in the order of trials and seeds."""
    metric = str(document.get("metric"))
    return [fact for trial in document.get("trials") or () for fact in _of_trial(trial, metric)]


def regions(axis: Axis, facts: Iterable[RunFacts]) -> list[Region]:
    """One entry per level that has a run."""
    by_trial: dict[int, list[RunFacts]] = {}
    for fact in facts:
        by_trial.setdefault(fact.trial, []).append(fact)
    counted = []
    for level in axis.levels:
        here = [fact for index in level.numbers for fact in by_trial.get(index, ())]
        if here:
            events = {event: sum(event in fact.events for fact in here) for event in EVENTS}
            rules = Counter(rule for fact in here for rule in dict.fromkeys(fact.rules))
            counted.append(Region(label=level.label, runs=len(here), events=events, rules=dict(rules.most_common())))
    return counted


def separations(event: Event, axes: Iterable[Axis], facts: Sequence[RunFacts]) -> list[Separation]:
    """How each axis stands to the event, the most telling first; [] where no run shows it or all do."""
    hits = sum(event in fact.events for fact in facts)
    if hits in (0, len(facts)):
        return []
    separations = []
    for axis in axes:
        here = regions(axis, facts)
        counts = tuple((region.events[event], region.runs) for region in here)
        if len(counts) > 1:
            separations.append(Separation(axis=axis, labels=tuple(region.label for region in here), counts=counts))
    return sorted(separations, key=lambda separation: (not separation.perfect, -separation.information))


def crossed(event: Event, pair: tuple[Axis, Axis], facts: Sequence[RunFacts]) -> list[list[tuple[int, int]]]:
    """For each pair of levels: (runs that show the event, runs)."""
    rows, columns = pair
    table = []
    for row in rows.levels:
        cells = []
        for column in columns.levels:
            both = set(row.numbers) & set(column.numbers)
            here = [fact for fact in facts if fact.trial in both]
            cells.append((sum(event in fact.events for fact in here), len(here)))
        table.append(cells)
    return table


def _entropy(hits: int, runs: int) -> float:
    shares = [hits / runs, 1 - hits / runs]
    return -sum(share * math.log(share) for share in shares if share > 0)


def _of_trial(trial: Mapping[str, Any], metric: str) -> Iterable[RunFacts]:
    statuses = trial.get("statuses") or ()
    rules = [tuple(ids) for ids in trial.get("findings") or ()]
    seeds = list(trial.get("seeds") or ())
    values = dict(zip(seeds, trial.get("values") or (), strict=False))
    for index, status in enumerate(statuses):
        if status not in FINISHED:
            continue  # how it would have gone is not known
        seed = _seed(trial, index, seeds)
        rule_ids = rules[index] if index < len(rules) else ()
        events = {event for event in EVENTS if _STATUSES.get(event) == status or _RULES[event] & set(rule_ids)}
        rate = number(values.get(seed)) if metric == COLLAPSE_RATE else None
        if rate is not None and rate >= _HALF and status != "INVALID_ROLLOUT":
            events.add("collapsed")
        yield RunFacts(trial=int(trial["number"]), seed=seed, events=frozenset(events), rules=rule_ids)


def _seed(trial: Mapping[str, Any], index: int, seeds: Sequence[int]) -> int:
    """The seed of a started run: its directory says; a run that was never started leaves a gap."""
    runs = trial.get("runs") or ()
    match = re.search(r"-s(\d+)$", str(runs[index])) if index < len(runs) else None
    if match:
        return int(match[1])
    return int(seeds[index]) if index < len(seeds) else index
