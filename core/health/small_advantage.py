"""What small advantages imply: how far rewards inside groups differ, or how few groups have any that do.

Under a z-score's floor A = (r - mean) / floor, so a std of s means that rewards inside groups have s * floor. Or a
share q of the groups lies above the floor: the advantages of a batch then have sqrt(q) u, u = sqrt((n - 1) / n) at
least, and a log that averages over batches q u at least. Everything between the two is possible too.

## small-advantage

Severity: warning (certain where the std floor is known, moderate where it is taken to be 0.1).

Means: z-scored advantages are a tenth of what a z-score has, or less. Below a std floor f the advantage is (r - mean)
/ f, so a std of s means that the rewards inside groups have a std of about s f everywhere; or that at most s /
sqrt((n - 1) / n) of the groups lie above the floor; or a mixture. With s = 0.0062, f = 0.1, n = 5: 0.0006, or 0.7 %.

Looks at: the same columns as `impossible-advantage`, under `scale_rewards: group`.

Confounder: mostly dead groups. Without a floor that is the only reading left, and the finding is `dead-groups`. Ruled
out are a small learning rate (it is no part of an advantage) and the KL's share of the loss (`kl-loss-share`).

Do: `advantage.std_floor=0`, knowing that the smallest difference then counts as much as a large one; better, look at
why rewards inside a group hardly differ: rewards, candidates, data.

Measured: the arithmetic on drawn groups stands in the [case study](cases/lever-plus.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from core.health.advantage_spread import Seen, seen_in, spread_of
from core.health.case import Case
from core.health.finding import Decider, Finding, Row, RuledOut
from core.health.trend import series

USUAL_FLOOR = 0.1  # of a z-score, where none is known: what the code around document 001 clamps its std to
FAR = 0.1  # of what the normaliser gives: below this the spread is no matter of rounding, eps or batch size
NO_EPS = 10.0  # times eps: rewards that differ by less are pressed by it too
ADVICE = (
    "make the rewards inside a group differ: a finer reward, more varied candidates, prompts that are neither solved "
    "nor hopeless; leave groups of equal rewards out. Log the std of the rewards inside groups first: without a floor "
    "the smallest difference counts as much as a large one, so it has to mean something"
)


def small_advantage(case: Case) -> Sequence[Finding]:
    """A warning where a z-score's advantages are far below 1: its floor presses them down, or few groups are live."""
    spread, seen = spread_of(case.settings), seen_in(case)
    if spread is None or spread.name == "ranks":
        return ()  # nothing presses ranks down: core.health.impossible_advantage
    s = seen.live if seen.everyone is None else seen.everyone
    if s is None or s >= FAR * spread.most:
        return ()
    if spread.least == 0:
        return (_pressed(case, s, seen),)
    of_all = seen.everyone is not None and seen.dead is None
    return (_few_live(case, s, s / spread.least),) if of_all else ()


def implied(case: Case, s: float) -> dict[str, float]:
    """The floor that is taken, the rewards' std inside groups under it, and the largest share of groups above it."""
    floor = case.settings.std_floor or USUAL_FLOOR
    n = case.settings.num_generations or 2
    unit = 1.0 if case.settings.ddof == 0 else math.sqrt((n - 1) / n)
    return {"std_floor": floor, "implied_reward_std": s * floor, "implied_live_share": min(1.0, s / unit)}


def suggested(case: Case) -> tuple[str, ...]:
    """Overrides: no floor, and samplings that find groups whose rewards differ, unless all were drawn in advance."""
    floor = () if case.settings.std_floor == 0 else ("advantage.std_floor=0.0",)
    if case.settings.offline:
        return floor
    larger = 2 * (case.settings.num_generations or 4)
    return (*floor, "dynamic_sampling.max_attempts=10", f"num_generations={larger}")


def no_causes(case: Case, rows: Sequence[Row]) -> tuple[RuledOut, ...]:
    """Causes that small advantages exclude as their own."""
    rate = RuledOut(
        id="small-learning-rate",
        why="no learning rate is part of an advantage; a larger one goes further along the same directions",
    )
    share = _kl_share(case, rows)
    if share is None:
        return (rate,)
    why = (
        f"the KL is {share:.0%} of the loss, and that says nothing: at a ratio near 1 advantages of mean 0 make the "
        "policy loss about 0 whatever its gradient is; compare gradient norms (grad_share/kl)"
    )
    return (rate, RuledOut(id="kl-share-of-loss", why=why))


def _kl_share(case: Case, rows: Sequence[Row]) -> float | None:
    """The weighted KL's mean share of |policy loss| + weighted KL; None where it is unknown, or below one half."""
    shares = []
    for row in rows:
        loss, weight, kl = row.get("policy/loss"), row.get("beta", case.settings.beta), row.get("kl")
        paid = row.get("kl_loss", None if kl is None or weight is None else weight * kl)
        if loss is not None and paid is not None and abs(loss) + abs(paid) > 0:
            shares.append(abs(paid) / (abs(loss) + abs(paid)))
    share = fmean(shares) if shares else 0.0
    return share if share >= 0.5 else None


def eps_matters(case: Case, seen: Seen) -> bool:
    """Whether eps may be a floor by itself: rewards of live groups differ by hardly more, or nobody knows."""
    within = [value for _, value in series(seen.rows, "reward/group_std")]
    alive = 1.0 - (seen.dead or 0.0)
    return not within or alive <= 0 or fmean(within) / alive < NO_EPS * (case.settings.eps or 0.0)


def _pressed(case: Case, s: float, seen: Seen) -> Finding:
    """A z-score whose floor, known or not, stands where the std of nearly equal rewards should."""
    small = implied(case, s)
    few = "" if seen.everyone is None else f", or at most {small['implied_live_share']:.1%} of the groups are live"
    return Finding(
        id="small-advantage",
        severity="warning",
        summary=(
            f"advantages have a standard deviation of {s:.2g} where a z-score has 1: with a std floor of "
            f"{small['std_floor']:g} rewards of a group differ by about {small['implied_reward_std']:.1g}{few}"
        ),
        evidence={**seen.numbers(), **small},
        rules_out=no_causes(case, seen.rows),
        suggest=suggested(case),
        advice=ADVICE,
        confidence="certain" if case.settings.std_floor else "moderate",
        decider=Decider(
            question="Do the rewards of a group differ at all?",
            overrides=("advantage.std_floor=0.0",),
            expects=(f"reward/group_std < {2 * s:.2g}",),
        ),
    )


def _few_live(case: Case, s: float, share: float) -> Finding:
    return Finding(
        id="dead-groups",
        severity="warning",
        summary=(
            f"advantages have a standard deviation of {s:.2g} where a z-score has 1 in every group whose rewards "
            f"differ: at most {share:.1%} of the groups had anything to teach"
        ),
        evidence={"std_all": s, "implied_live_share": share},
        suggest=suggested(case),
        advice=ADVICE,
        confidence="certain",
    )
