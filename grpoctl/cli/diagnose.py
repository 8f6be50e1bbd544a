"""`grpoctl diagnose`: what went wrong in a run, with evidence. Imports no torch.

What is here: reading the options, where an HTML page may be written, and printing. What is not: reading logs, judging
them and the words of the report (grpoctl.diagnose).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, assert_never

import typer

from core.errors import UserError
from core.health.finding import SEVERITIES, Severity
from grpoctl import console
from grpoctl.cli import exits
from grpoctl.cli.options import Columns, Json, KnownSettings
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.diagnosis import diagnose as diagnosis_of
from grpoctl.diagnose.propose import NewExperiment
from grpoctl.diagnose.propose import propose as write_proposal
from grpoctl.diagnose.readers.base import Reading, Source
from grpoctl.diagnose.readers.registry import STANDARD_INPUT, open_source
from grpoctl.runs.run_dir import Home, of_experiment

Format = Literal["text", "json", "md"]
NEVER = "never"
_LIMITS: tuple[Severity, ...] = ("error", "warning")
_FORMS = {  # of an option's values, and an example
    "--map": ("COLUMN=METRIC", "--map 'Mean reward=reward/mean'"),
    "--set": ("KEY=VALUE", "--set num_generations=8"),
}
_EXAMPLE = "e.g. --html report.html"
_SUFFIXES = (".html", ".htm")
_BEGINNINGS = (b"<!doctype html", b"<html")
_SHOWN = 60  # characters of a name that an error shows


def diagnose(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Run (id, experiment, directory), trainer_state.json or a folder with one, log (.gz too), .csv, "
            ".json, TensorBoard events, mlflow.db, mlflow:[URI#]RUN_ID, - for standard input. Several are runs of one "
            "setup.",
        ),
    ],
    json: Json = False,
    md: Annotated[bool, typer.Option("--md", help="Print the report as Markdown.")] = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Also write the report with figures as one HTML file.")
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            help="Exit code 1 on a finding of this severity or worse: error, warning or never.",
        ),
    ] = "never",
    propose: Annotated[
        str | None,
        typer.Option("--propose", metavar="NAME", help="Write the deciding experiment to ./experiments/NAME.yaml."),
    ] = None,
    columns: Columns = None,
    settings: KnownSettings = None,
) -> None:
    if json and md:
        raise UserError("--json and --md exclude each other: one document goes to standard output")
    request = Source(
        name="",
        path=None,  # found by what opens it
        columns=pairs("--map", columns or ()),
        settings=pairs("--set", settings or ()),
    )
    if len(set(sources)) < len(sources):
        raise UserError("a source is named twice: its evidence would count twice")
    page = None if html is None else page_file(html)
    failing = fail_limit(fail_on)
    if page is not None:
        _check_keeps_all(page, sources)
    logs = [open_source(replace(request, name=source)) for source in sources]
    if page is not None:
        _check_keeps_all(page, [log.source for log in logs])  # a folder's file, say
    for source, log in zip(sources, logs, strict=True):
        _print_choice(source, log)
    diagnosis = diagnosis_of(logs[0], name=sources[0], others=logs[1:])
    proposal = None if propose is None else write_proposal(diagnosis, propose)
    if proposal is not None:
        diagnosis = replace(diagnosis, proposed=proposal.command)
    if page is not None:
        from grpoctl.diagnose.html import write_html

        write_html(diagnosis, page)
    _print(diagnosis, "json" if json else "md" if md else "text", proposal)
    if page is not None:
        console.print_note(f"wrote {page}")
    if proposal is not None:
        console.print_note(f"wrote {proposal.file}, which decides {proposal.finding}; next: {proposal.command}")
    raise typer.Exit(exits.FINDING if any(finding.severity in failing for finding in diagnosis.findings) else exits.OK)


def _print_choice(source: str, log: Reading) -> None:
    """Note which run was taken for an experiment's name that has several."""
    if log.kind != "grpoctl" or "/" in source:
        return
    taken = Path(log.source).name
    several = list(of_experiment(source.lower(), Home.locate().runs()))
    if len(several) > 1 and source.lower() != taken:
        newest = "the newest" if taken == several[0].id else "the newest that has recorded a step"
        console.print_note(f"{source} has {len(several)} runs; this is {taken}, {newest}: name another by its id")


def fail_limit(fail_on: str) -> Sequence[Severity]:
    """The severities that --fail-on means. Raises UserError for another word."""
    limit = next((severity for severity in _LIMITS if severity == fail_on), None)
    if limit is None and fail_on != NEVER:
        raise UserError(f"--fail-on: got {fail_on!r}; allowed: {', '.join((*_LIMITS, NEVER))}")
    return SEVERITIES[: SEVERITIES.index(limit) + 1] if limit is not None else ()


def pairs(option: Literal["--map", "--set"], texts: Sequence[str]) -> dict[str, str]:
    """`A=B` texts as a mapping; of --map the last `=` divides, where a column's own name has some."""
    form, example = _FORMS[option]
    named: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=") if option == "--map" else text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UserError(f"{option}: got {text!r}, expected {form}, e.g. {example}")
        if name.strip() in named:
            raise UserError(f"{option}: {name.strip()} is given twice")
        named[name.strip()] = value.strip()
    return named


def _print(diagnosis: Diagnosis, form: Format, proposal: NewExperiment | None) -> None:
    """Print the report; the JSON document has the proposed experiment, too."""
    match form:
        case "json":
            document = diagnosis.as_json()
            if proposal is not None:
                proposed = {"name": proposal.name, "file": str(proposal.file), "finding": proposal.finding}
                document = {**document, "proposed": proposed}
            console.print_json(document)
        case "md":
            from grpoctl.diagnose.markdown import markdown

            console.write(markdown(diagnosis))
        case "text":
            from grpoctl.diagnose.report import report

            console.print_sections(report(diagnosis))
        case _:
            assert_never(form)


def page_file(html: str) -> Path:
    """The file of `--html`, links followed: a new one, or an older page that may be replaced.

    Raises UserError where it can be none: no name, `-`, a folder, a device, a file that is there and is no page.
    """
    if html == "-":
        raise UserError(f"--html: the page goes to a file, not to standard output; {_EXAMPLE}")
    try:
        return _checked_file(html)
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a link that leads to itself
        why = getattr(error, "strerror", None) or error
        raise UserError(f"--html: {_short(html)} can be no file: {why}; {_EXAMPLE}") from None


def _check_keeps_all(page: Path, sources: Sequence[str]) -> None:
    for source in sources:
        check_keeps(page, source)


def check_keeps(page: Path, source: str) -> None:
    """Raises UserError where the page would be written over the source of the diagnosis."""
    same = False
    with suppress(OSError, ValueError, RuntimeError):
        read = os.fstat(0) if source == STANDARD_INPUT else Path(source).expanduser().stat()  # `- < FILE` reads a file
        same = os.path.samestat(page.stat(), read)
    if same:
        raise UserError(f"--html: {page} is what is to be diagnosed; the page would replace it")


def _checked_file(html: str) -> Path:
    """The file. Raises UserError, and what the file system says of an impossible name."""
    named = Path(html)
    if not html or not named.name or named.is_dir():
        raise UserError(f"--html: got {html!r}, expected a file's name, {_EXAMPLE}")
    if not named.parent.is_dir():
        raise UserError(f"--html: there is no folder {_short(str(named.parent))}")
    with suppress(FileNotFoundError):  # of a name that is too long, whatever this Python's `exists` makes of it
        named.lstat()
    file = named.resolve() if named.is_symlink() else named
    if file.is_symlink():
        raise UserError(f"--html: {_short(html)} is a link that leads to itself")
    if not file.parent.is_dir():
        raise UserError(f"--html: {_short(html)} is a link into a folder that is not there")
    if Path("/dev") in named.absolute().parents or (file.exists() and not file.is_file()):
        raise UserError(f"--html: {_short(html)} is no regular file, {_EXAMPLE}")
    if file.exists() and not _is_page(file):
        raise UserError(f"--html: {_short(html)} is there and is no page of HTML; name another file, {_EXAMPLE}")
    return file


def _is_page(file: Path) -> bool:
    """True where a page may take the place of the file: it is empty, called a page, or one."""
    if file.suffix.lower() in _SUFFIXES or file.stat().st_size == 0:
        return True
    with file.open("rb") as page:
        return page.read(64).lstrip().lower().startswith(_BEGINNINGS)


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
