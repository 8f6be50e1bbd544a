"""Which point a trial takes, and which trials it may learn from: functions of the study's spec and of its book.

A trial learns from the trials before it less those that may still be at work, `lag` of them with itself. So what is
asked, and what is pruned, is the same however long anything takes and however often it is interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpoctl.sweeps import pruning, space
from grpoctl.sweeps.in_flight import Decide
from grpoctl.sweeps.samplers import Suggester
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Book, TrialRecord
from grpoctl.sweeps.vocabulary import as_past


class Asking:
    """`lag` is None where no trial learns from another."""

    def __init__(self, sweep: SweepSpec, book: Book, lag: int | None) -> None:
        self.sweep, self.book, self.lag = sweep, book, lag
        self._suggester = Suggester(sweep)

    def ready(self, number: int) -> bool:
        """Whether all trials that this one learns from have ended."""
        return all(trial.status.ended for trial in self._before(number))

    def choose(self, number: int) -> tuple[str | None, Mapping[str, Any]] | None:
        """(name, params) of the trial; None where every point there is has been tried."""
        if self.sweep.ladder or self.sweep.candidates:
            listed = space.points(self.sweep)
            names = [*self.sweep.candidates, *(rung.name for rung in self.sweep.ladder)]
            return (names[number], listed[number]) if number < len(listed) else None
        past = [as_past(trial) for trial in self._before(number)]
        taken = {space.identity(trial.params) for trial in self.book.trials.values() if trial.number < number}
        params = self._suggester.suggest(number, past, taken)
        return None if params is None else (None, params)

    def decider(self, number: int) -> Decide | None:
        """What decides whether a trial goes on: the rule, against the trials it learns from; None: nothing does."""
        rule = self.sweep.pruner
        if rule.name == "none":
            return None
        others = [trial.curve for trial in self._before(number) if trial.curve]
        seeds, direction = self.sweep.seeds, self.sweep.direction
        return lambda curve: pruning.decide(rule, curve, others, seeds, direction)

    def _before(self, number: int) -> list[TrialRecord]:
        """The trials that this one learns from."""
        count = 0 if self.lag is None else max(0, number - self.lag + 1)
        return [self.book.trials[before] for before in range(count)]
