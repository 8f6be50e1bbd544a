"""Was there anything to learn from? Dead groups: all rewards of a group equal, advantage 0.

And rewards that are missing: left out of their groups, so they cost samples.
"""

from __future__ import annotations

from core.health.finding import Finding, StepTable, steps_of

MANY = 0.5
ENOUGH = 10  # steps: fewer say nothing
FEW = 0.01  # share of completions without a reward that is not worth a word


def no_updates(table: StepTable) -> Finding | None:
    """A warning where not one of the steps moved a weight, with what the steps had instead of a signal."""
    rows = steps_of(table)
    if len(rows) < ENOUGH or any(row.get("update") == 1 for row in rows):
        return None
    discarded = [float(row["groups/discarded"] or 0.0) for row in rows if "groups/discarded" in row]
    dead = [float(row["groups/dead"] or 0.0) for row in rows if "groups/dead" in row]
    evidence: dict[str, float | str] = {"steps": len(rows)}
    why = "no optimiser step had a finite loss"
    if dead:
        share = sum(dead) / len(dead)
        evidence |= {"dead": share, "discarded": sum(discarded)}
        why = f"{share:.0%} of the groups had equal rewards"
    if discarded and all(discarded):
        why = f"every step left groups out ({sum(discarded):.0f} in all: positive_reward, dynamic_sampling), and {why}"
    return Finding(
        id="no-updates",
        severity="warning",
        summary=f"no update was made in {len(rows)} steps, so nothing was learned: {why}",
        evidence=evidence,
    )


def dead_groups(table: StepTable) -> Finding | None:
    """A warning where more than half of all groups carried no learning signal."""
    shares = [float(row["groups/dead"] or 0.0) for row in steps_of(table) if row.get("groups/dead") is not None]
    if len(shares) < ENOUGH or (share := sum(shares) / len(shares)) <= MANY:
        return None
    return Finding(
        id="dead-groups",
        severity="warning",
        summary=(
            f"{share:.0%} of the groups had equal rewards and taught nothing: a larger num_generations, more varied "
            "prompts or a finer reward would use the samples"
        ),
        evidence={"share": share, "steps": len(shares)},
    )


def missing_rewards(table: StepTable) -> Finding | None:
    """A warning where more than one completion in a hundred had no reward, however few steps there were."""
    shares = [float(row["reward/missing"] or 0.0) for row in steps_of(table) if row.get("reward/missing") is not None]
    if not shares or (share := sum(shares) / len(shares)) <= FEW:
        return None
    return Finding(
        id="missing-rewards",
        severity="warning",
        summary=(
            f"{share:.0%} of the completions had no reward and taught nothing: a reward function failed on them, or "
            "none applied; the run's log.txt says which"
        ),
        evidence={"share": share, "steps": len(shares)},
    )
