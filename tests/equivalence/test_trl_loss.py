"""Loss and gradient equal to TRL 1.16.0's own `_compute_loss` on one frozen batch, setting by setting.

The batch: 3 groups of 4 rows of 1 to 8 tokens, a row without a reward, a group without signal, log-probs that an older
policy recorded and a reference of their own. Gradients are those of all weights of a small Qwen2. Every test of a
DIFFERENCE pins one that is deliberate: docs/algorithms.md lists them with their reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from torch import Tensor

from core.algorithms.kl import kl_loss
from core.algorithms.names import KlEstimator, Reduction
from core.algorithms.reductions import token_weights, weighted_sum
from core.algorithms.surrogates import Surrogate, Trust, surrogate
from core.policies.base import Scores
from tests.equivalence.conftest import BUDGET, Frozen, Trl
from tests.fakes import grpo_stage, loss_of

TOLERANCE = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")  # of TRL's use of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One setting in both languages."""

    trust: Trust
    reduction: Reduction
    trl: dict[str, Any]  # attributes of the trainer
    args: dict[str, Any] = field(default_factory=dict)  # attributes of its configuration


CLIP = Trust(kind="clip", epsilon=0.2, epsilon_high=0.28)
BOUNDS = {"epsilon_low": 0.2, "epsilon_high": 0.28}
GSPO = Trust(kind="gspo", epsilon=0.03, epsilon_high=0.04)
SEQUENCE = {"importance_sampling_level": "sequence", "epsilon_low": 0.03, "epsilon_high": 0.04}

CASES = {
    "grpo": Case(trust=CLIP, reduction="sequence_mean", trl={"loss_type": "grpo", **BOUNDS}),
    "dr_grpo": Case(trust=CLIP, reduction="constant_length", trl={"loss_type": "dr_grpo", **BOUNDS}),
    "dapo": Case(trust=CLIP, reduction="token_mean", trl={"loss_type": "dapo", **BOUNDS}),
    "bnpo": Case(trust=CLIP, reduction="token_mean", trl={"loss_type": "bnpo", **BOUNDS}),
    "cispo": Case(
        # TRL's epsilon_high is here the absolute bound on the ratio.
        trust=Trust(kind="cispo", epsilon=0.2, epsilon_high=0.2, cispo_max_weight=1.2),
        reduction="token_mean",
        trl={"loss_type": "cispo", "epsilon_high": 1.2},
    ),
    "sapo": Case(
        trust=Trust(kind="sapo", epsilon=0.2, epsilon_high=0.2), reduction="sequence_mean", trl={"loss_type": "sapo"}
    ),
    "gspo": Case(trust=GSPO, reduction="sequence_mean", trl={"loss_type": "grpo", **SEQUENCE}),
    # Two more that TRL has: its `delta` is the dual clip, and its luspo is GSPO under a sum per row.
    "dual_clip": Case(
        trust=Trust(kind="dual_clip", epsilon=0.2, epsilon_high=0.28, dual_clip=1.4),
        reduction="sequence_mean",
        trl={"loss_type": "grpo", **BOUNDS},
        args={"delta": 1.4},
    ),
    "luspo": Case(trust=GSPO, reduction="sequence_sum", trl={"loss_type": "luspo", **SEQUENCE}),
}


def composed(case: Case, frozen: Frozen, new_NT: Tensor, beta: float, estimator: KlEstimator) -> Tensor:
    """The loss of a run, of the stage that has the case's settings."""
    trust = case.trust
    settings = {name: getattr(trust, name) for name in (
        "epsilon", "epsilon_high", "dual_clip", "cispo_max_weight", "sapo_temperature_pos", "sapo_temperature_neg",
    )}  # fmt: skip
    stage = grpo_stage(
        **settings,
        surrogate=trust.kind,
        reduction=case.reduction,
        beta=beta,
        kl_estimator=estimator,
        max_completion_length=BUDGET,
    )
    loss = loss_of(
        stage,
        mask_NT=frozen.mask_NT,
        old_NT=frozen.old_NT,
        advantages=frozen.inputs["advantages"],
        reference_NT=frozen.reference_NT if beta else None,
    )
    return loss(Scores(logprobs_NT=new_NT), range(len(new_NT))).total


def acting(case: Case, frozen: Frozen, new_NT: Tensor) -> Surrogate:
    """The surrogate of a case on the batch."""
    new_NT = new_NT.masked_fill(~frozen.mask_NT, float("nan"))
    advantages_N1 = frozen.inputs["advantages"].unsqueeze(-1)
    return surrogate(new_NT, frozen.old_NT, advantages_N1, frozen.mask_NT, case.trust)


def theirs(trl: Trl, case: Case, frozen: Frozen, **settings: Any) -> tuple[Tensor, Tensor]:
    """TRL's loss and gradient."""
    trl.set(**case.trl, **settings)
    trl.set_args(**case.args)
    loss = trl.loss(frozen.inputs)
    return loss.detach(), trl.gradient(loss)


def ours(
    trl: Trl, case: Case, frozen: Frozen, beta: float = 0.0, estimator: KlEstimator = "k3"
) -> tuple[Tensor, Tensor]:
    """Our loss and gradient."""
    loss = composed(case, frozen, trl.logprobs(frozen.inputs), beta, estimator)
    return loss.detach(), trl.gradient(loss)


def assert_equal(mine: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> None:
    """Loss and every component of the gradient within 1e-5; the gradient is not so small that this says nothing."""
    assert other[1].abs().max() > 0.01
    assert float((mine[0] - other[0]).abs()) < TOLERANCE
    assert float((mine[1] - other[1]).abs().max()) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_without_kl(trl: Trl, frozen: Frozen, name: str) -> None:
    assert_equal(ours(trl, CASES[name], frozen), theirs(trl, CASES[name], frozen))


@pytest.mark.parametrize("name", CASES)
def test_with_plain_k3(trl: Trl, frozen: Frozen, name: str) -> None:
    trl.set_args(use_bias_correction_kl=False)
    mine = ours(trl, CASES[name], frozen, beta=0.04, estimator="k3")
    assert_equal(mine, theirs(trl, CASES[name], frozen, beta=0.04))
    assert float((mine[1] - ours(trl, CASES[name], frozen)[1]).abs().max()) > 10 * TOLERANCE  # beta does something


@pytest.mark.parametrize("name", sorted(set(CASES) - {"gspo", "luspo", "dual_clip"}))
def test_with_k3_times_the_ratio(trl: Trl, frozen: Frozen, name: str) -> None:
    mine = ours(trl, CASES[name], frozen, beta=0.04, estimator="k3_ratio")
    assert_equal(mine, theirs(trl, CASES[name], frozen, beta=0.04))
    assert float((mine[1] - ours(trl, CASES[name], frozen, 0.04, "k3")[1]).abs().max()) > 10 * TOLERANCE


def test_dual_clip_does_not_touch_the_kl_ratio(trl: Trl, frozen: Frozen) -> None:
    # TRL multiplies the KL by the ratio before `delta` bounds it, so this case is equal too.
    mine = ours(trl, CASES["dual_clip"], frozen, beta=0.04, estimator="k3_ratio")
    assert_equal(mine, theirs(trl, CASES["dual_clip"], frozen, beta=0.04))


@pytest.mark.parametrize("name", ["gspo", "luspo"])
def test_difference_gspo_corrects_the_kl_by_the_ratio_of_the_token(trl: Trl, frozen: Frozen, name: str) -> None:
    # TRL multiplies each token's k3 by the ROW's ratio, whose gradient is the mean of all its tokens': not the reverse
    # KL's at that token. With their ratio in place of ours the two are equal, so this is the only difference.
    case = CASES[name]
    mine, other = ours(trl, case, frozen, 0.04, "k3_ratio"), theirs(trl, case, frozen, beta=0.04)
    assert float((mine[1] - other[1]).abs().max()) > 10 * TOLERANCE
    new_NT = trl.logprobs(frozen.inputs).masked_fill(~frozen.mask_NT, 0.0)
    old_NT, reference_NT = (x.masked_fill(~frozen.mask_NT, 0.0) for x in (frozen.old_NT, frozen.reference_NT))
    row_N1 = ((new_NT - old_NT).sum(-1) / frozen.mask_NT.sum(-1)).exp().unsqueeze(-1)
    weights_NT = token_weights(frozen.mask_NT, case.reduction, BUDGET)
    loss = composed(case, frozen, new_NT, 0.0, "k3") + 0.04 * weighted_sum(
        row_N1 * kl_loss(new_NT, reference_NT, "k3"), weights_NT
    )
    assert_equal((loss.detach(), trl.gradient(loss)), other)


@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_on_policy_too(trl: Trl, frozen: Frozen, name: str) -> None:
    # TRL leaves old log-probs out and takes the new ones, detached; ours are what the sampler recorded: here the same.
    new_NT = trl.logprobs(frozen.inputs).detach()
    del frozen.inputs["old_per_token_logps"]
    same = Frozen(inputs=frozen.inputs, mask_NT=frozen.mask_NT, old_NT=new_NT, reference_NT=frozen.reference_NT)
    assert_equal(ours(trl, CASES[name], same), theirs(trl, CASES[name], same))


@pytest.mark.parametrize("name", sorted(set(CASES) - {"sapo"}))
def test_the_batch_has_rows_on_both_sides_of_every_bound(trl: Trl, frozen: Frozen, name: str) -> None:
    # Without this the tests above could pass with the bounds ignored.
    drawn = frozen.mask_NT & (frozen.inputs["advantages"].unsqueeze(-1) != 0)
    got = acting(CASES[name], frozen, trl.logprobs(frozen.inputs))
    assert (got.high_NT & drawn).any()
    assert (drawn & ~got.high_NT & ~got.low_NT).any()
    assert name == "cispo" or (got.low_NT & drawn).any()


def halves(frozen: Frozen) -> list[dict[str, Tensor]]:
    """The batch as two micro-batches of 7 and 5 rows; the token count stays the whole batch's, as in TRL."""
    count = frozen.inputs["num_items_in_batch"]
    cuts = (slice(0, 7), slice(7, None))
    return [
        {k: x[cut] if x.dim() else x for k, x in frozen.inputs.items()} | {"num_items_in_batch": count} for cut in cuts
    ]


def accumulated(trl: Trl, case: Case, frozen: Frozen) -> Tensor:
    """TRL's gradient accumulated over the two micro-batches."""
    trl.set(**case.trl, current_gradient_accumulation_steps=2)
    trl.set_args(steps_per_generation=2)
    first, second = (trl.gradient(trl.loss(part)) for part in halves(frozen))
    return first + second


def test_dapo_in_micro_batches_is_ours_of_the_whole_batch(trl: Trl, frozen: Frozen) -> None:
    mine = ours(trl, CASES["dapo"], frozen)[1]
    assert float((accumulated(trl, CASES["dapo"], frozen) - mine).abs().max()) < TOLERANCE


@pytest.mark.parametrize("name", ["bnpo", "grpo", "dr_grpo"])
def test_difference_unequal_micro_batches_move_the_gradient_of_the_others(trl: Trl, frozen: Frozen, name: str) -> None:
    # TRL averages the means of the micro-batches: rows of a smaller one (bnpo: of one with fewer tokens) weigh more.
    # Ours divide by the whole batch's denominators, however it is cut.
    mine = ours(trl, CASES[name], frozen)[1]
    assert float((accumulated(trl, CASES[name], frozen) - mine).abs().max()) > 100 * TOLERANCE


def test_difference_a_row_with_nothing_drawn_is_no_row_of_the_mean(trl: Trl, frozen: Frozen) -> None:
    # Row 2 masked out as truncated: TRL still divides by 12 rows, ours by 11. The signal does not shrink with them.
    frozen.inputs["completion_mask"][2] = 0
    frozen.mask_NT[2] = False
    mine, other = ours(trl, CASES["grpo"], frozen), theirs(trl, CASES["grpo"], frozen)
    assert_equal((mine[0] * 11 / 12, mine[1] * 11 / 12), other)


def test_a_row_with_nothing_drawn_stays_a_row_of_the_constant_length(trl: Trl, frozen: Frozen) -> None:
    frozen.inputs["completion_mask"][2] = 0
    frozen.mask_NT[2] = False
    assert_equal(ours(trl, CASES["dr_grpo"], frozen), theirs(trl, CASES["dr_grpo"], frozen))
