"""Stop strings: the token that completes one ends its row, as in transformers; what such a row has of text and mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, StopStringCriteria

from core.policies.base import Sampling
from core.policies.lm import decoding
from core.policies.lm.causal_lm import CausalLMPolicy
from core.policies.lm.stopping import StopStrings, text_to_stop
from core.policies.savings import Savings
from core.randomness import RowKey
from core.tasks.text import text_example
from tests.fakes import LetterTokenizer, small_policy, small_qwen2

TEXTS = ["the answer is </answer> stop", "a stopper stops; stopping at the top </answer>", "né à l'été, naïve stöp"] * 4
KEYS = [RowKey(0, 0, 1, 0, row) for row in range(8)]
PROMPTS = [text_example(id="1", prompt="abc"), text_example(id="2", prompt="hijklmn")]
HOW = Sampling(temperature=1.0, max_completion_length=24)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: tokens that go on behind a stop string, and tokens that are part of a letter."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=["<pad>", "<end>"])
    bpe.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<end>")


@pytest.mark.parametrize("strings", [["stop"], ["</answer>"], ["op", "wer"], ["é"], ["<end>", "top "], ["stöp", " is"]])
def test_the_row_ends_where_that_of_transformers_does(tokenizer: Any, strings: list[str]) -> None:
    theirs, ours = StopStringCriteria(tokenizer, strings), StopStrings(tokenizer, strings)
    generator, stopped = torch.Generator().manual_seed(3), 0
    likely = sorted({token for text in TEXTS for token in tokenizer(text)["input_ids"]})
    for _ in range(60):
        picks = torch.randint(len(likely), (40,), generator=generator).tolist()
        ids = [likely[pick] for pick in picks] + tokenizer(TEXTS[int(picks[0]) % 3])["input_ids"]
        expected = next((end for end in range(len(ids)) if bool(theirs(torch.tensor([ids[: end + 1]]), None)[0])), None)
        assert ours.first(ids, 0) == expected
        if expected is not None:
            stopped += 1
            assert ours.first(ids, max(0, expected - 5)) == expected  # by pieces, as it is asked while drawing
            assert ours.first(ids[:expected], 0) is None
    assert stopped >= 20


def test_the_text_ends_behind_the_stop_string_that_comes_first() -> None:
    assert text_to_stop("a stopper", ["stop"]) == "a stop"
    assert text_to_stop("1</answer> 2 END", ["END", "</answer>"]) == "1</answer>"
    assert text_to_stop("nothing", ["END"]) == "nothing"
    assert text_to_stop("abcd", ["abc", "b"]) == "ab"  # completed first, though it begins later


def stopped_by_hand(text: str, strings: tuple[str, ...]) -> int | None:
    """Letters up to the end of the first stop string: a token is a letter."""
    return next((n for n in range(1, len(text) + 1) if any(text[:n].endswith(s) for s in strings)), None)


@pytest.mark.parametrize("look_every", [1, 8])
@pytest.mark.parametrize("off", [(), ("finished_leave",), ("lean_steps",), ("recorded_steps", "shared_prefill")])
def test_rows_stop_at_their_string_and_draw_nothing_more(
    off: tuple[str, ...], look_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "LOOK_EVERY", {"cpu": look_every})  # a GPU is asked every 8 tokens
    policy = small_policy()
    policy.savings = Savings().without(*off)
    plain = policy.sample(PROMPTS, 4, HOW, KEYS)
    letters = LetterTokenizer().batch_decode(plain.tokens, skip_special_tokens=False)
    one, two = letters[0][2:4], letters[5][6:7]  # some rows come by them, others do not
    how = replace(HOW, stop_strings=(one, two))
    rollout = policy.sample(PROMPTS, 4, how, KEYS)
    ends = [stopped_by_hand(text, how.stop_strings) for text in letters]
    assert None in ends or len(set(ends)) > 2
    assert sum(end is not None for end in ends) >= 2
    for row, end in enumerate(ends):
        length = len(plain.tokens[row]) if end is None else end
        assert rollout.tokens[row] == plain.tokens[row][:length]
        assert rollout.mask_NT[row].tolist() == [column < length for column in range(rollout.mask_NT.shape[1])]
        assert bool(rollout.truncated_N[row]) == (bool(plain.truncated_N[row]) if end is None else False)
        assert rollout.drawn_NT is not None
        assert plain.drawn_NT is not None
        torch.testing.assert_close(rollout.drawn_NT[row, :length], plain.drawn_NT[row, :length], rtol=0, atol=1e-5)
        assert not rollout.drawn_NT[row, length:].any()
        if end is not None:
            assert rollout.outputs[row].endswith((one, two))


def test_without_stop_strings_nothing_is_decoded_while_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, calls = small_policy(), []
    decode = policy.tokenizer.batch_decode
    monkeypatch.setattr(policy.tokenizer, "batch_decode", lambda *a, **k: calls.append(1) or decode(*a, **k))
    policy.sample(PROMPTS, 4, HOW, KEYS)
    assert len(calls) == 1


class Emphatic(LetterTokenizer):
    """Each token is a letter with an exclamation mark behind it."""

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
        return ["".join(f"{letter}!" for letter in text) for text in super().batch_decode(rows, skip_special_tokens)]


def test_a_token_that_goes_on_is_counted_whole_and_its_text_is_cut() -> None:
    policy = CausalLMPolicy(small_qwen2(), Emphatic())
    letter = policy.sample(PROMPTS, 4, HOW, KEYS).outputs[0][4]  # of the first row's third token
    rollout = policy.sample(PROMPTS, 4, replace(HOW, stop_strings=(letter,)), KEYS)
    assert rollout.outputs[0].endswith(letter)
    assert not rollout.truncated_N[0]
    (whole,) = Emphatic().batch_decode([rollout.tokens[0]], skip_special_tokens=True)
    assert whole == f"{rollout.outputs[0]}!"
    assert int(rollout.mask_NT[0].sum()) == len(rollout.tokens[0])
