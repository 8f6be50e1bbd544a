"""Out of memory: half at once, the same result, a line in the log, and one clear error at the last row."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from core.errors import RunError
from core.policies.base import Rollout, Sampling, Scores, Weights
from core.policies.lm.causal_lm import CausalLMPolicy
from core.randomness import RowKey
from core.tasks.base import Example
from core.tasks.text import text_example
from core.training.parallel import LEARN, SAMPLE, SCORE, Machine, Room, out_of_memory
from core.training.requests import Sample, Score
from core.training.trainer import drive
from tests.fakes import PricedTask, Recorder, grpo_stage, small_policy, trainer_of
from tests.logs import Logged

CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB"
CPU = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
PROMPTS = [text_example(id=str(n), prompt="abcdefg"[: n + 1]) for n in range(3)]
HOW = Sampling(temperature=1.0, max_completion_length=8)
K = 4
KEYS = [RowKey(0, 0, 1, 0, row) for row in range(len(PROMPTS) * K)]


@pytest.fixture(autouse=True, scope="module")
def others_objects_are_left_alone() -> None:
    """Who runs out of memory collects garbage: what thousands of tests before these left takes half a second a time."""
    gc.collect()
    gc.freeze()


class Narrow(CausalLMPolicy):
    """Has memory for so many rows at once of each kind of work; counts what it was asked for."""

    room: dict[str, int]
    asked: list[tuple[str, int]]

    def sample(self, prompts: Sequence[Example], k: int, how: Sampling, keys: Sequence[RowKey]) -> Rollout:
        self._need(SAMPLE, len(keys))
        return super().sample(prompts, k, how, keys)

    def score(self, rollout: Rollout, rows: Sequence[int], *, wants: frozenset[str], weights: Weights) -> Scores:
        self._need(LEARN if torch.is_grad_enabled() else SCORE, len(rows))
        return super().score(rollout, rows, wants=wants, weights=weights)

    def _need(self, kind: str, rows: int) -> None:
        self.asked.append((kind, rows))
        if rows > self.room.get(kind, 99):
            raise torch.OutOfMemoryError(CUDA) if kind != SCORE else RuntimeError(CPU)


def narrow(**room: int) -> Any:
    policy = small_policy()
    policy.__class__ = Narrow
    policy.room, policy.asked = room, []  # type: ignore[attr-defined]
    return policy


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError(CUDA), True),
        (RuntimeError(CPU), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"), False),
        (ValueError(CUDA), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_counts_as_out_of_memory(error: BaseException, expected: bool) -> None:
    assert out_of_memory(error) is expected


def test_half_as_many_until_it_fits_and_no_more_from_then_on(logged: Logged) -> None:
    tried: list[int] = []

    def attempt(rows: int) -> int:
        tried.append(rows)
        if rows > 3:
            raise MemoryError
        return rows

    room = Room()
    with logged.at_level(logging.WARNING, "core.training"):
        assert room.whole(LEARN, 13, attempt) == 3  # 13 -> 6 -> 3
        assert room.whole(LEARN, 13, attempt) == 3
        assert room.whole(LEARN, 2, attempt) == 2
    assert tried == [13, 6, 3, 3, 2]
    assert [record.args[1:3] for record in logged.records if record.args] == [(13, 6), (6, 3)]
    assert room.most(SAMPLE, 13) == 13  # each kind of work by itself


def test_other_errors_are_not_tried_again() -> None:
    with pytest.raises(ZeroDivisionError):
        Room().whole(LEARN, 4, lambda rows: 1 // 0)


def test_one_row_that_does_not_fit_is_a_clear_error() -> None:
    def attempt(rows: int) -> int:
        raise torch.OutOfMemoryError(CUDA)

    with pytest.raises(RunError, match=r"learning.*one row.*CUDA out of memory") as caught:
        Room().whole(LEARN, 4, attempt)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (99, [12]),
        (8, [12, 4, 4, 4]),  # 12 -> 6 rows, in whole prompts of 4
        (3, [12, 4, 2, 2, 2, 2, 2, 2]),  # 12 -> 6, of which whole prompts are 4 -> 2 of one prompt's rows
    ],
)
def test_sampling_in_pieces_draws_the_same(room: int, expected: list[int]) -> None:
    whole = Sample(policy=narrow(), prompts=PROMPTS, k=K, how=HOW, keys=KEYS).run()
    policy, machine = narrow(**{SAMPLE: room}), Machine()
    pieces = Sample(policy=policy, prompts=PROMPTS, k=K, how=HOW, keys=KEYS).run(machine)
    assert [rows for _, rows in policy.asked] == expected
    assert pieces.outputs == whole.outputs
    assert list(pieces.prompts) == PROMPTS
    assert pieces.prompt_N.tolist() == whole.prompt_N.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert torch.equal(pieces.mask_NT, whole.mask_NT)
    assert pieces.actions["ids"].tolist() == whole.actions["ids"].tolist()
    torch.testing.assert_close(pieces.drawn_NT, whole.drawn_NT, rtol=0, atol=1e-5)


def test_scoring_in_pieces_says_the_same() -> None:
    policy, machine = narrow(**{SCORE: 3}), Machine()
    rollout = Sample(policy=policy, prompts=PROMPTS, k=K, how=HOW, keys=KEYS).run(machine)
    pieces = Score(policy=policy, rollout=rollout, rows=range(11), wants=frozenset({"entropy"})).run(machine)
    assert [rows for kind, rows in policy.asked if kind == SCORE] == [11, 5, 2, 2, 2, 2, 2, 1]
    policy.room.clear()
    whole = Score(policy=policy, rollout=rollout, rows=range(11), wants=frozenset({"entropy"})).run()
    torch.testing.assert_close(pieces.logprobs_NT, whole.logprobs_NT)
    torch.testing.assert_close(pieces.entropies_NT, whole.entropies_NT)


def run(policy: Any, **stage: Any) -> tuple[Recorder, dict[str, torch.Tensor]]:
    """What a short run records, and AdamW's moments: the gradients it saw."""
    task = PricedTask(lambda number, output: len(output) + number, prompts=4, answer="bdf")
    trainer, recorder = trainer_of(policy, task, grpo_stage(max_steps=2, learning_rate=1e-12, **stage)), Recorder()
    drive(trainer.steps(), recorder)
    return recorder, trainer.update.state()


def assert_same(found: dict[str, torch.Tensor], moments: dict[str, torch.Tensor]) -> None:
    """Up to rounding of the largest of their kind: a bias of keys has no gradient at all, only what rounding leaves."""
    for name, value in moments.items():
        kind = name.rpartition(".")[2]
        largest = max(float(one.abs().max()) for other, one in moments.items() if other.endswith(kind))
        torch.testing.assert_close(found[name], value, rtol=0, atol=4e-6 * largest, msg=name)


@pytest.mark.parametrize("stage", [{"beta": 0.1}, {"beta": 0.1, "supervised_weight": 0.5}])
def test_an_update_done_again_has_the_same_gradient(stage: dict[str, Any], logged: Logged) -> None:
    wide, moments = run(narrow(), **stage)
    policy = narrow(**{LEARN: 3})
    with logged.at_level(logging.WARNING, "core.training"):
        recorder, found = run(policy, **stage)
    learned = [rows for kind, rows in policy.asked if kind == LEARN]
    assert learned[:3] == [8, 4, 2]  # the first micro-batch fails twice, and nothing of it is kept
    assert set(learned[2:]) == {2}
    assert len(logged.records) == 2
    for row, expected in zip(recorder.rows, wide.rows, strict=True):
        assert row == pytest.approx(expected, rel=1e-5, abs=1e-5, nan_ok=True)
    assert_same(found, moments)


def test_a_gradient_half_made_is_dropped() -> None:
    """The second micro-batch fails: what the first left behind must not be counted twice."""
    _, moments = run(narrow(), gradient_accumulation_steps=2)
    policy = narrow()
    need = policy._need
    failed: list[int] = []

    def late(kind: str, rows: int) -> None:
        need(kind, rows)
        if kind == LEARN and not failed and sum(one == LEARN for one, _ in policy.asked) == 2:
            failed.append(rows)
            raise torch.OutOfMemoryError(CUDA)

    policy._need = late
    _, found = run(policy, gradient_accumulation_steps=2)
    assert failed == [4]
    assert_same(found, moments)
