"""Which token a uniform draws, and what the filters leave. Powers of two: no sum here is rounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from core.policies.base import Sampling
from core.policies.lm.decoding import (
    BLOCK,
    JUST_BELOW_1,
    draw_tokens,
    filter_probs,
    inverse_cdf_draw,
    multinomial_draw,
    position_ids,
)


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
        got = inverse_cdf_draw(torch.tensor([probs], dtype=dtype), torch.tensor([uniform], dtype=torch.float64))
        assert got.tolist() == [token]


def test_every_row_has_its_own_uniform() -> None:
    probs = torch.tensor([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])
    assert inverse_cdf_draw(probs, torch.tensor([0.1, 0.9, 0.9])).tolist() == [0, 1, 0]


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    # 1,024 uniforms at equal distances: exactly 1/8, 1/2, 0, 3/8 of them.
    uniforms = (torch.arange(1024, dtype=torch.float64) + 0.5) / 1024
    tokens = inverse_cdf_draw(torch.tensor([[0.125, 0.5, 0.0, 0.375]]).expand(1024, -1), uniforms)
    assert tokens.bincount(minlength=4).tolist() == [128, 512, 0, 384]


def test_a_large_vocabulary_never_gives_an_impossible_token() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = (5 * torch.randn(200, 5000, generator=generator)).softmax(-1)
    probs = filter_probs(probs, top_k=50, top_p=0.9)
    for uniform in (0.0, 0.5, JUST_BELOW_1):
        tokens = inverse_cdf_draw(probs, torch.full((200,), uniform, dtype=torch.float64))
        assert bool((probs.gather(-1, tokens.unsqueeze(-1)) > 0).all())


# A vocabulary of five blocks and three words. 10 is inside the first block, 255 its end, 256 the start of the second;
# the third to the fifth are empty; 1280 and 1282 are the first and the last of the three words behind all blocks.
LARGE = {10: 0.125, 255: 0.125, 256: 0.25, 1280: 0.25, 1282: 0.25}


def large(size: int, shares: dict[int, float]) -> Tensor:
    probs = torch.zeros(1, size)
    probs[0, list(shares)] = torch.tensor(list(shares.values()))
    return probs


@pytest.mark.parametrize(
    ("uniform", "token"),
    [
        # Cumulative 1/8, 1/4, 1/2, 3/4, 1, at the words 10, 255, 256, 1280, 1282.
        (0.0, 10),
        (0.1249, 10),
        (0.125, 255),
        (0.2499, 255),
        (0.25, 256),
        (0.4999, 256),
        (0.5, 1280),
        (0.7499, 1280),
        (0.75, 1282),
        (JUST_BELOW_1, 1282),
    ],
)
def test_a_large_vocabulary_is_drawn_from_by_block_and_then_by_word(uniform: float, token: int) -> None:
    assert BLOCK == 256
    for dtype in (torch.float32, torch.float64):
        for scale in (1.0, 8.0):  # nothing has to sum to 1
            probs = scale * large(5 * 256 + 3, LARGE).to(dtype)
            assert inverse_cdf_draw(probs, torch.tensor([uniform], dtype=torch.float64)).tolist() == [token]


@pytest.mark.parametrize("size", [5 * 256, 5 * 256 + 200])
def test_blocks_that_hold_nothing_are_never_drawn(size: int) -> None:
    probs = large(size, {300: 1.0, 301: 3.0})  # one block of all, neither the first nor the last
    uniforms = torch.tensor([0.0, 0.2499, 0.25, JUST_BELOW_1], dtype=torch.float64)
    assert inverse_cdf_draw(probs.expand(4, -1), uniforms).tolist() == [300, 300, 301, 301]


def test_a_block_that_rounding_makes_wider_than_it_is_gives_no_impossible_word() -> None:
    # 1 + 3/4 ulp is rounded to 1 + 1 ulp, and (1 - ulp) (1 + ulp) to 1: the uniform is a third of the share before it.
    ulp = 2.0**-52
    probs = large(5 * 256, {0: 1.0, 300: 0.75 * ulp})
    assert inverse_cdf_draw(probs, torch.tensor([1 - ulp], dtype=torch.float64)).tolist() == [300]


def test_what_is_not_a_number_gives_some_token_and_no_error() -> None:
    for size in (5, 5000):  # the guards say what is wrong
        tokens = inverse_cdf_draw(torch.full((2, size), torch.nan), torch.tensor([0.0, 0.5], dtype=torch.float64))
        assert bool((tokens >= 0).all() and (tokens < size).all())


def test_both_steps_together_are_one_cumulative_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = (2 * torch.randn(4000, 1500, generator=generator, dtype=torch.float64)).softmax(-1)
    uniforms = torch.rand(4000, generator=generator, dtype=torch.float64)
    whole = probs.cumsum(-1)
    expected = torch.searchsorted(whole, uniforms.unsqueeze(-1) * whole[:, -1:], right=True).squeeze(-1)
    assert inverse_cdf_draw(probs, uniforms).equal(expected)


def chi_square(tokens: Tensor, probs: list[float]) -> float:
    seen, expected = tokens.bincount(minlength=len(probs)).double(), len(tokens) * torch.tensor(probs).double()
    return float(((seen - expected).square() / expected).sum())


@pytest.mark.parametrize("pick", [inverse_cdf_draw, multinomial_draw])
def test_both_ways_draw_from_the_same_distribution(pick: Callable[[Tensor, Tensor], Tensor]) -> None:
    table = [0.5, 0.25, 0.125, 0.0625, 0.0625]
    uniforms = torch.rand(8000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    tokens = pick(torch.tensor([table]).expand(8000, -1), uniforms)
    # 4 degrees of freedom: 18.5 is exceeded once in a thousand tables.
    assert chi_square(tokens, table) < 18.5
    assert chi_square(tokens, [0.48, 0.27, 0.125, 0.0625, 0.0625]) > 18.5  # it would see two hundredths


def test_multinomial_leaves_the_global_generator_alone_and_follows_the_uniform() -> None:
    probs, before = torch.full((64, 8), 0.125), torch.get_rng_state()
    one, again, other = (multinomial_draw(probs, torch.tensor([u])) for u in (0.25, 0.25, 0.5))
    assert torch.get_rng_state().equal(before)
    assert one.equal(again)
    assert not one.equal(other)


FILTERS = [(1.0, 0, 1.0), (0.3, 0, 1.0), (1.7, 5, 1.0), (1.0, 0, 0.5)]


def some_logits(dtype: torch.dtype, *, by_words: bool) -> Tensor:
    """Of 32 rows and 3,000 words, a row's words side by side in memory, or a word's rows; exp(100) is no float32."""
    logits = (100 + 3 * torch.randn(32, 3000, generator=torch.Generator().manual_seed(1))).to(dtype)
    return logits.t().contiguous().t() if by_words else logits


@pytest.mark.parametrize("by_words", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("temperature", "top_k", "top_p"), FILTERS)
def test_the_logprob_is_that_of_the_whole_distribution(
    dtype: torch.dtype, temperature: float, top_k: int, top_p: float, by_words: bool
) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = some_logits(dtype, by_words=by_words)
    kept = logits.clone()
    uniforms = torch.rand(32, generator=generator, dtype=torch.float64)
    how = Sampling(temperature=temperature, max_completion_length=1, top_k=top_k, top_p=top_p)
    tokens, logprobs = draw_tokens(logits, uniforms, how)
    exact = (logits.double() / temperature).log_softmax(-1)
    torch.testing.assert_close(logprobs, exact.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).float(), rtol=0, atol=2e-5)
    assert tokens.equal(inverse_cdf_draw(filter_probs(exact.exp(), top_k, top_p), uniforms))
    assert logits.equal(kept)


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), FILTERS)
def test_neither_memory_nor_the_rows_beside_it_change_what_a_row_draws(
    temperature: float, top_k: int, top_p: float
) -> None:
    by_rows, by_words = (some_logits(torch.float32, by_words=way) for way in (False, True))
    uniforms = torch.rand(32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    how = Sampling(temperature=temperature, max_completion_length=1, top_k=top_k, top_p=top_p)
    tokens, logprobs = draw_tokens(by_rows, uniforms, how)
    for logits, rows in ((by_words, slice(None)), (by_words[:3].contiguous(), slice(3)), (by_words[:3], slice(3))):
        own_tokens, own_logprobs = draw_tokens(logits, uniforms[rows], how)
        assert own_tokens.equal(tokens[rows])
        assert own_logprobs.equal(logprobs[rows])


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
    got = filter_probs(torch.tensor([ALL, turned[0]]), top_k, top_p)
    assert got.tolist() == [kept, turned[1]]


def test_positions_do_not_count_the_left_padding() -> None:
    mask = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 1]])
    assert position_ids(mask).tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 1]]
