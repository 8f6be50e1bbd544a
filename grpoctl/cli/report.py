"""`grpoctl report`: results as one page to send to a colleague, as Markdown or as JSON. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import AmbiguousNameError, NotFoundError, UnknownRunError, UserError
from grpoctl import console
from grpoctl.analysis.collect import experiment_name
from grpoctl.cli.diagnose import page_file
from grpoctl.cli.gc import size_text
from grpoctl.cli.lookup import run_or_study
from grpoctl.cli.options import Json
from grpoctl.config import sweep_library
from grpoctl.files import read_json
from grpoctl.runs import liveness
from grpoctl.runs.run_dir import Home, RunDir
from grpoctl.runs.study_dir import StudyDir
from grpoctl.sections import Line

if TYPE_CHECKING:
    from grpoctl.analysis.collect import RunRecord
    from grpoctl.report.document import Report

PAGE = "report.html"
_TITLED = 4  # names in the title


def report(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="Experiments (finished runs, one per seed), runs, studies and their trials (STUDY-t0007), mixed.",
        ),
    ],
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help=f"Where the page goes. Default: {PAGE} here.")
    ] = None,
    md: Annotated[bool, typer.Option("--md", help="Print the report as Markdown; a page only with --html.")] = False,
    json: Json = False,
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", metavar="NAME", help="Of experiments: only runs of this profile.")
    ] = None,
) -> None:
    if json and md:
        raise UserError("--json and --md exclude each other: one document goes to standard output")
    file = None if html is None and (json or md) else page_file(html or PAGE)
    home = Home.locate()
    liveness.reconcile(home)
    made = report_of(home, [experiment_name(name) for name in names], profile)
    if file is not None:
        from grpoctl.report.page import write_page

        write_page(made, file)
    if json:
        console.print_json(made.document())
    elif md:
        from grpoctl.report.markdown import markdown

        console.write(markdown(made))
    else:
        for part in made.parts:
            console.print_line(Line(label="Report", text=part.title))
            for line in part.verdict:
                console.print_line(line)
    if file is not None:
        console.print_note(f"wrote {file} ({size_text(file.stat().st_size)})")


def report_of(home: Home, names: Sequence[str], profile: str | None = None) -> Report:
    """The report on what is named. Raises NotFoundError for an unknown name and where nothing has finished."""
    from grpoctl.report import sides, study
    from grpoctl.report.document import Report

    runs, studies = named(home, list(dict.fromkeys(names)), profile)
    groups: list[list[tuple[RunRecord, ...]]] = []  # of one task and profile
    for side in runs:
        alike = (group for group in groups if _belongs(side[0], group[0][0]))
        if (group := next(alike, None)) is None:
            groups.append([side])
        else:
            group.append(side)
    parts = [sides.part_of(group, f"p{place}") for place, group in enumerate(groups)]
    parts += [study.part_of(one, f"p{place}") for place, one in enumerate(studies, start=len(parts))]
    known = [Path(name).name for name in dict.fromkeys(names)]
    more = [f"{len(known) - _TITLED} more"] if len(known) > _TITLED else []
    return Report(
        title=f"Report on {', '.join([*known[:_TITLED], *more])}",
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        parts=tuple(parts),
    )


def _belongs(run: RunRecord, other: RunRecord) -> bool:
    """Whether two runs can be compared: they are of one task and profile."""
    return run.result["profile"] == other.result["profile"] and run.is_of_task(other)


def named(home: Home, names: Sequence[str], profile: str | None) -> tuple[list[tuple[RunRecord, ...]], list[StudyDir]]:
    """The sides (runs of one spec, one per seed) and the studies that are meant, each once.

    An experiment and a trial stand for their finished runs as in `compare`; single runs of one spec join into one side.
    """
    from grpoctl.analysis.collect import load_run, shared_profile, side, trial_side

    paths = [run.path for run in home.runs()]
    experiments = []
    for name in names:
        with suppress(NotFoundError):
            side(paths, name)
            experiments.append(name)
    asked, profile = profile, profile or (shared_profile(paths, experiments) if experiments else None)
    sides: list[tuple[RunRecord, ...]] = []
    studies: list[StudyDir] = []
    for name in names:
        if name in experiments:
            sides.append(side(paths, name, profile=profile))
            continue
        if (trial := trial_side(home, name)) is not None:
            _check_profile(f"{name} is a trial", trial[0].result["profile"], asked)
            sides.append(trial)
            continue
        entry = _entry(home, name, asked)
        kind, file = ("study", entry.state) if isinstance(entry, StudyDir) else ("run", entry.result)
        _check_profile(f"{entry.id} is a {kind}", (read_json(file) or {}).get("profile", asked), asked)
        if not isinstance(entry, StudyDir):
            sides.append((load_run(entry.path),))
        elif entry not in studies:
            studies.append(entry)
    return _joined(sides), studies


def _entry(home: Home, name: str, profile: str | None) -> RunDir | StudyDir:
    """The run or study of a name. Raises NotFoundError saying how to make one where there is none yet."""
    from grpoctl.analysis.collect import side

    try:
        return run_or_study(home, name)
    except AmbiguousNameError:
        raise
    except UnknownRunError as error:
        if name.lower() in sweep_library().files():
            raise NotFoundError(f"no study of {name} yet; start one with: grpoctl sweep {name}") from error
        side([run.path for run in home.runs()], name, profile=profile)  # says why there is none
        raise


def _check_profile(what: str, profile: object, asked: str | None) -> None:
    """Raises UserError for a run, a trial or a study of another profile than was asked for."""
    if asked is None:
        return
    if profile != asked:
        raise UserError(
            f"{what} of profile {profile}, got --profile {asked}; leave --profile out, or name one "
            f"of profile {asked} (see: grpoctl ls)"
        )


def _joined(sides: Sequence[tuple[RunRecord, ...]]) -> list[tuple[RunRecord, ...]]:
    """The sides; one whose spec another has joins that one with the seeds which it lacks, and a run counts once."""
    joined: dict[tuple[str, int], list[RunRecord]] = {}
    seen: set[str] = set()
    for run in (run for side in sides for run in side):
        if run.run_id in seen:
            continue
        seen.add(run.run_id)
        spec, copy = str(run.result["spec_sha"]), 0
        while any(other.seed == run.seed for other in joined.get((spec, copy), ())):
            copy += 1  # the same seed once more, perhaps of other code: a side of its own
        joined.setdefault((spec, copy), []).append(run)
    return [tuple(sorted(runs, key=lambda run: run.seed)) for runs in joined.values()]
