"""min_p and repetition_penalty: what is drawn is what transformers' own processors leave, what is recorded is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from core.policies.base import Sampling
from core.policies.lm.decoding import decode, draw_tokens, filter_probs, inverse_cdf_draw, penalised_weights
from core.policies.lm.stopping import Ends
from core.policies.savings import Savings
from core.randomness import uniforms
from tests.core.policies.lm.test_decoding import KEYS, LENGTHS, LIMIT, NO_END, PLAIN, clean_logprobs, prompts
from tests.fakes import VOCABULARY, small_qwen2

ROWS, WORDS = 16, 500
FILTERS = [
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"min_p": 0.2, "temperature": 0.5},
    {"min_p": 0.1, "top_p": 0.8, "top_k": 50, "temperature": 1.7},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7, "temperature": 0.6},
    {"repetition_penalty": 1.5, "min_p": 0.02, "top_k": 80, "top_p": 0.9},
]


@pytest.fixture(scope="module")
def model() -> Any:
    return small_qwen2()


def of_transformers(logits_RV: Tensor, ids_RS: Tensor, how: Sampling) -> Tensor:
    """The distribution that its processors leave, in the order in which `generate` applies them."""
    chain: list[Any] = []
    if how.repetition_penalty != 1:
        chain.append(RepetitionPenaltyLogitsProcessor(how.repetition_penalty))
    chain.append(TemperatureLogitsWarper(how.temperature))
    if how.top_k:
        chain.append(TopKLogitsWarper(how.top_k))
    if how.top_p < 1:
        chain.append(TopPLogitsWarper(how.top_p))
    if how.min_p:
        chain.append(MinPLogitsWarper(how.min_p))
    left: Tensor = LogitsProcessorList(chain)(ids_RS, logits_RV.clone()).softmax(-1)
    return left


@pytest.mark.parametrize("filters", FILTERS)
def test_what_is_drawn_is_what_the_processors_of_transformers_leave(filters: dict[str, float]) -> None:
    generator = torch.Generator().manual_seed(5)
    logits_RV = 3 * torch.randn(ROWS, WORDS, generator=generator)
    ids_RS = torch.randint(WORDS, (ROWS, 40), generator=generator)
    uniform_R = torch.rand(ROWS, generator=generator, dtype=torch.float64)
    how = Sampling(**{"temperature": 1.0, "max_completion_length": 1, **filters})
    seen_RV = torch.zeros(ROWS, WORDS, dtype=torch.bool).scatter(-1, ids_RS, True)
    theirs_RV = of_transformers(logits_RV, ids_RS, how)

    weights_RV = penalised_weights(logits_RV, seen_RV, how)
    left_RV = filter_probs(weights_RV, how.top_k, how.top_p, how.min_p)
    torch.testing.assert_close(left_RV / left_RV.sum(-1, keepdim=True), theirs_RV, rtol=1e-4, atol=1e-7)

    penalty = how.repetition_penalty != 1
    tokens_R, logprobs_R = draw_tokens(logits_RV, uniform_R, how, seen_RV=seen_RV if penalty else None)
    assert tokens_R.equal(inverse_cdf_draw(theirs_RV, uniform_R))
    whole_RV = (logits_RV / how.temperature).log_softmax(-1)
    torch.testing.assert_close(logprobs_R, whole_RV.gather(-1, tokens_R.unsqueeze(-1)).squeeze(-1), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("min_p", "kept"),
    # Of the most probable, 0.5: a quarter is 0.125 (what is as much stays), a half 0.25.
    [
        (0.25, [0.125, 0.5, 0.25, 0.125]),
        (0.26, [0.0, 0.5, 0.25, 0.0]),
        (0.5, [0.0, 0.5, 0.25, 0.0]),
        (0.51, [0.0, 0.5, 0.0, 0.0]),
        (1.0, [0.0, 0.5, 0.0, 0.0]),
    ],
)
def test_min_p_on_paper(min_p: float, kept: list[float]) -> None:
    assert filter_probs(torch.tensor([[0.125, 0.5, 0.25, 0.125]]), 0, 1.0, min_p).tolist() == [kept]


@pytest.mark.parametrize("off", [(), ("lean_steps",), ("finished_leave",), ("shared_prefill", "lean_steps")])
@pytest.mark.parametrize("penalty", [1.4, 0.6])
@pytest.mark.parametrize("ends", [(), (4, 17)])
def test_a_greedy_row_is_that_of_generate(
    model: Any, penalty: float, off: tuple[str, ...], ends: tuple[int, ...]
) -> None:
    """The prompt counts, and what was drawn: on every way through the sampler, when others leave too."""
    greedy = replace(PLAIN, top_k=1, repetition_penalty=penalty)
    ids, mask = prompts(8, 8, 8)
    ids[1:] = torch.tensor([[9, 9, 3, 5, 7, 2, 2, 30], [21, 22, 23, 24, 25, 26, 27, 28]])
    theirs = model.generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=LIMIT, repetition_penalty=penalty, pad_token_id=0,
        eos_token_id=list(ends) or None,
    )[:, 8:]  # fmt: skip
    end_ids = torch.tensor(ends) if ends else NO_END
    ours = decode(
        model, (ids, mask), how=greedy, uniforms_NT=uniforms(KEYS[:3], LIMIT), ends=Ends(ids=end_ids),
        savings=Savings().without(*off),
    )  # fmt: skip
    for row, length in enumerate(ours.mask_NT.sum(-1).tolist()):
        assert ours.ids_NT[row, :length].tolist() == theirs[row, :length].tolist()


def test_padding_is_no_word_of_the_prompt(model: Any) -> None:
    """The 0 that pads a shorter prompt is not penalised: alone, it draws what it draws beside a longer one."""
    how = replace(PLAIN, repetition_penalty=3.0)

    def drawn(lengths: tuple[int, ...], keys: list[Any]) -> Tensor:
        table = uniforms(keys, LIMIT)
        with torch.no_grad():
            return decode(model, prompts(*lengths), how=how, uniforms_NT=table, ends=Ends(ids=NO_END)).ids_NT

    assert drawn((3, 8), [*KEYS[:4], *KEYS[4:8]])[:4].equal(drawn((3,), KEYS[:4]))


@pytest.mark.parametrize("how", [replace(PLAIN, min_p=0.2), replace(PLAIN, repetition_penalty=1.5, temperature=0.7)])
def test_recorded_is_the_unfiltered_distribution(model: Any, how: Sampling) -> None:
    with torch.no_grad():
        draws = decode(
            model, prompts(*LENGTHS), how=how, uniforms_NT=uniforms(KEYS, LIMIT), ends=Ends(ids=torch.tensor([1]))
        )
    clean = clean_logprobs(model, draws, LENGTHS, how.temperature)
    assert (draws.logprobs_NT - clean)[draws.mask_NT].abs().max() < 2e-5
    plain = decode(
        model, prompts(*LENGTHS), how=replace(how, min_p=0.0, repetition_penalty=1.0),
        uniforms_NT=uniforms(KEYS, LIMIT), ends=Ends(ids=torch.tensor([1])),
    )  # fmt: skip
    assert draws.ids_NT.tolist() != plain.ids_NT.tolist()
    assert VOCABULARY > 2
