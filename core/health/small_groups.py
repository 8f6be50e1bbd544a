"""Does the size of the group alone decide the advantages? A z-score of two is +a and -a, whatever they earned.

Arithmetic, not a contrast: (r1 - mean) / std of two rewards has the size 1 with the population standard deviation and
0.707 with the sample one. What is not here: groups without any signal (dead_groups).

## small-groups

Severity: warning with K=2, info with K=3 (certain); silent from 4 on.

Means: with `num_generations=2` and a group's z-score every advantage is 0 or ±1 (population standard deviation,
`ddof=0`) or ±0.7071 (`ddof=1`), whatever the two rewards were: of how much better a completion was, nothing is left.
This is a weakness, not a cause of collapse; where `rollout-mode` holds it says so.

Looks at: `num_generations`, `advantage.baseline` and `advantage.scale_rewards`, both `group`, and no floor.

Confounder: advantages made in another way than the settings say: a size in the log that does not fit silences it.

Do: `num_generations=8`, or `advantage.scale_rewards=none`, which keeps the size of the difference.

Measured: with sound rollouts (a prototype of this tool, 150 steps, three seeds) K=2 had no all-invalid step after 447
updates at learning rates of 1e-4 and 3e-4, and 20 after 406 at 1e-3, where K=8 had 1 after 446.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from core.health.case import Case
from core.health.dead_groups import dead_groups
from core.health.finding import Decider, Finding, steps_of
from core.health.rollout_mode import tied_to_updates

TOO_FEW = 3  # completions of a group whose advantages have no size of their own
_SMALL = 1e-4  # an eps or floor of at most this changes an advantage by 2 % where two rewards differ by 0.01


def small_groups(case: Case) -> Sequence[Finding]:
    """A warning at two completions a group with a group's z-score, a word at three; silent for four and more."""
    k = case.settings.num_generations
    if k is None or not 2 <= k <= TOO_FEW or not steps_of(case.rows) or not _is_z_score(case):
        return ()
    ddof, sizes, seen = case.settings.ddof, _sizes(k, case.settings.ddof), _largest(case)
    if k == 2 and seen is not None and not any(0.95 * size < seen < 1.05 * size for size in sizes):
        return ()  # the settings do not tell all: these advantages were made in another way
    dead = [float(share) for row in steps_of(case.rows) if (share := row.get("groups/dead")) is not None]
    evidence: dict[str, float | str] = {"num_generations": k, "dead_at_pass_rate_half": 0.5 ** (k - 1)}
    evidence |= {"ddof": ddof} if ddof is not None else {}
    evidence |= {"dead": sum(dead) / len(dead)} if dead else {}
    evidence |= {"size": sizes[0]} if k == 2 and len(sizes) == 1 else {}
    evidence |= {"largest_seen": seen} if seen is not None else {}
    tied = tied_to_updates(case) is not None
    larger = next((one for found in case.once(dead_groups) for one in found.suggest), "num_generations=8")
    evidence |= {"explains_the_collapse": "no: see rollout-mode"} if tied else {}
    return (
        Finding(
            id="small-groups",
            severity="warning" if k == 2 else "info",
            summary=_summary(k, sizes) + ("; a weakness, and not what made the steps collapse" if tied else ""),
            evidence=evidence,
            suggest=(larger,),
            advice=(
                "advantage.scale_rewards=none keeps the size of the difference; at equal completions fewer prompts "
                "with larger groups have fewer dead groups and a less noisy direction"
            ),
            confidence="certain",
            decider=Decider(
                question="does a larger group learn more from as many completions? `grpoctl sweep advantage-study`",
                overrides=(larger,),
                expects=(f"groups/dead < {sum(dead) / len(dead):.3g}",) if dead and any(dead) else (),
            ),
        ),
    )


def _is_z_score(case: Case) -> bool:
    """Whether the advantages are known to be the group's z-score, nothing floored that matters."""
    known = case.settings
    scaled = known.scale_rewards == "group" and known.baseline == "group"
    bare = (known.std_floor or 0.0) <= _SMALL and (known.eps or 0.0) <= _SMALL
    return scaled and bare


def _largest(case: Case) -> float | None:
    """The largest advantage of the run, None where there is none or it is not known."""
    rows = steps_of(case.rows)
    return max((float(size) for row in rows if (size := row.get("advantage/max_abs"))), default=None)


def _sizes(k: int, ddof: int | None) -> list[float]:
    """The size of both advantages of a pair, for each standard deviation that may have been meant."""
    return [sqrt((k - one) / k) for one in ((0, 1) if ddof is None else (ddof,))]


def _summary(k: int, sizes: Sequence[float]) -> str:
    if k == 2:
        size = " (or ".join(f"±{size:.4g}" for size in sizes) + ")" * (len(sizes) - 1)
        return (
            f"num_generations=2: every advantage is 0 or {size}, whatever the two rewards were, so a difference of "
            "0.01 pushes as hard as one of 1"
        )
    return (
        "num_generations=3: of a group's three advantages one number is free, and where two rewards are equal, as with "
        "right and wrong, none is: how much better a completion was is lost"
    )
