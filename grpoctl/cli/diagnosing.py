"""How `grpoctl diagnose` goes: read, judge, say it in one form, write what was asked for. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, assert_never

from core.errors import UserError
from core.health.finding import SEVERITIES, Severity
from grpoctl import console
from grpoctl.cli import exits, page_file
from grpoctl.diagnose.diagnosis import Diagnosis
from grpoctl.diagnose.diagnosis import diagnose as judge
from grpoctl.diagnose.propose import NewExperiment, propose
from grpoctl.diagnose.readers.base import Source
from grpoctl.diagnose.readers.registry import open_source

Form = Literal["text", "json", "md"]
NEVER = "never"
_LIMITS: tuple[Severity, ...] = ("error", "warning")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is to come out: the form on standard output, files besides, and which findings fail."""

    form: Form = "text"
    html: Path | None = None  # where page_file says that a page may stand
    propose: str | None = None
    fail_on: Severity | None = None


def form(*, json: bool, md: bool) -> Form:
    """The form of standard output. Raises UserError for two of them."""
    if json and md:
        raise UserError("--json and --md exclude each other: one document goes to standard output")
    return "json" if json else "md" if md else "text"


def limit(fail_on: str) -> Severity | None:
    """The mildest severity that fails; None for never. Raises UserError."""
    found = next((severity for severity in _LIMITS if severity == fail_on), None)
    if found is None and fail_on != NEVER:
        raise UserError(f"--fail-on: got {fail_on!r}; allowed: {', '.join((*_LIMITS, NEVER))}")
    return found


def named(source: str, columns: Sequence[str], settings: Sequence[str]) -> Source:
    """The source and what was said of it. Raises UserError for a text without `=`, and for a name given twice."""
    return Source(
        name=source,
        path=None,  # found by what opens it
        columns=_pairs("--map", columns, "COLUMN=METRIC", "--map 'Mean reward=reward/mean'"),
        settings=_pairs("--set", settings, "KEY=VALUE", "--set num_generations=8"),
    )


def run(asked: Source, wanted: Wanted) -> int:
    """The exit code, after the report and whatever else was asked for. Nothing is written where a source is unreadable.

    Raises what the readers raise, UserError for a proposal that cannot be made, StorageError for a file that cannot.
    """
    if wanted.html is not None:
        page_file.keeps(wanted.html, asked.name)
    read = open_source(asked)
    if wanted.html is not None:
        page_file.keeps(wanted.html, read.source)  # a folder's file, say
    diagnosis = judge(read, name=asked.name)
    made = None if wanted.propose is None else propose(diagnosis, wanted.propose)
    if made is not None:
        diagnosis = replace(diagnosis, proposed=made.command)
    if wanted.html is not None:
        from grpoctl.diagnose.html import write_html

        write_html(diagnosis, wanted.html)
    _say(diagnosis, wanted, made)
    failing = SEVERITIES[: SEVERITIES.index(wanted.fail_on) + 1] if wanted.fail_on is not None else ()
    return exits.FOUND if any(one.severity in failing for one in diagnosis.findings) else exits.OK


def _say(diagnosis: Diagnosis, wanted: Wanted, made: NewExperiment | None) -> None:
    """The report on standard output; which files were written there too, or beside a document on standard error."""
    wrote = [] if wanted.html is None else [f"wrote {wanted.html}"]
    if made is not None:
        wrote.append(f"wrote {made.file}, which decides {made.finding}; next: {made.command}")
    match wanted.form:
        case "json":
            proposed = None if made is None else {"name": made.name, "file": str(made.file), "finding": made.finding}
            console.print_json(diagnosis.as_json() | ({} if proposed is None else {"proposed": proposed}))
        case "md":
            from grpoctl.diagnose.markdown import markdown

            console.print_text(markdown(diagnosis))
        case "text":
            from grpoctl.diagnose.report import report

            console.print_sections(report(diagnosis))
        case _:
            assert_never(wanted.form)
    for text in wrote:
        console.print_note(text)


def _pairs(option: str, texts: Sequence[str], form: str, example: str) -> dict[str, str]:
    """`A=B` texts as a mapping; the last `=` divides where a column's own name has some."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=") if option == "--map" else text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UserError(f"{option}: got {text!r}, expected {form}, e.g. {example}")
        if name.strip() in found:
            raise UserError(f"{option}: {name.strip()} is given twice")
        found[name.strip()] = value.strip()
    return found
