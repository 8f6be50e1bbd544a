"""What a run or a study says, line by line, while it goes on: `log.txt`, or the progress where there is none.

What is here: finding new lines, and noticing the end. What is not: what stands in the files, and printing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import StorageError
from grpoctl.cli import exits
from grpoctl.cli.progress import progress_text
from grpoctl.files import read_json, read_new, storage_errors
from grpoctl.runs import liveness
from grpoctl.runs.listing import summary
from grpoctl.runs.liveness import study_status
from grpoctl.runs.locks import is_locked
from grpoctl.runs.run_dir import RunDir
from grpoctl.runs.status import Status
from grpoctl.runs.study_dir import StudyDir

LOOK = 0.25  # seconds between two looks at the files
NewLines = Callable[[], list[str]]  # the whole lines since the call before


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """One run or study to be followed. `note` says where its lines come from when that is no log of its own."""

    id: str
    new_lines: NewLines
    note: str
    standing: Callable[[], tuple[str, str]]  # its status, and the sentence that goes with it
    under_way: Callable[[], bool]


def followed(place: RunDir | StudyDir) -> Followed:
    """How to follow it: by its log where it has one, else by its progress."""
    if isinstance(place, RunDir):
        progress, under_way = _run_progress(place), lambda: _run_under_way(place)
        where = "metrics.jsonl"
    else:
        progress, under_way = _study_progress(place), place.is_held
        where = "sweep.json"
    logged = place.log.exists()
    return Followed(
        id=place.id,
        new_lines=_log_lines(place.log) if logged else progress,
        note="" if logged else f"{place.id} was not started with --detach and has no log; its progress by {where}:",
        standing=lambda: _standing(place),
        under_way=under_way,
    )


def lines_until_the_end(source: Followed) -> Iterator[str]:
    """Each new line as it is written, until nothing more will come."""
    while True:
        going_on = source.under_way()  # before the lines: whatever was said before the end is then among them
        yield from source.new_lines()
        if not going_on:
            return
        time.sleep(LOOK)


def exit_code(standing: str) -> int:
    """The exit code of a run's or a study's status; FAILED's where it did not come to an end."""
    if standing == "STOPPED":  # a study that was told to ask for no more
        return exits.OK
    return exits.exit_code(standing) if standing in set(Status) and Status(standing).ended else exits.FAILED


def _standing(place: RunDir | StudyDir) -> tuple[str, str]:
    try:
        if isinstance(place, StudyDir):
            return study_status(place)
        entry = summary(place)
        return str(entry["status"]), str(entry["message"])
    except StorageError as error:
        return "DAMAGED", str(error)


def _run_under_way(run: RunDir) -> bool:
    """Whether more will come: a process holds the run, or still prints its verdict."""
    with suppress(StorageError):
        liveness.reconcile_run(run)
    return run.is_held() or is_locked(run.log)


def _log_lines(path: Path) -> NewLines:
    """Lines of a log; one that is not whole yet waits for its end."""
    offset = 0

    def new() -> list[str]:
        nonlocal offset
        with storage_errors("read", path), path.open("rb") as file:
            file.seek(offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        offset += len(whole)
        return whole.decode("utf-8", "replace").split("\n")[:-1]

    return new


def _run_progress(run: RunDir) -> NewLines:
    """A line for each step recorded; steps that a resumed run does again are not repeated."""
    offset, last, shown = 0, -1, dict[str, float | None]()

    def new() -> list[str]:
        nonlocal offset, last
        rows, offset = read_new(run.metrics, offset)
        lines = []
        for row in rows:
            if row["step"] <= last:
                continue
            last = int(row["step"])
            shown.update(row)
            lines.append(f"step {last:>4}  {progress_text(shown)}")
        return lines

    return new


def _study_progress(study: StudyDir) -> NewLines:
    """A line whenever a trial has ended."""
    known: set[int] = set()

    def new() -> list[str]:
        lines = []
        for trial in (read_json(study.state) or {}).get("trials", []):
            if trial["status"] == "RUNNING" or trial["number"] in known:
                continue
            known.add(trial["number"])
            score = "-" if trial["score"] is None else f"{trial['score']:.4g}"
            lines.append(f"trial {trial['number']:>4}  {trial['status']}  score {score}  {trial['params']}")
        return lines

    return new
