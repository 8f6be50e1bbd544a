"""What the reward functions said of each row -> one outcome per row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from core.config.task import RewardSpec
from core.tasks.base import Outcome
from core.tasks.rewards.judge import Verdict


def outcomes_of(
    rewards: Sequence[RewardSpec],
    verdicts: Mapping[str, Verdict],
    outputs: Sequence[str],
    valid_above: float | None,
) -> list[Outcome]:
    """One outcome per output; `parts` are the functions' values by name, NaN where there is none.

    The reward is the sum of weight x value over the functions that gave a value. It is missing where one of them was
    lost (raised, hung, ...), and where none gave a value. A weight of 0 counts for neither: that function is only
    logged.
    """
    counted = [reward for reward in rewards if reward.weight != 0]
    return [_outcome(row, rewards, counted, verdicts, output, valid_above) for row, output in enumerate(outputs)]


def _outcome(
    row: int,
    rewards: Sequence[RewardSpec],
    counted: Sequence[RewardSpec],
    verdicts: Mapping[str, Verdict],
    output: str,
    valid_above: float | None,
) -> Outcome:
    parts = {reward.label: float(verdicts[reward.label].values[row]) for reward in rewards}
    lost = any(row in verdicts[reward.label].lost for reward in counted)
    given = [reward.weight * parts[reward.label] for reward in counted if not math.isnan(parts[reward.label])]
    total = math.nan if lost or not given else math.fsum(given)
    # What was lost is no worse for it: a step whose rewards are missing must not look like a collapse.
    valid = bool(output.strip()) if valid_above is None or math.isnan(total) else total > valid_above
    return Outcome(reward=total, expected=total, valid=valid, parts=parts)
