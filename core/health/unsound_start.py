"""Was a run broken from the first step that drew completions? Then its training did not do it.

Silent where it healed: then it was learned. And where core.health.missing_eos says the same of the end token.

## unsound-start

Severity: error (strong by validity, moderate by truncation); warning (moderate) for other limits, and where a few
completions are valid all the time (a fifth of the limit or more, 1 %).

Means: a limit was broken from the first step that drew completions, so training did not do it.

Looks at: a guard's limit that is broken on four fifths of all steps and of the last third.

Confounder: a task that is too hard looks the same where a few completions are valid all the time. Silent where more
than half is valid, where it heals (then it was learned), and where `missing-eos` explains it. Sound first and broken
without an update in between is the sampler's (`rollout-mode`).

Do: look at what the model is asked and where its completions end: the prompt's format, the end token,
`max_completion_length`, the validity check itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from core.health.case import Case
from core.health.collapse import Limit, limits
from core.health.finding import Confidence, Finding
from core.health.lasting import MOST, drawn
from core.health.missing_eos import missing_eos
from core.health.onset import number

NOTHING = 0.2  # of the limit: less is next to nothing
SOUND = 0.5  # of the completions are valid: then what else is odd is by design, or harmless


def unsound_start(case: Case) -> Sequence[Finding]:
    """An error where next to nothing was valid from the first step to the end; a warning for the other limits.

    A warning too where a few completions are valid all the time, as on a task that is too hard: a limit between them
    and the next count of a step is passed by chance.
    """
    bad = [(limit, values) for limit in limits(case.guards) if (values := _never_sound(case, limit))]
    valid = [value for row in drawn(case) if (value := number(row, "completions/valid")) is not None]
    if not bad or (valid and fmean(valid) >= SOUND) or missing_eos(case):
        return ()
    limit, values = bad[0]
    some = limit.metric == "completions/valid" and fmean(valid) >= NOTHING * limit.value
    useless = bool(valid) and limit.metric in ("completions/valid", "completions/truncated") and not some
    share, first = fmean(map(limit.broken, values)), int(drawn(case)[0].get("step") or 0)
    sure: Confidence = "strong" if limit.metric == "completions/valid" and not some else "moderate"
    otherwise = f", or the task is too hard ({fmean(valid):.1%} are valid)" if some else ", and it may be meant"
    return (
        Finding(
            id="unsound-start",
            severity="error" if useless else "warning",
            summary=(
                f"{limit.metric} is {limit} on {share:.0%} of the steps, from step {first} on, the first that drew "
                f"completions: training did not do it{'' if useless else otherwise}"
            ),
            evidence={
                "metric": limit.metric, "first_step": first, "value": values[0], "last": values[-1], "share": share,
            },
            advice=(
                "see what the model is asked and where its completions end: the prompt's format, the end token, "
                "max_completion_length, the validity check itself"
            ),
            confidence=sure,
        ),
    )  # fmt: skip


def _never_sound(case: Case, limit: Limit) -> list[float]:
    """The column where it is beyond the limit from the first step on, for most of all steps and of the last third."""
    values = [value for row in drawn(case) if (value := number(row, limit.metric)) is not None]
    broken = list(map(limit.broken, values))
    patience = case.guards.patience
    if len(values) < patience or not all(broken[:patience]):
        return []
    return values if min(fmean(broken), fmean(broken[-max(patience, len(broken) // 3) :])) >= MOST else []
