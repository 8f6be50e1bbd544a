"""The loss of a rollout: one small batch worked by hand, whole and in parts."""

from __future__ import annotations

from math import exp, log, nan

import pytest
import torch
from torch import Tensor

from core.policies.base import Scores
from core.training.grpo_loss import GrpoLoss
from core.training.update import LossParts
from tests.fakes import grpo_stage

# Three rows of 3, 1 and 2 factors. New / old = 1 but for two: 2.0 in row 0 (A = +1) and 0.5 in row 1 (A = -2).
MASK = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
OLD = torch.full((3, 3), -1.0, dtype=torch.float64)
NEW = OLD + torch.tensor([[0.0, log(2.0), 0.0], [log(0.5), 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
# d = log new - log reference is 0 but for 1 in row 2, factor 0.
REFERENCE = NEW - torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
# With clips at 0.8 and 1.28 the surrogates are
#   row 0: 1, 1.28 (clipped), 1      row 1: -2 * 0.8 = -1.6 (clipped)      row 2: 0.5, 0.5
TOKEN_MEAN = (1 + 1.28 + 1 - 1.6 + 0.5 + 0.5) / 6
SEQUENCE_MEAN = (3.28 / 3 - 1.6 + 0.5) / 3
KL_3 = (exp(-1) + 1 - 1) / 6  # k3 at d = 1, a mean over tokens


def loss_of(*, beta: float = 0.0, **changes: object) -> GrpoLoss:
    return GrpoLoss(
        stage=grpo_stage(epsilon=0.2, epsilon_high=0.28, beta=beta, **changes),
        mask_NT=MASK,
        old_NT=OLD,
        advantages_N=ADVANTAGES,
        reference_NT=REFERENCE if beta else None,
    )


def value(parts: LossParts, name: str) -> float:
    return float(parts.sums[name])


@pytest.mark.parametrize(
    ("reduction", "expected", "penalty"),
    [
        ("token_mean", TOKEN_MEAN, 0.5 / 6),  # k2 at d = 1 is 1/2; one token of six
        ("sequence_mean", SEQUENCE_MEAN, 0.25 / 3),  # half of row 2, which is one row of three
    ],
)
def test_the_batch_worked_by_hand(reduction: str, expected: float, penalty: float) -> None:
    parts = loss_of(reduction=reduction)(Scores(logprobs_NT=NEW), range(3))
    assert float(parts.total) == pytest.approx(-expected)
    assert value(parts, "policy/loss") == pytest.approx(-expected)
    assert "kl" not in parts.sums
    # Fractions of tokens whatever the reduction is: one of six each.
    assert value(parts, "policy/clip_low") == pytest.approx(1 / 6)
    assert value(parts, "policy/clip_high") == pytest.approx(1 / 6)
    assert float(parts.maxima["policy/ratio_max"]) == pytest.approx(2.0)
    with_kl = loss_of(reduction=reduction, beta=0.1)(Scores(logprobs_NT=NEW), range(3))
    assert float(with_kl.total) == pytest.approx(-expected + 0.1 * penalty)
    assert value(with_kl, "policy/loss") == pytest.approx(-expected)
    assert value(with_kl, "kl") == pytest.approx(KL_3)  # reported is k3, whatever is differentiated


def test_the_estimator_of_the_spec_is_differentiated() -> None:
    # k3 at d = 1 is 1/e, one token of six.
    parts = loss_of(beta=0.1, kl_estimator="k3")(Scores(logprobs_NT=NEW), range(3))
    assert float(parts.total) == pytest.approx(-TOKEN_MEAN + 0.1 * exp(-1) / 6)


def test_without_an_upper_bound_the_lower_one_serves_for_both() -> None:
    loss = GrpoLoss(stage=grpo_stage(epsilon=0.2), mask_NT=MASK, old_NT=OLD, advantages_N=ADVANTAGES, reference_NT=None)
    assert float(loss(Scores(logprobs_NT=NEW), range(3)).total) == pytest.approx(-(TOKEN_MEAN - 0.08 / 6))


@pytest.mark.parametrize("cut", [[[0], [1], [2]], [[0, 1], [2]], [[2], [1, 0]], [[1, 0, 2]]])
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean"])
def test_the_shares_of_micro_batches_add_up_to_the_batch(cut: list[list[int]], reduction: str) -> None:
    loss = loss_of(reduction=reduction, beta=0.1)
    whole = loss(Scores(logprobs_NT=NEW), range(3))
    shares = [loss(Scores(logprobs_NT=NEW[rows]), rows) for rows in cut]
    assert sum(float(share.total) for share in shares) == pytest.approx(float(whole.total))
    for name in whole.sums:
        assert sum(value(share, name) for share in shares) == pytest.approx(value(whole, name)), name
    assert max(float(share.maxima["policy/ratio_max"]) for share in shares) == pytest.approx(2.0)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@pytest.mark.parametrize("spoilt", ["new", "old", "reference"])
def test_nan_in_the_padding_is_harmless_also_in_the_gradient(spoilt: str, estimator: str) -> None:
    def gradient(holes: bool) -> Tensor:
        hole = {name: torch.zeros(3, 3).masked_fill(~MASK, nan) for name in [spoilt] if holes}
        new = (NEW + hole.get("new", 0.0)).requires_grad_()
        loss = GrpoLoss(
            stage=grpo_stage(beta=0.1, kl_estimator=estimator),
            mask_NT=MASK,
            old_NT=OLD + hole.get("old", 0.0),
            advantages_N=ADVANTAGES,
            reference_NT=REFERENCE + hole.get("reference", 0.0),
        )
        parts = loss(Scores(logprobs_NT=new), range(3))
        parts.total.backward()  # type: ignore[no-untyped-call]
        assert all(torch.isfinite(number) for number in [*parts.sums.values(), *parts.maxima.values()])
        assert new.grad is not None
        return new.grad

    assert torch.equal(gradient(True), gradient(False))


def test_the_loss_pulls_up_what_is_better_and_down_what_is_worse() -> None:
    new = OLD.clone().requires_grad_()
    loss_of()(Scores(logprobs_NT=new), range(3)).total.backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    # Descending: minus the gradient. Each of six tokens weighs 1/6 times its advantage, padding nothing.
    assert (-6 * new.grad).tolist() == [
        pytest.approx(row) for row in ([1.0, 1.0, 1.0], [-2.0, 0.0, 0.0], [0.5, 0.5, 0.0])
    ]
