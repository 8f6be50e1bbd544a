"""`grpoctl logs`: what a run or a study has printed, and with --follow what it prints until it ends.

The lines are those of `log.txt`; where nobody printed progress there, also the progress in `metrics.jsonl` or, of a
study without a log, in `sweep.json`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from core.errors import StorageError
from grpoctl import console
from grpoctl.cli import exits
from grpoctl.cli.lookup import print_choice, run_or_study
from grpoctl.cli.progress import progress_text
from grpoctl.files import read_json, read_new, storage_errors
from grpoctl.runs import liveness
from grpoctl.runs.listing import summary
from grpoctl.runs.liveness import study_status
from grpoctl.runs.locks import is_locked
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.status import Status
from grpoctl.runs.study_dir import StudyDir

POLL = 0.25  # seconds between two reads of the files
NewLines = Callable[[], list[str]]  # the whole lines since the call before


def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Run or study: id, its beginning, name or directory.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until it ends.")] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", help="Only the last N lines so far.", min=0)] = None,
) -> None:
    home = Home.locate()
    liveness.reconcile(home)
    entry = run_or_study(home, name, running_first=True)
    print_choice(home, name, entry)
    source = log_source(entry)
    if source.note:
        console.print_note(source.note)
    so_far = source.new_lines()
    shown = so_far if lines is None else so_far[len(so_far) - min(lines, len(so_far)) :]
    for line in chain(shown, lines_until_the_end(source) if follow else ()):
        console.write(line)
    if follow:
        status, message = current_status(entry)
        console.print_text(f"{entry.id}: {status}{f', {message}' if message else ''}")
        raise typer.Exit(exit_code(status))


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSource:
    """Where the lines of a run or a study come from; `note` says so when that is not its log alone."""

    new_lines: NewLines
    note: str
    under_way: Callable[[], bool]


def log_source(entry: RunDir | StudyDir) -> LogSource:
    """The log, the progress that the files of the run or the study show where there is none, or both.

    Both of a run that printed its progress elsewhere: its log then has findings and warnings alone.
    """
    if isinstance(entry, RunDir):
        progress, under_way, file = _run_progress(entry), lambda: _run_under_way(entry), "metrics.jsonl"
    else:
        progress, under_way, file = _study_progress(entry), entry.is_held, "sweep.json"
    log = _log_lines(entry.log)
    note = f"{entry.id} has no log; its progress by {file}:"
    if _prints_elsewhere(entry):
        if entry.log.exists():
            note = f"{entry.id} was not started with --detach; what its log has, and its progress by {file}:"
        return LogSource(new_lines=lambda: [*log(), *progress()], note=note, under_way=under_way)
    if entry.log.exists():
        return LogSource(new_lines=log, note="", under_way=under_way)
    return LogSource(new_lines=progress, note=note, under_way=under_way)


def _prints_elsewhere(entry: RunDir | StudyDir) -> bool:
    """True for a run whose newest attempt was not made by `run --detach`, which prints into the log."""
    if isinstance(entry, StudyDir) or is_locked(entry.log):
        return False
    with suppress(StorageError):
        attempts = (read_json(entry.provenance) or {}).get("attempts") or []
        return bool(attempts) and "--detach" not in attempts[-1].get("argv", ())
    return False


def lines_until_the_end(source: LogSource) -> Iterator[str]:
    """Each new line as it is written, until nothing more will come."""
    while True:
        under_way = source.under_way()  # before the lines: whatever was printed before the end is then among them
        yield from source.new_lines()
        if not under_way:
            return
        time.sleep(POLL)


def current_status(entry: RunDir | StudyDir) -> tuple[str, str]:
    """The status of a run or a study, and the message that goes with it."""
    try:
        if isinstance(entry, StudyDir):
            return study_status(entry)
        row = summary(entry)
        return str(row["status"]), str(row["message"])
    except StorageError as error:
        return "DAMAGED", str(error)


def exit_code(status: str) -> int:
    """The exit code of a run's or a study's status; FAILED's where it did not come to an end."""
    if status == "STOPPED":  # a study that was told to ask for no more
        return exits.OK
    return exits.exit_code(status) if status in set(Status) and Status(status).ended else exits.FAILED


def _run_under_way(run: RunDir) -> bool:
    """True while more will come: a process holds the run, or still prints its verdict."""
    with suppress(StorageError):
        liveness.reconcile_run(run)
    return run.is_held() or is_locked(run.log)


def _log_lines(path: Path) -> NewLines:
    """The new lines of a log, none where it is not there yet; one that is not whole yet waits for its end."""
    offset = 0

    def new() -> list[str]:
        nonlocal offset
        if not path.exists():
            return []
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
