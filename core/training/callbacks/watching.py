"""Says while a run goes on what its steps show: the rules of core.health, asked now and then. Ends no run.

What is found is logged, once: RUN/log.txt has it, and whoever shows the run may pass it on. New is what was not said
since the run began or was resumed, nor of the rows that the rules were asked about before. What only a whole run can
show is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from core.config import RunSpec
from core.health.case import case_of
from core.health.examine import examine
from core.health.finding import Finding, Severity, StepTable
from core.training.callbacks.base import Callback, Ending

LEVELS = {"error": logging.WARNING, "warning": logging.WARNING, "info": logging.INFO}
FIRST = 25  # steps: fewer show little
# A run that goes on may still make progress, surpass its best evaluation, and be evaluated at all.
AFTERWARDS = ("no-gain", "noise", "missed-stop", "no-validation")
LOGGER = logging.getLogger(__name__)


def looks(step: int) -> list[int]:
    """The steps up to this one at which the rules are asked: at 25, then whenever the table has grown by a quarter.

    25, 50, 75, 100, 125, 156, 195, ...: all looks together read some ten times the table, however long the run is.
    """
    found, at = list[int](), FIRST
    while at <= step:
        found.append(at)
        at += max(FIRST, at // 4)
    return found


class Watching(Callback):
    """Logs each finding once: an error or warning as a warning, the others as information."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._said: set[tuple[str, Severity]] = set()

    def after_step(self, table: StepTable) -> Ending | None:
        """Never ends a run."""
        step = int(table[-1]["step"] or 0)
        due = looks(step)
        if due and due[-1] == step:
            self._look(table, step, before=due[-2] if len(due) > 1 else 0)
        return None

    def _look(self, table: StepTable, step: int, *, before: int) -> None:
        """Log what is new. A rule that fails is logged too: hours of training are worth more than its opinion."""
        try:
            found = self._new(table, before)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            LOGGER.info("step %d: the rules could not be asked: %r", step, error)
            return
        for finding in found:
            LOGGER.log(LEVELS[finding.severity], "step %d: %s: %s (so far)", step, finding.id, finding.summary)

    def _new(self, table: StepTable, before: int) -> Sequence[Finding]:
        """What the table shows, and neither its rows up to the step `before` nor an earlier look did."""
        earlier = self._found(table[: before + 1]) if before else ()
        self._said |= {(one.id, one.severity) for one in earlier}
        found = [one for one in self._found(table) if (one.id, one.severity) not in self._said]
        self._said |= {(one.id, one.severity) for one in found}
        return found

    def _found(self, table: StepTable) -> Sequence[Finding]:
        return [one for one in examine(case_of(self._spec, table)) if one.id not in AFTERWARDS]
