"""Settings -> policy: only the list of the built-in kinds, and those that packages add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from core import plugins
from core.algorithms.names import OPTIMISERS
from core.config import LmPolicyConfig, RunSpec
from core.config.policy import BUILT_IN, ExternalPolicyConfig, PointerConfig, RestorationConfig
from core.config.stage import StageBase
from core.errors import MissingPackageError, RunError, SpecError
from core.models.precision import has_bitsandbytes

if TYPE_CHECKING:  # loads torch, which who only checks does without
    from core.models.sources.base import Origin
    from core.policies.base import Policy


def check_policy(spec: RunSpec) -> None:
    """Refuses a policy that no run can start from, as far as this machine's files tell. Raises SpecError.

    A spec that is only listed or validated may be so: where its weights lie, another machine knows.
    """
    if spec.trainer.kind == "command":  # what its program needs, that program says
        return
    check_optimisers(spec.stages)
    if spec.init_from is None and (lack := spec.policy.untrained) is not None:
        raise SpecError(lack[1], key=f"policy.{lack[0]}")
    if isinstance(spec.policy, RestorationConfig) and spec.policy.weights is not None:
        try:
            build(spec)
        except RunError as error:
            raise SpecError(str(error), key="policy.weights") from error


def check_optimisers(stages: Mapping[str, StageBase]) -> None:
    """Raises SpecError where a stage names an optimiser of bitsandbytes, and that is not installed."""
    for name, stage in stages.items():
        if OPTIMISERS[stage.optim].eight_bit and not has_bitsandbytes():
            problem = f"got {stage.optim}, and bitsandbytes is not installed"
            raise SpecError(f"{problem}; pip install bitsandbytes, or set adamw_torch", key=f"stages.{name}.optim")


def build(spec: RunSpec) -> tuple[Policy, Origin | None]:
    """The policy of a spec, ready to be trained, and where weights came from that were not made here.

    Raises ModelError where weights cannot be had, SpecError where the package that adds the kind is gone.
    """
    match spec.policy:
        case LmPolicyConfig():
            from core.policies.lm.build import build

            return build(spec)
        case PointerConfig() as settings:
            from core.policies.pointer.policy import PointerPolicy

            return PointerPolicy(settings, seed=spec.seed), None
        case RestorationConfig() as settings:
            try:
                from core.policies.restoration.policy import RestorationPolicy
            except ModuleNotFoundError as error:
                what = f"{error.name} is not installed: pip install 'grpoctl[images]'"
                raise MissingPackageError(what, key="policy.kind") from error
            return RestorationPolicy(settings, seed=spec.seed), None
        case ExternalPolicyConfig():
            raise SpecError("is external: only the command that trains it can run it", key="policy.kind")
        case _:
            added = plugins.load("grpoctl.policies", spec.policy.kind, BUILT_IN)
            if added is None:
                raise SpecError(f"the policy {spec.policy.kind} is no longer installed", key="policy.kind")
            return added.build(spec), None
