"""What is trained: the kind of policy, and what every kind states about itself before anything heavy is imported."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import PlainValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from core import plugins
from core.config.model import Dtype
from core.config.part import Part, refusal
from core.errors import SpecError

LM = "lm"
BUILT_IN = (LM,)


class PolicyConfig(Part):
    """The base of every kind of policy's settings. A subclass fixes `kind: Literal["its-name"]`.

    Class attributes say what training may ask of the policy:
    output: what its outputs are; a task of the same word can score them.
    tokens: its factors are tokens of a text that ends by itself or is cut off; lengths and truncation are recorded.
    entropies: it gives the entropy of each factor where asked.
    density: its log-probs are of continuous actions, so they may be above 0 and its entropies below.
    losses: names of further differentiable losses that it gives for each row; stages weigh them (`loss_weights`).
    """

    kind: str

    output: ClassVar[str]
    tokens: ClassVar[bool] = False
    entropies: ClassVar[bool] = False
    density: ClassVar[bool] = False
    losses: ClassVar[frozenset[str]] = frozenset()

    @property
    def computes_in(self) -> Dtype:
        """The precision of its forwards: what rounding is to be expected between sampler and trainer."""
        return "float32"


class LmPolicyConfig(PolicyConfig):
    """A causal language model; which one is said under the key `model`."""

    kind: Literal["lm"] = "lm"

    output: ClassVar[str] = "text"
    tokens: ClassVar[bool] = True
    entropies: ClassVar[bool] = True


def policy_config(kind: str) -> type[PolicyConfig] | None:
    """The settings' class of a kind of policy, built-in or added by a package; None for an unknown kind.

    Raises SpecError where an added one cannot be imported, or is not a policy's.
    """
    if kind == LM:
        return LmPolicyConfig
    return plugins.config_class("grpoctl.policies", kind, BUILT_IN, PolicyConfig)


def policy_kinds() -> list[str]:
    """The kinds of policy that are installed, the built-in ones first."""
    return plugins.names("grpoctl.policies", BUILT_IN)


def _by_kind(value: Any) -> PolicyConfig:
    """The settings as the class that their `kind` names."""
    if isinstance(value, PolicyConfig):
        return value
    if not isinstance(value, dict):
        raise PydanticCustomError("mapping", "a mapping is needed")
    kind = value.get("kind", LM)
    try:
        config = policy_config(str(kind))
        allowed = policy_kinds() if config is None else []
    except SpecError as error:
        raise refusal("kind", error.message) from None
    if config is None:
        raise refusal("kind", f"got {kind!r}; allowed: one of {', '.join(allowed)}")
    return config.model_validate(value)


AnyPolicy = Annotated[SerializeAsAny[PolicyConfig], PlainValidator(_by_kind)]
