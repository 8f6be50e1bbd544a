"""RunSpec and its parts: typed, frozen, validated; imports no torch. Reading files is not here (grpoctl.config)."""

from core.config.expectation import Expectation
from core.config.grpo_stage import AdaptiveBetaSpec, AdaptiveEntropySpec, AdvantageSpec, GrpoStage, named_point, point
from core.config.methods import METHODS, Method
from core.config.part import Part
from core.config.policy import Dtype, LmPolicyConfig, LoraSpec, ModelSpec, PolicyConfig
from core.config.run import Action, BudgetSpec, CheckpointSpec, EvaluationSpec, ExportSpec, GuardSpec, RunSpec, Stage
from core.config.stage import EarlyStoppingSpec, PlateauSpec, RceStage, Schedule, SftStage, StageBase
from core.config.task import (
    ArithmeticTaskSpec,
    CustomTaskSpec,
    DataSpec,
    ExampleSelectionTaskSpec,
    GoldSpec,
    Gsm8kTaskSpec,
    RestorationTaskSpec,
    RewardSpec,
    TaskConfig,
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
    "ExampleSelectionTaskSpec",
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
    "RestorationTaskSpec",
    "RewardSpec",
    "RunSpec",
    "Schedule",
    "SftStage",
    "Stage",
    "StageBase",
    "TaskConfig",
    "WorkflowDslTaskSpec",
    "named_point",
    "point",
]
