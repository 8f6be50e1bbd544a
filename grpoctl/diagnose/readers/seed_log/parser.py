"""The lines of the seed project's log: which of them are read, what each adds to the step it stands in, and what a
step's lines add up to, as a row and samples.

Most of the 40,000 lines have none of the marks below and are passed over; lines of parallel workers may stand between
any two. What is not here: what follows from the head (the package itself).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from math import sqrt
from statistics import fmean, pstdev

from core.health.case import Notice, Sample
from grpoctl.diagnose.readers.text import Line, Notices

Key = tuple[int, int]  # (group, completion of it), both from 1: the log's S2-1 is (2, 1)
_SAME = 1e-9  # rewards that differ by less are equal
_SHOWN = 2  # collapsed steps whose text is cited
_LONGEST = 120  # characters of a cited text
UNPARSED = "unparsed-output"


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
        known = {group: next(iter(names)) for group, names in self.domains.items() if len(names) == 1}
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
        printed = self.printed
        row: dict[str, float | None] = {"step": self.number}
        row |= {} if self.update is None else {"update": self.update}
        if self.complete:
            row["samples"] = len(self.outputs)
            row["completions/valid"] = fmean(not output.fallback for output in self.outputs)
        row |= self._reward_columns(best) if self.finished else {}
        live = 0.0 if printed.dead is None else 1.0 - printed.dead
        if printed.advantage_std is not None:
            row["advantage/std_all"] = printed.advantage_std
            row |= {"advantage/std": printed.advantage_std / sqrt(live)} if live > 0 else {}
        if printed.advantage_low is not None and printed.advantage_high is not None:
            row["advantage/max_abs"] = max(abs(printed.advantage_low), abs(printed.advantage_high))
            row["advantage/max"] = printed.advantage_high
        others = {
            "temperature": self.temperature,
            "rewards/accuracy": printed.accuracy,
            # 0.0000 is what four decimals make of a small number, and what a skipped update prints
            "loss": printed.loss or None,
            "kl_loss": printed.kl_loss or None,
        }
        return row | {name: value for name, value in others.items() if value is not None}

    def _reward_columns(self, best: float | None) -> dict[str, float | None]:
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
            "groups/dead": fmean(max(group) - min(group) < _SAME for group in groups),
        }
        return row | ({} if best is None else {"groups/right": fmean(min(group) >= best - _SAME for group in groups)})

    def _groups(self) -> Sequence[Sequence[float]]:
        """The rewards of each group; () where a completion's is missing."""
        if self.groups is None or self.k is None or len(self.rewards) != self.groups * self.k:
            return ()
        return [[r for _, r in rows] for _, rows in groupby(sorted(self.rewards.items()), key=lambda item: item[0][0])]


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What the log prints before its first step."""

    learning_rate: float | None = None
    warmup_steps: int | None = None
    total_steps: int | None = None
    temperature: float | None = None
    checkpointing: bool | None = None
    levels: tuple[float, ...] = ()  # of the reward


class Log:
    """What was read so far."""

    def __init__(self) -> None:
        self.head = Head()
        self.steps: dict[int, Step] = {}
        self.at: Step | None = None
        self.line = 0  # the line that is being read
        self.notices = Notices()
        self.restarts: list[tuple[int, int]] = []  # (line, step) where the numbering went back
        self.shuffled = 0  # quality lines that could belong to more than one header
        self.simple = False  # advantages are the plain z-score of a group
        self.skips = False  # a step without signal runs no update
        self.exact: float | None = None  # the reward line just before a result, to three decimals
        self.domain: str | None = None  # of the completion that is being judged
        self.of_advantages = False  # the next range is theirs, not the rewards'

    def open(self, number: int) -> None:
        """Begins a step. A number that is not above the last one is a restart: what it repeats is forgotten."""
        if self.at is not None and number <= self.at.number:
            self.restarts.append((self.line, number))
            self.steps = {known: step for known, step in self.steps.items() if known < number}
        elif self.at is not None:
            self.at.finished = bool(self.at.outputs)
        self.at = self.steps[number] = Step(number)
        self.exact = self.domain = None
        self.of_advantages = False

    def all_notices(self) -> tuple[Notice, ...]:
        """What libraries said, and what the policy wrote on the first collapsed steps."""
        broken = [step for step in self.steps.values() if step.collapsed and step.unparsed][:_SHOWN]
        texts = [
            Notice(kind=UNPARSED, text=" ".join(text.split())[:_LONGEST], line=line, step=step.number)
            for step in broken
            for text, line in step.unparsed[:_SHOWN]
        ]
        return (*self.notices.all(), *texts)


Take = Callable[[Log, re.Match[str]], None]


def parse(lines: Iterable[Line]) -> Log:
    """The log, read once from its first line to its last."""
    log = Log()
    for line, text in lines:
        log.line = line
        for mark, pattern, take in _ASCII_MARKS if text.isascii() else _MARKS:
            if mark in text and (match := pattern.search(text)) is not None:
                take(log, match)
        log.notices.look(text, line, None if log.at is None else log.at.number)
    return log


def _head(**makes: Callable[[str], object]) -> Take:
    """Takes one field of the head, made of the first group; what is no number is left out."""
    ((name, make),) = makes.items()

    def take(log: Log, match: re.Match[str]) -> None:
        with suppress(ValueError, OverflowError):
            log.head = replace(log.head, **{name: make(match[1])})  # type: ignore[arg-type]

    return take


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in re.findall(r"\d+(?:\.\d+)?", text))


def _printed(*names: str) -> Take:
    """Takes the groups as statistics of the step."""

    def take(log: Log, match: re.Match[str]) -> None:
        if log.at is not None:
            values = {name: float(text) for name, text in zip(names, match.groups(), strict=True)}
            log.at.printed = replace(log.at.printed, **values)

    return take


def _share(name: str) -> Take:
    """Takes `2/3` as a share."""

    def take(log: Log, match: re.Match[str]) -> None:
        if log.at is not None and int(match[2]):
            log.at.printed = replace(log.at.printed, **{name: int(match[1]) / int(match[2])})

    return take


def _step(log: Log, match: re.Match[str]) -> None:
    log.open(int(match[1]))


def _temperature(log: Log, match: re.Match[str]) -> None:
    if log.at is not None:
        log.at.temperature = float(match[1])


def _batch(log: Log, match: re.Match[str]) -> None:
    if log.at is not None:
        log.at.batch = {domain: int(count) for domain, count in re.findall(r"'(\w+)': (\d+)", match[1])}


def _planned(log: Log, match: re.Match[str]) -> None:
    if log.at is not None:
        log.at.clear(int(match[1]), int(match[2]))


def _unparsed(log: Log, match: re.Match[str]) -> None:
    """What the policy wrote where a workflow was looked for; a later line says whether it was one."""
    if log.at is not None and match[1].strip():
        log.at.unparsed.append((match[1], log.line))


def _named(log: Log, match: re.Match[str]) -> None:
    if log.at is not None:
        log.at.named.append((int(match[1]), int(match[2])))


def _quality(log: Log, match: re.Match[str]) -> None:
    """The quality line has no name: it is of the header before it, of the oldest one where several wait."""
    if log.at is None:
        return
    log.shuffled += len(log.at.named) > 1
    key = log.at.named.pop(0) if log.at.named else None
    log.at.outputs.append(Output(key=key, fallback=match[1] == "True", text=match[2].strip()))


def _judged(log: Log, match: re.Match[str]) -> None:
    log.domain = match[1]


def _exact(log: Log, match: re.Match[str]) -> None:
    log.exact = float(match[1])


def _result(log: Log, match: re.Match[str]) -> None:
    """A completion's reward: of the line before to three decimals where it agrees with this one's one decimal."""
    group, number, score = match.groups()
    exact, domain = log.exact, log.domain
    log.exact = log.domain = None
    if log.at is None:
        return
    key = (int(group), int(number))
    if score is None:  # it could not be executed, and was trained on as a 0
        log.at.rewards[key] = 0.0
        log.at.failed.add(key)
        return
    reward = float(score)
    log.at.rewards[key] = exact if exact is not None and abs(exact - reward) <= 0.0501 else reward
    if domain is not None:
        log.at.domains.setdefault(key[0], set()).add(domain)


def _finished(log: Log, _match: re.Match[str]) -> None:
    if log.at is not None:
        log.at.finished = bool(log.at.outputs)


def _simple(log: Log, _match: re.Match[str]) -> None:
    log.simple = True


def _update(log: Log, _match: re.Match[str]) -> None:
    if log.at is not None:
        log.at.update = 1


def _skip(log: Log, _match: re.Match[str]) -> None:
    log.skips = True
    if log.at is not None:
        log.at.update = 0


def _advantages(log: Log, match: re.Match[str]) -> None:
    log.of_advantages = True
    _printed("advantage_std")(log, match)


def _range(log: Log, match: re.Match[str]) -> None:
    """The range is printed twice, of the rewards and then, under the same name, of the advantages."""
    if log.of_advantages:
        _printed("advantage_low", "advantage_high")(log, match)
        log.of_advantages = False


def _group(log: Log, match: re.Match[str]) -> None:
    if log.at is not None:
        values = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", match[2])
        log.at.advantages |= {(int(match[1]), number): float(text) for number, text in enumerate(values, 1)}


# A piece of text that is quick to look for, the pattern of its line, and what takes it. Numbers are asked for with all
# their decimals, or with what follows them: the log may end inside one.
_MARKS: tuple[tuple[str, re.Pattern[str], Take], ...] = tuple(
    (mark, re.compile(pattern), take)
    for mark, pattern, take in (
        ("📍", r"📍 Step (\d+)/\d+", _step),
        ("分布: {", r"Batch \d+: .*分布: (\{[^}]*\})", _batch),
        ("🌡", r"Temperature: (\d+\.\d{3})", _temperature),
        ("样本 × ", r"(\d+)样本 × (\d+)序列 = \d+个", _planned),
        ("检测到开放式DSL", r"检测到开放式DSL: (.*)", _unparsed),
        ("[QWEN]", r"\[QWEN\] Workflow 代码 S(\d+)-(\d+)/\d+ =", _named),
        ("DSL质量", r"DSL质量: fallback=(True|False), ops=\d+, chain=\w+, DSL=(.*)", _quality),
        ("评估输入", r"评估输入 \((\w+), source=", _judged),
        ("P27简单奖励", r"P27简单奖励: (-?\d+\.\d{3})", _exact),
        ("[S", r"\[S(\d+)-(\d+)/\d+\] \S+\s+(?:正确性: (-?\d+\.\d) \||执行失败|错误: )", _result),
        ("workflow执行完成", r"workflow执行完成", _finished),
        ("P27 简单GRPO", r"P27 简单GRPO", _simple),
        ("零方差组", r"零方差组: (\d+)/(\d+)", _share("dead")),
        ("平均奖励", r"平均奖励: (-?\d+\.\d{3})", _printed("mean")),
        ("更新策略...", r"更新策略\.\.\.", _update),
        ("跳过更新", r"跳过更新", _skip),
        ("准确率统计", r"准确率统计: (\d+)/(\d+) =", _share("accuracy")),
        ("Batch奖励", r"Batch奖励: mean=\S+, std=(\d+\.\d{4})", _advantages),
        ("奖励范围", r"奖励范围: \[(-?\d+\.\d{3}), (-?\d+\.\d{3})\]", _range),
        ("(mean=", r" 组(\d+): \[(.*)\] \(mean=", _group),
        ("  loss: ", r"^  loss: (-?\d+\.\d{4})$", _printed("loss")),
        ("  kl_div: ", r"^  kl_div: (-?\d+\.\d{4})$", _printed("kl_loss")),
        ("初始LR", r"初始LR: (\d\S*)", _head(learning_rate=float)),
        ("Warmup步数", r"Warmup步数: (\d+)", _head(warmup_steps=int)),
        ("总训练步数", r"总训练步数: (\d+)", _head(total_steps=int)),
        ("Range: ", r"Range: (\d+(?:\.\d+)?) → ", _head(temperature=float)),
        ("梯度检查点", r"(梯度检查点已启用)", _head(checkpointing=bool)),
        ("细粒度奖励", r"细粒度奖励 \[([\d., ]+)\]", _head(levels=_numbers)),
    )
)
_ASCII_MARKS = tuple(mark for mark in _MARKS if mark[1].pattern.isascii())  # three lines in four are ASCII
