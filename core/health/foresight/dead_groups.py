"""How often a group teaches nothing, as a function of the pass rate, for rewards of 0 and 1 that are independent.

All prompts are taken to have one pass rate: real prompts differ, which makes more of their groups dead, not fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from core.algorithms.normalisers import BASELINES, SCALES
from core.config import GrpoStage
from core.health.foresight.advantage_values import advantage_table, kept

PASS_RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadGroups:
    """Chances at one pass rate, of the first sampling; the last four with dynamic sampling, else None.

    Before shaping: an overlong penalty or a KL in the reward tells equal rewards apart.
    """

    pass_rate: float
    group: float  # a group is dead: p^K + (1 - p)^K, and more often where only its best candidates take part
    step: float | None  # all advantages of a step are 0; None where no formula is at hand
    attempts: float | None = None  # samplings of a step, expected
    samples: float | None = None  # completions sampled on a step, expected
    short: float | None = None  # a step still lacks live groups after max_attempts
    empty: float | None = None  # it has none at all


def dead_group(pass_rate: float, size: int, virtual_best: float | None = None, keep: int | None = None) -> float:
    """The chance that all rewards of a group are equal, the virtual one included.

    `keep`: of the best so many of the `size` completions. They are all right where at least so many are, and all wrong
    where every completion is.
    """
    all_right, all_wrong = _all_kept(pass_rate, size, size if keep is None else keep)
    if virtual_best is None:
        return all_right + all_wrong
    return (all_right if virtual_best == 1.0 else 0.0) + (all_wrong if virtual_best == 0.0 else 0.0)


def _all_kept(pass_rate: float, size: int, keep: int) -> tuple[float, float]:
    """(all right, all wrong): the chances of the best `keep` of `size` completions."""
    right = sum(
        comb(size, number) * pass_rate**number * (1.0 - pass_rate) ** (size - number)
        for number in range(keep, size + 1)
    )
    return right, (1.0 - pass_rate) ** size


def dead_groups_table(stage: GrpoStage, pass_rates: tuple[float, ...] = PASS_RATES) -> list[DeadGroups]:
    """A row for each pass rate."""
    return [_row(stage, pass_rate) for pass_rate in pass_rates]


def silent_step(stage: GrpoStage, pass_rate: float) -> float | None:
    """The chance that every advantage of a step is 0, so that there is nothing to learn.

    Where the baseline or the scale is the group's, that is up to each group. A batch's needs all N rewards equal, no
    baseline all of them 0; a running baseline is never met exactly. None where no formula is at hand.
    """
    how, size, groups = stage.advantage, stage.num_generations, stage.prompts_per_step
    right, wrong = _all_kept(pass_rate, size, kept(stage))
    baseline, scale = BASELINES[how.baseline], SCALES[how.scale_rewards]
    if baseline.scope == "group":
        chances = (
            comb(size, right) * pass_rate**right * (1 - pass_rate) ** (size - right) for right in range(size + 1)
        )
        silent = (not row.success and not row.failure for row in advantage_table(stage))
        return sum(chance for chance, zero in zip(chances, silent, strict=True) if zero) ** groups
    if how.virtual_best is not None or (scale.scope != "none" and not scale.standard):
        return None
    if scale.scope == "group" and how.std_floor == 0:
        return (right + wrong) ** groups
    if baseline.scope == "batch" or (scale.scope == "batch" and how.std_floor == 0):
        return right**groups + wrong**groups
    if baseline.scope == "history":
        return 0.0
    return wrong**groups if how.baseline == "none" else None


def _row(stage: GrpoStage, pass_rate: float) -> DeadGroups:
    groups, silent = stage.prompts_per_step, silent_step(stage, pass_rate)
    dead = dead_group(pass_rate, stage.num_generations, stage.advantage.virtual_best, kept(stage))
    if stage.dynamic_sampling is None:
        return DeadGroups(pass_rate=pass_rate, group=dead, step=silent)
    most = stage.dynamic_sampling.max_attempts
    # Each place of the batch is refilled by itself: after a attempts it is still empty with chance dead^a.
    attempts = sum(1.0 - (1.0 - dead**attempt) ** groups for attempt in range(most))
    sampled = sum(dead**attempt for attempt in range(most)) * groups
    return DeadGroups(
        pass_rate=pass_rate,
        group=dead,
        step=None if silent is None else min(silent, dead ** (most * groups)),  # only live groups are learned from
        attempts=attempts,
        samples=sampled * stage.num_generations,
        short=1.0 - (1.0 - dead**most) ** groups,
        empty=dead ** (most * groups),
    )
