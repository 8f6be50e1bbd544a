"""When a token's step is recorded, when anew, and what happens where it cannot be.

What it computes: test_decoder_step.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from core.policies.base import Sampling
from core.policies.lm import decoding
from core.policies.lm.decoding import DrawnTokens, decode
from core.policies.lm.fast import decoder_step, kv_cache
from core.policies.lm.fast.decoder_step import Launch
from core.policies.lm.stopping import Ends
from core.policies.savings import Savings
from core.randomness import RowKey, uniforms
from tests.fakes import VOCABULARY, small_llama
from tests.logs import Logged
from tests.replayed import replayed

K, LIMIT = 4, 24
IDS = torch.tensor([[0, 0, 5, 9, 4], [7, 3, 3, 21, 5], [0, 2, 30, 11, 8]])
NEVER, SOME = torch.tensor([VOCABULARY]), torch.tensor([1, 4, 17])


class Recorder:
    """Records as `replayed` does, and counts recordings and replays."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.recorded, self.replays, self.fails = 0, 0, fails

    def __call__(self, run: Launch) -> Launch:
        self.recorded += 1
        if self.fails is not None:
            raise self.fails
        replay = replayed(run)

        def counted() -> Tensor:
            self.replays += 1
            return replay()

        return counted


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[Recorder], Recorder]:
    """Makes the CPU a device whose steps are recorded by this."""
    monkeypatch.setattr(decoder_step, "COLUMN_DEVICES", ())

    def put(recorder: Recorder) -> Recorder:
        monkeypatch.setitem(decoder_step.RECORDERS, "cpu", recorder)
        return recorder

    return put


def decoded(ends: Tensor = NEVER, savings: Savings | None = None) -> DrawnTokens:
    keys = [RowKey(0, 0, 0, 0, row) for row in range(K * len(IDS))]
    how = Sampling(temperature=1.0, max_completion_length=LIMIT)
    draws, prompts = uniforms(keys, LIMIT), (IDS, (IDS != 0).long())
    with torch.no_grad():
        return decode(
            small_llama(), prompts, how=how, uniforms_NT=draws, ends=Ends(ids=ends), savings=savings or Savings()
        )


def test_a_step_is_recorded_once_and_replayed_for_each_token(on_device: Callable[[Recorder], Recorder]) -> None:
    recorder = on_device(Recorder())
    decoded()
    assert (recorder.recorded, recorder.replays) == (1, LIMIT - 1)  # the last token is not run


def test_it_is_recorded_anew_when_the_cache_has_another_shape(
    on_device: Callable[[Recorder], Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kv_cache.FIRST_ROOM, "cpu", 6)
    monkeypatch.setattr(decoder_step, "MIN_RECORDED", 0)
    recorder = on_device(Recorder())
    decoded()
    assert recorder.recorded == 3  # room for 6, 12 and 23 tokens
    monkeypatch.setitem(kv_cache.FIRST_ROOM, "cpu", 64)
    monkeypatch.setattr(kv_cache, "COMPACT_BELOW", 0.0)
    recorder = on_device(Recorder())
    lengths = decoded(SOME).mask_NT.sum(-1)
    assert len(set(lengths.tolist())) > 3
    assert recorder.recorded == 1  # who has left is run with the others while the table stays
    monkeypatch.setattr(kv_cache, "COMPACT_BELOW", 1.0)
    recorder = on_device(Recorder())
    decoded(SOME)
    assert 1 < recorder.recorded <= len(set(lengths.tolist()))


def test_nothing_is_recorded_for_a_few_tokens_or_where_that_is_switched_off(
    on_device: Callable[[Recorder], Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = on_device(Recorder())
    plain = decoded(savings=Savings().without("recorded_steps"))
    monkeypatch.setattr(decoder_step, "MIN_RECORDED", LIMIT)
    assert decoded().ids_NT.equal(plain.ids_NT)
    assert recorder.recorded == 0


def test_where_it_cannot_be_recorded_it_is_run_anew_and_that_is_said_once(
    on_device: Callable[[Recorder], Recorder], logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = decoded(savings=Savings().without("recorded_steps"))
    monkeypatch.setitem(kv_cache.FIRST_ROOM, "cpu", 6)
    recorder = on_device(Recorder(RuntimeError("CUDA error: operation not permitted when stream is capturing")))
    with logged.at_level(logging.WARNING, logger="core.policies"):
        found = decoded()
        decoded()
    assert found.ids_NT.equal(expected.ids_NT)
    assert recorder.recorded == 1  # it is not tried again, neither in this rollout nor in the next
    (said,) = logged.messages
    assert "goes on, slower, without" in said
    assert "not permitted" in said


@pytest.mark.parametrize("few", [0, 8, LIMIT])
def test_nothing_of_a_rollout_is_left_when_it_is_over(
    few: int, on_device: Callable[[Recorder], Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cycle would keep keys and values on the GPU until Python's garbage collector comes by, which sees no GPU.
    made: list[weakref.ref[Any]] = []

    def noted(*args: Any) -> Any:
        forward = decoder_step.decoder_step(*args)
        made.extend([weakref.ref(forward), weakref.ref(forward._cache)])
        return forward

    monkeypatch.setattr(decoding, "decoder_step", noted)
    monkeypatch.setattr(decoder_step, "MIN_RECORDED", few)
    monkeypatch.setitem(kv_cache.FIRST_ROOM, "cpu", 6)
    on_device(Recorder())
    gc.disable()
    try:
        decoded(SOME)
        assert [one() for one in made] == [None, None]
    finally:
        gc.enable()


def test_memory_that_runs_out_is_for_whoever_halves_the_rows(on_device: Callable[[Recorder], Recorder]) -> None:
    on_device(Recorder(torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        decoded()


def test_what_plays_the_graph_freezes_numbers_and_refuses_questions() -> None:
    # Or the tests above would show nothing: a graph would draw with the number that Python had when it was recorded.
    number, tensor = [2.0], torch.tensor([3.0])
    replay = replayed(lambda: tensor * number[0] + 1)
    assert replay().tolist() == [7.0]
    number[0] = 10.0
    tensor.fill_(5.0)
    assert replay().tolist() == [11.0]
    with pytest.raises(RuntimeError, match="cannot be recorded"):
        replayed(lambda: tensor * float(tensor[0]))
