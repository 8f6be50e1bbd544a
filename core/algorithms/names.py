"""What a spec may choose among, by name, without loading a formula: normalisers, surrogates, reductions, KL estimators.

A formula stands in the file of its kind, which chooses by a match that a name without a formula does not pass.
Of a normaliser's axes also what is true of each value: what `AdvantageSpec` allows and what rules ask. To add one: its
name and traits here, its formula in `advantages`, its row in docs/algorithms.md. Rules ask traits and never names,
except where a formula is known for one name only; for others such a rule says that it does not know.
Standard library alone: a spec is read without numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

SurrogateKind = Literal[
    "clip", "dual_clip", "gspo", "mean_ratio", "cispo", "sapo", "reinforce", "dppo", "product_ratio"
]
Reduction = Literal["sequence_mean", "token_mean", "constant_length", "sequence_sum"]
KlEstimator = Literal["k1", "k2", "k3", "k1_ratio", "k3_ratio", "forward_k3"]
OldPolicy = Literal["sampler", "reference", "start_of_epoch"]  # whose log-probs a ratio is over
CandidateChoice = Literal["best", "random", "stratified"]


LossRows = Literal["all", "best"]  # of a group, that a policy's own losses are of
Transform = Literal["none", "rank", "rank_by_order"]
Baseline = Literal["group", "leave_one_out", "batch", "running", "none"]
Scale = Literal["none", "group", "batch", "batch_centred", "running"]
Weighting = Literal["rows", "tokens"]
RunningRule = Literal["decay", "count"]  # how much a step moves the running statistics
Scope = Literal["none", "group", "batch", "history"]  # whose rewards a statistic is of; history: of the steps before


Optimiser = Literal[
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_8bit",
    "paged_adamw_8bit",
    "lion_8bit",
    "sgd",
    "adagrad",
    "rmsprop",
    "adam",
    "adamax",
    "nadam",
    "radam",
    "adadelta",
    "asgd",
    "rprop",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimiserTraits:
    """of: its class, of torch.optim, or of bitsandbytes.optim where it is an `eight_bit` one.

    moments: numbers that it keeps for each weight, as large as one, or of one byte where it is an `eight_bit` one.
    betas, epsilon: whether it reads adam_beta1 and adam_beta2, or adam_epsilon. decays: whether it has a weight decay.
    """

    of: str
    moments: int
    eight_bit: bool = False
    fused: bool = False
    betas: bool = False
    epsilon: bool = False
    decays: bool = True


OPTIMISERS: Mapping[Optimiser, OptimiserTraits] = {
    "adamw_torch": OptimiserTraits(of="AdamW", moments=2, betas=True, epsilon=True),
    "adamw_torch_fused": OptimiserTraits(of="AdamW", fused=True, moments=2, betas=True, epsilon=True),
    "adamw_8bit": OptimiserTraits(of="AdamW8bit", moments=2, eight_bit=True, betas=True, epsilon=True),
    "paged_adamw_8bit": OptimiserTraits(of="PagedAdamW8bit", moments=2, eight_bit=True, betas=True, epsilon=True),
    "lion_8bit": OptimiserTraits(of="Lion8bit", moments=1, eight_bit=True, betas=True),
    "sgd": OptimiserTraits(of="SGD", moments=0),
    "adagrad": OptimiserTraits(of="Adagrad", moments=1),
    "rmsprop": OptimiserTraits(of="RMSprop", moments=1),
    "adam": OptimiserTraits(of="Adam", moments=2, betas=True, epsilon=True),
    "adamax": OptimiserTraits(of="Adamax", moments=2, betas=True, epsilon=True),
    "nadam": OptimiserTraits(of="NAdam", moments=2, betas=True, epsilon=True),
    "radam": OptimiserTraits(of="RAdam", moments=2, betas=True, epsilon=True),
    "adadelta": OptimiserTraits(of="Adadelta", moments=2),
    "asgd": OptimiserTraits(of="ASGD", moments=1),
    "rprop": OptimiserTraits(of="Rprop", moments=2, decays=False),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformTraits:
    """keeps_rewards: values are rewards still, in their unit; only these can be held against those of earlier steps.

    by_place: equal rewards have different values by their place in the group; a column that stands for many completions
    then has their mean only.
    """

    keeps_rewards: bool
    by_place: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineTraits:
    """scope: whose rewards the baseline is of. Equal rewards of a whole `group` or `batch` have advantage 0 under it.

    balanced: each group's advantages add up to 0 before they are clipped.
    """

    scope: Scope
    balanced: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleTraits:
    """scope: whose rewards the divisor is of. centred: of rewards less their baseline, not of rewards as they are.

    standard: the divisor is a standard deviation, so what is known of those holds: it is 0 for equal values alone, and
    bounds on deviations and z-scores apply. ddof: `ddof` has a part in it.
    """

    scope: Scope
    standard: bool = False
    ddof: bool = False
    centred: bool = False


TRANSFORMS: Mapping[Transform, TransformTraits] = {
    "none": TransformTraits(keeps_rewards=True),
    "rank": TransformTraits(keeps_rewards=False),
    "rank_by_order": TransformTraits(keeps_rewards=False, by_place=True),
}
BASELINES: Mapping[Baseline, BaselineTraits] = {
    "group": BaselineTraits(scope="group", balanced=True),
    "leave_one_out": BaselineTraits(scope="group", balanced=True),
    "batch": BaselineTraits(scope="batch"),
    "running": BaselineTraits(scope="history"),
    "none": BaselineTraits(scope="none"),
}
SCALES: Mapping[Scale, ScaleTraits] = {
    "none": ScaleTraits(scope="none"),
    "group": ScaleTraits(scope="group", standard=True, ddof=True),
    "batch": ScaleTraits(scope="batch", standard=True, ddof=True),
    "batch_centred": ScaleTraits(scope="batch", standard=True, ddof=True, centred=True),
    "running": ScaleTraits(scope="history", standard=True),
}


class Normaliser(Protocol):
    """One point of the table transform x baseline x scale; `core.config.AdvantageSpec` is one.

    scale_rewards: `batch` is the std of the RAW rewards of the batch (TRL, LitePPO: arXiv 2508.08221), so that a spread
        in difficulty between prompts shrinks every advantage; `batch_centred` that of the centred ones (REINFORCE++,
        arXiv 2501.03262).
    ddof: 1 divides squares by n - 1. eps is added to the std; std_floor is its lower bound; clip bounds |A|.
    virtual_best: a reward that one more, never sampled, member of each group would have got (NGRPO, arXiv 2509.18851).
    weighting: whether batch statistics count a completion once, or once per drawn token (REINFORCE++ whitens tokens).
    """

    @property
    def transform(self) -> Transform: ...
    @property
    def baseline(self) -> Baseline: ...
    @property
    def scale_rewards(self) -> Scale: ...
    @property
    def ddof(self) -> int: ...
    @property
    def eps(self) -> float: ...
    @property
    def std_floor(self) -> float: ...
    @property
    def clip(self) -> float | None: ...
    @property
    def virtual_best(self) -> float | None: ...
    @property
    def weighting(self) -> Weighting: ...


def scopes(how: Normaliser) -> frozenset[Scope]:
    """Whose rewards have a part in an advantage: the scopes of the baseline and of the scale."""
    return frozenset({BASELINES[how.baseline].scope, SCALES[how.scale_rewards].scope})
