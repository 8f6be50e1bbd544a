"""What a spec may say of the bandit's policy and task. No torch here: `show` and `validate` read this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from core.config import PolicyConfig, RunSpec, TaskConfig

if TYPE_CHECKING:
    from core.policies.base import Policy
    from core.tasks.base import Task


class GaussianBanditConfig(PolicyConfig):
    """A linear map from the context to the mean of each action, and one standard deviation for each action."""

    kind: Literal["gaussian-bandit"]
    context: Annotated[int, Field(ge=1, le=64)] = 3
    actions: Annotated[int, Field(ge=1, le=64)] = 2
    sigma: Annotated[float, Field(gt=0)] = 0.5

    output: ClassVar[str] = "vector"
    entropies: ClassVar[bool] = True
    density: ClassVar[bool] = True
    losses: ClassVar[frozenset[str]] = frozenset({"consistency", "penalty"})


class ReachConfig(TaskConfig):
    """Name the point that a context stands for; the reward falls with the distance."""

    name: Literal["reach"]
    context: Annotated[int, Field(ge=1, le=64)] = 3
    actions: Annotated[int, Field(ge=1, le=64)] = 2

    scores: ClassVar[str] = "vector"


class GaussianBanditPlugin:
    """The entry point of the policy."""

    config = GaussianBanditConfig

    def build(self, spec: RunSpec) -> Policy:
        """The policy, its weights from the spec's seed."""
        from gaussian_bandit.policy import GaussianBandit

        assert isinstance(spec.policy, GaussianBanditConfig)
        return GaussianBandit(spec.policy, seed=spec.seed)


class ReachPlugin:
    """The entry point of the task."""

    config = ReachConfig

    def build(self, spec: ReachConfig) -> Task:
        """The task."""
        from gaussian_bandit.task import Reach

        return Reach(spec)


POLICY, TASK = GaussianBanditPlugin(), ReachPlugin()
