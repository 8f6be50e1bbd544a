"""What each stage of a run gained on held-out prompts, and whether that is more than the noise of its evaluations.

A stage starts from the last evaluation before its first step and ends with its own last one, so that the stages' gains
add up to the run's. Not here: how far seeds differ, which one run cannot know (grpoctl.analysis).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from core.config import RunSpec
from core.health.case import Case, Settings
from core.health.finding import Finding, Row, StepTable
from core.health.statistics import POWER, Interval, chance_beyond, clipped, mean, sample_sd, t_interval
from core.metrics import limits

CLEAR = 2.0  # standard errors: a change is told from noise
ROUNDING = 1e-6  # of a reward: a change as small is of its last digits, and nothing to look for with more prompts
REACHABLE = 1000  # times as many completions: more is no advice


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One evaluation; `se` is the standard error of its reward over prompts, or the largest it can be."""

    step: int
    reward: float
    se: float


def difference_se(p1: float, p2: float, n: int) -> float:
    """The standard error of p2 - p1, two shares of n independent yes-or-no answers each.

    sqrt((p1 (1 - p1) + p2 (1 - p2)) / n). Scores between 0 and 1 have at most this. On the same questions the
    difference is often known better than that: only answers that changed count then. Raises ValueError for n < 1.
    """
    if n < 1:
        raise ValueError(f"got n={n}; at least 1 is allowed")
    return math.sqrt((p1 * (1.0 - p1) + p2 * (1.0 - p2)) / n)


def answers_needed(p1: float, p2: float) -> float:
    """How many answers a side tell p1 from p2 in 4 of 5 tries, at 5 % two-sided; infinite where they are equal."""
    return (POWER * difference_se(p1, p2, 1) / (p2 - p1)) ** 2 if p1 != p2 else math.inf


def best_of(count: int) -> float:
    """How far, in standard errors, the largest of so many equal numbers lies above them on average (Blom 1958)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def evaluations(case: Case) -> list[Evaluation]:
    """The evaluations whose precision is known, in order."""
    points = []
    for row in case.rows:
        reward = row.get("eval/reward")
        if reward is None or not math.isfinite(reward) or (se := _se(row, case.settings)) is None:
            continue
        points.append(Evaluation(step=int(row.get("step") or 0), reward=reward, se=se))
    return points


def noise(case: Case) -> Sequence[Finding]:
    """An info where the last evaluation differs from the first by less than two standard errors.

    Errors of the two are added as if independent. Where both used the same prompts and draws the difference is known
    a little better, so this may call a small true change noise, and never the other way.

    Of the best of many: the largest of M equal numbers that are measured with noise lies above them.

    ## noise

    Severity: info.

    Means: the last evaluation differs from the first by less than two standard errors. Where the best evaluation looks
    like progress and the last does not, it says how far the best of M lies above the others by choice alone (Blom: 1.5
    standard errors of 10).

    Looks at: `eval/reward` and `eval/reward_se` of the first and the last evaluation, the errors added as if
    independent. Where a log has none: sqrt(p (1 - p) / n) with `eval_completions` (`--set eval_completions=800`), which
    is right for yes-or-no answers and an upper bound for scores between 0 and 1.

    Confounder: a small true change. Both evaluations usually have the same prompts, so the truth is often a little
    better than this error says. Whether seeds differ is a matter of `grpoctl compare`.

    Do: evaluate with as many completions as the finding says (a true change of this size is then found in 4 of 5
    tries).
    """
    seen = evaluations(case)
    if len(seen) < 2:
        return ()
    first, last = seen[0], seen[-1]
    change, se = last.reward - first.reward, math.hypot(first.se, last.se)
    if se == 0 or abs(change) >= CLEAR * se:
        return ()
    more = (POWER * se / change) ** 2 if abs(change) > ROUNDING else math.inf
    evidence: dict[str, float | str] = {
        "first_step": first.step, "last_step": last.step, "first": first.reward, "last": last.reward,
        "change": change, "se": se, "p": chance_beyond(change / se), "evaluations": len(seen),
    }  # fmt: skip
    if math.isfinite(more):
        evidence["times_more_completions"] = more
    return (
        Finding(
            id="noise",
            severity="info",
            summary=(
                f"eval/reward went from {first.reward:.4g} to {last.reward:.4g}: a change of {change:+.2g} with a "
                f"standard error of {se:.2g} is within noise" + _selected(seen, evidence)
            ),
            evidence=evidence,
            suggest=larger(case.settings, more),
            advice=advice(case.settings, more),
            confidence="strong",
        ),
    )


def _se(row: Row, settings: Settings) -> float | None:
    """Of the row's evaluation: as it says, or of yes-or-no answers, which no reward in [0, 1] exceeds."""
    reward, own_se, count = row.get("eval/reward"), row.get("eval/reward_se"), settings.eval_completions
    if own_se is not None and math.isfinite(own_se):
        return own_se
    if reward is None or not count or not 0.0 <= reward <= 1.0:
        return None
    return math.sqrt(reward * (1.0 - reward) / count)


def _selected(seen: Sequence[Evaluation], evidence: dict[str, float | str]) -> str:
    """What to say of the best evaluation, where it alone looks like progress."""
    first, best = seen[0], max(seen, key=lambda evaluation: evaluation.reward)
    gain, se = best.reward - first.reward, math.hypot(best.se, first.se)
    by_chance = best_of(len(seen)) * best.se
    evidence |= {"best_step": best.step, "best_gain": gain, "best_gain_by_chance": by_chance}
    if best is seen[-1] or gain < CLEAR * se:
        return ""
    return (
        f"; the best of {len(seen)} evaluations (step {best.step}) is {gain:+.2g}, of which the choice alone gives "
        f"about {by_chance:.2g}"
    )


def larger(settings: Settings, more: float) -> tuple[str, ...]:
    """The override that gives an evaluation `more` times today's completions, where those are known and can be had.

    None where prompts come in clusters: more prompts of the same clusters tell nothing new.
    """
    if settings.eval_completions is None or more > REACHABLE or settings.eval_clusters:
        return ()
    return (f"task.eval_prompts={math.ceil(more * settings.eval_completions)}", "evaluation.num_generations_eval=1")


def advice(settings: Settings, more: float) -> str:
    """How many completions of an evaluation tell a change from noise, `more` times today's."""
    if not math.isfinite(more):
        return "there is no difference to confirm"
    count = settings.eval_completions
    if settings.eval_clusters and settings.eval_prompts:
        clusters = _round(more * settings.eval_prompts)
        return f"to tell a change of this size from noise takes about {clusters} clusters of prompts an evaluation"
    needed = f"about {_round(more * count)} completions" if count else f"about {_round(more)} times as many completions"
    return f"to tell a change of this size from noise takes {needed} an evaluation"


def _round(value: float) -> str:
    """With two digits: a difference that is within noise is not known any better."""
    return f"{float(f'{value:.2g}'):,.0f}"


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
    """How a gain is measured: the metric, an evaluation's independent prompts, and the rewards that a task can give."""

    metric: str = HEADLINE
    prompts: int | None = None
    reward_range: Interval | None = None

    @classmethod
    def of(cls, spec: RunSpec, metric: str = HEADLINE) -> Ruler:
        """How the gains of a run of this spec are measured."""
        prompts = spec.task.independent_eval_prompts
        return cls(metric=metric, prompts=prompts, reward_range=spec.task.reward_range)

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
    gains: dict[str, Gain] = {}
    for index, name in enumerate(stages):
        own = [place for place, row in enumerate(rows) if row.get("stage") == index and row.get("step")]
        before = rows[: own[0]] if own else []
        gains[name] = _gain(_last(before, ruler), _last([rows[place] for place in own], ruler), name, ruler)
    return gains


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
    known = [gain for gain in gains if gain.gain is not None]
    if len(known) < 2:
        return known[0] if known else Gain(start=None, end=None)
    values = [gain.gain or 0.0 for gain in known]
    errors = [gain.se for gain in known if gain.se is not None]
    parts = [((sample_sd(values) or 0.0) ** 2 / len(known), float(len(known) - 1))]
    parts += [(mean([error**2 for error in errors]), ruler.df)] if errors else []
    return Gain(
        start=mean([gain.start or 0.0 for gain in known]),
        end=mean([gain.end or 0.0 for gain in known]),
        gain=mean(values),
        interval=ruler.possible(t_interval(mean(values), parts)),
        se=math.sqrt(mean([error**2 for error in errors])) if errors else None,
        paired=all(gain.paired for gain in known),
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
    is_paired = bool(paired) or (paired == 0 and last == first)  # 0 of a change: all prompts by as much, by chance
    errors = [paired] if is_paired else [row.get(f"{ruler.metric}_se") for row in (start, end)]
    parts = [((error or 0.0) ** 2, ruler.df) for error in errors]
    # A variance of 0: every prompt changed alike, and nothing is left to tell noise by.
    known = None not in errors and any(variance for variance, _ in parts)
    return Gain(
        start=first,
        end=last,
        gain=last - first,
        interval=ruler.possible(t_interval(last - first, parts)) if known else None,
        se=math.sqrt(sum(variance for variance, _ in parts)) if known else None,
        paired=is_paired,
        start_step=int(start.get("step") or 0),
        end_step=int(end.get("step") or 0),
    )


def by_stages(case: Case) -> bool:
    """True where the rows say of which stage they are: gains are then told stage by stage."""
    return bool(case.stages) and any("stage" in row for row in case.rows)


def no_gain(case: Case) -> Sequence[Finding]:
    """A warning for each GRPO or RCE stage without a significant gain of the held-out reward.

    ## no-gain

    Severity: warning (strong; weak or moderate where no interval is known); info (weak) where only the training reward
    tells.

    Means: a stage of GRPO (or RCE) ends no better on held-out prompts than it began, beyond noise.

    Looks at: `eval/reward`. A stage starts from the last evaluation before its first step and ends with its own last
    one, so the gains of all stages add up to the run's: of 0.037 -> 0.590 the supervised stage may have made +0.559 and
    GRPO -0.006. The 95 % interval is Student's t over prompts, paired by prompt (`eval/gain_se/<stage>`: all
    evaluations of a run ask the same prompts with the same draws). A run of an older version has no such error, and the
    errors of its two evaluations are added as if independent. Where stages are known it takes the place of `noise`.

    In a log without errors of its evaluations: those that fall by 15 % and 0.04 or more, each below the one before,
    with a trend (p < 0.001), or three and more below 0.7 of two and more before, where the training reward did not rise
    (else `overfitting`). And in a log of ten rows and steps or more (or of a few rows that stand for 50 steps) without
    such evaluations: a training reward without a rising trend (less than two standard errors; of four to seven rows
    less than 1.5 times their spread; of fewer than twenty the later ones not above the first by three times theirs)
    that begins below 95 % of the largest (weak). One that falls all along is `policy-collapse`.

    Confounder: a small true gain that so few evaluation prompts cannot show. Not looked at: other seeds (`grpoctl
    compare`), and rewards on training prompts. A supervised stage is judged by its loss (`supervised-flat`).

    Do: more evaluation prompts or completions; where the stage made things worse, read the samples that it learned
    from.

    Measured: with a learning rate of 0 the GRPO stage is told that it adds nothing in 20 of 20 runs
    ([benchmarks](benchmarks.md#curves-gains-and-rankings-that-can-be-believed)).
    """
    ruler = Ruler(prompts=case.settings.eval_prompts, reward_range=case.reward_range)
    gains = stage_gains(case.rows, list(case.stages), ruler)
    return [
        _finding(case, name, gain)
        for name, gain in gains.items()
        if case.stages[name] in SAMPLED and gain.gain is not None and not gain.clear
        if gain.interval is not None or gain.gain == 0  # else nothing says how much noise is in the change
    ]


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
        more = (POWER * se / gain.gain) ** 2 if abs(gain.gain) > ROUNDING else math.inf
        evidence |= {"low": low, "high": high, "se": se}
    worse = gain.interval is not None and gain.interval[1] < 0
    verdict = "loses held-out reward" if worse else "has no significant gain"
    clustered = case.settings.eval_clusters
    over = f"{case.settings.eval_prompts} clusters of prompts" if clustered else "prompts"
    kind = f"95 % interval over {over}, {'paired' if gain.paired else 'the two evaluations as if independent'}"
    if gain.interval is None:
        unknown = "nothing tells how much noise is in that"
        same = f"no {'cluster' if clustered else 'prompt'}'s reward changed"
        verdict, kind = "ends as it began", same if gain.paired else unknown
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
        confidence="weak" if gain.interval is None and not gain.paired else "strong",
    )  # fmt: skip
