"""Was there anything to learn from? Dead groups: all rewards of a group equal, advantage 0."""

from __future__ import annotations

from core.health.finding import Finding, StepTable, steps_of

MANY = 0.5
ENOUGH = 10  # steps: fewer say nothing


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
