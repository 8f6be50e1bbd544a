"""Who does which part of a request, and the parts put together again.

Sampling is shared by prompts and learning by groups, so a group is never split; scoring by rows. Shares are runs of
neighbours whose sizes differ by one at most, so parts in the order of their ranks are in the order of the whole. What
does not fit into memory at once is done in pieces, on each rank by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from core.policies.base import Policy, Rollout, Sampling, Scores, Weights
from core.randomness import RowKey
from core.tasks.base import Example
from core.training.machine import Machine
from core.training.room import SAMPLE, SCORE, Room
from core.training.world import World


def share(world: World, count: int, rank: int | None = None) -> range:
    """Which of `count` things this rank does, or another one."""
    rank = world.rank if rank is None else rank
    return range(count * rank // world.size, count * (rank + 1) // world.size)


def own_rows(world: World, rollout: Rollout, rows: Sequence[int]) -> Sequence[int]:
    """The rows that this rank learns from: whole groups."""
    if world.size == 1 or not len(rows):
        return rows
    _, sizes = torch.unique_consecutive(rollout.prompt_N[list(rows)], return_counts=True)
    ends = [0, *sizes.cumsum(0).tolist()]
    mine = share(world, len(sizes))
    return rows[ends[mine.start] : ends[mine.stop]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """What is to be sampled: K outputs for each of P prompts, `keys` with an entry for each of the P*K rows."""

    policy: Policy
    prompts: Sequence[Example]
    k: int
    how: Sampling
    keys: Sequence[RowKey]

    def part(self, prompts: range) -> Draw:
        """The same of these prompts only."""
        start, stop = prompts.start, prompts.stop
        return replace(self, prompts=self.prompts[start:stop], keys=self.keys[start * self.k : stop * self.k])


def sampled(draw: Draw, machine: Machine) -> Rollout:
    """The whole rollout, on every rank."""
    world, count = machine.world, len(draw.prompts)
    if world.size == 1:
        return _drawn(draw, machine.room)
    own = _drawn(draw.part(share(world, count)), machine.room) if share(world, count) else None
    parts = world.gather(None if own is None else replace(own, prompts=()))  # every rank has the prompts already
    whole = [
        replace(part, prompts=draw.part(share(world, count, rank)).prompts)
        for rank, part in enumerate(parts)
        if part is not None
    ]
    return replace(draw.policy.join(whole), prompts=draw.prompts)


def _drawn(draw: Draw, room: Room) -> Rollout:
    """The rollout, in pieces of whole prompts where they fit, else of one prompt's rows; the draws are the same."""
    k, n, at = draw.k, len(draw.keys), 0
    parts: list[Rollout] = []
    while at < n:
        most, place = room.most(SAMPLE, n - at), at % k
        rows = most // k * k if place == 0 and most >= k else min(most, k - place)
        keys, prompts = draw.keys[at : at + rows], draw.prompts[at // k : -(-(at + rows) // k)]

        def piece(keys: Sequence[RowKey] = keys, prompts: Sequence[Example] = prompts) -> Rollout:
            return draw.policy.sample(prompts, len(keys) // len(prompts), draw.how, keys)

        if (part := room.once(SAMPLE, rows, piece)) is not None:
            parts.append(part)
            at += rows
    if len(parts) == 1:
        return parts[0]
    whole = draw.policy.join(parts)
    prompt_N = torch.arange(len(draw.prompts)).repeat_interleave(k)
    return replace(whole, prompts=draw.prompts, prompt_N=prompt_N)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is to be scored, without gradients, in micro-batches of at most `micro_rows` rows (None: in one)."""

    policy: Policy
    rollout: Rollout
    wants: frozenset[str]
    weights: Weights
    micro_rows: int | None = None


def scored(question: Question, rows: Sequence[int], machine: Machine) -> Scores:
    """The scores of all the rows, in their order, on the CPU of every rank."""
    world, policy = machine.world, question.policy

    def score(part: Sequence[int]) -> Scores:
        return policy.score(question.rollout, part, wants=question.wants, weights=question.weights)

    ours = share(world, len(rows))
    mine, limit = rows[ours.start : ours.stop], question.micro_rows
    parts = [mine] if limit is None or not len(mine) else policy.split(question.rollout, mine, limit)
    # Fetched when all are launched: to fetch each would be to wait for it before the next is begun.
    found = [piece for part in parts for piece in machine.room.pieces(SCORE, part, score)]
    own = _in_order(_stacked(found), [row for part in parts for row in part], mine) if found else None
    return _stacked([part for part in world.gather(own) if part is not None])


def same_start(policy: Policy, world: World) -> None:
    """Every rank starts from rank 0's weights: how devices round must not tell them apart."""
    with torch.no_grad():
        world.spread([parameter for _, parameter in sorted(policy.trainable().items())])


def _stacked(parts: Sequence[Scores]) -> Scores:
    if len(parts) == 1:
        return parts[0]
    entropies = [part.entropies_NT for part in parts if part.entropies_NT is not None]
    return Scores(
        logprobs_NT=torch.cat([part.logprobs_NT for part in parts]),
        entropies_NT=torch.cat(entropies) if entropies else None,
        losses_N={name: torch.cat([part.losses_N[name] for part in parts]) for name in parts[0].losses_N},
    )


def _in_order(scores: Scores, scored: Sequence[int], asked: Sequence[int]) -> Scores:
    """Scores of `scored` rows as those of the `asked` ones, which are the same, on the CPU."""
    place = {row: number for number, row in enumerate(scored)}
    index = torch.tensor([place[row] for row in asked])
    return Scores(
        logprobs_NT=scores.logprobs_NT.cpu()[index],
        entropies_NT=None if scores.entropies_NT is None else scores.entropies_NT.cpu()[index],
        losses_N={name: value.cpu()[index] for name, value in scores.losses_N.items()},
    )
