"""What watches a run between its steps: the callback protocol and every callback.

Guards end a run: early stopping, a collapsed policy, a sampler that does not draw from the policy that is trained, and
whoever prunes it from outside. Checkpointing writes it down. Watching ends nothing: it logs, once, what the rules of
core.health find while the run goes on. New is what was not logged since the run began or was resumed, and not in the
rows that were examined before. What only a whole run can show is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from core.config import CheckpointSpec, EarlyStoppingSpec, GuardSpec, RunSpec
from core.config.run import Action
from core.health.case import case_of
from core.health.examine import OF_WHOLE_RUNS, examine
from core.health.finding import Finding, Row, Severity, StepTable
from core.health.guard import collapse_finding
from core.health.own_noise import noise_factor
from core.health.rules.integrity import (
    LOOK_BACK,
    evaluation_integrity,
    noise_integrity,
    resumed_integrity,
    rollout_integrity,
)
from core.training.checkpoint import Checkpoints, Snapshot
from core.training.clock import wait
from core.training.outcome import Ending, EndStatus


class Callback:
    """Does nothing. Every hook may end the run by returning an Ending."""

    def resumed(self, table: StepTable, calibration: Mapping[str, float]) -> Ending | None:
        """Called before the first step of a resumed run, with how far sampler and trainer are apart now."""
        return None

    def before_update(self, row: Row, table: StepTable) -> Ending | None:
        """Called with the step's row so far, after the rollout was scored and before any weight moves.

        `table` has the rows before it.
        """
        return None

    def after_step(self, table: StepTable) -> Ending | None:
        """Called with all rows when the step has been recorded; the last row is the step's."""
        return None

    def after_stage(self, stages: int, snapshot: Callable[[], Snapshot]) -> None:
        """Called where so many stages are over and the run goes on with the next; `snapshot` gives where it stands.

        A run that is resumed there calls it again.
        """


class EarlyStopping(Callback):
    """STOPPED_EARLY after `patience` evaluations in a row without an improvement of more than `min_delta`."""

    def __init__(self, spec: EarlyStoppingSpec) -> None:
        self._spec = spec

    def after_step(self, table: StepTable) -> Ending | None:
        """Ends the run where the last row is an evaluation and patience has run out."""
        waiting = wait(table, self._spec)
        if waiting is None or waiting.waited < self._spec.patience:
            return None
        return Ending(
            status="STOPPED_EARLY",
            message=f"{self._spec.metric} has not improved on {waiting.best:.4f} (step {waiting.best_step}) "
            f"for {waiting.waited} evaluations",
        )


class Guard(Callback):
    """Ends a run with a status where something is found and its action is stop; warn logs the first of each kind."""

    def __init__(self, action: Action, status: EndStatus) -> None:
        self._action, self._status = action, status
        self._logged: set[str] = set()

    def _ending(self, finding: Finding | None) -> Ending | None:
        if finding is None:
            return None
        match self._action:
            case "stop":
                return Ending(status=self._status, message=finding.summary, finding=finding)
            case "warn":
                if finding.id not in self._logged:
                    LOGGER.warning("%s: %s (guards: warn, so the run goes on)", finding.id, finding.summary)
                self._logged.add(finding.id)
                return None
            case "off":
                return None
            case _:
                assert_never(self._action)


class CollapseGuard(Guard):
    """COLLAPSED when a limit of the spec's `guards` is broken."""

    def __init__(self, guards: GuardSpec) -> None:
        super().__init__(guards.collapse, "COLLAPSED")
        self._guards = guards

    def after_step(self, table: StepTable) -> Ending | None:
        """Ends the run where the last steps say so."""
        return self._ending(collapse_finding(table, self._guards))


class RolloutIntegrity(Guard):
    """INVALID_ROLLOUT at the first step whose log-prob gap rounding, or the run's own noise, does not explain."""

    def __init__(self, guards: GuardSpec, dtype: str) -> None:
        super().__init__(guards.rollout_integrity, "INVALID_ROLLOUT")
        self._guards = guards
        self._dtype = dtype

    def resumed(self, table: StepTable, calibration: Mapping[str, float]) -> Ending | None:
        """Ends the run where sampler and trainer no longer agree on the machine that goes on with it."""
        return self._ending(resumed_integrity(table, calibration, dtype=self._dtype, factor=noise_factor(self._guards)))

    def before_update(self, row: Row, table: StepTable) -> Ending | None:
        """Ends the run where a gap is beyond what rounding explains in any run, or beyond this run's own noise."""
        finding = rollout_integrity(row, dtype=self._dtype, override=self._guards.max_logprob_gap)
        if finding is None and noise_factor(self._guards) is not None:
            finding = noise_integrity([*table[-LOOK_BACK:], row])
        return self._ending(finding)

    def after_step(self, table: StepTable) -> Ending | None:
        """The same for the step's evaluation."""
        return self._ending(evaluation_integrity(table[-1], dtype=self._dtype, override=self._guards.max_logprob_gap))


class ParentControl(Callback):
    """Ends the run with what `ask` says of an evaluated step; `ask` may wait before it answers.

    `paused` where that is to be gone on with later: then the step needs a checkpoint.
    """

    def __init__(self, ask: Callable[[int], Ending | None]) -> None:
        self._ask = ask
        self.paused = False

    def after_step(self, table: StepTable) -> Ending | None:
        """Asked after a training step that was evaluated, with its number; the row is recorded by then."""
        step = int(table[-1]["step"] or 0)
        evaluated = any(name.startswith("eval/") for name in table[-1])
        ending = self._ask(step) if step > 0 and evaluated else None
        self.paused = ending is not None and ending.status == "INTERRUPTED"
        return ending


class RowControl(Callback):
    """Ends the run with what `ask` says of a row that has just been recorded."""

    def __init__(self, ask: Callable[[Row], Ending | None]) -> None:
        self._ask = ask

    def after_step(self, table: StepTable) -> Ending | None:
        """Asked after every step, and after the evaluation before the first one."""
        return self._ask(table[-1])


class Checkpointing(Callback):
    """Saves what `snapshot` returns; `over` says whether the run has done all it had to, for now or for good."""

    def __init__(
        self, checkpoints: Checkpoints, spec: CheckpointSpec, snapshot: Callable[[], Snapshot], over: Callable[[], bool]
    ) -> None:
        self._checkpoints = checkpoints
        self._spec = spec
        self._snapshot = snapshot
        self._over = over

    def after_step(self, table: StepTable) -> Ending | None:
        """Never ends a run; raises StorageError where the disk refuses."""
        step = int(table[-1]["step"] or 0)
        due = step % self._spec.save_steps == 0 or self._over() or _is_best(table)
        if step > 0 and due and step not in self._checkpoints.steps():  # one that is there is what was resumed from
            self._checkpoints.save(self._snapshot())
        return None


def _is_best(table: StepTable) -> bool:
    """True when the last row is an evaluation better than every one since training began."""
    value = table[-1].get("eval/reward")
    earlier = [row.get("eval/reward") for row in table[:-1] if row["step"]]
    return value is not None and all(other is None or value > other for other in earlier)


LEVELS = {"error": logging.WARNING, "warning": logging.WARNING, "info": logging.INFO}
FIRST = 25  # steps: fewer show little
LOGGER = logging.getLogger(__name__)


def looks(step: int) -> list[int]:
    """The steps up to this one at which the rules are asked: at 25, then whenever the table has grown by a quarter.

    25, 50, 75, 100, 125, 156, 195, ...: all looks together read some ten times the table, however long the run is.
    """
    steps, at = list[int](), FIRST
    while at <= step:
        steps.append(at)
        at += max(FIRST, at // 4)
    return steps


class Watching(Callback):
    """Logs each finding once: an error or warning as a warning, the others as information."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._logged: set[tuple[str, Severity]] = set()

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
            findings = self._new(table, before)
        except Exception as error:  # noqa: BLE001  the boundary around the rules, some of which packages add
            LOGGER.info("step %d: the rules could not be asked: %r", step, error)
            return
        for finding in findings:
            LOGGER.log(LEVELS[finding.severity], "step %d: %s: %s (so far)", step, finding.id, finding.summary)

    def _new(self, table: StepTable, before: int) -> Sequence[Finding]:
        """What the table shows, and neither its rows up to the step `before` nor an earlier look did."""
        earlier = self._examine(table[: before + 1]) if before else ()
        self._logged |= {(finding.id, finding.severity) for finding in earlier}
        new = [finding for finding in self._examine(table) if (finding.id, finding.severity) not in self._logged]
        self._logged |= {(finding.id, finding.severity) for finding in new}
        return new

    def _examine(self, table: StepTable) -> Sequence[Finding]:
        return [finding for finding in examine(case_of(self._spec, table)) if finding.id not in OF_WHOLE_RUNS]
