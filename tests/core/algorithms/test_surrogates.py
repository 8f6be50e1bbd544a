"""Policy surrogates: value and slope of every kind by hand, and that nothing off the mask reaches either."""

from __future__ import annotations

from math import exp, log, nan
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from core.algorithms.names import Reduction, SurrogateKind
from core.algorithms.reductions import token_weights, weighted_sum
from core.algorithms.surrogates import Surrogate, Trust, surrogate, truncated_weights

KINDS = get_args(SurrogateKind)
OLD = -1.0


def trust(kind: str, **constants: Any) -> Trust:
    """Bounds 0.8 and 1.28 on the ratio."""
    named: dict[str, Any] = {"kind": kind, "epsilon": 0.2, "epsilon_high": 0.28}
    return Trust(**{**named, **constants})


def at(kind: str, ratio: float, advantage: float, old: float = OLD, **constants: Any) -> tuple[Surrogate, float]:
    """One token at a ratio, and the slope of its value in the new log-prob."""
    new = torch.tensor([[old + log(ratio)]], dtype=torch.float64, requires_grad=True)
    before = torch.tensor([[old]], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, 1, dtype=torch.bool)
    got = surrogate(new, before, torch.tensor([[advantage]]), one, trust(kind, **constants))
    got.values_NT.sum().backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    assert before.grad is None
    return got, float(new.grad)


CLIP = [
    # advantage, ratio, value, slope = d value / d new (ratio * A where nothing acts), which bound acts
    # A > 0: what is above 1.28 earns no more (and pulls no more); what is below is not clipped.
    (+1.0, 0.50, +0.50, +0.50, ""),
    (+1.0, 1.00, +1.00, +1.00, ""),
    (+1.0, 1.25, +1.25, +1.25, ""),
    (+1.0, 1.50, +1.28, +0.00, "high"),
    # A < 0: what is below 0.8 saves no more; what is above is not clipped: min(-1.5, -1.28) = -1.5.
    (-1.0, 0.50, -0.80, +0.00, "low"),
    (-1.0, 0.90, -0.90, -0.90, ""),
    (-1.0, 1.50, -1.50, -1.50, ""),
    # The advantage is a factor of both.
    (+2.0, 1.50, +2.56, +0.00, "high"),
    (-2.0, 1.10, -2.20, -2.20, ""),
    # No advantage, no clip.
    (+0.0, 1.50, +0.00, +0.00, ""),
]


@pytest.mark.parametrize("kind", ["clip", "gspo", "mean_ratio"])  # of one token, the row's ratio is the token's
@pytest.mark.parametrize(("advantage", "ratio", "value", "slope", "acts"), CLIP)
def test_clip(kind: str, advantage: float, ratio: float, value: float, slope: float, acts: str) -> None:
    got, pull = at(kind, ratio, advantage)
    assert (got.values_NT.item(), pull, got.ratio_NT.item()) == pytest.approx((value, slope, ratio), abs=1e-12)
    assert (bool(got.low_NT), bool(got.high_NT)) == (acts == "low", acts == "high")


@pytest.mark.parametrize(
    ("kind", "advantage", "ratio", "value", "slope", "acts"),
    [
        # A < 0: not below 3 A, and no pull from there on; A > 0 and small ratios as clip.
        ("dual_clip", -1.0, 2.9, -2.9, -2.9, ""),
        ("dual_clip", -1.0, 4.0, -3.0, 0.0, "high"),
        ("dual_clip", -2.0, 4.0, -6.0, 0.0, "high"),
        ("dual_clip", -1.0, 0.5, -0.8, 0.0, "low"),
        ("dual_clip", +1.0, 4.0, +1.28, 0.0, "high"),
        # min(rho, 5) * A * new; new = -1 + log rho; slope min(rho, 5) * A: bounded, never 0.
        ("cispo", +1.0, 2.0, 2 * (log(2) - 1), 2.0, ""),
        ("cispo", +1.0, 8.0, 5 * (log(8) - 1), 5.0, "high"),
        ("cispo", -2.0, 8.0, -10 * (log(8) - 1), -10.0, "high"),
        ("cispo", -1.0, 0.1, -0.1 * (log(0.1) - 1), -0.1, ""),
        ("cispo", +0.0, 8.0, 0.0, 0.0, ""),
        # 4 sigmoid(rho - 1) for A > 0: at 1 it is 2 with slope 1 (times rho).
        ("sapo", +1.0, 1.0, 2.0, 1.0, ""),
        # At rho = 3: s = 1 / (1 + e^-2) = 0.8808; slope 4 s (1 - s) rho = 1.2599.
        ("sapo", +1.0, 3.0, 4 / (1 + exp(-2)), 12 * exp(-2) / (1 + exp(-2)) ** 2, ""),
        # A < 0 has tau 1.05: 2 / 1.05 at rho = 1, and the same slope of 1 there.
        ("sapo", -1.0, 1.0, -2 / 1.05, -1.0, ""),
        ("sapo", -1.0, 3.0, -4 / 1.05 / (1 + exp(-2.1)), -12 * exp(-2.1) / (1 + exp(-2.1)) ** 2, ""),
        # No ratio in it: A * new.
        ("reinforce", +2.0, 4.0, 2 * (log(4) - 1), 2.0, ""),
        ("reinforce", -1.0, 0.5, -(log(0.5) - 1), -1.0, ""),
        # Probability 0.3679 before. Times 1.5: +0.184, below 0.2; times 1.6: +0.221, above.
        ("dppo", +1.0, 1.5, 1.5, 1.5, ""),
        ("dppo", +1.0, 1.6, 0.0, 0.0, "high"),
        ("dppo", -1.0, 1.6, -1.6, -1.6, ""),  # it pushes back: kept
        # Times 0.5: -0.184; times 0.4: -0.221.
        ("dppo", -1.0, 0.5, -0.5, -0.5, ""),
        ("dppo", -1.0, 0.4, 0.0, 0.0, "low"),
        ("dppo", +1.0, 0.4, 0.4, 0.4, ""),
    ],
)
def test_the_other_kinds(kind: str, advantage: float, ratio: float, value: float, slope: float, acts: str) -> None:
    got, pull = at(kind, ratio, advantage)
    assert (got.values_NT.item(), pull, got.ratio_NT.item()) == pytest.approx((value, slope, ratio), abs=1e-9)
    assert (bool(got.low_NT), bool(got.high_NT)) == (acts == "low", acts == "high")


def test_dppo_leaves_a_rare_token_its_large_ratio_and_clip_does_not() -> None:
    # Probability 0.0001 -> 0.001: ratio 10, but only 0.0009 has moved.
    rare = log(1e-4)
    assert at("dppo", 10.0, 1.0, old=rare)[1] == pytest.approx(10.0)
    assert at("clip", 10.0, 1.0, old=rare)[1] == 0.0


@pytest.mark.parametrize(
    ("kind", "constants"),
    [
        ("clip", {"epsilon": 0.6, "epsilon_high": 0.6}),
        ("dual_clip", {"dual_clip": 5.0}),
        ("cispo", {"cispo_max_weight": 9.0}),
        ("sapo", {"sapo_temperature_neg": 2.0}),
        ("dppo", {"dppo_delta": 2.0}),
    ],
)
def test_every_constant_is_read(kind: str, constants: dict[str, float]) -> None:
    def slopes(**given: Any) -> list[float]:
        return [at(kind, ratio, a, **given)[1] for ratio in (0.3, 1.5, 4.0, 8.0) for a in (-1.0, 1.0)]

    assert slopes(**constants) != slopes()
    assert kind != "sapo" or slopes(sapo_temperature_pos=2.0) != slopes()


# Two rows of log-ratios: row 0 log 2 and log 0.5 (geometric mean 1, arithmetic 1.25); row 1 log 2 twice and padding.
LOG_RATIOS = torch.tensor([[log(2.0), log(0.5), nan], [log(2.0), log(2.0), nan]], dtype=torch.float64)
MASK = ~LOG_RATIOS.isnan()


def of_rows(kind: str, advantages: list[list[float]], **constants: Any) -> tuple[Surrogate, Tensor]:
    """The surrogate of the two rows, NaN wherever the mask is False, and its slopes."""
    old = torch.full_like(LOG_RATIOS, OLD).masked_fill(~MASK, nan)
    new = (OLD + LOG_RATIOS).requires_grad_()
    got = surrogate(new, old, torch.tensor(advantages, dtype=torch.float64), MASK, trust(kind, **constants))
    got.values_NT.sum().backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    return got, new.grad


def test_gspo_rows() -> None:
    # Row 0: s = 1, inside the bounds: every token has value and slope 1. Row 1: s = 2, above 1.28: no slope.
    got, slopes = of_rows("gspo", [[1.0], [1.0]])
    assert got.values_NT.tolist() == [pytest.approx([1.0, 1.0, 0.0]), pytest.approx([1.28, 1.28, 0.0])]
    assert slopes.tolist() == [pytest.approx([1.0, 1.0, 0.0]), [0.0, 0.0, 0.0]]
    assert got.high_NT.tolist() == [[False] * 3, [True, True, False]]
    # A < 0 is not clipped above: value and slope s A.
    got, slopes = of_rows("gspo", [[1.0], [-1.0]])
    assert slopes.tolist() == [pytest.approx([1.0, 1.0, 0.0]), pytest.approx([-2.0, -2.0, 0.0])]


def test_gspo_is_the_gradient_of_the_rows_ratio() -> None:
    # Under sequence_mean the sum over tokens is d/d new of mean_rows s A, s = exp(mean log-ratio), written directly.
    advantages = torch.tensor([[1.5], [-0.7]], dtype=torch.float64)
    new = (OLD + LOG_RATIOS).requires_grad_()
    old = torch.full_like(LOG_RATIOS, OLD)
    weights = token_weights(MASK, "sequence_mean")
    ours = weighted_sum(surrogate(new, old, advantages, MASK, trust("gspo")).values_NT, weights)
    means = (new - old).masked_fill(~MASK, 0.0).sum(-1) / 2
    direct = (means.exp() * advantages.squeeze(-1)).mean()
    assert ours.item() == pytest.approx(direct.item())
    (mine,), (other,) = torch.autograd.grad(ours, new), torch.autograd.grad(direct, new)
    assert torch.allclose(mine, other, atol=1e-12)


def test_mean_ratio_rows() -> None:
    # Row 0: w = (2 + 0.5) / 2 = 1.25, inside: its tokens keep rho A. Row 1: w = 2, above 1.28: clipped whole.
    got, slopes = of_rows("mean_ratio", [[1.0], [1.0]])
    assert got.values_NT.tolist() == [pytest.approx([2.0, 0.5, 0.0]), pytest.approx([1.28, 1.28, 0.0])]
    assert slopes.tolist() == [pytest.approx([2.0, 0.5, 0.0]), [0.0, 0.0, 0.0]]
    assert got.ratio_NT[:, 0].tolist() == pytest.approx([1.25, 2.0])
    # The mean of the row's values is w A, then 1.28 A.
    assert got.values_NT[0, :2].mean().item() == pytest.approx(1.25)


def test_product_ratio_is_of_the_whole_row() -> None:
    got, slopes = of_rows("product_ratio", [[1.0], [1.0]])
    first, second = exp(sum(LOG_RATIOS[0, :2].tolist())), exp(sum(LOG_RATIOS[1, :2].tolist()))
    for row, whole in enumerate((first, second)):
        assert got.ratio_NT[row].tolist() == pytest.approx([whole, whole, 1.0])
        value, slope = (whole, 2 * whole) if whole <= 1.28 else (1.28, 0.0)
        assert got.values_NT[row].tolist() == pytest.approx([value, value, 0.0])
        assert slopes[row].tolist() == pytest.approx([slope, slope, 0.0])  # half of it under a mean over two factors
    _, slopes = of_rows("product_ratio", [[-1.0], [-1.0]])
    assert (slopes[:, :2] < 0).all()  # above the bounds a negative advantage still pulls


@pytest.mark.parametrize("kind", KINDS)
def test_advantages_of_rows_serve_their_tokens_and_those_of_tokens_their_own(kind: str) -> None:
    by_row, slopes = of_rows(kind, [[1.0], [-1.0]])
    by_token, same = of_rows(kind, [[1.0, 1.0, nan], [-1.0, -1.0, nan]])
    assert torch.equal(by_row.values_NT, by_token.values_NT)
    assert torch.equal(slopes, same)
    one_only, slopes = of_rows(kind, [[1.0, 0.0, nan], [0.0, 0.0, nan]])
    assert not slopes[1].any()
    assert not slopes[0, 1]
    assert slopes[0, 0] or one_only.high_NT[0, 0]


@pytest.mark.parametrize("reduction", get_args(Reduction))
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_off_the_mask_reaches_neither_value_nor_gradient(kind: str, reduction: Reduction) -> None:
    results = []
    for filling in (0.0, nan, float("inf"), -float("inf"), 1e30):
        new = (OLD + LOG_RATIOS).masked_fill(~MASK, filling).requires_grad_()
        old = torch.full_like(LOG_RATIOS, OLD).masked_fill(~MASK, filling)
        advantages = torch.tensor([[1.0], [-1.0]]).expand(2, 3).masked_fill(~MASK, filling)
        got = surrogate(new, old, advantages, MASK, trust(kind))
        loss = -weighted_sum(got.values_NT, token_weights(MASK, reduction, 5))
        (slope,) = torch.autograd.grad(loss, new)
        assert got.ratio_NT.isfinite().all()
        assert not (got.low_NT | got.high_NT)[~MASK].any()
        results.append((loss.item(), slope.tolist()))
    assert results[0][0] == results[0][0]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_with_nothing_drawn_is_harmless(kind: str) -> None:
    new = torch.full((1, 2), nan, requires_grad=True)
    mask = torch.zeros(1, 2, dtype=torch.bool)
    got = surrogate(new, new.detach(), torch.tensor([[1.0]]), mask, trust(kind))
    (slope,) = torch.autograd.grad(got.values_NT.sum(), new)
    assert not got.values_NT.any()
    assert not slope.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_a_wild_token_gives_a_number(kind: str, advantage: float) -> None:
    new = torch.tensor([[0.0, -1000.0]], requires_grad=True)
    old = torch.tensor([[-1000.0, 0.0]])
    got = surrogate(new, old, torch.tensor([[advantage]]), torch.ones(1, 2, dtype=torch.bool), trust(kind))
    (slope,) = torch.autograd.grad(got.values_NT.sum(), new)
    assert got.values_NT.isfinite().all()
    assert slope.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_on_policy_every_kind_pulls_as_reinforce_does(kind: str) -> None:
    # At ratio 1 nothing is clipped, and the slope of every surrogate is A.
    got, pull = at(kind, 1.0, -1.5)
    assert pull == pytest.approx(-1.5)
    assert not (got.low_NT | got.high_NT).any()


def test_table() -> None:
    # old / drawn = 1, 1.5, 0.5, 4, the last bounded at 2; nothing bounds from below.
    drawn = torch.full((1, 4), -1.0)
    old = drawn + torch.tensor([[0.0, log(1.5), log(0.5), log(4.0)]])
    got = truncated_weights(old.requires_grad_(), drawn, 2.0)
    assert got.tolist()[0] == pytest.approx([1.0, 1.5, 0.5, 2.0])
    assert not got.requires_grad


def test_wild_gaps_give_numbers() -> None:
    got = truncated_weights(torch.tensor([[0.0, -1000.0]]), torch.tensor([[-1000.0, 0.0]]), 3.0)
    assert got.tolist() == [[3.0, 0.0]]


def test_off_the_mask_the_weight_is_one_and_carries_no_nan_into_a_gradient() -> None:
    mask = torch.tensor([[True, False]])
    weights = truncated_weights(torch.tensor([[-1.0, nan]]), torch.tensor([[-1.0, nan]]), 2.0, mask_NT=mask)
    assert weights.tolist() == [[1.0, 1.0]]
    assert truncated_weights(torch.zeros(1, 2), torch.zeros(1, 2), 0.5, mask_NT=mask).tolist() == [[0.5, 1.0]]
