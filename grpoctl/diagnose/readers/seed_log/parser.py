"""The lines of the seed project's log: which of them are read, and what each adds to the step it stands in.

What is here: the marks. Most of the 40,000 lines have none and are passed over; lines of parallel workers may stand
between any two. What is not: what a step's lines add up to (step), what follows from the head (settings).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from core.health.case import Notice
from grpoctl.diagnose.readers.notices import Notices
from grpoctl.diagnose.readers.seed_log.step import Output, Step
from grpoctl.diagnose.readers.text import Line

SHOWN = 2  # collapsed steps whose text is cited
UNPARSED = "unparsed-output"
_LONGEST = 120  # characters of a cited text


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
        broken = [step for step in self.steps.values() if step.collapsed and step.unparsed][:SHOWN]
        texts = [
            Notice(kind=UNPARSED, text=" ".join(text.split())[:_LONGEST], line=line, step=step.number)
            for step in broken
            for text, line in step.unparsed[:SHOWN]
        ]
        return (*self.notices.all(), *texts)


Take = Callable[[Log, re.Match[str]], None]


def parse(lines: Iterable[Line]) -> Log:
    """The log, read once from its first line to its last."""
    log = Log()
    for line, text in lines:
        log.line = line
        for mark, pattern, take in _ASCII_MARKS if text.isascii() else _MARKS:
            if mark in text and (found := pattern.search(text)) is not None:
                take(log, found)
        log.notices.look(text, line, None if log.at is None else log.at.number)
    return log


def _head(**makes: Callable[[str], object]) -> Take:
    """Takes one field of the head, made of the first group; what is no number is left out."""
    ((name, make),) = makes.items()

    def take(log: Log, found: re.Match[str]) -> None:
        with suppress(ValueError, OverflowError):
            log.head = replace(log.head, **{name: make(found[1])})  # type: ignore[arg-type]

    return take


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in re.findall(r"\d+(?:\.\d+)?", text))


def _printed(*names: str) -> Take:
    """Takes the groups as statistics of the step."""

    def take(log: Log, found: re.Match[str]) -> None:
        if log.at is not None:
            values = {name: float(text) for name, text in zip(names, found.groups(), strict=True)}
            log.at.printed = replace(log.at.printed, **values)

    return take


def _share(name: str) -> Take:
    """Takes `2/3` as a share."""

    def take(log: Log, found: re.Match[str]) -> None:
        if log.at is not None and int(found[2]):
            log.at.printed = replace(log.at.printed, **{name: int(found[1]) / int(found[2])})

    return take


def _step(log: Log, found: re.Match[str]) -> None:
    log.open(int(found[1]))


def _temperature(log: Log, found: re.Match[str]) -> None:
    if log.at is not None:
        log.at.temperature = float(found[1])


def _batch(log: Log, found: re.Match[str]) -> None:
    if log.at is not None:
        log.at.batch = {domain: int(count) for domain, count in re.findall(r"'(\w+)': (\d+)", found[1])}


def _planned(log: Log, found: re.Match[str]) -> None:
    if log.at is not None:
        log.at.clear(int(found[1]), int(found[2]))


def _unparsed(log: Log, found: re.Match[str]) -> None:
    """What the policy wrote where a workflow was looked for; a later line says whether it was one."""
    if log.at is not None and found[1].strip():
        log.at.unparsed.append((found[1], log.line))


def _named(log: Log, found: re.Match[str]) -> None:
    if log.at is not None:
        log.at.named.append((int(found[1]), int(found[2])))


def _quality(log: Log, found: re.Match[str]) -> None:
    """The quality line has no name: it is of the header before it, of the oldest one where several wait."""
    if log.at is None:
        return
    log.shuffled += len(log.at.named) > 1
    key = log.at.named.pop(0) if log.at.named else None
    log.at.outputs.append(Output(key=key, fallback=found[1] == "True", text=found[2].strip()))


def _judged(log: Log, found: re.Match[str]) -> None:
    log.domain = found[1]


def _exact(log: Log, found: re.Match[str]) -> None:
    log.exact = float(found[1])


def _result(log: Log, found: re.Match[str]) -> None:
    """A completion's reward: of the line before to three decimals where it agrees with this one's one decimal."""
    group, number, score = found.groups()
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


def _finished(log: Log, _found: re.Match[str]) -> None:
    if log.at is not None:
        log.at.finished = bool(log.at.outputs)


def _simple(log: Log, _found: re.Match[str]) -> None:
    log.simple = True


def _update(log: Log, _found: re.Match[str]) -> None:
    if log.at is not None:
        log.at.update = 1


def _skip(log: Log, _found: re.Match[str]) -> None:
    log.skips = True
    if log.at is not None:
        log.at.update = 0


def _advantages(log: Log, found: re.Match[str]) -> None:
    log.of_advantages = True
    _printed("advantage_std")(log, found)


def _range(log: Log, found: re.Match[str]) -> None:
    """The range is printed twice, of the rewards and then, under the same name, of the advantages."""
    if log.of_advantages:
        _printed("advantage_low", "advantage_high")(log, found)
        log.of_advantages = False


def _group(log: Log, found: re.Match[str]) -> None:
    if log.at is not None:
        values = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", found[2])
        log.at.advantages |= {(int(found[1]), number): float(text) for number, text in enumerate(values, 1)}


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
_ASCII_MARKS = tuple(one for one in _MARKS if one[1].pattern.isascii())  # three lines in four are ASCII
