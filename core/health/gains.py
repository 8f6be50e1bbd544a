"""What each stage of a run gained on held-out prompts, and whether that is more than the noise of its evaluations.

A stage starts from the last evaluation before its first step and ends with its own last one, so that the stages' gains
add up to the run's. Not here: how far seeds differ, which one run cannot know (grpoctl.analysis).

## no-gain

Severity: warning (strong; weak where no interval is known).

Means: a stage of GRPO (or RCE) ends no better on held-out prompts than it began, beyond noise.

Looks at: `eval/reward`. A stage starts from the last evaluation before its first step and ends with its own last one,
so the gains of all stages add up to the run's: of 0.037 -> 0.590 the supervised stage may have made +0.559 and GRPO
-0.006. The 95 % interval is Student's t over prompts, paired by prompt (`eval/gain_se/<stage>`: all evaluations of a
run ask the same prompts with the same draws). A run of an older version has no such error, and the errors of its two
evaluations are added as if independent. Where stages are known it takes the place of `noise`.

Confounder: a small true gain that so few evaluation prompts cannot show. Not looked at: other seeds (`grpoctl
compare`), and rewards on training prompts. A supervised stage is judged by its loss (`supervised-flat`).

Do: more evaluation prompts or completions; where the stage made things worse, read the samples that it learned from.

Measured: with a learning rate of 0 the GRPO stage is told that it adds nothing in 20 of 20 runs
([benchmarks](benchmarks.md#curves-gains-and-rankings-that-can-be-believed)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.config import RunSpec
from core.health.case import Case
from core.health.finding import Finding, Row, StepTable
from core.health.noise import advice, larger
from core.health.statistics import POWER, Interval, clipped, mean, sample_sd, t_interval
from core.metrics import limits

HEADLINE = "eval/reward"
SAMPLED = ("grpo", "rce")  # kinds of stage whose gain the policy's own completions must have made


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """A metric at two evaluations of one run, with the gain's standard error over prompts and its 95 % interval.

    Both are None where no noise is known. The error is paired by prompt where the run says it; else the errors of the
    two evaluations are added as if independent, which errs on the wide side: what makes a prompt hard does not cancel.
    """

    start: float | None
    end: float | None
    gain: float | None = None
    interval: Interval | None = None
    se: float | None = None
    paired: bool = False
    start_step: int | None = None
    end_step: int | None = None

    @property
    def clear(self) -> bool:
        """True where the gain is above 0 by more than noise."""
        return self.interval is not None and self.interval[0] > 0

    def document(self) -> dict[str, object]:
        """What result.json has of it."""
        interval = None if self.interval is None else list(self.interval)
        return {"start": self.start, "end": self.end, "gain": self.gain, "interval": interval}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruler:
    """How a gain is measured: the metric, the prompts of an evaluation, and the rewards that a task can give."""

    metric: str = HEADLINE
    prompts: int | None = None
    reward_range: Interval | None = None

    @classmethod
    def of(cls, spec: RunSpec, metric: str = HEADLINE) -> Ruler:
        """How the gains of a run of this spec are measured."""
        return cls(metric=metric, prompts=spec.task.eval_prompts, reward_range=spec.task.reward_range)

    @property
    def df(self) -> float:
        """Degrees of freedom of an evaluation's standard error over prompts."""
        return math.inf if self.prompts is None else max(1, self.prompts - 1)

    def possible(self, gain: Interval) -> Interval:
        """The interval of a gain without what no gain can be."""
        low, high = limits(self.metric, self.reward_range)
        return gain if low is None or high is None else clipped(gain, low - high, high - low)


def gain_metric(metric: str) -> str:
    """What gains are of where results are ranked by `metric`: itself where evaluations have it, else the reward."""
    return metric if metric.startswith("eval/") else HEADLINE


def stage_gains(rows: StepTable, stages: Sequence[str], ruler: Ruler) -> dict[str, Gain]:
    """The gain of each stage, by name in their order; start and end are None where a run did not come so far."""
    found: dict[str, Gain] = {}
    for index, name in enumerate(stages):
        own = [place for place, row in enumerate(rows) if row.get("stage") == index and row.get("step")]
        before = rows[: own[0]] if own else []
        found[name] = _gain(_last(before, ruler), _last([rows[place] for place in own], ruler), name, ruler)
    return found


def gain_since(rows: StepTable, stages: Sequence[str], first: str, ruler: Ruler) -> Gain:
    """The gain from where the stage `first` began to the run's last evaluation; of the first stage, the whole run's."""
    index = list(stages).index(first)
    place = next((place for place, row in enumerate(rows) if row.get("step") and row.get("stage") == index), len(rows))
    return _gain(_last(rows[:place], ruler), _last(rows[place:], ruler), first, ruler)


def mean_gain(gains: Sequence[Gain], ruler: Ruler) -> Gain:
    """The mean over the runs of several seeds whose gain is known.

    Its interval has the spread between seeds and the noise of the evaluations, which is no less for more seeds: they
    are all asked the same prompts. Of one run it is that run's own, which says nothing of other seeds.
    """
    known = [one for one in gains if one.gain is not None]
    if len(known) < 2:
        return known[0] if known else Gain(start=None, end=None)
    values = [one.gain or 0.0 for one in known]
    errors = [one.se for one in known if one.se is not None]
    parts = [((sample_sd(values) or 0.0) ** 2 / len(known), float(len(known) - 1))]
    parts += [(mean([error**2 for error in errors]), ruler.df)] if errors else []
    return Gain(
        start=mean([one.start or 0.0 for one in known]),
        end=mean([one.end or 0.0 for one in known]),
        gain=mean(values),
        interval=ruler.possible(t_interval(mean(values), parts)),
        se=math.sqrt(mean([error**2 for error in errors])) if errors else None,
        paired=all(one.paired for one in known),
    )


def _last(rows: Sequence[Row], ruler: Ruler) -> Row | None:
    """The last row that has the metric."""
    return next((row for row in reversed(rows) if row.get(ruler.metric) is not None), None)


def _gain(start: Row | None, end: Row | None, stage: str, ruler: Ruler) -> Gain:
    """The gain between two rows; `end` may say how well it is known since `stage` began."""
    first, last = (None if row is None else row.get(ruler.metric) for row in (start, end))
    if start is None or end is None or first is None or last is None:
        return Gain(start=first, end=last)
    paired = end.get(f"eval/gain_se/{stage}") if ruler.metric == HEADLINE else None
    errors = [paired] if paired else [row.get(f"{ruler.metric}_se") for row in (start, end)]
    parts = [((error or 0.0) ** 2, ruler.df) for error in errors]
    # A variance of 0: every prompt changed alike, and nothing is left to tell noise by.
    known = None not in errors and any(variance for variance, _ in parts)
    return Gain(
        start=first,
        end=last,
        gain=last - first,
        interval=ruler.possible(t_interval(last - first, parts)) if known else None,
        se=math.sqrt(sum(variance for variance, _ in parts)) if known else None,
        paired=bool(paired),
        start_step=int(start.get("step") or 0),
        end_step=int(end.get("step") or 0),
    )


def by_stages(case: Case) -> bool:
    """True where the rows say of which stage they are: gains are then told stage by stage."""
    return bool(case.stages) and any("stage" in row for row in case.rows)


def no_gain(case: Case) -> Sequence[Finding]:
    """A warning for each GRPO or RCE stage that adds nothing to the held-out reward beyond the noise of evaluations."""
    ruler = Ruler(prompts=case.settings.eval_prompts, reward_range=case.reward_range)
    gains = stage_gains(case.rows, list(case.stages), ruler)
    return [
        _finding(case, name, gain)
        for name, gain in gains.items()
        if case.stages[name] in SAMPLED and gain.gain is not None and not gain.clear and not _unknown(gain)
    ]


def _unknown(gain: Gain) -> bool:
    """True where the reward changed and nothing says how much noise is in it."""
    return gain.interval is None and gain.gain != 0


def _finding(case: Case, name: str, gain: Gain) -> Finding:
    assert gain.gain is not None
    evidence: dict[str, float | str] = {
        "stage": name, "start_step": gain.start_step or 0, "end_step": gain.end_step or 0,
        "start": gain.start or 0.0, "end": gain.end or 0.0, "gain": gain.gain,
    }  # fmt: skip
    span, more = "", math.inf
    if gain.interval is not None:
        low, high = gain.interval
        se = gain.se or 0.0
        span = f" [{low:+.3f}, {high:+.3f}]"
        more = (POWER * se / gain.gain) ** 2 if gain.gain else math.inf
        evidence |= {"low": low, "high": high, "se": se}
    worse = gain.interval is not None and gain.interval[1] < 0
    verdict = "loses held-out reward" if worse else "adds nothing beyond noise"
    kind = f"95 % interval over prompts, {'paired' if gain.paired else 'the two evaluations as if independent'}"
    if gain.interval is None:
        verdict, kind = "ends as it began", "nothing tells how much noise is in that"
    return Finding(
        id="no-gain",
        severity="warning",
        summary=(
            f"stage {name} {verdict}: {HEADLINE} {gain.start:.3f} -> {gain.end:.3f}, {gain.gain:+.3f}{span} "
            f"({kind})"
        ),
        evidence=evidence,
        suggest=() if worse else larger(case.settings, more),
        advice="what the stage learned from is in its training rewards: read samples" if worse
        else advice(case.settings, more),
        confidence="weak" if gain.interval is None else "strong",
    )  # fmt: skip
