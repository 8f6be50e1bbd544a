"""Does the reward pay for valid completions? Where an invalid one earns nearly as much, nothing teaches the form.

The difference of means over all completions, with a standard error whose unit is the step: completions of one step
share its prompts and its weights. What is not here: rewards that are all equal (dead_groups).

## weak-reward

Severity: warning (moderate); info where the difference is small and beyond doubt (above three standard errors): a
policy can learn from that, slowly.

Means: valid and invalid completions earn nearly the same, so hardly anything teaches the form.

Looks at: validity and reward of each completion: 30 of each kind, each on ten steps, a tenth of all invalid. The
difference of the two means; its standard error has the step as the unit (completions of one step share prompts and
weights; each step's share of the difference is squared). It fires where the difference plus two standard errors is
below half a standard deviation of the rewards, and an invalid completion keeps at least half of what a valid one
earns above the lowest reward. `mixed_groups` of `groups` says in how many groups the two kinds met: only there can an
advantage prefer the valid one.

Confounder: a hard task where nearly everything earns 0: silent there.

Do: give an invalid completion the lowest reward instead of what a fallback earns in its place, or add a reward for
the form.

Measured: P30: 0.578 against 0.495, difference 0.083, standard error 0.049, 8 mixed groups of 285. `grpoctl run p31 -p
tiny`, whose rewards are calibrated on P30's: 0.572 against 0.462, standard error 0.034: info.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, pstdev

from core.health.case import Case
from core.health.finding import Finding

ENOUGH = 30  # completions of each kind
STEPS = 10  # with each kind: fewer say nothing about a mean
SHARE = 0.1  # of completions that are invalid: fewer are no matter of concern
KEPT = 0.5  # of what a valid completion earns above the lowest reward
FLAT = 0.5  # standard deviations of the reward
CLEAR = 3  # standard errors: a difference that is there, however small
_Earned = Mapping[int, Sequence[tuple[bool, float]]]  # step -> (valid, reward) of its completions


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """What valid completions earn more than invalid ones, on average."""

    valid: float
    invalid: float
    se: float  # of the difference, over steps

    @property
    def value(self) -> float:
        return self.valid - self.invalid


def gap(earned: _Earned) -> Gap:
    """The difference of the two means and its standard error, each step one cluster (the ratio estimator's sandwich).

    A step moves the difference by sum (r - mean of its kind) / n of that kind; the squares of those add up.
    """
    kinds = {kind: [r for rows in earned.values() for valid, r in rows if valid is kind] for kind in (True, False)}
    means = {kind: fmean(rewards) for kind, rewards in kinds.items()}
    moved = [
        sum((r - means[valid]) / (len(kinds[valid]) if valid else -len(kinds[valid])) for valid, r in rows)
        for rows in earned.values()
    ]
    steps = len(moved)
    return Gap(
        valid=means[True], invalid=means[False], se=sqrt(steps / (steps - 1) * sum(part * part for part in moved))
    )


def weak_reward(case: Case) -> Sequence[Finding]:
    """A warning where the reward hardly tells valid completions from invalid ones.

    That is: an invalid one keeps at least half of what a valid one earns above the lowest reward, and the difference,
    two standard errors added, is below half a standard deviation of the rewards. A word only where the difference is
    small and beyond doubt: a policy can learn from that, slowly.
    """
    earned = _earned(case)
    if not _enough(earned):
        return ()
    rewards = [r for rows in earned.values() for _, r in rows]
    lowest, spread, found = min(rewards), pstdev(rewards), gap(earned)
    upper = found.value + 2 * found.se
    if spread == 0 or found.valid <= lowest or upper >= FLAT * spread:
        return ()
    kept = (found.invalid - lowest) / (found.valid - lowest)
    if kept < KEPT:
        return ()
    clear = found.value > CLEAR * found.se
    pays = "pays, but little," if clear else "hardly pays"
    return (
        Finding(
            id="weak-reward",
            severity="info" if clear else "warning",
            summary=(
                f"an invalid completion earned {found.invalid:.3f} and a valid one {found.valid:.3f} (difference "
                f"{found.value:.3f}, standard error {found.se:.3f} over steps): the reward {pays} for a valid one"
            ),
            evidence={
                "valid": found.valid,
                "invalid": found.invalid,
                "difference": found.value,
                "se": found.se,
                "upper": upper,
                "reward_std": spread,
                "kept": kept,
                "steps": len(earned),
                "samples": len(rewards),
                **_mixed(case),
            },
            advice=(
                "give an invalid completion the lowest reward instead of what a fallback earns in its place, or add a "
                "reward for the form"
            ),
            confidence="moderate",
        ),
    )


def _earned(case: Case) -> _Earned:
    earned: dict[int, list[tuple[bool, float]]] = defaultdict(list)
    for sample in case.samples:
        if sample.valid is not None and sample.reward is not None:
            earned[sample.step].append((sample.valid, sample.reward))
    return earned


def _enough(earned: _Earned) -> bool:
    """Whether there are enough completions of both kinds, on enough steps, and the invalid ones matter."""
    counts = {kind: [sum(valid is kind for valid, _ in rows) for rows in earned.values()] for kind in (True, False)}
    many = all(sum(some) >= ENOUGH and sum(map(bool, some)) >= STEPS for some in counts.values())
    return many and sum(counts[False]) >= SHARE * sum(map(sum, counts.values()))


def _mixed(case: Case) -> dict[str, float]:
    """Groups with completions of both kinds: only there can an advantage prefer the valid one."""
    groups: dict[tuple[int, str], set[bool]] = defaultdict(set)
    for sample in case.samples:
        if sample.group is not None and sample.valid is not None:
            groups[sample.step, sample.group].add(sample.valid)
    return {"groups": len(groups), "mixed_groups": sum(len(kinds) == 2 for kinds in groups.values())} if groups else {}
