"""The records that a report is made of. What is not here: filling them in (sides, study), and showing them (page).

A report has parts: runs of one task under one profile that can be compared, or one study. A part is a list of blocks in
the order of reading; a template knows how each kind of block looks. Numbers stand in tables, once: charts, CSV and JSON
all read those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from grpoctl.files import finite
from grpoctl.sections import Line, Section
from grpoctl.version import __version__

Cell = str | float | bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Numbers by the row, under names of ours: a chart's fields are these names and never a word of somebody's data."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A chart by Vega-Lite. `spec` names the tables it draws as `{"data": {"name": NAME}}`; it holds no data itself."""

    name: str
    title: str
    reads: str  # in a sentence or two, what is drawn and how to read it
    spec: Mapping[str, Any]
    tables: Mapping[str, Table]
    small: bool = False  # it may stand beside others

    @property
    def csv(self) -> str:
        """The name of the table that is offered as CSV: the first."""
        return next(iter(self.tables))


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one run answered to a problem, and what that earned (the mean over its draws)."""

    who: str
    reward: float | None
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One held-out problem, answered on both sides; `change` is the second side's mean reward less the first one's."""

    id: str
    prompt: str
    before: float
    after: float
    became: Literal["worse", "better", "equal"]
    answers: tuple[tuple[Answer, ...], tuple[Answer, ...]]

    @property
    def change(self) -> float:
        """How much better the second side is."""
        return self.after - self.before

    @property
    def change_text(self) -> str:
        """The change in three digits, with a sign unless it is none."""
        text = f"{self.change:+.3f}"
        return text if float(text) else "0.000"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """The same problems side by side, those that became worst first."""

    title: str
    reads: str
    sides: tuple[str, str]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """An image file that is shown under its title."""

    title: str
    file: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Pictures:
    """What runs of an image task answered."""

    title: str
    reads: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    """Shell commands, each with what it does."""

    title: str
    commands: tuple[tuple[str, str], ...]


Block = Section | Chart | Answers | Pictures | Commands


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Sides that can be compared, or a study: its verdict first, then its blocks. `numbers` is its JSON."""

    kind: Literal["comparison", "runs", "study"]
    title: str
    verdict: tuple[Line, ...]
    blocks: tuple[Block, ...]
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything that is said of what was named."""

    title: str
    made: str  # the day and minute, in UTC
    parts: tuple[Part, ...]

    def document(self) -> dict[str, Any]:
        """The JSON document of `grpoctl report --json`, which the page holds, too: every number of every chart."""
        return {
            "schema": 1,
            "title": self.title,
            "made": self.made,
            "grpoctl": __version__,
            "parts": [_part(part) for part in self.parts],
        }


def _part(part: Part) -> dict[str, Any]:
    charts = [block for block in part.blocks if isinstance(block, Chart)]
    answers = [block for block in part.blocks if isinstance(block, Answers)]
    commands = [block for block in part.blocks if isinstance(block, Commands)]
    document = {
        "kind": part.kind,
        "title": part.title,
        "verdict": [line.text for line in part.verdict],
        **part.numbers,
        "tables": {name: table.document() for chart in charts for name, table in chart.tables.items()},
        "answers": [_answers(block) for block in answers],
        "commands": [command for block in commands for command, _ in block.commands],
    }
    whole = finite(document)
    assert isinstance(whole, dict)
    return whole


def _answers(block: Answers) -> dict[str, Any]:
    return {
        "sides": list(block.sides),
        "problems": [
            {
                "id": problem.id,
                "prompt": problem.prompt,
                "reward": [problem.before, problem.after],
                "change": problem.change,
                "became": problem.became,
                "answers": [
                    [{"who": answer.who, "reward": answer.reward, "text": answer.text} for answer in side]
                    for side in problem.answers
                ],
            }
            for problem in block.problems
        ],
    }


def labelled(lines: Sequence[Line], title: str = "") -> Section:
    """Sentences under a title."""
    return Section(title=title, lines=tuple(lines))
