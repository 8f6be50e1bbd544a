"""Rollouts under each other: nothing that was drawn, recorded or would be scored is another for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.policies.base import ENTROPY, Policy, Rollout, Sampling, joined
from core.randomness import RowKey
from core.tasks.text import text_example
from tests.fakes import small_policy

HOW = Sampling(temperature=0.8, max_completion_length=12)
# Prompts of 3, then of 7 and 1 letters, then of 2: the second rollout is the widest.
PARTS = [["abc"], ["hijklmn", "z"], ["op"]]


@pytest.fixture(scope="module")
def policy() -> Policy:
    policy = small_policy()
    policy.end_ids = torch.arange(1, 10)  # any of nine tokens ends a row: completions are short, widths differ
    return policy


@pytest.fixture(scope="module")
def parts(policy: Policy) -> list[Rollout]:
    found = []
    for attempt, texts in enumerate(PARTS):
        keys = [RowKey(6, 0, 1, attempt, row) for row in range(len(texts) * 2)]
        found.append(policy.sample([text_example(id=text, prompt=text) for text in texts], 2, HOW, keys))
    assert len({part.mask_NT.shape[1] for part in found}) > 1
    assert len({part.actions["prompt_ids"].shape[1] for part in found}) == 3
    return found


def test_rows_stand_one_after_another(policy: Policy, parts: list[Rollout]) -> None:
    whole = policy.join(parts)
    assert [prompt.id for prompt in whole.prompts] == ["abc", "hijklmn", "z", "op"]
    assert whole.prompt_N.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]  # counted on from part to part
    assert whole.outputs == [output for part in parts for output in part.outputs]
    assert whole.truncated_N.tolist() == [cut for part in parts for cut in part.truncated_N.tolist()]
    assert whole.how == HOW
    assert len(whole) == len(whole.mask_NT) == 8


def test_what_was_drawn_stays_as_it_was(policy: Policy, parts: list[Rollout]) -> None:
    whole, start = policy.join(parts), 0
    assert whole.drawn_NT is not None
    for part in parts:
        assert part.drawn_NT is not None
        rows, width = slice(start, start + len(part)), part.mask_NT.shape[1]
        assert torch.equal(whole.mask_NT[rows, :width], part.mask_NT)
        assert not whole.mask_NT[rows, width:].any()
        assert torch.equal(whole.drawn_NT[rows, :width], part.drawn_NT)
        assert torch.equal(whole.actions["ids"][rows, :width], part.actions["ids"])
        own = part.actions["prompt_mask"].shape[1]  # prompts keep to the right, where the completion begins
        assert torch.equal(whole.actions["prompt_ids"][rows, -own:], part.actions["prompt_ids"])
        assert not whole.actions["prompt_mask"][rows, :-own].any()
        start += len(part)


def test_joined_rows_are_scored_as_apart(policy: Policy, parts: list[Rollout]) -> None:
    def scored(rollout: Rollout) -> tuple[list[float], list[float]]:
        with torch.no_grad():
            scores = policy.score(rollout, range(len(rollout)), wants=frozenset({ENTROPY}), weights="current")
        assert scores.entropies_NT is not None
        return scores.logprobs_NT[rollout.mask_NT].tolist(), scores.entropies_NT[rollout.mask_NT].tolist()

    apart = [scored(part) for part in parts]
    logprobs, entropies = scored(policy.join(parts))
    assert logprobs == pytest.approx([value for part, _ in apart for value in part], abs=1e-5)
    assert entropies == pytest.approx([value for _, part in apart for value in part], abs=1e-5)


def test_one_rollout_is_itself_and_one_that_was_not_sampled_takes_the_log_probs_of_all(parts: list[Rollout]) -> None:
    assert joined(parts[:1], padding={}) is parts[0]
    assert joined([parts[0], replace(parts[1], drawn_NT=None)], padding={}).drawn_NT is None


def test_padding_is_what_it_is_told(parts: list[Rollout]) -> None:
    whole = joined(parts, padding={"prompt_ids": 31, "ids": 33}, left=frozenset({"prompt_ids"}))
    gap = whole.actions["prompt_ids"].shape[1] - parts[0].actions["prompt_ids"].shape[1]
    assert set(whole.actions["prompt_ids"][:2, :gap].flatten().tolist()) == {31}
    narrow = min(range(3), key=lambda part: parts[part].mask_NT.shape[1])
    rows = [0, 2, 6][narrow]
    assert set(whole.actions["ids"][rows, parts[narrow].mask_NT.shape[1] :].tolist()) == {33}
