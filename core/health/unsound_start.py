"""Was a run broken from the first step that drew completions? Then its training did not do it.

Silent where it healed: then it was learned. And where core.health.missing_eos says the same of the end token.
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

SOUND = 0.5  # of the completions are valid: then what else is odd is by design, or harmless


def unsound_start(case: Case) -> Sequence[Finding]:
    """An error where next to nothing was valid from the first step to the end; a warning for the other limits."""
    bad = [(limit, values) for limit in limits(case.guards) if (values := _never_sound(case, limit))]
    valid = [value for row in drawn(case) if (value := number(row, "completions/valid")) is not None]
    if not bad or (valid and fmean(valid) >= SOUND) or missing_eos(case):
        return ()
    limit, values = bad[0]
    useless = bool(valid) and fmean(valid) < SOUND and limit.metric in ("completions/valid", "completions/truncated")
    share, first = fmean(map(limit.broken, values)), int(drawn(case)[0].get("step") or 0)
    sure: Confidence = "strong" if limit.metric == "completions/valid" else "moderate"
    return (
        Finding(
            id="unsound-start",
            severity="error" if useless else "warning",
            summary=(
                f"{limit.metric} is {limit} on {share:.0%} of the steps, from step {first} on, the first that drew "
                f"completions: training did not do it{'' if useless else ', and it may be meant'}"
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
