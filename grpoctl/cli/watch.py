"""`grpoctl watch`: the rules of `grpoctl diagnose` on a log or a run that grows, a line when a finding comes or goes.

What is not here: reading and judging (grpoctl.diagnose). A run of ours is over when it has ended, a log when it has not
grown for --idle seconds; without that option somebody has to press Ctrl-C.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from core.errors import GrpoError, NotFoundError, UserError
from core.health.examine import OF_WHOLE_RUNS, facts
from core.health.finding import Finding
from core.text import harmless
from grpoctl import console
from grpoctl.cli import exits, notify
from grpoctl.cli.diagnose import fail_limit, pairs
from grpoctl.cli.options import Columns, KnownSettings
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.diagnosis import diagnose as diagnosis_of
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import STANDARD_INPUT, open_source
from grpoctl.runs import liveness
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir, find_study

SHARE = 10  # of the time: a reading that takes a second is made every ten seconds at most


def watch(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Log or run, as `grpoctl diagnose` takes it.")],
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="How often to look.", min=0.1)] = 10.0,
    idle: Annotated[
        float | None,
        typer.Option("--idle", metavar="SECONDS", help="End when it has not grown for so long.", min=0),
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            help="End with exit code 1 on a finding of this severity or worse: error, warning or never.",
        ),
    ] = "never",
    notify_command: Annotated[
        str | None,
        typer.Option(
            "--notify",
            metavar="COMMAND",
            help="Run this for each finding that comes or goes, the finding as JSON on its standard input. No shell.",
        ),
    ] = None,
    columns: Columns = None,
    settings: KnownSettings = None,
) -> None:
    if source == STANDARD_INPUT:
        raise UserError("watch reads its source again and again, so it cannot be standard input: name a file or a run")
    limit = fail_limit(fail_on)
    command = notify.words_of(notify_command)
    run = _run_of(source)
    if run is None:
        _check_no_study(source)
        _check_may_come(source)
    request = Source(
        name=source if run is None else str(run.path),
        path=None,
        columns=pairs("--map", columns or ()),
        settings=pairs("--set", settings or ()),
    )
    shown: dict[str, Finding] = {}
    told: set[str] = set()
    read: list[int] = []
    found = False
    seen, grown_at = None, time.monotonic()
    while True:
        ended = run is not None and not _is_under_way(run)  # before the rows: what is written before the end is in them
        begun = time.monotonic()
        state = _state(request.name if run is None else str(run.metrics))
        if state != seen:
            grown_at = begun
        if state != seen or not state or ended:  # what is no file (mlflow:RUN_ID) may have grown unseen
            shown = look(request, shown, command, ended=ended, told=told, read=read)
        seen, found = state, found or bool(shown)
        if any(finding.severity in limit for finding in shown.values()):
            raise typer.Exit(exits.FINDING)
        if ended or (idle is not None and time.monotonic() - grown_at >= idle):
            _end(source, read, found=found)
        time.sleep(max(every, SHARE * (time.monotonic() - begun)))


def look(
    request: Source,
    shown: Mapping[str, Finding],
    command: list[str] | None,
    *,
    ended: bool = False,
    told: set[str] | None = None,
    read: list[int] | None = None,
) -> dict[str, Finding]:
    """The findings as they are now; those that came or went are told. What cannot be read yet is waited for.

    What only a whole run can show is left out until it has ended, hints always. `told`: why it was waited for so far,
    each said once. `read`: how many rows each look found.
    """
    try:
        diagnosis = diagnosis_of(open_source(request), name=request.name, with_hints=False)
    except NotFoundError as error:
        told = set() if told is None else told
        if str(error) not in told:
            console.print_note(f"waiting: {error}")
            told.add(str(error))
        return dict(shown)
    if read is not None:
        read.append(sum(len(one.case.rows) for one in diagnosis.readings))
    now = {one.id: one for one in diagnosis.findings if ended or one.id not in OF_WHOLE_RUNS}
    for id_, finding in now.items():
        if id_ not in shown or shown[id_].severity != finding.severity:
            tell("found", finding, diagnosis, command)
    for id_, finding in shown.items():
        if id_ not in now:
            tell("taken back", finding, diagnosis, command)
    return now


def _end(source: str, read: Sequence[int], *, found: bool) -> NoReturn:
    """Ends watching, with a line where no finding was told. Raises UserError where nothing was ever read."""
    if not read:
        raise UserError(f"nothing was ever read from {source!r}; name a log or a run, or wait longer with --idle")
    if not found:
        console.print_text(f"nothing found in {read[-1]} rows")
    raise typer.Exit(exits.OK)


def tell(event: str, finding: Finding, diagnosis: Diagnosis, command: list[str] | None) -> None:
    """A line for the finding, and the command that wants to know."""
    reading = diagnosis.told_by(finding)
    reached = facts(reading.case).get("last_step")
    step = f"step {reached or 0:g}" + (f" of {harmless(reading.run)}" if reading.run else "")
    what = finding.severity.upper() if event == "found" else "TAKEN BACK"
    text = harmless(" ".join(finding.summary.split()))
    console.print_text(f"{step}: {what}: {finding.id} ({finding.confidence}): {text}")
    notify.send(
        command,
        {**finding.as_json(), "event": event, "source": diagnosis.name, "step": reached},
    )


def _run_of(source: str) -> RunDir | None:
    """The run of ours of that name; None for a file or what is no run."""
    with suppress(OSError, ValueError):
        path = Path(source).expanduser()
        if path.exists() and not path.is_dir():
            return None
    with suppress(GrpoError):
        entry = Home.locate().find(source)
        return entry if isinstance(entry, RunDir) else None
    return None


def _check_no_study(source: str) -> None:
    """Raises NotFoundError for a study, with the command that watches one of its runs: one under way, else the last."""
    with suppress(OSError, ValueError):
        path = Path(source).expanduser()
        if path.exists() and not StudyDir(path=path).spec.is_file():
            return
    study = None
    with suppress(GrpoError):
        study = find_study(Home.locate(), source)
    if study is None:
        return
    runs = study.runs()
    if not runs:
        raise NotFoundError(f"{study.id} is a study, and has no run yet; grpoctl show {study.id} says how it stands")
    one = next(filter(RunDir.is_held, runs), runs[-1])
    raise NotFoundError(f"{study.id} is a study; its {len(runs)} runs are watched one by one: grpoctl watch {one.id}")


def _check_may_come(source: str) -> None:
    """Raises NotFoundError for a word that is neither a run nor a file, and names no file: nothing will come of it.

    What has a folder or a suffix is a log that is not there yet, where its folder is.
    """
    with suppress(OSError, ValueError):
        path = Path(source).expanduser()
        named = "/" in source or path.suffix != ""
        if (source.strip() and path.exists()) or ":" in source or (named and path.parent.is_dir()):
            return
        if named:
            raise NotFoundError(
                f"{source} cannot come to be: there is no folder {path.parent}; make it, or name another"
            )
    raise NotFoundError(f"no run and no file {source!r}; grpoctl ls shows the runs, ./{source} waits for a file")


def _is_under_way(run: RunDir) -> bool:
    with suppress(GrpoError):
        liveness.reconcile_run(run)
    return run.is_held()


def _state(name: str) -> str:
    """What changes when the file does, of a folder its newest file; empty where there is none."""
    with suppress(OSError, ValueError):
        path = Path(name).expanduser()
        files = [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]
        known = [(status.st_mtime_ns, status.st_size) for status in (file.stat() for file in files)]
        return repr((max(known), sum(size for _, size in known))) if known else ""
    return ""
