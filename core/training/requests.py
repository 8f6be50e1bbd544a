"""What a trainer asks for, and how it is computed. A trainer never touches a model or a reward itself.

`run` takes the machine that computes it: on several ranks every one runs the same request and gets the same answer.
Sampling is shared by prompts and learning by groups, so a group is never split; scoring by rows. What does not fit into
memory at once is done in pieces, on each rank by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from core.errors import TaskError
from core.policies.base import Policy, Rollout, Sampling, Scores, Weights
from core.randomness import EVALUATE, RowKey
from core.tasks.base import Example, Outcome, Task
from core.training.parallel import ALONE, SAMPLE, SCORE, Machine, Room, World, share
from core.training.update import Batch, Update

ROWS = 128  # of a batch, whole groups: what is kept of it is small, and progress is seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """A rollout with the outcome of each of its N = P*K rows; rewards in float64, NaN where missing.

    A row that is no output, in a group with fewer than the others, is ABSENT.
    """

    rollout: Rollout
    outcomes: Sequence[Outcome]
    rewards_PK: Tensor

    @property
    def present(self) -> Tensor:
        """(P, K) bool: the rows that are outputs."""
        return self.rollout.present.view(self.rewards_PK.shape)

    @property
    def right(self) -> Tensor:
        """(P, K) bool: the rows whose outcome is known to be right."""
        return torch.tensor([outcome.right is True for outcome in self.outcomes]).view(self.rewards_PK.shape)


ABSENT = Outcome(reward=math.nan, expected=math.nan, valid=False)


def collect(task: Task, rollout: Rollout, world: World = ALONE) -> Groups:
    """The rollout scored by the task, on rank 0 for all. Raises TaskError where the task returns too few outcomes."""

    present = rollout.present.tolist()

    def outcomes_of_rows() -> list[Outcome]:
        rows = [row for row, there in enumerate(present) if there]
        prompt_N = rollout.prompt_N.tolist()
        examples = [rollout.prompts[prompt_N[row]] for row in rows]
        tokens = [rollout.tokens[row] for row in rows] if rollout.tokens else ()
        outcomes = task.score(examples, [rollout.outputs[row] for row in rows], tokens)
        if len(outcomes) != len(examples):
            raise TaskError(
                f"got {len(outcomes)} outcomes for {len(examples)} completions: a task returns one for each"
            )
        scored = iter(outcomes)
        return [next(scored) if there else ABSENT for there in present]

    outcomes = world.from_rank_0(outcomes_of_rows)
    rewards_N = torch.tensor([outcome.reward for outcome in outcomes], dtype=torch.float64)
    return Groups(rollout=rollout, outcomes=outcomes, rewards_PK=rewards_N.view(len(rollout.prompts), -1))


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSampling:
    """How groups are drawn without training: K completions of each prompt, how, and from which seed."""

    k: int
    how: Sampling
    seed: int


def sample_groups(policy: Policy, task: Task, examples: Sequence[Example], draws: GroupSampling) -> Iterator[Groups]:
    """The examples' scored groups in order, a bounded batch of them at a time: what `grpoctl eval` measures.

    Row n of all draws by its own key, so neither batches nor the number of examples change what is drawn.
    """
    size = max(1, ROWS // draws.k)
    for first in range(0, len(examples), size):
        part = examples[first : first + size]
        rows = range(first * draws.k, (first + len(part)) * draws.k)
        keys = [RowKey(draws.seed, EVALUATE, 0, 0, row) for row in rows]
        yield collect(task, policy.sample(part, draws.k, draws.how, keys))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Draw k outputs for each of P prompts, `keys` with an entry for each of the P*k rows; the answer is a Rollout."""

    policy: Policy
    prompts: Sequence[Example]
    k: int
    how: Sampling
    keys: Sequence[RowKey]
    name: str = "sample"

    def run(self, machine: Machine | None = None) -> Rollout:
        """The whole rollout, on every rank."""
        machine = machine or Machine()
        world, count = machine.world, len(self.prompts)
        if world.size == 1:
            return self._draw(machine.room)
        own = self._of_prompts(share(world, count))._draw(machine.room) if share(world, count) else None
        parts = world.gather(None if own is None else replace(own, prompts=()))  # every rank has the prompts already
        rollouts = [
            replace(part, prompts=self._of_prompts(share(world, count, rank)).prompts)
            for rank, part in enumerate(parts)
            if part is not None
        ]
        return replace(self.policy.join(rollouts), prompts=self.prompts)

    def _of_prompts(self, prompts: range) -> Sample:
        """The same request for these prompts only."""
        start, stop = prompts.start, prompts.stop
        return replace(self, prompts=self.prompts[start:stop], keys=self.keys[start * self.k : stop * self.k])

    def _draw(self, room: Room) -> Rollout:
        """The rollout, in pieces of whole prompts where they fit, else of one prompt's rows; the draws are the same."""
        k, n, at = self.k, len(self.keys), 0
        parts: list[Rollout] = []
        while at < n:
            most, place = room.most(SAMPLE, n - at), at % k
            rows = most // k * k if place == 0 and most >= k else min(most, k - place)
            keys, prompts = self.keys[at : at + rows], self.prompts[at // k : -(-(at + rows) // k)]

            def piece(keys: Sequence[RowKey] = keys, prompts: Sequence[Example] = prompts) -> Rollout:
                return self.policy.sample(prompts, len(keys) // len(prompts), self.how, keys)

            if (part := room.once(SAMPLE, rows, piece)) is not None:
                parts.append(part)
                at += rows
        if len(parts) == 1:
            return parts[0]
        prompt_N = torch.arange(len(self.prompts)).repeat_interleave(k)
        return replace(self.policy.join(parts), prompts=self.prompts, prompt_N=prompt_N)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """Score a rollout by the task; the answer is Groups."""

    task: Task
    rollout: Rollout
    step: int  # how many steps of the run are done
    name: str = "reward"

    def run(self, machine: Machine | None = None) -> Groups:
        """The groups; of several ranks one asks the task, whose rewards may be noisy, slow or somebody's own."""
        self.task.begin_step(self.step)
        return collect(self.task, self.rollout, (machine or Machine()).world)


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Score drawn rows without gradients, at most `micro_rows` at once; the answer is Scores, on the CPU."""

    policy: Policy
    rollout: Rollout
    rows: Sequence[int]
    wants: frozenset[str] = frozenset()
    weights: Weights = "current"
    micro_rows: int | None = None
    name: str = "score"

    def run(self, machine: Machine | None = None) -> Scores:
        """The scores of all the rows, in their order, on the CPU of every rank."""
        machine = machine or Machine()
        world, policy = machine.world, self.policy

        def score(part: Sequence[int]) -> Scores:
            return policy.score(self.rollout, part, wants=self.wants, weights=self.weights)

        with torch.no_grad():
            ours = share(world, len(self.rows))
            mine, limit = self.rows[ours.start : ours.stop], self.micro_rows
            parts = [mine] if limit is None or not len(mine) else policy.split(self.rollout, mine, limit)
            # Fetched when all are launched: to fetch each would be to wait for it before the next is begun.
            pieces = [piece for part in parts for piece in machine.room.pieces(SCORE, part, score)]
            own = _in_order(_stacked(pieces), [row for part in parts for row in part], mine) if pieces else None
            return _stacked([part for part in world.gather(own) if part is not None])


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """Given outputs as a rollout; the answer is a Rollout."""

    policy: Policy
    prompts: Sequence[Example]
    outputs: Sequence[Any]
    name: str = "replay"

    def run(self, machine: Machine | None = None) -> Rollout:
        """The rollout, nothing of it drawn; each rank does it, it is quick."""
        return self.policy.replay(self.prompts, self.outputs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Learn:
    """One optimiser step over all batches; the answer is a mapping of metrics."""

    update: Update
    batches: Sequence[Batch]
    learning_rate: float
    key: RowKey
    shares: bool = False
    name: str = "learn"

    def run(self, machine: Machine | None = None) -> Mapping[str, float]:
        """The metrics of the update."""
        rate, shares = self.learning_rate, self.shares
        return self.update.apply(self.batches, learning_rate=rate, key=self.key, shares=shares, machine=machine)


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What the policy measures of itself; the answer is a mapping of metrics."""

    policy: Policy
    examples: Sequence[Example]
    key: RowKey
    name: str = "probe"

    def run(self, machine: Machine | None = None) -> Mapping[str, float]:
        """The metrics; each rank measures the same."""
        return self.policy.probe(self.examples, self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """What is kept of a sound evaluation beside its metrics.

    `problems` has a row for each held-out completion (core.training.metrics.problem_rows); `picture` is a PNG image of
    what was answered, where the task has pictures.
    """

    problems: Sequence[Mapping[str, object]]
    picture: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDone:
    """A step is finished: its row of metrics and its samples, to be recorded before anything else happens."""

    row: Mapping[str, float | None]
    samples: Sequence[Mapping[str, object]]
    evaluated: Evaluated | None = None  # None where the step was not evaluated, or not soundly


Request = Sample | Replay | Reward | Score | Learn | Probe | StepDone
Answer = Rollout | Groups | Scores | Mapping[str, float] | None


def _stacked(parts: Sequence[Scores]) -> Scores:
    if len(parts) == 1:
        return parts[0]
    entropies = [part.entropies_NT for part in parts if part.entropies_NT is not None]
    return Scores(
        logprobs_NT=torch.cat([part.logprobs_NT for part in parts]),
        entropies_NT=torch.cat(entropies) if entropies else None,
        losses_N={name: torch.cat([part.losses_N[name] for part in parts]) for name in parts[0].losses_N},
    )


def _in_order(scores: Scores, scored: Sequence[int], rows: Sequence[int]) -> Scores:
    """Scores of `scored` rows as those of `rows`, which are the same in another order, on the CPU."""
    place = {row: number for number, row in enumerate(scored)}
    index = torch.tensor([place[row] for row in rows])
    return Scores(
        logprobs_NT=scores.logprobs_NT.cpu()[index],
        entropies_NT=None if scores.entropies_NT is None else scores.entropies_NT.cpu()[index],
        losses_N={name: value.cpu()[index] for name, value in scores.losses_N.items()},
    )
