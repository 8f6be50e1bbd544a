"""Every rule over a whole table, the most telling first."""

from __future__ import annotations

from core.health.collapse import first_collapse
from core.health.finding import Finding, StepTable
from core.health.initial import initial_weights
from core.health.integrity import worst_integrity
from core.health.rollout_mode import rollout_mode
from core.health.signal import dead_groups, missing_rewards, no_updates
from core.spec import GuardSpec


def examine(table: StepTable, *, guards: GuardSpec, dtype: str) -> list[Finding]:
    """The findings of all rules over a run's step table; [] for a healthy run."""
    findings = [
        initial_weights(table),
        rollout_mode(table),
        worst_integrity(table, dtype=dtype, override=guards.max_logprob_gap),
        first_collapse(table, guards),
        no_updates(table) or dead_groups(table),
        missing_rewards(table),
    ]
    return [finding for finding in findings if finding is not None]
