"""Was anything learned at all? Runs without one update, and rewards that are missing.

A missing reward is left out of its group, so it costs samples. Not here: groups of equal rewards (dead_groups).

## no-updates

Severity: warning.

Means: no step made an update, or each had a learning rate of exactly 0: nothing moved.

Looks at: `update` and `learning_rate` of ten steps or more, and what the steps had instead of a signal (dead or
discarded groups).

Confounder: a log that does not say whether a step made an update: silent.

Do: see why every group was dead or left out (`dead-groups`, `positive_reward`, `dynamic_sampling`), or what the
schedule did.

## missing-rewards

Severity: warning.

Means: more than one completion in a hundred had no reward and taught nothing: a reward function failed on them, or
none applied.

Looks at: `reward/missing`.

Confounder: functions that return None by design for rows that they do not apply to.

Do: read `RUN/log.txt`: it says which function, with its traceback ([rewards](rewards.md#what-happens-when-it-fails)).
"""

from __future__ import annotations

from core.health.finding import Finding, StepTable, steps_of

ENOUGH = 10  # steps: fewer say nothing
FEW = 0.01  # share of completions without a reward that is not worth a word


def no_updates(table: StepTable) -> Finding | None:
    """A warning where not one of the steps moved a weight, with what the steps had instead of a signal.

    None where a step does not say whether it did. An update at a learning rate of exactly 0 moves none.
    """
    rows = steps_of(table)
    if len(rows) < ENOUGH or any(row.get("update") != 0 and row.get("learning_rate") != 0 for row in rows):
        return None
    discarded = [float(row["groups/discarded"] or 0.0) for row in rows if "groups/discarded" in row]
    dead = [float(row["groups/dead"] or 0.0) for row in rows if "groups/dead" in row]
    evidence: dict[str, float | str] = {"steps": len(rows)}
    why = "no optimiser step had a finite loss"
    at_zero = sum(row.get("update") == 1 for row in rows)
    if dead:
        share = sum(dead) / len(dead)
        evidence |= {"dead": share, "discarded": sum(discarded)}
        why = f"{share:.0%} of the groups had equal rewards"
    if discarded and all(discarded):
        why = f"every step left groups out ({sum(discarded):.0f} in all: positive_reward, dynamic_sampling), and {why}"
    if at_zero:
        evidence["at_rate_0"] = at_zero
        why = f"{at_zero} of the updates had a learning rate of exactly 0 (a schedule that has ended?)"
    return Finding(
        id="no-updates",
        severity="warning",
        summary=f"no update moved anything in {len(rows)} steps: {why}"
        if at_zero
        else f"no update was made in {len(rows)} steps, so nothing was learned: {why}",
        evidence=evidence,
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
