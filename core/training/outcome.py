"""How a run ended, and what it reached by its step table: start, final, best, and the run-level metrics.

No torch here: whoever looks at runs reads this, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from core.config.expectation import parse
from core.health.finding import Finding, Row, StepTable, all_invalid, steps_of
from core.health.rules.gains import Gain
from core.health.rules.rollout_mode import contrast
from core.health.statistics import series, t_interval, trend
from core.metrics import baseline_of, declared

# INTERRUPTED: paused by its parent at an evaluation, where it leaves a checkpoint to be gone on with
EndStatus = Literal["COMPLETED", "STOPPED_EARLY", "PRUNED", "COLLAPSED", "INVALID_ROLLOUT", "INTERRUPTED"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Why the loop ended."""

    status: EndStatus
    message: str
    finding: Finding | None = None


COUNTED = ("completions", "tokens")  # up to a row: what a run spent is what its last row says
LAST = 10  # step metrics are noisy: `final` is their mean over this many last steps
_NO_MEAN = ("step", "update", *COUNTED)
_ABOUT_THE_EVALUATION = ("eval/temperature", "eval/logprob_gap")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOutcome:
    """metric -> value before the first step, at the end, and at the best evaluation."""

    start: dict[str, float]
    final: dict[str, float]
    best: dict[str, float]


def outcome(table: StepTable) -> RunOutcome:
    """What the table says was reached. Where there is nothing, no evaluation, no step, only what was spent: 0.

    What the last row does not count is not among it.
    """
    evaluations = [row for row in table if row.get("eval/reward") is not None]
    steps = steps_of(table)
    trained = [row for row in evaluations if row.get("step")]
    best = _best(trained or evaluations)
    first = [row for row in evaluations if row.get("step") == 0]
    final = {**_means(steps[-LAST:]), **_evaluation(evaluations[-1:]), **run_metrics(table)} if steps else {}
    last: Row = table[-1] if table else dict.fromkeys(COUNTED, 0.0)
    spent = {name: last.get(name) or 0.0 for name in COUNTED if name in last}
    return RunOutcome(
        start=_evaluation(first),
        final=final | spent,
        best={"step": best["step"] or 0, **_evaluation([best])} if best else {},
    )


def run_metrics(table: StepTable) -> dict[str, float]:
    """The metrics of kind `run`, counted over the whole table."""
    steps, c = steps_of(table), contrast(table)
    counts: dict[str, float] = {
        "steps": len(steps),
        "updates": sum(row.get("update") == 1 for row in steps),
        "collapsed_steps": sum(map(all_invalid, steps)),
        "collapsed_after_update": c.collapsed_after_update,
        "collapsed_after_skip": c.collapsed_after_skip,
        "followed_updates": c.after_update,
        "followed_skips": c.after_skip,
    }
    if c.after_update:
        counts["collapse_rate"] = c.collapsed_after_update / c.after_update
    return counts


def baselines(table: StepTable, kinds: Sequence[str]) -> dict[str, dict[str, float]]:
    """A run's evaluations and then its task's baselines, by name: metric -> value of each metric that both have.

    {} where the task has no baselines. `kinds` are those of the run's stages. `supervised` is the last evaluation
    before any other stage than supervised ones; `best` is absent where it is the last one.
    """
    of_task: dict[str, dict[str, float]] = {}
    for name, value in (table[0] if table else {}).items():
        if (named := baseline_of(name)) is not None and value is not None:
            baseline, metric = named
            of_task.setdefault(baseline, {})[metric] = value
    if not of_task:
        return {}
    first_other = next((index for index, kind in enumerate(kinds) if kind != "sft"), len(kinds))
    evaluations = [row for row in table if row.get("eval/reward") is not None]
    trained = [row for row in evaluations if row.get("step")]
    best = _best(trained)
    chosen: dict[str, Sequence[Row]] = {
        "start": [row for row in evaluations if row.get("step") == 0],
        "supervised": [row for row in trained if int(row.get("stage") or 0) < first_other][-1:],
        "final": trained[-1:],
        "best": [] if best is None or best is trained[-1] else [best],
    }
    of_run = {name: _evaluation(rows) for name, rows in chosen.items() if rows}
    evaluated = {metric for reached in of_run.values() for metric in reached}
    metrics = sorted({metric for reached in of_task.values() for metric in reached if metric in evaluated})
    return {
        name: {metric: reached[metric] for metric in metrics if metric in reached}
        for name, reached in {**of_run, **of_task}.items()
    }


def _best(evaluations: Sequence[Row]) -> Row | None:
    """The first of those with the highest reward."""
    return max(evaluations, key=lambda row: row["eval/reward"] or 0.0, default=None)


UNKNOWN = Gain(start=None, end=None)


def trends(table: StepTable, stages: Sequence[str]) -> Callable[[str, str | None], Gain]:
    """The change of the line through a metric's steps, of a stage by name or of all: a function of both.

    Its interval takes steps for independent; a policy that drifts makes it too narrow.
    """

    def along(metric: str, stage: str | None) -> Gain:
        number = None if stage is None else stages.index(stage)
        points = series([row for row in steps_of(table) if number in (None, row.get("stage"))], metric)
        if (line := trend(points)) is None:
            return UNKNOWN
        span, start = points[-1][0] - points[0][0], fmean(value for _, value in points)
        change, error = line.slope * span, line.se * span
        interval = t_interval(change, [(error**2, len(points) - 2)])
        return Gain(start=start - change / 2, end=start + change / 2, gain=change, interval=interval)

    return along


def check_expectations(
    expects: Sequence[str],
    final: Mapping[str, float],
    whole: Gain,
    stages: Mapping[str, Gain],
    along: Callable[[str, str | None], Gain] = lambda _metric, _stage: UNKNOWN,
) -> list[dict[str, object]]:
    """Each expectation with what was observed at the end; `met` is None where that cannot be told.

    `whole` is the gain of the run, `stages` those of its stages, `along` the trend of a metric over a stage or the run.
    A gain or trend has its `interval` beside it, and is met where all of that lies on the right side.
    """
    checked: list[dict[str, object]] = []
    for text in expects:
        expectation = parse(text)
        if not (expectation.gain or expectation.trend):
            observed = final.get(expectation.metric)
            met = None if observed is None else expectation.holds(observed)
            checked.append({"expectation": text, "observed": observed, "met": met})
            continue
        if expectation.trend:
            gain = along(expectation.metric, expectation.stage)
        else:
            gain = whole if expectation.stage is None else stages.get(expectation.stage, UNKNOWN)
        met = None if gain.gain is None else expectation.holds(gain.gain)
        if met and gain.gain is not None:
            met = None if gain.interval is None else expectation.holds_for(gain.interval)
        interval = None if gain.interval is None else list(gain.interval)
        checked.append({"expectation": text, "observed": gain.gain, "interval": interval, "met": met})
    return checked


def _evaluation(rows: Sequence[Row]) -> dict[str, float]:
    """`eval/*` of the rows, less what only says how sound and how warm the evaluation was."""
    reached = [(name, value) for row in rows for name, value in row.items() if name.startswith("eval/")]
    return {name: value for name, value in reached if value is not None and name not in _ABOUT_THE_EVALUATION}


def _means(rows: Sequence[Row]) -> dict[str, float]:
    written = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in written if (known := declared(name)) and known.kind == "step" and name not in _NO_MEAN]
    values = {name: [float(v) for row in rows if (v := row.get(name)) is not None] for name in names}
    return {name: fmean(present) for name, present in values.items() if present}
