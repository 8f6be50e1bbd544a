"""The sampler on a small random Qwen2: greedy as `generate`, log-probs as a clean forward, rows on their own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from core.policies.base import Sampling
from core.policies.lm.decoding import DrawnTokens, decode, on_progress, position_ids
from core.policies.lm.fast.decoder_weights import takes_ready_mask
from core.policies.lm.stopping import Ends
from core.randomness import RowKey, uniforms
from tests.fakes import VOCABULARY, small_qwen2

K, LIMIT = 4, 16
PLAIN = Sampling(temperature=1.0, max_completion_length=LIMIT)
NO_END = torch.tensor([VOCABULARY])  # an id that is never drawn
KEYS = [RowKey(0, 0, 0, 0, row) for row in range(3 * K)]


@pytest.fixture(scope="module")
def model() -> Any:
    return small_qwen2()


def prompts(*lengths: int) -> tuple[Tensor, Tensor]:
    """Left-padded prompts of these lengths; the same length always gives the same prompt."""
    width = max(lengths)
    rows = [[(7 * length + 3 * i) % (VOCABULARY - 2) + 2 for i in range(length)] for length in lengths]
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    return ids, (torch.arange(width) >= width - torch.tensor(lengths).unsqueeze(-1)).long()


LENGTHS = (3, 8, 5)


def decoded(
    model: Any,
    how: Sampling = PLAIN,
    lengths: tuple[int, ...] = LENGTHS,
    *,
    keys: list[RowKey] = KEYS,
    end: Tensor = NO_END,
) -> DrawnTokens:
    ids, mask = prompts(*lengths)
    with torch.no_grad():
        return decode(
            model, (ids, mask), how=how, uniforms_NT=uniforms(keys, how.max_completion_length), ends=Ends(ids=end)
        )


def clean_logprobs(model: Any, draws: DrawnTokens, lengths: tuple[int, ...], temperature: float) -> Tensor:
    """Log-probs of the drawn tokens by one forward over each whole row, without padding on the left: (N, T)."""
    result = torch.zeros_like(draws.logprobs_NT)
    k = len(draws.ids_NT) // len(lengths)
    for row, (ids_T, mask_T) in enumerate(zip(draws.ids_NT, draws.mask_NT, strict=True)):
        prompt, _ = prompts(lengths[row // k])
        drawn = ids_T[mask_T]
        with torch.no_grad():
            logits = model(input_ids=torch.cat([prompt[0], drawn]).unsqueeze(0)).logits[0, prompt.shape[1] - 1 : -1]
        logprobs = torch.log_softmax(logits / temperature, -1).gather(-1, drawn.unsqueeze(-1)).squeeze(-1)
        result[row, : len(drawn)] = logprobs
    return result


def an_end_that_rows_reach_at_different_times(draws: DrawnTokens) -> Tensor:
    """The token that most rows draw, but not all of them."""
    holders = [(sum(token in row for row in draws.ids_NT.tolist()), token) for token in range(VOCABULARY)]
    count, token = max((c, t) for c, t in holders if c < len(draws.ids_NT))
    assert count >= 4
    return torch.tensor([token])


@pytest.mark.parametrize("how", [replace(PLAIN, temperature=1e-5), replace(PLAIN, top_k=1), replace(PLAIN, top_p=1e-9)])
@pytest.mark.parametrize("lengths", [(4,), LENGTHS, (8, 8)])
def test_greedy_tokens_are_those_of_generate(model: Any, how: Sampling, lengths: tuple[int, ...]) -> None:
    ids, mask = prompts(*lengths)
    # Two of the tokens that greedy decoding draws end a row: some rows stop early, at different times.
    free = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=LIMIT, eos_token_id=None)
    end = torch.tensor(sorted({int(free[0, ids.shape[1] + 5]), int(free[-1, ids.shape[1] + 2])}))
    theirs = model.generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=LIMIT, eos_token_id=end.tolist(), pad_token_id=0
    )[:, ids.shape[1] :]
    ours = decoded(model, how, lengths, keys=KEYS[: len(lengths)], end=end)
    lengths_N = ours.mask_NT.sum(-1)
    assert theirs.shape == ours.ids_NT.shape
    for row, length in enumerate(lengths_N.tolist()):
        assert ours.ids_NT[row, :length].tolist() == theirs[row, :length].tolist()
        assert not theirs[row, length:].any()  # theirs is over there too


@pytest.mark.parametrize(
    "how",
    [
        PLAIN,
        replace(PLAIN, temperature=0.3),
        replace(PLAIN, temperature=2.0),
        # Recorded is the UNFILTERED distribution: that is the one the trainer scores.
        replace(PLAIN, top_k=2),
        replace(PLAIN, top_p=0.5),
        replace(PLAIN, temperature=0.3, top_k=35, top_p=0.9),
    ],
)
def test_recorded_logprobs_are_those_of_a_clean_forward(model: Any, how: Sampling) -> None:
    draws = decoded(model, how, end=torch.tensor([1]))
    clean = clean_logprobs(model, draws, LENGTHS, how.temperature)
    # Rounding in the logits is divided by the temperature with them.
    assert (draws.logprobs_NT - clean)[draws.mask_NT].abs().max() < 1e-5 / min(1.0, how.temperature)
    assert draws.logprobs_NT[draws.mask_NT].exp().mean() < 0.95  # it is a distribution, not a certainty


def test_filters_restrict_what_is_drawn(model: Any) -> None:
    ids, mask = prompts(*LENGTHS)
    with torch.no_grad():
        first = model(input_ids=ids, attention_mask=mask, position_ids=position_ids(mask)).logits[:, -1]
    allowed = first.topk(2, dim=-1).indices.repeat_interleave(K, 0)
    drawn = decoded(model, replace(PLAIN, top_k=2)).ids_NT[:, :1]
    assert bool((drawn == allowed).any(-1).all())
    assert not bool((decoded(model).ids_NT[:, :1] == allowed).any(-1).all())  # without the filter, others too


@pytest.mark.parametrize(
    "rows",
    [
        [0, 1, 2, 3],  # a whole group alone
        [4],  # one row alone
        [8, 5, 2, 11],  # a few, in another order
        [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
    ],
)
@pytest.mark.parametrize("end", [NO_END, torch.tensor([1])])
def test_a_row_draws_the_same_tokens_whoever_it_is_batched_with(model: Any, rows: list[int], end: Tensor) -> None:
    together = decoded(model, end=end)
    lengths = tuple(LENGTHS[row // K] for row in rows)
    apart = decoded(model, lengths=lengths, keys=[KEYS[row] for row in rows], end=end)
    for row, there in zip(rows, range(len(rows)), strict=True):
        length = int(together.mask_NT[row].sum())
        assert int(apart.mask_NT[there].sum()) == length
        assert apart.ids_NT[there, :length].tolist() == together.ids_NT[row, :length].tolist()
        gap = apart.logprobs_NT[there, :length] - together.logprobs_NT[row, :length]
        assert gap.abs().max() < 1e-5
        assert apart.truncated_N[there] == together.truncated_N[row]


def test_rows_that_end_leave_and_the_others_go_on_unchanged(model: Any) -> None:
    free = decoded(model)
    assert bool(free.mask_NT.all())
    assert bool(free.truncated_N.all())
    end = an_end_that_rows_reach_at_different_times(free)
    ended = decoded(model, end=end)
    lengths = []
    for row, tokens in enumerate(free.ids_NT.tolist()):
        length = tokens.index(int(end)) + 1 if int(end) in tokens else LIMIT  # the end token is drawn too: it counts
        lengths.append(length)
        assert ended.mask_NT[row].tolist() == [t < length for t in range(LIMIT)]
        assert ended.ids_NT[row, :length].tolist() == tokens[:length]
        assert (ended.logprobs_NT[row, :length] - free.logprobs_NT[row, :length]).abs().max() < 1e-5
        assert not ended.logprobs_NT[row, length:].any()
        assert bool(ended.truncated_N[row]) == (int(end) not in tokens)
    assert len(set(lengths)) > 3


def test_an_end_drawn_as_the_last_token_is_no_truncation(model: Any) -> None:
    free = decoded(model, lengths=(5,), keys=KEYS[:1])
    last = free.ids_NT[0].tolist()
    at = next(t for t in range(3, LIMIT) if last[t] not in last[:t])  # a token that comes for the first time
    short = replace(PLAIN, max_completion_length=at + 1)
    ended = decoded(model, short, (5,), keys=KEYS[:1], end=torch.tensor([last[at]]))
    assert ended.mask_NT.tolist() == [[True] * (at + 1)]
    assert ended.truncated_N.tolist() == [False]
    cut = decoded(model, replace(PLAIN, max_completion_length=at), (5,), keys=KEYS[:1], end=torch.tensor([last[at]]))
    assert cut.truncated_N.tolist() == [True]


def test_the_width_is_that_of_the_longest_row(model: Any) -> None:
    first = decoded(model, replace(PLAIN, max_completion_length=1))
    assert first.ids_NT.shape == (3 * K, 1)
    everything = torch.arange(VOCABULARY)  # whatever is drawn ends the row
    at_once = decoded(model, end=everything)
    assert at_once.mask_NT.tolist() == [[True]] * (3 * K)
    assert at_once.ids_NT.tolist() == first.ids_NT.tolist()
    assert not at_once.truncated_N.any()


def test_rows_of_a_group_have_their_own_draws(model: Any) -> None:
    ids = decoded(model).ids_NT
    assert len({tuple(row) for row in ids[:K].tolist()}) == K


class Watched:
    """A model, and the dimensions of every attention mask it was called with."""

    def __init__(self, model: Any, model_type: str = "qwen2") -> None:
        self.dimensions: list[int] = []
        self.config = SimpleNamespace(**vars(model.config) | {"model_type": model_type})
        self.config._attn_implementation = model.config._attn_implementation
        self.device, self._model = model.device, model

    def __call__(self, *, attention_mask: Tensor | None, **inputs: Any) -> Any:
        self.dimensions.append(0 if attention_mask is None else attention_mask.ndim)
        return self._model(attention_mask=attention_mask, **inputs)


def test_a_ready_mask_draws_what_the_two_dimensional_one_draws(model: Any) -> None:
    ready, plain = Watched(model), Watched(model, model_type="a family nobody has read")
    ours, theirs = decoded(ready), decoded(plain)
    assert set(ready.dimensions[1:]) == {4}
    assert set(plain.dimensions[1:]) == {2}
    assert ours.ids_NT.tolist() == theirs.ids_NT.tolist()
    assert torch.equal(ours.logprobs_NT, theirs.logprobs_NT)
    unpadded = Watched(model)
    decoded(unpadded, lengths=(5, 5), keys=KEYS[:8])
    assert set(unpadded.dimensions[1:]) == {0}


FULL, SLIDING = "full_attention", "sliding_attention"
PLAIN_CONFIG: dict[str, Any] = {
    "model_type": "qwen2",
    "_attn_implementation": "sdpa",
    "sliding_window": None,
    "layer_types": [FULL, FULL],
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"model_type": "llama", "layer_types": None}, True),
        ({"layer_types": [FULL, SLIDING], "sliding_window": 8}, False),
        ({"layer_types": [SLIDING, SLIDING]}, False),
        ({"layer_types": None, "sliding_window": 8}, False),
        ({"_attn_implementation": "eager"}, False),  # adds its mask to the scores: True would be 1 nat
        ({"_attn_implementation": "flash_attention_2"}, False),
        ({"model_type": "bloom"}, False),  # reads its positions from the mask
    ],
)
def test_only_plain_decoders_take_a_ready_mask(changes: dict[str, Any], expected: bool) -> None:
    assert takes_ready_mask(SimpleNamespace(**PLAIN_CONFIG | changes)) is expected


@pytest.mark.parametrize("kind", ["sliding", "eager"])
def test_models_that_need_more_than_a_ready_mask_are_sampled_as_they_are_scored(kind: str) -> None:
    # A window of 4: from the fifth token on a mask of padding alone would show too much.
    changes = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0} if kind == "sliding" else {}
    config = Qwen2Config(**small_qwen2().config.to_dict() | {"layer_types": None} | changes)
    config._attn_implementation = "eager" if kind == "eager" else "sdpa"
    other = Qwen2ForCausalLM(config).eval()
    other.load_state_dict(small_qwen2().state_dict())
    draws = decoded(other)
    assert (draws.logprobs_NT - clean_logprobs(other, draws, LENGTHS, 1.0))[draws.mask_NT].abs().max() < 1e-5
    assert kind == "eager" or draws.ids_NT.tolist() != decoded(small_qwen2()).ids_NT.tolist()


def test_who_listens_is_told_of_each_token_and_of_the_rows_that_ended(model: Any) -> None:
    """Over two batches; and what is drawn is the same."""
    quiet = decoded(model)
    told: list[tuple[int, int]] = []
    end = quiet.ids_NT[0, 4].reshape(1)  # the first row ends with its fifth token, or before
    with on_progress(lambda ended, token: told.append((ended, token))):
        heard = decoded(model)
        first = list(told)
        short = decoded(model, end=end)
    decoded(model)
    assert torch.equal(heard.ids_NT, quiet.ids_NT)
    assert first == [(0, token) for token in range(1, LIMIT)]  # the last one ends it
    rows = len(quiet.ids_NT)
    lengths = short.mask_NT.sum(-1)
    ended = [int(((lengths <= token) & ~short.truncated_N).sum()) for _, token in told[len(first) :]]
    assert [(one - rows, token) for one, token in told[len(first) :]] == list(zip(ended, range(1, LIMIT), strict=False))
    assert max(ended) > 0
