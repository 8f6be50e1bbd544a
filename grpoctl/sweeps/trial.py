"""A trial under way: which of its runs wait for a worker, what they have reported and are worth, and what was decided.

What is here: one trial. What is not: which trial comes next (driver), whether a curve is worth going on with (pruning).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from core.config import RunSpec
from core.errors import StorageError
from core.health.finding import StepTable
from core.health.rules.gains import Gain, Ruler, gain_metric, gain_since, mean_gain, stage_gains
from grpoctl.analysis.baselines import means_over_seeds
from grpoctl.files import read_json, read_rows, replace_json
from grpoctl.runs import status
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import FINISHED, Status, TrialStatus
from grpoctl.sweeps.spec import SweepSpec
from grpoctl.sweeps.state import Curve, Point, TrialRecord

Decide = Callable[[Curve], str | None]  # the trial's curve -> why it is pruned, None to go on


@dataclass(frozen=True, kw_only=True, slots=True)
class Yardstick:
    """How a run is measured: the metric, its part of the result, what a stopped run is worth, and a run's budget."""

    metric: str
    take: str
    worst: float
    unit: str  # what the budget counts: completions, tokens or step
    budget: float
    ruler: Ruler = field(default_factory=Ruler)  # how gains are measured
    stages: Mapping[str, str] = field(default_factory=dict)  # name -> kind

    def share(self, row: Mapping[str, Any]) -> float:
        """How much of the run's budget is spent, 0 to 1."""
        return min(1.0, float(row.get(self.unit) or 0.0) / self.budget)

    def value(self, result: Mapping[str, Any]) -> float | None:
        """What a run that ended by itself is worth; None where it does not have the metric."""
        if result.get("status") in ("COLLAPSED", "INVALID_ROLLOUT"):
            return self.worst
        return self._taken(result, self.metric)

    def error(self, result: Mapping[str, Any]) -> float | None:
        """The standard error over prompts of that value, where the run says it."""
        return None if self.value(result) is None else self._taken(result, f"{self.metric}_se")

    def gains(self, rows: StepTable) -> dict[str, Gain]:
        """What each stage of a run gained."""
        return stage_gains(rows, list(self.stages), self.ruler)

    def learned(self, rows: StepTable) -> Gain:
        """The metric's gain since GRPO began; of a run without it, since the run began.

        Nothing is known of a metric of steps or of the whole run: it has no value before the first step.
        """
        if not self.stages or self.ruler.metric != self.metric:
            return Gain(start=None, end=None)
        first = next((name for name, kind in self.stages.items() if kind == "grpo"), next(iter(self.stages)))
        return gain_since(rows, list(self.stages), first, self.ruler)

    def taken_of(self, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The row of these evaluations that the run would be measured by if it ended with the last of them."""
        if self.take == "final":
            return rows[-1]
        return max(rows, key=lambda row: -math.inf if row.get("eval/reward") is None else float(row["eval/reward"]))

    def _taken(self, result: Mapping[str, Any], name: str) -> float | None:
        value = (result.get(self.take) or {}).get(name)
        return None if value is None else float(value)


def yardstick(sweep: SweepSpec, spec: RunSpec) -> Yardstick:
    """How the sweep measures a run of this spec."""
    budget = spec.budget
    unit, amount = "step", spec.max_steps
    if budget is not None:
        unit = "completions" if budget.completions is not None else "tokens"
        amount = budget.completions or budget.tokens or amount
    return Yardstick(
        metric=sweep.metric, take=sweep.take, worst=sweep.worst, unit=unit, budget=float(amount),
        ruler=Ruler.of(spec, gain_metric(sweep.metric)),
        stages={name: stage.kind for name, stage in spec.stages.items()},
    )  # fmt: skip


class ActiveTrial:
    """One trial under way. `runs` has one directory per seed; `decide` is None where nothing is pruned."""

    def __init__(
        self, record: TrialRecord, runs: tuple[RunDir, ...], yardstick: Yardstick, decide: Decide | None
    ) -> None:
        self.record, self.runs, self.yardstick, self.decide = record, runs, yardstick, decide
        self.waiting: list[tuple[RunDir, ...]] = []  # what no worker has yet
        self.working = 0  # jobs that a worker has
        self.pruned = self.failed = ""  # why, where it is
        self.shares: dict[str, float] = {}  # of each run's budget, for the progress
        self._reports: tuple[dict[int, Point], ...] = tuple({} for _ in runs)  # of each run, by the step

    def enqueue(self) -> None:
        """Line up what is left to run, after what the runs' files say was reached before."""
        for index, run in enumerate(self.runs):
            for row in read_sound_rows(run):
                self._note(index, row)
        left = tuple(run for run in self.runs if not has_result(run))
        if self.record.stopped:
            self.pruned, left = self.record.stopped, ()
        for run in self.runs:
            if run_status(run) == Status.PRUNED:
                self.give_up(run)
                left = ()
        if self.decide is None:
            self.waiting = [(run,) for run in left]
        else:
            self._prepare(left)
            self.waiting = [left] if left else []

    def report(self, run: RunDir, row: Mapping[str, Any]) -> None:
        """Take in an evaluation of a run; where the trial may be pruned the run is told to go on or to end."""
        seen = self._note(self.runs.index(run), row)
        if self.decide is not None and seen:
            self._answer(run, int(row["step"]))

    def give_up(self, run: RunDir) -> None:
        """A run ended because it was told to, so the trial ends with it.

        That alone is what prunes a trial: of a run that ends by itself at the very evaluation that it would have been
        pruned at, nothing is left to save, and whoever goes on from the files could not know of it.
        """
        self.pruned = self.pruned or str(read_result(run).get("message") or "pruned")
        self.waiting = []

    def stop(self, why: str) -> None:
        """Somebody ends the trial: nothing more is begun, and the run under way ends at its next evaluation."""
        self.record = dataclasses.replace(self.record, stopped=why)
        self.pruned, self.waiting = why, []
        for run in self.runs:
            if run.status.exists() and not has_result(run):
                tell_to_end(run, why)

    def step(self, run: RunDir, row: Mapping[str, Any]) -> None:
        """Note how far a run is, by what a row of it says of the budget; a row that does not say moves nothing."""
        self.shares[run.id] = max(self.shares.get(run.id, 0.0), self.yardstick.share(row))

    @property
    def share(self) -> float:
        """How much of the trial's budget is spent."""
        return min(1.0, sum(self.shares.values()) / len(self.runs))

    @property
    def over(self) -> bool:
        """True when none of its runs waits or is being worked on."""
        return not self.waiting and not self.working

    def left_from(self, run: RunDir) -> tuple[RunDir, ...]:
        """The run and, where its job had more runs, those after it."""
        return self.runs[self.runs.index(run) :] if self.decide is not None else (run,)

    def fail(self, run: RunDir, why: str) -> None:
        """The trial has failed, for this run was lost too often."""
        self.failed = f"{run.id}: {why}"
        self.waiting = []

    def go_on(self, rest: Sequence[RunDir]) -> None:
        """What is left of a job whose run was lost waits again."""
        self.record = dataclasses.replace(self.record, attempts=self.record.attempts + 1)
        self._prepare(rest)
        self.waiting.insert(0, tuple(rest))

    def interrupted(self) -> TrialRecord:
        """The record of a trial that nobody works on any more, to be continued by another driver."""
        started = [run for run in self.runs if run.status.exists()]
        last = [rows[-1] for rows in map(read_sound_rows, started) if rows]
        return dataclasses.replace(
            self.record,
            status=TrialStatus.INTERRUPTED,
            runs=tuple(str(run.path) for run in started),
            statuses=tuple(run_status(run) for run in started),
            curve=self.curve,
            completions=sum(int(row.get("completions") or 0) for row in last),
            tokens=sum(int(row.get("tokens") or 0) for row in last),
        )

    def ended(self) -> TrialRecord:
        """The record of a trial of which nothing waits or works any more."""
        started = [run for run in self.runs if run.status.exists()]
        statuses = tuple(str(run_status(run)) for run in started)
        measured = {run.id: self.yardstick.value(read_result(run)) for run in started}
        failed = self.failed or self._missing(statuses, [measured.get(run.id) for run in self.runs])
        ending = TrialStatus.FAILED if failed else self._status(statuses)
        unmeasured: set[str] = set()
        if ending in (TrialStatus.COLLAPSED, TrialStatus.INVALID_ROLLOUT):  # ranked, so by whole budgets alone
            unmeasured = {run.id for run in started if run_status(run) == Status.PRUNED}
        record = dataclasses.replace(self.record, status=ending, message=failed or self.pruned, curve=self.curve)
        record = measured_record(record, self.runs, self.yardstick, unmeasured)
        return dataclasses.replace(record, score=None) if failed else record

    @property
    def curve(self) -> Curve:
        """What was reported so far: seed by seed, each run's evaluations in the order of its steps."""
        return tuple(reports[step] for reports in self._reports for step in sorted(reports))

    def _status(self, statuses: Sequence[str]) -> TrialStatus:
        """How the trial ends by the endings of its runs; the gravest of them counts."""
        for ending in (TrialStatus.INVALID_ROLLOUT, TrialStatus.COLLAPSED, TrialStatus.PRUNED):
            if str(ending) in statuses:
                return ending
        return TrialStatus.PRUNED if self.pruned else TrialStatus.COMPLETED

    def _missing(self, statuses: Sequence[str], values: Sequence[float | None]) -> str:
        """Why a trial whose runs all ended by themselves has no value after all; empty where it has."""
        if self.pruned or "PRUNED" in statuses:
            return ""
        strange = [status for status in statuses if status not in FINISHED]
        if strange or len(statuses) < len(self.runs):
            return f"a run is {strange[0] if strange else 'missing'}"
        return "" if None not in values else f"a run has no {self.yardstick.take} {self.yardstick.metric}"

    def _note(self, index: int, row: Mapping[str, Any]) -> bool:
        """True where the row of this run is an evaluation after the start; its value is noted where it has one."""
        share = self.yardstick.share(row)
        self.shares[self.runs[index].id] = share
        if not is_evaluation(row):
            return False
        if (value := row.get(self.yardstick.metric)) is not None:
            self._reports[index][int(row["step"])] = Point(self.record.seeds[index], share, float(value))
        return True

    def _prepare(self, runs: Sequence[RunDir]) -> None:
        """Say in the runs' control files what was decided on the rows they have: only later ones are waited for."""
        for run in runs if self.decide is not None else ():
            rows = [row for row in read_sound_rows(run) if is_evaluation(row)]
            self._answer(run, int(rows[-1]["step"]) if rows else 0)

    def _answer(self, run: RunDir, seen: int) -> None:
        """Write what the run reads at its evaluations."""
        assert self.decide is not None
        if self.record.stopped:
            self.stop(self.record.stopped)
            return
        index, end = self.runs.index(run), None
        for row in read_sound_rows(run):
            share = self.yardstick.share(row)
            if not row.get("step") or row["step"] > seen or row.get(self.yardstick.metric) is None or share >= 1:
                continue  # at its end a run needs no word; the next seed's first report decides on the trial
            before = [point for reports in self._reports[:index] for _, point in sorted(reports.items())]
            here = [point for step, point in sorted(self._reports[index].items()) if step <= row["step"]]
            why = self.decide((*before, *here))
            if why:
                end = {"status": "PRUNED", "message": why, "step": row["step"]}
                break
        tell(run, seen=seen, end=end)


def measured_record(
    record: TrialRecord, runs: Sequence[RunDir], yardstick: Yardstick, unmeasured: Collection[str] = ()
) -> TrialRecord:
    """The record with what its runs, one per seed, reached and spent. Those of the ids `unmeasured` have no value."""
    started = [run for run in runs if run.status.exists()]
    results = [read_result(run) for run in started]
    measured = {
        run.id: None if run.id in unmeasured else yardstick.value(result)
        for run, result in zip(started, results, strict=True)
    }
    values = tuple(measured.get(run.id) for run in runs)
    known = [value for value in values if value is not None]
    errors = {run.id: yardstick.error(result) for run, result in zip(started, results, strict=True)}
    tables = {run.id: read_sound_rows(run) for run in started}
    gains = [yardstick.learned(tables.get(run.id, [])) for run in runs]
    of_stages = [yardstick.gains(rows) for rows in tables.values()]
    return dataclasses.replace(
        record,
        values=values,
        errors=tuple(None if run.id in unmeasured else errors.get(run.id) for run in runs),
        starts=tuple(gain.start for gain in gains),
        gain_errors=tuple(gain.se for gain in gains),
        stages={
            name: mean_gain([of_run[name] for of_run in of_stages], yardstick.ruler).document()
            for name in yardstick.stages
        },
        baselines=means_over_seeds(results),
        score=sum(known) / len(known) if known else None,
        runs=tuple(str(run.path) for run in started),
        statuses=tuple(str(run_status(run)) for run in started),
        completions=sum(int(result.get("final", {}).get("completions") or 0) for result in results),
        tokens=sum(int(result.get("final", {}).get("tokens") or 0) for result in results),
        seconds=round(sum(float(result.get("seconds") or 0.0) for result in results), 3),
        findings=tuple(tuple(str(entry.get("id")) for entry in result.get("findings", [])) for result in results),
    )


def is_evaluation(row: Mapping[str, Any]) -> bool:
    """True for the row of an evaluation after the start."""
    return bool(row.get("step")) and any(name.startswith("eval/") for name in row)


def tell(run: RunDir, *, seen: int, end: Mapping[str, object] | None = None, wait: bool = True) -> None:
    """Write what the run reads at its evaluations (grpoctl.executors.execution.ControlFile)."""
    replace_json(run.control, {"schema": 1, "wait": wait, "seen": seen, "end": end}, durable=False)


def tell_to_end(run: RunDir, why: str) -> None:
    """The run ends at its next evaluation, PRUNED, without asking again."""
    tell(run, seen=0, end={"status": "PRUNED", "message": why, "step": 0}, wait=False)


def run_status(run: RunDir) -> str:
    """The status of a run; RUNNING where that is missing or damaged, so that the run is continued."""
    with suppress(StorageError):
        if (record := status.read(run.status)) is not None:
            return str(record.status)
    return str(Status.RUNNING)


def has_result(run: RunDir) -> bool:
    """True when a run came to an end of its own and its result can be read: nothing is left to do."""
    return run_status(run) in FINISHED and bool(read_result(run))


def read_result(run: RunDir) -> dict[str, Any]:
    """The result.json of a run; empty where that is missing or damaged."""
    with suppress(StorageError):
        return read_json(run.result) or {}
    return {}


def read_sound_rows(run: RunDir) -> list[dict[str, Any]]:
    """The rows of a run; none where they are damaged."""
    try:
        return read_rows(run.metrics)
    except StorageError:  # damaged: the run itself will say so
        return []
