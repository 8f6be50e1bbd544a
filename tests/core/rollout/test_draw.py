"""Which token a uniform draws, and what the filters leave. Powers of two: no sum here is rounded."""

from __future__ import annotations

import pytest
import torch

from core.rollout.decoding import draw, filtered, positions

JUST_BELOW_1 = 1 - 2.0**-53


@pytest.mark.parametrize(
    ("probs", "uniform", "token"),
    [
        # Cumulative 1/4, 3/4, 1: the first that exceeds the uniform.
        ([0.25, 0.5, 0.25], 0.0, 0),
        ([0.25, 0.5, 0.25], 0.2499, 0),
        ([0.25, 0.5, 0.25], 0.25, 1),
        ([0.25, 0.5, 0.25], 0.7499, 1),
        ([0.25, 0.5, 0.25], 0.75, 2),
        ([0.25, 0.5, 0.25], JUST_BELOW_1, 2),
        # What has no probability is never drawn: not first, not in between, not last.
        ([0.0, 0.5, 0.0, 0.5, 0.0], 0.0, 1),
        ([0.0, 0.5, 0.0, 0.5, 0.0], 0.4999, 1),
        ([0.0, 0.5, 0.0, 0.5, 0.0], 0.5, 3),
        ([0.0, 0.5, 0.0, 0.5, 0.0], JUST_BELOW_1, 3),
        # Filtered probabilities are not renormalised: 1 of 4 and 3 of 4.
        ([0.0, 1.0, 0.0, 3.0], 0.2499, 1),
        ([0.0, 1.0, 0.0, 3.0], 0.25, 3),
        ([1.0], JUST_BELOW_1, 0),
    ],
)
def test_inverse_cdf(probs: list[float], uniform: float, token: int) -> None:
    for dtype in (torch.float32, torch.float64):
        got = draw(torch.tensor([probs], dtype=dtype), torch.tensor([uniform], dtype=torch.float64))
        assert got.tolist() == [token]


def test_every_row_has_its_own_uniform() -> None:
    probs = torch.tensor([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])
    assert draw(probs, torch.tensor([0.1, 0.9, 0.9])).tolist() == [0, 1, 0]


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    # 1,024 uniforms at equal distances: exactly 1/8, 1/2, 0, 3/8 of them.
    uniforms = (torch.arange(1024, dtype=torch.float64) + 0.5) / 1024
    tokens = draw(torch.tensor([[0.125, 0.5, 0.0, 0.375]]).expand(1024, -1), uniforms)
    assert tokens.bincount(minlength=4).tolist() == [128, 512, 0, 384]


def test_a_large_vocabulary_never_gives_an_impossible_token() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = (5 * torch.randn(200, 5000, generator=generator)).softmax(-1)
    probs = filtered(probs, top_k=50, top_p=0.9)
    for uniform in (0.0, 0.5, JUST_BELOW_1):
        tokens = draw(probs, torch.full((200,), uniform, dtype=torch.float64))
        assert bool((probs.gather(-1, tokens.unsqueeze(-1)) > 0).all())


ALL = [0.125, 0.5, 0.25, 0.125]


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (0, 1.0, ALL),
        (1, 1.0, [0.0, 0.5, 0.0, 0.0]),
        (2, 1.0, [0.0, 0.5, 0.25, 0.0]),
        (3, 1.0, ALL),  # the third place is shared: ties stay
        (9, 1.0, ALL),  # more than there are
        # The nucleus: tokens whose more probable ones together have less than top_p. 0.5 | 0.75 | 0.875 | 1
        (0, 0.4, [0.0, 0.5, 0.0, 0.0]),
        (0, 0.5, [0.0, 0.5, 0.0, 0.0]),
        (0, 0.51, [0.0, 0.5, 0.25, 0.0]),
        (0, 0.75, [0.0, 0.5, 0.25, 0.0]),
        (0, 0.76, ALL),  # and the tie of the third
        (0, 1e-9, [0.0, 0.5, 0.0, 0.0]),  # never nothing
        # Both: top_k first, then top_p of the 0.75 that it left: 0.6 * 0.75 = 0.45 < 0.5, 0.7 * 0.75 = 0.525.
        (2, 0.6, [0.0, 0.5, 0.0, 0.0]),
        (2, 0.7, [0.0, 0.5, 0.25, 0.0]),
    ],
)
def test_filters(top_k: int, top_p: float, kept: list[float]) -> None:
    turned = [ALL[::-1], kept[::-1]]
    got = filtered(torch.tensor([ALL, turned[0]]), top_k, top_p)
    assert got.tolist() == [kept, turned[1]]


def test_positions_do_not_count_the_left_padding() -> None:
    mask = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 1]])
    assert positions(mask).tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 1]]
