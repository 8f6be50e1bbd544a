"""One step of the seed project's log, while it is gathered and as a row and samples.

What is here: what a step's lines add up to. What is not: the lines (parser).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from statistics import fmean, pstdev

from core.health.case import Sample

Key = tuple[int, int]  # (group, completion of it), both from 1: the log's S2-1 is (2, 1)
SAME = 1e-9  # rewards that differ by less are equal


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """A completion as the log's quality line has it; `key` is None where no header line named it."""

    key: Key | None
    fallback: bool
    text: str

    @property
    def written(self) -> str | None:
        """The text, where it is the policy's own: a fallback's is the trainer's placeholder."""
        return None if self.fallback else self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class Printed:
    """A step's statistics in the log's own rounding. Its `Batch` block calls the advantages rewards."""

    dead: float | None = None
    mean: float | None = None
    advantage_std: float | None = None
    advantage_low: float | None = None
    advantage_high: float | None = None
    accuracy: float | None = None
    loss: float | None = None
    kl_loss: float | None = None


class Step:
    """What the lines of one step say, as far as they were read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.temperature: float | None = None
        self.update: int | None = None
        self.batch: Mapping[str, int] = {}  # domain -> groups of it
        self.printed = Printed()
        self.clear()

    def clear(self, groups: int | None = None, k: int | None = None) -> None:
        """Forgets the completions: the step samples `groups` groups of `k` now (again, after it ran out of memory)."""
        self.groups, self.k = groups, k
        self.finished = False  # the line that ends the execution of its completions was seen
        self.named: list[Key] = []  # headers whose quality line is still to come, the oldest first
        self.outputs: list[Output] = []
        self.rewards: dict[Key, float] = {}
        self.failed: set[Key] = set()
        self.advantages: dict[Key, float] = {}
        self.domains: dict[int, set[str]] = {}
        self.unparsed: list[tuple[str, int]] = []  # what no parser accepted, and its line

    @property
    def complete(self) -> bool:
        """Whether the log has all of the step's completions, or went on past them."""
        return bool(self.outputs) and (self.finished or len(self.outputs) == (self.groups or 0) * (self.k or 0))

    @property
    def collapsed(self) -> bool:
        """Whether all its completions are known to be fallbacks."""
        return self.complete and all(output.fallback for output in self.outputs)

    def samples(self) -> list[Sample]:
        """Its completions, by group; those that no header named last."""
        named = sorted(
            ((output.key, output) for output in self.outputs if output.key is not None), key=lambda pair: pair[0]
        )
        domains = self._domains()
        return [self._sample(key, output, domains.get(key[0])) for key, output in named] + [
            Sample(step=self.number, text=output.written, valid=not output.fallback)
            for output in self.outputs
            if output.key is None
        ]

    def _sample(self, key: Key, output: Output, domain: str | None) -> Sample:
        group, number = key
        return Sample(
            step=self.number,
            row=None if self.k is None else (group - 1) * self.k + number - 1,
            group=f"{self.number}-S{group}",
            text=output.written,
            valid=not output.fallback,
            reward=self.rewards.get(key),
            advantage=self.advantages.get(key),
            domain=domain,
        )

    def _domains(self) -> dict[int, str]:
        """group -> domain: what its lines say where they agree, and what the batch leaves for the others."""
        known = {group: next(iter(said)) for group, said in self.domains.items() if len(said) == 1}
        if not self.batch:
            return known
        left = Counter(self.batch) - Counter(known.values())
        if Counter(known.values()) - Counter(self.batch):
            return {}  # lines of several completions got mixed: more groups of a domain than the batch has
        if len(left) == 1 and left.total() == sum(self.batch.values()) - len(known):
            return known | {group: next(iter(left)) for group in range(1, (self.groups or 0) + 1) if group not in known}
        return known

    def row(self, best: float | None) -> dict[str, float | None]:
        """The step as a row of the table; `best` is the highest reward there is."""
        said = self.printed
        row: dict[str, float | None] = {"step": self.number}
        row |= {} if self.update is None else {"update": self.update}
        if self.complete:
            row["samples"] = len(self.outputs)
            row["completions/valid"] = fmean(not output.fallback for output in self.outputs)
        row |= self._rewards(best) if self.finished else {}
        live = 0.0 if said.dead is None else 1.0 - said.dead
        if said.advantage_std is not None:
            row["advantage/std_all"] = said.advantage_std
            row |= {"advantage/std": said.advantage_std / sqrt(live)} if live > 0 else {}
        if said.advantage_low is not None and said.advantage_high is not None:
            row["advantage/max_abs"] = max(abs(said.advantage_low), abs(said.advantage_high))
            row["advantage/max"] = said.advantage_high
        others = {
            "temperature": self.temperature,
            "rewards/accuracy": said.accuracy,
            # 0.0000 is what four decimals make of a small number, and what a skipped update prints
            "loss": said.loss or None,
            "kl_loss": said.kl_loss or None,
        }
        return row | {name: value for name, value in others.items() if value is not None}

    def _rewards(self, best: float | None) -> dict[str, float | None]:
        """From the completions where each has its reward, else as the log prints them."""
        groups = self._groups()
        if not groups:
            printed = {"reward/mean": self.printed.mean, "groups/dead": self.printed.dead}
            return {name: value for name, value in printed.items() if value is not None}
        rewards = [reward for group in groups for reward in group]
        row: dict[str, float | None] = {
            "reward/mean": fmean(rewards),
            "reward/std": pstdev(rewards),
            "reward/group_std": fmean(map(pstdev, groups)),
            "groups/dead": fmean(max(group) - min(group) < SAME for group in groups),
        }
        return row | ({} if best is None else {"groups/right": fmean(min(group) >= best - SAME for group in groups)})

    def _groups(self) -> Sequence[Sequence[float]]:
        """The rewards of each group; () where a completion's is missing."""
        if self.groups is None or self.k is None or len(self.rewards) != self.groups * self.k:
            return ()
        return [[r for _, r in rows] for _, rows in groupby(sorted(self.rewards.items()), key=lambda item: item[0][0])]
