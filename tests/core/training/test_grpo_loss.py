"""The loss of a rollout: one small batch worked by hand, whole and in parts."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, nan

import pytest
import torch
from torch import Tensor

from core.policies.base import ENTROPY, Scores
from core.training.grpo import GrpoLoss
from core.training.update import LossParts
from tests.fakes import grpo_stage
from tests.fakes import loss_of as first_loss

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


def loss_of(*, beta: object = 0.0, entropy_coef: float = 0.0, step: int = 1, **changes: object) -> GrpoLoss:
    stage = {"epsilon": 0.2, "epsilon_high": 0.28, "reduction": "token_mean", "beta": beta, **changes}
    return first_loss(
        grpo_stage(**stage),
        entropy_coef=entropy_coef,
        step=step,
        mask_NT=MASK,
        old_NT=OLD,
        advantages=ADVANTAGES,
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


def test_a_ratio_on_the_kl_is_to_the_policy_that_drew() -> None:
    # d = 1 in row 0, factor 1, where new / old = 2: 2 * k3 = 2 / e, one token of six. Without the ratio it is biased.
    reference = NEW - torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    loss = replace(loss_of(beta=0.1, kl_estimator="k3_ratio"), reference_NT=reference)
    assert float(loss(Scores(logprobs_NT=NEW), range(3)).total) == pytest.approx(-TOKEN_MEAN + 0.1 * 2 * exp(-1) / 6)


def test_without_an_upper_bound_the_lower_one_serves_for_both() -> None:
    loss = first_loss(
        grpo_stage(epsilon=0.2, reduction="token_mean"),
        mask_NT=MASK,
        old_NT=OLD,
        advantages=ADVANTAGES,
        reference_NT=None,
    )
    assert float(loss(Scores(logprobs_NT=NEW), range(3)).total) == pytest.approx(-(TOKEN_MEAN - 0.08 / 6))


def test_the_total_is_the_sum_of_its_weighted_terms() -> None:
    # Entropies of 2 nats a token are a bonus: they come off the loss.
    loss = loss_of(beta=0.1, policy_weight=0.5, entropy_coef=0.25)
    assert loss.wants == {ENTROPY}
    parts = loss(Scores(logprobs_NT=NEW, entropies_NT=torch.full((3, 3), 2.0)), range(3))
    terms = {name: float(term) for name, term in parts.terms.items()}
    assert terms == {
        "policy": pytest.approx(-0.5 * TOKEN_MEAN),
        "kl": pytest.approx(0.1 * 0.5 / 6),
        "entropy": pytest.approx(-0.5),
    }
    assert float(parts.total) == pytest.approx(sum(terms.values()))
    assert value(parts, "policy/loss") == pytest.approx(-TOKEN_MEAN)  # unweighted


def test_a_consistency_loss_is_a_mean_over_the_rows_of_the_optimiser_batch() -> None:
    loss = replace(loss_of(consistency_weight=0.5), rows=[0, 2])
    shares = [
        loss(Scores(logprobs_NT=NEW[[row]], losses_N={"consistency": torch.tensor([own])}), [row])
        for row, own in ((0, 1.0), (2, 3.0))
    ]
    assert sum(float(share.terms["consistency"]) for share in shares) == pytest.approx(0.5 * 2.0)


FALLING = {"epsilon": {"start": 0.6, "end": 0.2, "steps": 4}, "epsilon_high": None}
RISING = {"epsilon_high": {"start": 0.5, "end": 0.3, "steps": 2}}


@pytest.mark.parametrize(
    ("changes", "step", "expected"),
    [
        # What the tokens at ratio 2 (A = 1) and 0.5 (A = -2) give beside the others' 1 + 1 + 0.5 + 0.5.
        (FALLING, 1, 1.5 - 2 * 0.5),  # both bounds are 0.5
        (FALLING, 3, 1.3 - 2 * 0.7),
        (FALLING, 9, 1.2 - 2 * 0.8),
        (RISING, 1, 1.4 - 2 * 0.8),
        (RISING, 2, 1.3 - 2 * 0.8),
        ({"policy_weight": {"start": 1.0, "end": 0.0, "steps": 2}}, 2, -3.0),  # nothing is left of it
    ],
)
def test_bounds_and_weights_are_those_of_the_step(changes: dict[str, object], step: int, expected: float) -> None:
    parts = loss_of(**changes, step=step)(Scores(logprobs_NT=NEW), range(3))
    assert float(parts.total) == pytest.approx(-(3.0 + expected) / 6)


def test_a_penalty_takes_the_weight_it_is_given() -> None:
    loss = loss_of(beta={"start": 0.4, "end": 0.0, "steps": 4})
    assert float(loss(Scores(logprobs_NT=NEW), range(3)).terms["kl"]) == pytest.approx(0.3 * 0.5 / 6)
    moved = replace(loss, numbers=replace(loss.numbers, beta=0.7))
    assert float(moved(Scores(logprobs_NT=NEW), range(3)).terms["kl"]) == pytest.approx(0.7 * 0.5 / 6)


def test_importance_weighs_the_surrogate_and_not_the_penalty() -> None:
    weights = torch.full((3, 3), 2.0, dtype=torch.float64).masked_fill(~MASK, nan)
    parts = replace(loss_of(beta=0.1), importance_NT=weights)(Scores(logprobs_NT=NEW), range(3))
    assert float(parts.total) == pytest.approx(-2 * TOKEN_MEAN + 0.1 * 0.5 / 6)


def test_a_token_may_have_an_advantage_of_its_own() -> None:
    # As rows have them, but for row 0's last factor: -1 in place of 1.
    by_token = ADVANTAGES.unsqueeze(-1).repeat(1, 3)
    by_token[0, 2] = -1.0
    parts = replace(loss_of(), advantages=by_token)(Scores(logprobs_NT=NEW), range(3))
    assert float(parts.total) == pytest.approx(-(TOKEN_MEAN - 2 / 6))


def test_a_minibatch_has_denominators_of_its_own() -> None:
    # Rows 1 and 2 alone: three tokens, of -1.6, 0.5 and 0.5.
    parts = replace(loss_of(), rows=[1, 2])(Scores(logprobs_NT=NEW[1:]), [1, 2])
    assert float(parts.total) == pytest.approx(0.6 / 3)
    assert value(parts, "policy/clip_low") == pytest.approx(1 / 3)


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
        loss = first_loss(
            grpo_stage(beta=0.1, kl_estimator=estimator),
            mask_NT=MASK,
            old_NT=OLD + hole.get("old", 0.0),
            advantages=ADVANTAGES,
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
