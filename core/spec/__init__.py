"""RunSpec and its parts: typed, frozen, validated; imports no torch. Reading files is not here (grpoctl.specs)."""

from core.spec.expectation import Expectation
from core.spec.grpo_stage import AdaptiveBetaSpec, AdaptiveEntropySpec, AdvantageSpec, GrpoStage, named_point, point
from core.spec.guards import Action, GuardSpec
from core.spec.methods import METHODS, Method
from core.spec.model import Dtype, LoraSpec, ModelSpec
from core.spec.part import Part
from core.spec.policy import LmPolicyConfig, PolicyConfig
from core.spec.run import BudgetSpec, CheckpointSpec, EvaluationSpec, ExportSpec, RunSpec, Stage
from core.spec.schedule import PlateauSpec, Schedule
from core.spec.stage import EarlyStoppingSpec, RceStage, SftStage, StageBase
from core.spec.task import (
    ArithmeticTaskSpec,
    CustomTaskSpec,
    DataSpec,
    GoldSpec,
    Gsm8kTaskSpec,
    RewardSpec,
    TaskConfig,
    TaskSpec,
    WorkflowDslTaskSpec,
)

__all__ = [
    "METHODS",
    "Action",
    "AdaptiveBetaSpec",
    "AdaptiveEntropySpec",
    "AdvantageSpec",
    "ArithmeticTaskSpec",
    "BudgetSpec",
    "CheckpointSpec",
    "CustomTaskSpec",
    "DataSpec",
    "Dtype",
    "EarlyStoppingSpec",
    "EvaluationSpec",
    "Expectation",
    "ExportSpec",
    "GoldSpec",
    "GrpoStage",
    "Gsm8kTaskSpec",
    "GuardSpec",
    "LmPolicyConfig",
    "LoraSpec",
    "Method",
    "ModelSpec",
    "Part",
    "PlateauSpec",
    "PolicyConfig",
    "RceStage",
    "RewardSpec",
    "RunSpec",
    "Schedule",
    "SftStage",
    "Stage",
    "StageBase",
    "TaskConfig",
    "TaskSpec",
    "WorkflowDslTaskSpec",
    "named_point",
    "point",
]
