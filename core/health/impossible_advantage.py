"""Advantages that the configured normaliser cannot have produced.

A normaliser fixes the spread of a group's advantages before any training (core.health.advantage_spread). So a logged
standard deviation says by itself whether this normaliser ran. One row is enough: this is arithmetic, not a test.

## impossible-advantage

Severity: error (certain; strong where it is not known how ties are ranked).

Means: the settings name a normaliser that cannot have produced the advantages of the log.

Looks at: `advantage/std_all` (all completions of a step, averaged over steps) or our own `advantage/std` (live groups
only), and `advantage/max` or `advantage/max_abs`. One row is enough: a normaliser fixes the spread of a group's
advantages by arithmetic. It needs `num_generations`, and `transform: rank` or `scale_rewards: group`. For n
completions, with the std over divisor n of a live group:

- ranks 1 - 2 rank / (n - 1), ties broken (a double argsort): std sqrt((n + 1) / (3 (n - 1))), which is 1 at n = 2,
  0.707 at 5, 0.655 at 8 and never below 0.577; equal rewards get it too. Largest 1.
- the same, ties share a rank: std from 1 / sqrt(n - 1) (one against the rest; 0.5 at n = 5) to the above; equal
  rewards get 0. Largest 1.
- z-score, ddof 0: std 1; equal rewards get 0. Largest sqrt(n - 1).
- z-score, ddof 1: std sqrt((n - 1) / n). Largest (n - 1) / sqrt(n).

A share q of live groups gives a std between q and sqrt(q) of a live one's: pooled over a batch it is the root, and
the mean over one-group batches is q. `--set ranks_break_ties=true` says that ranks are by argsort.

Confounder: something else that shapes advantages. Silent for steps with missing rewards, a virtual best sample, kept
candidates, `positive_reward`, an overlong penalty, a KL in the reward, an eps that is not small against the rewards'
spread, and batch or running statistics. "Certain" holds if the column is what its name says.

Do: compute the advantages of one logged group again, by hand, from its rewards.

Measured: document 001's table ([case study](cases/lever-plus.md)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.health.advantage_spread import Seen, Spread, seen_in, spread_of
from core.health.case import Case
from core.health.finding import Decider, Finding, RuledOut
from core.health.small_advantage import ADVICE, FAR, eps_matters, implied, no_causes, suggested

ROUNDING = 0.05  # relative: logs print few digits, and means over steps scatter
HALF = 0.5  # of the least a z-score gives: more than eps and a few small batches take off


def impossible_advantage(case: Case) -> Sequence[Finding]:
    """An error where the normaliser of the settings cannot give the advantages of the log."""
    spread, seen = spread_of(case.settings), seen_in(case)
    if spread is None:
        return ()
    found = _too_large(case, spread, seen)
    if found is None and spread.name == "ranks":
        found = _no_ranks(case, spread, seen) if _are_no_ranks(spread, seen) else None
    elif found is None:
        found = _too_small(case, spread, seen)
    return () if found is None else (found,)


def _too_large(case: Case, spread: Spread, seen: Seen) -> Finding | None:
    """More than the normaliser can give to any group; logs of one group a step may divide by n - 1."""
    n = case.settings.num_generations or 2
    std, most = seen.live, spread.most
    if seen.everyone is not None:
        std, most = seen.everyone, spread.most * math.sqrt(n / (n - 1))
    if std is not None and std > (1 + ROUNDING) * most:
        return _other(
            f"a standard deviation of {std:.3g}", f"{spread.name} of {n} rewards at most {most:.3g}", std, most
        )
    if seen.largest is not None and seen.largest > (1 + ROUNDING) * spread.largest:
        limit = spread.largest
        what = f"values up to {seen.largest:.3g}"
        return _other(what, f"{spread.name} of {n} rewards at most {limit:.3g}", seen.largest, limit)
    return None


def _too_small(case: Case, spread: Spread, seen: Seen) -> Finding | None:
    """Less than a z-score without a floor gives where this share of the groups is live."""
    if spread.least == 0 or eps_matters(case, seen):
        return None
    if seen.everyone is None:
        s, least, where = seen.live, spread.least, "in a group whose rewards differ"
    elif seen.dead is not None:
        s, least, where = seen.everyone, (1 - seen.dead) * spread.least, "with this share of live groups"
    else:
        return None
    if s is None or s >= HALF * least:
        return None
    return _other(f"a standard deviation of {s:.3g}", f"{spread.name} at least {least:.3g} {where}", s, least)


def _other(has: str, gives: str, observed: float, limit: float) -> Finding:
    return Finding(
        id="impossible-advantage",
        severity="error",
        summary=f"advantages have {has}, and {gives}: rewards were not normalised as the settings say",
        evidence={"observed": observed, "limit": limit},
        advice="compute the advantages of one logged group again, by hand, from its rewards",
        confidence="certain",
    )


def _are_no_ranks(spread: Spread, seen: Seen) -> bool:
    """Ranks give every group, or every group that is not all equal, a spread that no reward can change."""
    if seen.everyone is None:
        return False
    if spread.of_equal:
        return seen.everyone < (1 - ROUNDING) * spread.least
    alive = FAR if seen.dead is None else (1 - ROUNDING) * (1 - seen.dead)
    return seen.everyone < alive * spread.least


def _no_ranks(case: Case, spread: Spread, seen: Seen) -> Finding:
    n, s = case.settings.num_generations, seen.everyone or 0.0
    small = implied(case, s)
    floor = small["std_floor"]
    whatever, some = "whatever the rewards", f"or at least {spread.least:.3g} where some are equal and not all"
    ranks = f"have {spread.most:.3g} {whatever if spread.of_equal else some}"
    return Finding(
        id="impossible-advantage",
        severity="error",
        summary=(
            f"advantages have a standard deviation of {s:.2g}, and ranks of {n} completions {ranks}: "
            f"no rank normalisation made them; a z-score with a std floor of {floor:g} does, where rewards of a group "
            f"differ by about {small['implied_reward_std']:.1g}, or where at most {small['implied_live_share']:.1%} of "
            "the groups are live"
        ),
        evidence={
            **seen.numbers(), "rank_std": spread.most, "least_rank_std": spread.least, "largest_rank": spread.largest,
            **small, "predicted_std_of_z_score": s,
        },
        rules_out=(
            RuledOut(
                id="rank-normalisation",
                why=f"the standard deviation is {s:.2g}, and ranks of {n} {ranks}",
            ),
            *no_causes(case, seen.rows),
        ),
        suggest=suggested(case),
        advice=ADVICE,
        confidence="certain" if spread.of_equal else "strong",
        decider=_without_ranks(floor, s),
    )  # fmt: skip


def _without_ranks(floor: float, s: float) -> Decider:
    return Decider(
        question=(
            f"Does switching ranks off change anything? A z-score with a std floor of {floor:g} is predicted to give "
            f"the same {s:.2g}, since the rewards inside groups hardly differ"
        ),
        overrides=(
            "advantage.transform=none",
            "advantage.scale_rewards=group",
            f"advantage.std_floor={floor:g}",
        ),
        expects=(f"reward/group_std < {2 * s:.2g}",),
    )
