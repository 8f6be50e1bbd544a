"""What `grpoctl show` says of a sweep: its newest study, or what it would run. Imports no optuna."""

from __future__ import annotations

import csv
import io
import json as jsonlib
from collections.abc import Sequence

from core.errors import NotFoundError, UserError
from grpoctl import console
from grpoctl.analysis.sweeps.document import read_study
from grpoctl.analysis.sweeps.findings import study_findings
from grpoctl.analysis.sweeps.report import text_report
from grpoctl.analysis.sweeps.tables import flat
from grpoctl.cli import checking_sweep
from grpoctl.config import plain
from grpoctl.runs.launch import revisions_of
from grpoctl.runs.profile import shown
from grpoctl.runs.run_dir import Home
from grpoctl.runs.study_dir import StudyDir, find_study
from grpoctl.sweeps.loading import base_of, load_sweep


def newest_study(home: Home, name: str) -> StudyDir | None:
    """The newest study of the sweep of this name; None where it was not run yet."""
    try:
        found = find_study(home, name)
    except NotFoundError:
        return None
    return found if found.id.rsplit("-", 3)[0] == name.lower() else None  # not one whose id merely begins so


def study(found: StudyDir, *, json: bool, as_csv: bool) -> None:
    """A study's report; its sweep.json; or one line per trial."""
    document = read_study(found)
    if as_csv:
        columns, rows = flat(document)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        console.print_data(text.getvalue().removesuffix("\n"))
    elif json:
        whole = {**document, "findings": document.get("findings") or study_findings(document)}
        # It was read from JSON, so it holds nothing that JSON cannot write; looking for that costs a large study 0.2 s.
        console.print_json_text(jsonlib.dumps(whole, ensure_ascii=False))
    else:
        console.print_sections(text_report(document, figures_of(found)))


def figures_of(found: StudyDir) -> list[str]:
    """The paths of a study's figures."""
    return [str(path) for path in sorted(found.figures.glob("*.png"))]


def spec(home: Home, name: str, profile: str, overrides: Sequence[str], *, json: bool, as_csv: bool) -> None:
    """What a sweep that was not run yet would run. Raises UserError for `--csv`: there are no trials."""
    if as_csv:
        raise UserError(f"{name} has no study yet, so no trials; start one with: grpoctl sweep {name}")
    revisions = revisions_of(home)
    profile, why = shown(profile, lambda: base_of(name, overrides, revisions))
    loaded = load_sweep(name, profile=profile, overrides=overrides, revisions=revisions)
    found = checking_sweep.document(loaded.spec)
    if json:
        more = {"file": str(loaded.file), "profiles": list(loaded.profiles), "spec": plain(loaded.spec)}
        console.print_json({"schema": 1, "sweep": loaded.spec.name, **found, **more})
        return
    source = f"\nsource: {loaded.spec.source}" if loaded.spec.source else ""
    console.print_text(f"{loaded.spec.title}\n{loaded.spec.question}{source}")
    console.print_text(f"file: {loaded.file}   profiles: {', '.join(loaded.profiles)}")
    console.print_text(f"profile: {profile} ({why})\n")
    checking_sweep.say(loaded.spec, found)
    console.print_text(f"\nNot run yet under {home.path}; start it with: grpoctl sweep {name}")
