"""RunSpec and its parts: typed, frozen, validated; imports no torch. Reading files is not here (grpoctl.specs)."""

from core.spec.expectation import Expectation
from core.spec.guards import Action, GuardSpec
from core.spec.model import LoraSpec, ModelSpec
from core.spec.part import Part
from core.spec.run import CheckpointSpec, EarlyStoppingSpec, EvaluationSpec, RunSpec
from core.spec.schedule import Schedule
from core.spec.stage import AdvantageSpec, GrpoStage
from core.spec.task import ArithmeticTaskSpec, TaskSpec, WorkflowDslTaskSpec

__all__ = [
    "Action",
    "AdvantageSpec",
    "ArithmeticTaskSpec",
    "CheckpointSpec",
    "EarlyStoppingSpec",
    "EvaluationSpec",
    "Expectation",
    "GrpoStage",
    "GuardSpec",
    "LoraSpec",
    "ModelSpec",
    "Part",
    "RunSpec",
    "Schedule",
    "TaskSpec",
    "WorkflowDslTaskSpec",
]
