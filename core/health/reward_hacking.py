"""Does the reward rise while what it stands for falls? Then it is the reward that is learned, and not the task.

## reward-hacking

Severity: warning (moderate).

Means: the reward rises while what it stands for falls: it pays for what is not valid.

Looks at: `reward/mean` rises and `completions/valid` falls over the steps of the last GRPO stage (20 or more), both
with p < 0.001, and validity loses a tenth or more between the first and the last third.

Confounder: two trends of one run also have other causes (prompts that change); the samples decide.

Do: pay invalid completions less than any valid one, and read samples of the last steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from core.health.case import Case
from core.health.finding import Decider, Finding
from core.health.learning_rate import sampler_at_fault
from core.health.trend import chance_above, series, shown_p, trend

ENOUGH = 20  # steps
SIGNIFICANT = 1e-3
LOST = 0.1  # of the completions: what validity must have lost to be worth a word


def reward_hacking(case: Case) -> Sequence[Finding]:
    """A warning where reward/mean rises and completions/valid falls over the steps, both with p < 0.001."""
    rows = case.stage_rows  # another stage may have other prompts and another reward
    rewards, valid = series(rows, "reward/mean"), series(rows, "completions/valid")
    up, down = trend(rewards), trend(valid)
    if min(len(rewards), len(valid)) < ENOUGH or up is None or down is None or sampler_at_fault(case):
        return ()
    p_up, p_down, third = chance_above(up.z), chance_above(-down.z), len(valid) // 3
    first, last = (fmean(value for _, value in part) for part in (valid[:third], valid[-third:]))
    if max(p_up, p_down) >= SIGNIFICANT or first - last < LOST or not math.isfinite(up.slope):
        return ()
    return (
        Finding(
            id="reward-hacking",
            severity="warning",
            summary=(
                f"the reward rises by {100 * up.slope:.2g} in 100 steps ({shown_p(p_up)}) while valid completions fall "
                f"from {first:.0%} to {last:.0%} ({shown_p(p_down)}): it pays for what is not valid"
            ),
            evidence={
                "reward_slope": up.slope, "p_reward": p_up, "valid_first": first, "valid_last": last,
                "valid_slope": down.slope, "p_valid": p_down, "steps": len(valid),
            },
            advice="pay invalid completions less than any valid one, and read samples of the last steps",
            confidence="moderate",
            decider=Decider(question="does the reward still rise where invalid completions earn nothing?"),
        ),
    )  # fmt: skip
