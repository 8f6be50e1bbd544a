"""What a spec asks of its policy and its task, beyond what each of its parts allows."""

from __future__ import annotations

from core.errors import SpecError
from core.spec.grpo_stage import GrpoStage
from core.spec.run import RunSpec
from core.spec.stage import SftStage
from core.spec.task import CustomTaskSpec


def check_fit(spec: RunSpec) -> None:
    """Raises SpecError where a stage asks for a loss that its policy does not have, or answers that its task lacks."""
    unanswered = isinstance(spec.task, CustomTaskSpec) and spec.task.answer is None
    for name, stage in spec.stages.items():
        imitates = isinstance(stage, SftStage) or (isinstance(stage, GrpoStage) and stage.supervised_weight.ever)
        if unanswered and imitates:
            raise SpecError(
                f"is null, and stage {name} imitates it; give a template, e.g. '{{answer}}'", key="task.answer"
            )
        if isinstance(stage, GrpoStage) and stage.consistency_weight.ever:
            key = f"stages.{name}.consistency_weight"
            raise SpecError("a causal language model has no consistency loss; allowed: 0", key=key)
