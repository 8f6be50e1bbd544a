"""Where the problems of GSM8K come from: a folder with train.jsonl and test.jsonl, or the hub's `openai/gsm8k`.

What is here: files and rows to `Problem`s, each with a gold answer. What is not: splits, prompts and scores (task).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from core.errors import SpecError
from core.tasks.custom import hub, jsonl
from core.tasks.custom.row import Row
from core.tasks.gsm8k.answers import answer_in

HUB, CONFIG = "openai/gsm8k", "main"
KEY = "task.path"
_MARKS = re.compile(r"<<[^<>\n]*>>")  # the calculator's: 48/2 = <<48/2=24>>24


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A question, its worked solution without calculator marks and without the last line, and its answer."""

    question: str
    solution: str
    answer: Fraction

    @property
    def steps(self) -> int:
        """Lines of the solution: how many steps its writer took."""
        return len(self.solution.splitlines())


def problems(path: str | None, part: Literal["train", "test"]) -> tuple[Problem, ...]:
    """All problems of a part, in the order of its file. Raises SpecError naming the file and the line."""
    rows = _hub_rows(part) if path is None else _file_rows(Path(os.path.expanduser(path)), part)
    if not rows:
        raise SpecError(f"got no problem in {part}.jsonl; each line is one, with question and answer", key=KEY)
    return tuple(_problem(row) for row in rows)


def _problem(row: Row) -> Problem:
    question, worked = row.values.get("question"), row.values.get("answer")
    if not isinstance(question, str) or not isinstance(worked, str):
        got = ", ".join(row.values) or "nothing"
        raise row.refused(f"got {got}; a problem has question and answer, both text", key=KEY)
    worked = _MARKS.sub("", worked).strip()
    answer = answer_in(worked, "hashes")
    if answer is None or not question.strip():
        lacks = "a last line `#### N`, N being a number" if answer is None else "a question"
        raise row.refused(f"the problem lacks {lacks}", key=KEY)
    return Problem(question=question.strip(), solution=worked[: worked.rindex("####")].strip(), answer=answer)


def _file_rows(folder: Path, part: str) -> list[Row]:
    file = folder / f"{part}.jsonl"
    if not file.is_file():
        lacks = f"no {file.name} in {folder}" if folder.is_dir() else f"{folder}, which is no folder"
        raise SpecError(f"got {lacks}; allowed: a folder with train.jsonl and test.jsonl", key=KEY)
    try:
        return jsonl.read(file)
    except OSError as error:
        raise SpecError(f"cannot read {file}: {error.strerror or error}", key=KEY) from error


def _hub_rows(part: str) -> list[Row]:
    """The rows of the hub's dataset, from the local cache where the hub cannot be reached."""
    try:
        return hub.read(HUB, CONFIG, part, None)
    except SpecError as error:
        said = error.message.rpartition("; ")[0]  # its advice is for another task
        advice = "give task.path=FOLDER, a folder with its train.jsonl and test.jsonl"
        raise SpecError(f"{said}; {advice}", key=KEY) from None
