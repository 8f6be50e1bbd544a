"""A row of the comparison: both tools' steps, taken in turn in one process, and what they come to."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.trl_step.ours import Ours, close, ordered_questions, own_trainer, policy_of
from benchmarks.trl_step.setting import Own, Setting, Step, questions, write_questions
from benchmarks.trl_step.theirs import Start, Theirs
from benchmarks.trl_step.weights import tokenizer_of

LEFT_OUT = 2  # first steps of either tool: what is allocated, compiled and cached for the first time


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """One tool's measured steps in one run."""

    tool: str  # trl, or grpoctl
    how: str  # its precision, and what is switched off
    steps: Sequence[Step]

    @property
    def seconds(self) -> float:
        """Median step time."""
        return median(step.seconds for step in self.steps)

    @property
    def cpu(self) -> float:
        """Median seconds of the process on all cores."""
        return median(step.cpu for step in self.steps)

    @property
    def generated_rate(self) -> float:
        """Median generated tokens a second of the whole step."""
        return median(step.generated / step.seconds for step in self.steps)

    @property
    def trained_rate(self) -> float:
        """Median tokens learned from a second of the whole step."""
        return median(step.trained / step.seconds for step in self.steps)

    def part(self, name: str) -> float:
        """Median seconds of one kind of request; 0 where there is none."""
        return median(step.parts.get(name, 0.0) for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        """Medians and all samples."""
        parts = dict.fromkeys(name for step in self.steps for name in step.parts)
        return {
            "tool": self.tool,
            "how": self.how,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu,
            "generated_per_second": self.generated_rate,
            "trained_per_second": self.trained_rate,
            "parts": {name: self.part(name) for name in parts},
            "steps": [asdict(step) for step in self.steps],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Steps that were taken in turn: TRL in one precision (or not at all), ours in some."""

    setting: Setting
    theirs: Samples | None
    ours: Sequence[Samples]

    def as_json(self) -> dict[str, Any]:
        """Everything, and each of ours as a part of TRL's time."""
        return {
            "setting": asdict(self.setting),
            "theirs": None if self.theirs is None else self.theirs.as_json(),
            "ours": [own.as_json() for own in self.ours],
            "ratios": {} if self.theirs is None else {own.how: own.seconds / self.theirs.seconds for own in self.ours},
            "cpu_ratios": {} if self.theirs is None else {own.how: own.cpu / self.theirs.cpu for own in self.ours},
        }


def taken_in_turn(setting: Setting, theirs: str | None, owns: Sequence[Own], model: Path, steps: int) -> Run:
    """`steps` measured steps of each, after those left out: one of TRL's, one of each of ours, and so on."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data = write_questions(questions(tokenizer_of(model), setting), folder)
        tools, start = [], None
        for own in owns:
            trainer = own_trainer(setting, own, model, data)
            stack.callback(close, trainer)
            adapter = policy_of(trainer).state()
            start = start or Start(model=model, questions=ordered_questions(trainer), adapter=adapter, output=folder)
            tools.append(Ours(trainer, setting))
        total = steps + LEFT_OUT
        taken = None if theirs is None or start is None else Theirs(setting, theirs, start, steps=total)
        found = _all_steps(taken, [tool.step for tool in tools], total)
    ours = [Samples(tool="grpoctl", how=str(own), steps=tool.done[LEFT_OUT:])
            for own, tool in zip(owns, tools, strict=True)]  # fmt: skip
    trl = None if theirs is None else Samples(tool="trl", how=theirs, steps=found[LEFT_OUT:])
    return Run(setting=setting, theirs=trl, ours=ours)


def _all_steps(theirs: Theirs | None, ours: Sequence[Callable[[], None]], total: int) -> list[Step]:
    def each() -> None:
        for step in ours:
            step()

    if theirs is not None:
        return theirs.train(each)
    for _ in range(total):
        each()
    return []


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """Each tool at its fastest in one setting."""

    setting: Setting
    theirs: Samples
    ours: Samples

    @property
    def ratio(self) -> float:
        """Our step time over TRL's."""
        return self.ours.seconds / self.theirs.seconds

    def as_json(self) -> Mapping[str, Any]:
        """Which they are, and the ratio."""
        return {"setting": asdict(self.setting), "theirs": self.theirs.how, "ours": self.ours.how, "ratio": self.ratio}


def headline(runs: Sequence[Run]) -> Headline | None:
    """Of the runs of one setting: TRL's fastest, and beside it our fastest of the same run, all savings on.

    None where TRL took no step.
    """
    best = min((run for run in runs if run.theirs is not None), key=_their_seconds, default=None)
    if best is None or best.theirs is None:
        return None
    whole = [own for own in best.ours if " without " not in own.how]
    if not whole:
        return None
    return Headline(setting=best.setting, theirs=best.theirs, ours=min(whole, key=lambda own: own.seconds))


def _their_seconds(run: Run) -> float:
    assert run.theirs is not None
    return run.theirs.seconds
