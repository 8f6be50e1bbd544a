"""What a spec asks of the kind of policy it trains, beyond what each of its parts allows."""

from __future__ import annotations

from core.errors import SpecError
from core.spec.grpo_stage import GrpoStage
from core.spec.run import RunSpec


def check_fit(spec: RunSpec) -> None:
    """Raises SpecError where a stage asks for a loss that the policy of this spec does not have."""
    for name, stage in spec.stages.items():
        if isinstance(stage, GrpoStage) and stage.consistency_weight.ever:
            key = f"stages.{name}.consistency_weight"
            raise SpecError("a causal language model has no consistency loss; allowed: 0", key=key)
