"""Is what evaluations say of a run more than their noise? The last against the first, with a standard error.

And the best of many: the largest of M equal numbers that are measured with noise lies above them. Not here: how far
seeds differ, which one run cannot know (grpoctl compare).

## noise

Severity: info.

Means: the last evaluation differs from the first by less than two standard errors. Where the best evaluation looks
like progress and the last does not, it says how far the best of M lies above the others by choice alone (Blom: 1.5
standard errors of 10).

Looks at: `eval/reward` and `eval/reward_se` of the first and the last evaluation, the errors added as if independent.
Where a log has none: sqrt(p (1 - p) / n) with `eval_completions` (`--set eval_completions=800`), which is right for
yes-or-no answers and an upper bound for scores between 0 and 1.

Confounder: a small true change. Both evaluations usually have the same prompts, so the truth is often a little better
than this error says. Whether seeds differ is a matter of `grpoctl compare`.

Do: evaluate with as many completions as the finding says (a true change of this size is then found in 4 of 5 tries).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from core.health.case import Case
from core.health.finding import Finding, Row
from core.health.settings import Settings
from core.health.statistics import POWER
from core.health.trend import chance_beyond

CLEAR = 2.0  # standard errors: a change is told from noise
REACHABLE = 1000  # times as many completions: more is no advice


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
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


def evaluations(case: Case) -> list[Measured]:
    """The evaluations whose precision is known, in order."""
    found = []
    for row in case.rows:
        reward = row.get("eval/reward")
        if reward is None or not math.isfinite(reward) or (se := _se(row, case.settings)) is None:
            continue
        found.append(Measured(step=int(row.get("step") or 0), reward=reward, se=se))
    return found


def noise(case: Case) -> Sequence[Finding]:
    """An info where the last evaluation differs from the first by less than two standard errors.

    Errors of the two are added as if independent. Where both used the same prompts and draws the difference is known
    a little better, so this may call a small true change noise, and never the other way.
    """
    seen = evaluations(case)
    if len(seen) < 2:
        return ()
    first, last = seen[0], seen[-1]
    change, se = last.reward - first.reward, math.hypot(first.se, last.se)
    if se == 0 or abs(change) >= CLEAR * se:
        return ()
    more = (POWER * se / change) ** 2 if change else math.inf
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
    reward, said, count = row.get("eval/reward"), row.get("eval/reward_se"), settings.eval_completions
    if said is not None and math.isfinite(said):
        return said
    if reward is None or not count or not 0.0 <= reward <= 1.0:
        return None
    return math.sqrt(reward * (1.0 - reward) / count)


def _selected(seen: Sequence[Measured], evidence: dict[str, float | str]) -> str:
    """What to say of the best evaluation, where it alone looks like progress."""
    first, best = seen[0], max(seen, key=lambda one: one.reward)
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
    """The override that gives an evaluation `more` times today's completions, where those are known and can be had."""
    if settings.eval_completions is None or more > REACHABLE:
        return ()
    return (f"task.eval_prompts={math.ceil(more * settings.eval_completions)}", "evaluation.num_generations_eval=1")


def advice(settings: Settings, more: float) -> str:
    """How many completions of an evaluation tell a change from noise, `more` times today's."""
    if not math.isfinite(more):
        return "there is no difference to confirm"
    count = settings.eval_completions
    needed = f"about {_round(more * count)} completions" if count else f"about {_round(more)} times as many completions"
    return f"to tell a change of this size from noise takes {needed} an evaluation"


def _round(value: float) -> str:
    """With two digits: a difference that is within noise is not known any better."""
    return f"{float(f'{value:.2g}'):,.0f}"
